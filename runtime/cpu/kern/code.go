//go:build amd64 || arm64

package kern

import (
	"errors"
	"runtime"
	"sync"
)

// code is machine code, with its constants, in pages of its own. They are unmapped when it is released or nothing refers to
// it any more.
type code struct {
	mem     []byte
	cleanup runtime.Cleanup
}

var errNoCode = errors.New("this system's executable memory is not known")

// newCode maps content as executable memory.
func newCode(content []byte) (*code, error) {
	err := errNoCode
	for _, get := range executables {
		var mem []byte
		if mem, err = get(content); err == nil {
			flushCode(mem)
			c := &code{mem: mem}
			c.cleanup = runtime.AddCleanup(c, unmapCode, mem)
			return c, nil
		}
	}
	return nil, err
}

// release unmaps the code, which must not run.
func (c *code) release() {
	if c.mem != nil {
		c.cleanup.Stop()
		unmapCode(c.mem)
		c.mem = nil
	}
}

// tried is the answer of the system to a request for executable memory.
var tried = sync.OnceValue(func() error {
	c, err := newCode(returns)
	if err == nil {
		c.release()
	}
	return err
})

// Composes reports whether kernels are composed for p, and if not, what refuses it; refused is empty where the path, the
// build or AMPC_COMPOSE has no composed kernels.
func (p *Path) Composes() (ok bool, refused string) {
	if !p.composes || len(executables) == 0 {
		return false, ""
	}
	if err := tried(); err != nil {
		return false, "the operating system refuses executable memory to this process (" + err.Error() + ")"
	}
	return true, ""
}

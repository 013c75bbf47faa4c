package kern

import (
	"runtime"
	"unsafe"
)

// composed is a kernel that Path.Compose has assembled.
type composed struct {
	code   *code
	entry  int // the constants end and the code begins here
	spills int // vectors
	most   int // elements of a call
}

//go:noescape
func callComposed(entry uintptr, n int, args **byte, u *float32, consts uintptr, spill *byte)

// run computes n elements, whole vectors, from the addresses of c on.
func (k *composed) run(n int, c *Call, types []Type, u *float32) {
	if k.spills > 0 && c.spill == nil {
		c.spill = make([]byte, 64*composedSpills)
	}
	consts := uintptr(unsafe.Pointer(unsafe.SliceData(k.code.mem)))
	for {
		now := min(n, k.most)
		callComposed(consts+uintptr(k.entry), now, &c.args[0], u, consts, unsafe.SliceData(c.spill))
		if n -= now; n == 0 {
			break
		}
		for i, t := range types {
			c.args[i] = (*byte)(unsafe.Add(unsafe.Pointer(c.args[i]), now*t.Size()))
		}
	}
	runtime.KeepAlive(k)
}

func (k *composed) close() { k.code.release() }

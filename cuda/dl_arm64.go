//go:build linux && !nocuda

package cuda

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/ebitengine/purego"
)

// callWithID calls a function that takes an NcclID by value between other words, at most seven.
// AAPCS64 passes such a struct as the address of a copy.
func (l *library) callWithID(name string, before []uintptr, id *NcclID, after []uintptr) uintptr {
	fn := l.fn[name]
	if fn == 0 {
		return CodeMissing
	}
	passed := new(NcclID) // on the heap: stacks move
	*passed = *id
	r, _, _ := purego.SyscallN(fn, slices.Concat(before, []uintptr{uintptr(unsafe.Pointer(passed))}, after)...)
	runtime.KeepAlive(passed)
	return r
}

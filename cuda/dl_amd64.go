//go:build linux && !nocuda

package cuda

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// registers is how many words of a call travel in registers.
const registers = 6

// callWithID calls a function that takes an NcclID by value between other words, at most as many
// as there are registers. The System V convention copies such a struct to the stack, where it takes
// no register.
func (l *library) callWithID(name string, before []uintptr, id *NcclID, after []uintptr) uintptr {
	fn := l.fn[name]
	if fn == 0 {
		return CodeMissing
	}
	args := make([]uintptr, registers, registers+len(id)/8)
	copy(args[copy(args, before):], after)
	args = append(args, unsafe.Slice((*uintptr)(unsafe.Pointer(id)), len(id)/8)...)
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

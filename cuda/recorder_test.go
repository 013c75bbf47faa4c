//go:build linux && amd64 && !nocuda

package cuda

import (
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// recorderSymbols gives the two inspection functions of the recording library.
func recorderSymbols(t *testing.T, so string) (recorded, called func() uintptr) {
	t.Helper()
	return recorderSymbol(t, so, "recorded"), recorderSymbol(t, so, "called")
}

// recorderSymbol gives a function without arguments that returns a pointer.
func recorderSymbol(t *testing.T, so, name string) func() uintptr {
	t.Helper()
	h, err := purego.Dlopen(so, purego.RTLD_NOW)
	if err != nil {
		t.Fatal(err)
	}
	fn, err := purego.Dlsym(h, name)
	if err != nil {
		t.Fatal(err)
	}
	return func() uintptr { r, _, _ := purego.SyscallN(fn); return r }
}

func wordsAt(p uintptr, n int) []uint64 { return unsafe.Slice((*uint64)(pointer(p)), n) }

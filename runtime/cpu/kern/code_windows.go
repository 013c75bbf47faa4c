//go:build amd64

package kern

import (
	"syscall"
	"unsafe"
)

// executables are the ways to get executable memory with the given content.
var executables = []func(content []byte) ([]byte, error){allocated}

var (
	kernel32       = syscall.NewLazyDLL("kernel32.dll")
	virtualAlloc   = kernel32.NewProc("VirtualAlloc")
	virtualProtect = kernel32.NewProc("VirtualProtect")
	virtualFree    = kernel32.NewProc("VirtualFree")
)

// allocated writes memory of its own and then makes it executable.
func allocated(content []byte) ([]byte, error) {
	const commitReserve, readWrite, executeRead = 0x3000, 0x04, 0x20
	at, _, err := virtualAlloc.Call(0, uintptr(len(content)), commitReserve, readWrite)
	if at == 0 {
		return nil, err
	}
	mem := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), len(content)) // no address of Go's: vet wants it read so
	copy(mem, content)
	var old uint32
	if ok, _, err := virtualProtect.Call(at, uintptr(len(content)), executeRead, uintptr(unsafe.Pointer(&old))); ok == 0 {
		unmapCode(mem)
		return nil, err
	}
	return mem, nil
}

func unmapCode(mem []byte) {
	const release = 0x8000
	_, _, _ = virtualFree.Call(uintptr(unsafe.Pointer(unsafe.SliceData(mem))), 0, release)
}

//go:build amd64 || arm64

package kern

import (
	"syscall"
	"unsafe"
)

// executables are the ways to get executable memory with the given content, tried in order. The memory is written first
// and executable then, never both.
var executables = []func(content []byte) ([]byte, error){protected, mappedTwice}

// mappedTwice writes a file in memory through one mapping and executes it through another, for systems that refuse to make
// written pages executable.
func mappedTwice(content []byte) ([]byte, error) {
	const closeOnExec = 1
	name := [...]byte{'a', 'm', 'p', 'c', 0}
	fd, _, errno := syscall.Syscall(memfdCreate, uintptr(unsafe.Pointer(&name[0])), closeOnExec, 0)
	if errno != 0 {
		return nil, errno
	}
	defer syscall.Close(int(fd))
	if err := syscall.Ftruncate(int(fd), int64(len(content))); err != nil {
		return nil, err
	}
	mem, err := syscall.Mmap(int(fd), 0, len(content), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	copy(mem, content)
	if err := syscall.Munmap(mem); err != nil {
		return nil, err
	}
	return syscall.Mmap(int(fd), 0, len(content), syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_SHARED)
}

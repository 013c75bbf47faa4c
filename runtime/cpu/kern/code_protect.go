//go:build (linux && (amd64 || arm64)) || (darwin && amd64)

package kern

import "syscall"

// protected writes private memory and then makes it executable.
func protected(content []byte) ([]byte, error) {
	mem, err := syscall.Mmap(-1, 0, len(content), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	copy(mem, content)
	if err := syscall.Mprotect(mem, syscall.PROT_READ|syscall.PROT_EXEC); err != nil {
		_ = syscall.Munmap(mem)
		return nil, err
	}
	return mem, nil
}

func unmapCode(mem []byte) { _ = syscall.Munmap(mem) }

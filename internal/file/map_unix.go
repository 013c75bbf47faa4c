//go:build unix

package file

import (
	"os"
	"syscall"
)

// Map maps size bytes of f for reading, until unmap. Read them inside Guard.
func Map(f *os.File, size int64) (b []byte, unmap func() error, err error) {
	if size == 0 {
		return nil, func() error { return nil }, nil
	}
	b, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	return b, func() error { return syscall.Munmap(b) }, err
}

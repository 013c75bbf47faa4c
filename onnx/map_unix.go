//go:build unix

package onnx

import (
	"os"
	"syscall"
)

// mapFile maps size bytes of f for reading.
func mapFile(f *os.File, size int64) (b []byte, unmap func() error, err error) {
	if size == 0 {
		return nil, func() error { return nil }, nil
	}
	b, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	return b, func() error { return syscall.Munmap(b) }, err
}

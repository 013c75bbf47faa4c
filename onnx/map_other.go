//go:build !unix

package onnx

import (
	"io"
	"os"
)

// mapFile reads f, where it cannot be mapped.
func mapFile(f *os.File, size int64) (b []byte, unmap func() error, err error) {
	b = make([]byte, size)
	_, err = io.ReadFull(f, b)
	return b, func() error { return nil }, err
}

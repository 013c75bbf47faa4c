package onnx

import (
	"os"
	"syscall"
	"unsafe"
)

// forget releases the pages of b, which is a part of a mapped file. The system reads them from the
// file again at the next access.
func forget(b []byte) {
	page := uintptr(os.Getpagesize())
	from := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (page - 1)
	if from < uintptr(len(b)) {
		_ = syscall.Madvise(b[from:][:(uintptr(len(b))-from)&^(page-1)], syscall.MADV_DONTNEED) // on an error the pages stay in memory
	}
}

package onnx

import (
	"os"
	"syscall"
	"unsafe"
)

// forget lets go of the pages that lie in b, a part of a mapped file. They are read from
// the file again when somebody looks at them.
func forget(b []byte) {
	page := uintptr(os.Getpagesize())
	from := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (page - 1)
	if from < uintptr(len(b)) {
		_ = syscall.Madvise(b[from:][:(uintptr(len(b))-from)&^(page-1)], syscall.MADV_DONTNEED) // refused: it stays
	}
}

package kern

import (
	"strings"
	"unsafe"
)

// HugePage is the size of a huge page in bytes.
const HugePage = 2 << 20

// Alloc returns n zero bytes without pointers, aligned to 64. If the system supports huge pages on request, Alloc
// requests them for the part that they cover: large arrays are read and written a third faster than in pages of 4 KB,
// and with less variation between processes.
func Alloc(n int64) []byte { return placed(make([]byte, n+64), n) }

// AllocAny is Alloc of bytes with undefined content. It does not touch them: only pages that are
// written take memory.
func AllocAny(n int64) []byte {
	var b strings.Builder // the only memory of the standard library that is not set to zero
	b.Grow(int(n) + 64)
	b.WriteByte(0) // a string without bytes need not have an address
	return placed(unsafe.Slice(unsafe.StringData(b.String()), int(n)+64), n)
}

// placed returns n aligned bytes of b, which has 64 bytes more.
func placed(b []byte, n int64) []byte {
	b = b[toAlign(b, 64):][:n:n]
	if from := toAlign(b, HugePage); n-from >= HugePage {
		adviseHuge(b[from:][:(n-from)&^(HugePage-1)])
	}
	return b
}

// toAlign is the number of bytes from the start of b to the next multiple of size, a power of two.
func toAlign(b []byte, size int64) int64 {
	return -int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (size - 1)
}

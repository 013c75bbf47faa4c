package kern

import (
	"testing"
	"unsafe"
)

func TestAlloc(t *testing.T) {
	for _, n := range []int64{0, 1, 63, 4096, HugePage, 2*HugePage + 1, 5*HugePage - 64} {
		b := Alloc(n)
		if int64(len(b)) != n || int64(cap(b)) != n {
			t.Errorf("%d bytes: len %d, cap %d", n, len(b), cap(b))
		}
		if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%64 != 0 {
			t.Errorf("%d bytes start at %p", n, b)
		}
		for i, x := range b {
			if x != 0 {
				t.Fatalf("%d bytes: byte %d is %d", n, i, x)
			}
			b[i] = 1 // may be written
		}
		if b = AllocAny(n); int64(len(b)) != n || int64(cap(b)) != n || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%64 != 0 {
			t.Errorf("%d bytes of any content: len %d, cap %d, start at %p", n, len(b), cap(b), b)
		}
		for i := range b {
			b[i] = 1
		}
	}
}

package kern

import (
	"os"
	"syscall"
)

// adviseHuge asks for huge pages in b, whole ones. A kernel without them refuses, which costs speed only.
func adviseHuge(b []byte) { _ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) }

// givesBack says that adviseUnused does something.
const givesBack = true

// systemPage is the size of a page in bytes.
var systemPage = os.Getpagesize()

// adviseUnused gives the pages of b to the system. They read as zeros.
func adviseUnused(b []byte) { _ = syscall.Madvise(b, syscall.MADV_DONTNEED) }

// Map returns n zero bytes or more of which the garbage collector knows nothing, in huge pages where it pays, or nil
// if the system has none left. Unmap returns them to the system.
func Map(n int64) []byte {
	page := int64(systemPage)
	if n >= hugePage/4 { // to clear a huge page costs less than to map a quarter of it in small ones
		page = hugePage
	}
	b, err := syscall.Mmap(-1, 0, int((n+page-1)&^(page-1)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	if page == hugePage {
		adviseHuge(b)
	}
	return b
}

// madvPopulateWrite is MADV_POPULATE_WRITE.
const madvPopulateWrite = 23

// Touch has the system give pages to b, which Map gave, now instead of at the first write. A kernel before 5.14
// refuses, which costs speed only.
func Touch(b []byte) { _ = syscall.Madvise(b, madvPopulateWrite) }

// Unmap returns what Map gave.
func Unmap(b []byte) { _ = syscall.Munmap(b) }

package kern

import (
	"os"
	"syscall"
)

// adviseHuge asks for huge pages in b, whole ones. A kernel without them refuses, which costs speed only.
func adviseHuge(b []byte) { _ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) }

// adviseSmall asks for small pages in b, whole ones, also where the system prefers huge ones.
func adviseSmall(b []byte) { _ = syscall.Madvise(b, syscall.MADV_NOHUGEPAGE) }

// givesBack reports whether adviseUnused has an effect.
const givesBack = true

// systemPage is the size of a page in bytes.
var systemPage = os.Getpagesize()

// adviseUnused gives the pages of b to the system. They read as zeros.
func adviseUnused(b []byte) { _ = syscall.Madvise(b, syscall.MADV_DONTNEED) }

// mapMemory returns whole pages.
func mapMemory(n int64) ([]byte, error) {
	page := int64(systemPage)
	return syscall.Mmap(-1, 0, int((n+page-1)&^(page-1)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
}

// madvPopulateWrite is MADV_POPULATE_WRITE.
const madvPopulateWrite = 23

// touch makes the system provide whole pages now instead of at the first write. A kernel before
// 5.14 refuses: the result is false.
func touch(b []byte) bool { return syscall.Madvise(b, madvPopulateWrite) == nil }

// unmapMemory returns what mapMemory gave.
func unmapMemory(b []byte) { _ = syscall.Munmap(b) }

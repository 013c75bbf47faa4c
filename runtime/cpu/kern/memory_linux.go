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

package kern

import "syscall"

// adviseHuge asks for huge pages in b, whole ones. A kernel without them refuses, which costs speed only.
func adviseHuge(b []byte) { _ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) }

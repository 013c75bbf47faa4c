package kern

import (
	"unsafe"

	"ampc/internal/x86"
)

// Kernels of rows get the number of rows in R13, and those of sums the address of a rowSums in R15. They keep the number of a row's
// elements, or a run's, in DX, from which they have read the addresses.
const (
	rowsReg   = x86.R13
	sumsReg   = x86.R15
	runsReg   = x86.R12
	chainsReg = x86.R11
	longReg   = argsReg

	addSum     = x86.VADDPS
	fmaSum     = x86.VFMADD231PS
	loadVector = x86.VMOVUPS
)

var storeVector = x86.VMOVUPS.Store()

// skip goes on by as many elements as a field of rowSums says. It changes the number of those that are left.
func (e *vectors) skip(field uintptr) {
	e.field(countReg, field)
	e.out.AddReg(atReg, countReg)
}

// nextChains goes on to those of the next row.
func (e *vectors) nextChains() {
	e.field(countReg, unsafe.Offsetof(rowSums{}.next))
	e.out.AddReg(chainsReg, countReg)
}

package kern

import (
	"math/bits"
	"unsafe"

	"ampc/internal/a64"
)

// Kernels of rows get the number of rows in R20, and those of sums the address of a rowSums in R21. They keep the number of a row's
// elements, or a run's, in R1, from which they have read the addresses.
const (
	rowsReg   a64.Reg = 20
	sumsReg   a64.Reg = 21
	runsReg   a64.Reg = 22
	chainsReg a64.Reg = 23
	longReg           = argsReg

	addSum      = a64.FADD
	fmaSum      = a64.FMLA
	loadVector  = a64.LDRQ
	storeVector = a64.STRQ
)

// skip goes on by as many elements as a field of rowSums says. It changes the number of those that are left.
func (e *vectors) skip(field uintptr) {
	e.field(countReg, field)
	for i := range e.c.f.Loads {
		e.out.AddTimes(bases[i], countReg, bits.TrailingZeros(uint(e.c.f.size(i))))
	}
}

// nextChains goes on to those of the next row.
func (e *vectors) nextChains() {
	e.field(countReg, unsafe.Offsetof(rowSums{}.next))
	e.out.AddTimes(chainsReg, countReg, 0)
}

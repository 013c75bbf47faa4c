package kern

import (
	"math/bits"

	"ampc/internal/a64"
)

// Kernels of rows get the number of rows in R20, and those of sums the sums at R21, the elements between rows in R22 and the bytes
// to the sums of the next row in R23. They keep the number of a row's elements in R1, from which they have read the addresses.
const (
	rowsReg a64.Reg = 20
	sumsReg a64.Reg = 21
	gapReg  a64.Reg = 22
	nextReg a64.Reg = 23
	longReg         = argsReg

	addSum = a64.FADD
	fmaSum = a64.FMLA
)

// skip goes on by as many elements as r says, rewind back.
func (e *vectors) skip(r a64.Reg)   { e.each(e.out.AddTimes, r) }
func (e *vectors) rewind(r a64.Reg) { e.each(e.out.SubTimes, r) }

// each changes the address of each operand.
func (e *vectors) each(change func(r, by a64.Reg, power int), by a64.Reg) {
	for i := range e.c.f.Loads {
		change(bases[i], by, bits.TrailingZeros(uint(e.c.f.size(i))))
	}
}

// nextSums goes on to the sums of the next row.
func (e *vectors) nextSums() { e.out.AddTimes(sumsReg, nextReg, 0) }

// inMemoryChain loads or stores a vector of chains, so many bytes from the sums on.
func (e *vectors) inMemoryChain(r a64.Reg, at int32, store bool) {
	if m := (&a64.Mem{Base: sumsReg, Disp: at}); store {
		e.emit(a64.Inst{Op: a64.STRQ, A: r, Mem: m})
	} else {
		e.emit(a64.Inst{Op: a64.LDRQ, Dst: r, Mem: m})
	}
}

package kern

import "ampc/internal/x86"

// Kernels of rows get the number of rows in R13, and those of sums the sums at R15, the elements between rows in R12 and the bytes
// to the sums of the next row in R11. They keep the number of a row's elements in DX, from which they have read the addresses.
const (
	rowsReg = x86.R13
	sumsReg = x86.R15
	gapReg  = x86.R12
	nextReg = x86.R11
	longReg = argsReg

	addSum = x86.VADDPS
	fmaSum = x86.VFMADD231PS
)

// skip goes on by as many elements as r says, rewind back.
func (e *vectors) skip(r x86.Reg)   { e.out.AddReg(atReg, r) }
func (e *vectors) rewind(r x86.Reg) { e.out.SubReg(atReg, r) }

// nextSums goes on to the sums of the next row.
func (e *vectors) nextSums() { e.out.AddReg(sumsReg, nextReg) }

// inMemoryChain loads or stores a vector of chains, so many bytes from the sums on.
func (e *vectors) inMemoryChain(r x86.Reg, at int32, store bool) {
	if m := (&x86.Mem{Base: sumsReg, Disp: at}); store {
		e.emit(x86.Inst{Op: x86.VMOVUPS.Store(), A: r, Mem: m})
	} else {
		e.emit(x86.Inst{Op: x86.VMOVUPS, Dst: r, Mem: m})
	}
}

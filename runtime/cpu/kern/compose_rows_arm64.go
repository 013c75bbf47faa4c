package kern

import "ampc/internal/a64"

// Kernels of rows get the number of rows in R20 and the sums at R21, and keep the number of a row's elements in R1, from which
// they have read the addresses.
const (
	rowsReg a64.Reg = 20
	sumsReg a64.Reg = 21
	longReg         = argsReg

	addSum = a64.FADD
)

func (e *vectors) zero(r a64.Reg) { e.emit(a64.Inst{Op: a64.EOR, Dst: r, A: r, B: r}) }

// fold adds sum i of a row to memory.
func (e *vectors) fold(i int) {
	const other = a64.Reg(0) // values of elements are done with
	sum, to := e.c.inSum(sumVectors*i), &a64.Mem{Base: sumsReg, Disp: int32(8 * rowLanes * i)}
	e.emit(a64.Inst{Op: addSum, Dst: sum, A: sum, B: sum + 1})
	e.emit(a64.Inst{Op: a64.FCVTL2D, Dst: other, A: sum})
	e.emit(a64.Inst{Op: a64.FCVTLD, Dst: sum, A: sum})
	e.emit(a64.Inst{Op: a64.FADDD, Dst: sum, A: other, B: sum})
	e.emit(a64.Inst{Op: a64.LDRQ, Dst: other, Mem: to})
	e.emit(a64.Inst{Op: a64.FADDD, Dst: sum, A: sum, B: other})
	e.emit(a64.Inst{Op: a64.STRQ, A: sum, Mem: to})
}

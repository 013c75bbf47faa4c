package kern

import "ampc/internal/x86"

// Kernels of rows get the number of rows in R13 and the sums at R15, and keep the number of a row's elements in DX, from which
// they have read the addresses.
const (
	rowsReg = x86.R13
	sumsReg = x86.R15
	longReg = argsReg

	addSum = x86.VADDPS
)

func (e *vectors) zero(r x86.Reg) { e.emit(x86.Inst{Op: x86.VXORPS, Dst: r, A: r, B: r}) }

// fold adds sum i of a row to memory.
func (e *vectors) fold(i int) {
	const high = x86.Reg(0) // values of elements are done with
	sum, to := e.c.inSum(sumVectors*i), &x86.Mem{Base: sumsReg, Disp: int32(8 * rowLanes * i)}
	extract := x86.VEXTRACTF64X4
	if e.c.set.vex {
		extract = x86.VEXTRACTF128
	}
	e.emit(x86.Inst{Op: addSum, Dst: sum, A: sum, B: sum + 1})
	e.emit(x86.Inst{Op: extract, A: sum, B: high, Imm: 1})
	e.emit(x86.Inst{Op: x86.VCVTPS2PD, Dst: high, B: high})
	e.emit(x86.Inst{Op: x86.VCVTPS2PD, Dst: sum, B: sum})
	e.emit(x86.Inst{Op: x86.VADDPD, Dst: sum, A: high, B: sum})
	e.emit(x86.Inst{Op: x86.VADDPD, Dst: sum, A: sum, Mem: to})
	e.emit(x86.Inst{Op: x86.VMOVUPS.Store(), A: sum, Mem: to})
}

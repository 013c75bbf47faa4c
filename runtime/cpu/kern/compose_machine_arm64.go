package kern

import "ampc/internal/a64"

// What composing needs of the processor's code.
type (
	opcode      = a64.Op
	register    = a64.Reg
	instruction = a64.Inst
	memory      = a64.Mem
	machineCode = a64.Code
	machineSet  struct{}
)

// callCycles is the time of a call, one for each instruction on a vector; processors that run instructions in order take two.
const callCycles = 1 << 16

// A composed kernel gets the number of elements in R0, the addresses of operands and results at R1, scalars at R2, constants
// at R3, and memory to spill to at R4.
const (
	countReg  a64.Reg = 0
	argsReg   a64.Reg = 1
	scalarReg a64.Reg = 2
	constReg  a64.Reg = 3
	spillReg  a64.Reg = 4
)

// bases are registers for the addresses of operands and results, which advance with the elements.
var bases = [maxOperands]a64.Reg{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25}

// pointers loads the addresses of operands and results.
func (e *vectors) pointers() {
	for i := range len(e.c.f.Loads) + len(e.c.f.Results) {
		e.out.Pointer(bases[i], a64.Mem{Base: argsReg, Disp: int32(8 * i)})
	}
}

// advance goes on by so many elements.
func (e *vectors) advance(elements int) {
	for i := range len(e.c.f.Loads) + len(e.c.f.Results) {
		e.out.Advance(bases[i], elements*e.c.f.size(i))
	}
}

// emit appends an instruction, if there is code to append to.
func (e *vectors) emit(i a64.Inst) {
	if e.out != nil {
		e.out.Do(i)
	}
}

// direct is nil: no instruction but loads has an operand in memory.
func (e *vectors) direct(int) *a64.Mem { return nil }

// broadcast loads number x of the pool into r. Others than scalars stand in memory once for each lane.
func (e *vectors) broadcast(x int, r a64.Reg) {
	switch p := e.c.pool[-2-x]; p.kind {
	case constant:
		e.emit(a64.Inst{Op: a64.LDRQ, Dst: r, Mem: &a64.Mem{Base: constReg, Disp: int32(e.c.set.numberBytes() * (-2 - x))}})
	case drawn:
		e.emit(a64.Inst{Op: a64.LDRQ, Dst: r, Mem: e.state(int(p.n))})
	default:
		e.emit(a64.Inst{Op: a64.LDRS, Dst: r, Mem: &a64.Mem{Base: scalarReg, Disp: int32(4 * p.n)}})
		e.emit(a64.Inst{Op: a64.DUP, Dst: r, A: r})
	}
}

// orSigns sets the signs of the lanes that either of two vectors has set.
const orSigns = a64.ORR

// addInt adds integers of 32 bits.
const addInt = a64.ADD

// mask does nothing: conditions are vectors, and operands like others.
func (e *vectors) mask(*a64.Inst, *lane, func(x int) a64.Reg) {}

// finish does nothing: instructions have one form.
func (e *vectors) finish(*a64.Inst, bool) {}

// address is operand or result k, off elements from the current one.
func (e *vectors) address(k, off int) *a64.Mem {
	return &a64.Mem{Base: bases[k], Disp: int32(off * e.c.f.size(k))}
}

// move copies a register.
func (e *vectors) move(to, from a64.Reg) { e.emit(a64.Inst{Op: a64.MOV, Dst: to, A: from}) }

// spill stores value x, which is in r; reload reads it back.
func (e *vectors) spill(x int, r a64.Reg) { e.emit(a64.Inst{Op: a64.STRQ, A: r, Mem: e.slotOf(x)}) }

func (e *vectors) reload(x int, r a64.Reg) { e.emit(a64.Inst{Op: a64.LDRQ, Dst: r, Mem: e.slotOf(x)}) }

// state is so many bytes from the first generator's state, behind all of which values are spilled.
func (e *vectors) state(at int) *a64.Mem { return &a64.Mem{Base: spillReg, Disp: int32(at)} }

func (e *vectors) slotOf(x int) *a64.Mem {
	return e.state(e.c.set.generatorsBytes() + 16*e.slot[x])
}

// stream returns 0: there is no code with stores past the caches.
func (c *composer) stream([]lane, *machineCode) (rounds int) { return 0 }

package kern

import "ampc/internal/x86"

// What composing needs of the processor's code.
type (
	opcode      = x86.Op
	register    = x86.Reg
	instruction = x86.Inst
	memory      = x86.Mem
	machineCode = x86.Code
)

// machineSet says what else the sets differ in: with vex, of AVX2, conditions are vectors, and constants stand in memory once
// for each lane.
type machineSet struct{ vex bool }

// callCycles is the time of a call, one for each instruction on a vector.
const callCycles = 1 << 17

// A composed kernel gets the number of elements in CX, the addresses of operands and results at DX, scalars at BX,
// constants at SI, and memory to spill to at DI. It counts elements in AX.
const (
	atReg     = x86.AX
	countReg  = x86.CX
	argsReg   = x86.DX
	scalarReg = x86.BX
	constReg  = x86.SI
	spillReg  = x86.DI
)

// bases are registers for addresses of operands and results. With more than directBases the last of them is loaded for
// each access.
var bases = [...]x86.Reg{x86.R8, x86.R9, x86.R10, x86.R11, x86.R12, x86.R13, x86.R15}

// pointers loads the addresses of operands and results.
func (e *vectors) pointers() {
	e.out.Clear(atReg)
	n := len(e.c.f.Loads) + len(e.c.f.Results)
	for i := range min(n, len(bases)) {
		if n <= len(bases) || i < len(bases)-1 {
			e.out.Pointer(bases[i], x86.Mem{Base: argsReg, Disp: int32(8 * i)})
		}
	}
}

// advance goes on by so many elements.
func (e *vectors) advance(elements int) { e.out.Add(atReg, int32(elements)) }

// emit appends an instruction, if there is code to append to.
func (e *vectors) emit(i x86.Inst) {
	if e.out != nil {
		i.VEX = e.c.set.vex
		e.out.Do(i)
	}
}

// inMemory is the place of a number of the pool.
func (e *vectors) inMemory(x int) *x86.Mem {
	switch p := e.c.pool[-2-x]; p.kind {
	case scalar:
		return &x86.Mem{Base: scalarReg, Disp: int32(4 * p.n)}
	case drawn:
		return e.state(int(p.n))
	case whole:
		return &x86.Mem{Base: constReg, Disp: int32(64 * p.n)}
	}
	return &x86.Mem{Base: constReg, Disp: int32(len(wholeVectors) + e.c.set.numberBytes()*(-2-x))}
}

// direct is the place of a number of the pool as an operand of an instruction.
func (e *vectors) direct(x int) *x86.Mem {
	m := e.inMemory(x)
	m.Spread = true
	return m
}

// broadcast loads number x of the pool into r.
func (e *vectors) broadcast(x int, r x86.Reg) {
	if e.c.pool[-2-x].kind == whole {
		e.emit(x86.Inst{Op: x86.VMOVUPS, Dst: r, Mem: e.inMemory(x)})
		return
	}
	e.emit(x86.Inst{Op: x86.VBROADCASTSS, Dst: r, Mem: e.inMemory(x)})
}

// orSigns sets the signs of the lanes that either of two vectors has set.
const orSigns = x86.VORPS

// addInt adds integers of 32 bits.
const addInt = x86.VPADDD

// mask gives in the mask of o.
func (e *vectors) mask(in *x86.Inst, o *lane, operand func(x int) x86.Reg) {
	if e.c.set.vex {
		in.Mask = operand(o.mask)
		return
	}
	in.Mask, in.Zero = x86.Reg(e.reg[o.mask]), o.op == x86.VMOVAPS
}

// finish turns in into the form that is emitted; result says that it stores one.
func (e *vectors) finish(in *x86.Inst, result bool) {
	switch {
	case result && e.streaming:
		in.Op = in.Op.Streaming()
	case !result && in.Op.Writes(): // its destination stands where others have a source
		in.A, in.B = in.B, in.Dst
	}
}

// address is operand or result k, off elements from the current one.
func (e *vectors) address(k, off int) *x86.Mem {
	size := e.c.f.size(k)
	m := &x86.Mem{Index: atReg, Scale: uint8(size), Disp: int32(off * size)}
	if n := len(e.c.f.Loads) + len(e.c.f.Results); n <= len(bases) || k < len(bases)-1 {
		m.Base = bases[k]
		return m
	}
	m.Base = bases[len(bases)-1]
	if e.out != nil {
		e.out.Pointer(m.Base, x86.Mem{Base: argsReg, Disp: int32(8 * k)})
	}
	return m
}

// move copies a register.
func (e *vectors) move(to, from x86.Reg) { e.emit(x86.Inst{Op: x86.VMOVAPS, Dst: to, B: from}) }

// spill stores value x, which is in r; reload reads it back.
func (e *vectors) spill(x int, r x86.Reg) {
	e.emit(x86.Inst{Op: x86.VMOVUPS.Store(), A: r, Mem: e.slotOf(x)})
}

func (e *vectors) reload(x int, r x86.Reg) {
	e.emit(x86.Inst{Op: x86.VMOVUPS, Dst: r, Mem: e.slotOf(x)})
}

// state is so many bytes from the first generator's state, behind all of which values are spilled.
func (e *vectors) state(at int) *x86.Mem { return &x86.Mem{Base: spillReg, Disp: int32(at)} }

func (e *vectors) slotOf(x int) *x86.Mem {
	return e.state(e.c.set.generatorsBytes() + 4*e.c.set.lanes*e.slot[x])
}

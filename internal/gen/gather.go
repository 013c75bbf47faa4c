package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// maxTaps emits the maximum over taps: for window i, the largest x[cells[t*stride+i]] and the first cell that has it.
// A NaN is larger than any number. n counts vectors of windows.
func (v *vm) maxTaps() {
	v.text("maxTaps", "n, taps int, best *float32, index *int32, x *float32, cells *int32, stride int",
		"finds the largest of taps elements of x for n vectors of windows.")
	n, best, index, x, cells := ptrParam("n"), ptrParam("best"), ptrParam("index"), ptrParam("x"), ptrParam("cells")
	taps, stride := ptrParam("taps"), ptrParam("stride")
	scaleBy(stride, 4)
	loop("windows", n, func() {
		p, left := GP64(), GP64()
		MOVQ(cells, p)
		MOVQ(taps, left)
		cell, top := v.new(), v.new()
		VMOVUPS(Mem{Base: p}, cell)
		v.gather(x, cell, top)
		DECQ(left)
		JZ(LabelRef("store"))
		Label("taps")
		ADDQ(stride, p)
		at, e := v.new(), v.new()
		VMOVUPS(Mem{Base: p}, at)
		v.gather(x, at, e)
		larger, number := v.cmp(notLessEq, e, top), v.cmp(ordered, top, top)
		v.move(v.pick(number, v.pick(larger, at, cell), cell), cell)
		v.move(v.pick(number, v.pick(larger, e, top), top), top)
		DECQ(left)
		JNZ(LabelRef("taps"))
		Label("store")
		VMOVUPS(top, Mem{Base: best})
		VMOVUPS(cell, Mem{Base: index})
		for _, r := range []reg.GPVirtual{best, index, cells} {
			ADDQ(imm(v.size()), r)
		}
	})
	VZEROUPPER()
	RET()
}

const (
	ordered   = 0x07
	notLessEq = 0x16
)

func (v *vm) move(from, to vec) { VMOVAPS(from, to) }

// gather loads x[at] into d.
func (v *vm) gather(x reg.GPVirtual, at, d vec) {
	m := Mem{Base: x, Index: at, Scale: 4}
	if v.wide() {
		k := K()
		KXNORW(k, k, k)
		VXORPS(d, d, d)
		VGATHERDPS(m, k, d)
		return
	}
	all := v.new()
	VPCMPEQD(all, all, all)
	VXORPS(d, d, d)
	VGATHERDPS(all, m, d)
}

// addRuns emits the scatter of an input gradient: for outer offsets step bytes apart a row of part is added to dst, run
// by run, where run j has lengths[j] elements and goes to dst + outer + starts[j]; offsets are in bytes, rows of part
// row bytes apart.
func (v *vm) addRuns() {
	v.text("addRuns", "rows, runs int, dst, part *float32, row int, outer *int, step int, starts, lengths *int",
		"adds rows of runs to scattered places.")
	rows, runs, dst, part := ptrParam("rows"), ptrParam("runs"), ptrParam("dst"), ptrParam("part")
	outer, starts, lengths := ptrParam("outer"), ptrParam("starts"), ptrParam("lengths")
	loop("rows", rows, func() {
		base, j, from := GP64(), GP64(), GP64()
		MOVQ(Mem{Base: outer}, base)
		ADDQ(dst, base)
		ADDQ(paramMem("step"), outer)
		MOVQ(part, from)
		ADDQ(paramMem("row"), part)
		XORQ(j, j)
		alignLine()
		Label("runs")
		to, n := GP64(), GP64()
		MOVQ(Mem{Base: starts, Index: j, Scale: 8}, to)
		ADDQ(base, to)
		MOVQ(Mem{Base: lengths, Index: j, Scale: 8}, n)
		x := v.new()
		SUBQ(imm(v.w), n)
		JL(LabelRef("part"))
		Label("whole")
		VMOVUPS(Mem{Base: from}, x)
		VADDPS(Mem{Base: to}, x, x)
		VMOVUPS(x, Mem{Base: to})
		ADDQ(imm(v.size()), from)
		ADDQ(imm(v.size()), to)
		SUBQ(imm(v.w), n)
		JGE(LabelRef("whole"))
		Label("part")
		ADDQ(imm(v.w), n)
		JZ(LabelRef("next"))
		v.addPieces(n, from, to, "next")
		Label("next")
		INCQ(j)
		CMPQ(j, runs)
		JLT(LabelRef("runs"))
	})
	VZEROUPPER()
	RET()
}

// alignLine begins a cache line for a loop of many branches, whose speed otherwise depends on where the linker places it.
func alignLine() { Instruction(&ir.Instruction{Opcode: "PCALIGN", Operands: []Op{U64(64)}}) }

// addPieces adds the last n < w elements in pieces of 8, 4, 2 and 1: a load whose range overlaps
// that of an earlier masked store waits for it, even if their lanes are different. When none is left, it goes to the label end:
// most runs are one piece.
func (v *vm) addPieces(n, from, to reg.GPVirtual, end string) {
	step := func(size int, load func(m Mem) reg.VecVirtual, store func(x reg.VecVirtual, m Mem)) {
		skip := fmt.Sprintf("skip%d", size)
		CMPQ(n, imm(size))
		JLT(LabelRef(skip))
		x, y := load(Mem{Base: from}), load(Mem{Base: to})
		VADDPS(y, x, x)
		store(x, Mem{Base: to})
		ADDQ(imm(4*size), from)
		if size > 1 {
			ADDQ(imm(4*size), to)
			SUBQ(imm(size), n)
			JZ(LabelRef(end))
		}
		Label(skip)
	}
	loader := func(fresh func() reg.VecVirtual, mov func(a, b Op)) func(Mem) reg.VecVirtual {
		return func(m Mem) reg.VecVirtual { x := fresh(); mov(m, x); return x }
	}
	storer := func(mov func(a, b Op)) func(reg.VecVirtual, Mem) { return func(x reg.VecVirtual, m Mem) { mov(x, m) } }
	whole := func(a, b Op) { VMOVUPS(a, b) }
	one := func(a, b Op) { VMOVSS(a, b) }
	if v.wide() {
		step(8, loader(YMM, whole), storer(whole))
	}
	step(4, loader(XMM, whole), storer(whole))
	step(2, loader(XMM, VMOVQ), storer(VMOVQ))
	step(1, loader(XMM, one), storer(one))
}

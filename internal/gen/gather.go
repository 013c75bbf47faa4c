package main

import (
	. "github.com/mmcloughlin/avo/build"
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

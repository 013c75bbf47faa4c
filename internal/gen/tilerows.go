package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// smallest keeps the smallest nonzero magnitudes among vectors of bf16, for the search for subnormal elements.
type smallest struct {
	v          *vm
	less, most vec // -2 and the largest subnormal, twice, less 2, in each half
	sum, x     vec
}

func (v *vm) smallest() *smallest {
	s := &smallest{v: v, less: v.reg(bits(0xfffefffe)), most: v.reg(bits(0x00fc00fc)), sum: v.new(), x: v.new()}
	VPTERNLOGD(Imm(0xff), s.sum, s.sum, s.sum)
	return s
}

// add includes the vector x: twice its magnitude less 2, without sign, so that zero is the largest.
func (s *smallest) add(x vec) {
	VPADDW(x, x, s.x)
	VPADDW(s.less, s.x, s.x)
	VPMINUW(s.x, s.sum, s.sum)
}

// store returns the halves that had a subnormal element.
func (s *smallest) store() {
	found, lanes := K(), GP64()
	VPCMPUW(Imm(2), s.most, s.sum, found) // less or equal
	KMOVD(found, lanes.As32())
	Store(lanes, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// firstHalves is the mask of the first n of 32 halves.
func (v *vm) firstHalves(n reg.GPVirtual) reg.OpmaskVirtual {
	ones, mask := GP32(), K()
	MOVL(U32(0xffffffff), ones)
	BZHIL(n.As32(), ones, ones)
	KMOVD(ones, mask)
	return mask
}

// packTileRows emits the packing of rows of bf16 to tiles of 16 rows of 64 bytes, one after the other.
func (v *vm) packTileRows() {
	v.text("packTileRows", "rows, steps, last int, dst *float32, src *byte, lds int) (subnormal uint64",
		"packs up to 16 rows of 32*(steps-1)+last halves, lds elements apart, to steps tiles, and says which halves were subnormal.")
	rows, steps, last := ptrParam("rows"), ptrParam("steps"), ptrParam("last")
	dst, src, lds := ptrParam("dst"), ptrParam("src"), ptrParam("lds")
	scaleBy(lds, 2)
	part := v.firstHalves(last)
	small, x := v.smallest(), v.new()
	DECQ(steps)
	loop("row", rows, func() {
		from, to, left := GP64(), GP64(), GP64()
		MOVQ(src, from)
		MOVQ(dst, to)
		MOVQ(steps, left)
		TESTQ(left, left)
		JZ(LabelRef("end"))
		loop("step", left, func() {
			VMOVUPS(Mem{Base: from}, x)
			small.add(x)
			VMOVUPS(x, Mem{Base: to})
			ADDQ(imm(64), from)
			ADDQ(imm(1024), to)
		})
		Label("end")
		VMOVDQU16_Z(Mem{Base: from}, part, x)
		small.add(x)
		VMOVUPS(x, Mem{Base: to})
		ADDQ(lds, src)
		ADDQ(imm(64), dst)
	})
	small.store()
}

// anySubnormal emits the search for subnormal halves among whole vectors.
func (v *vm) anySubnormal() {
	v.text("anySubnormal", "n int, src *float32) (subnormal uint64", "says which halves of n > 0 vectors of words are subnormal in any of them.")
	n, src, x := ptrParam("n"), ptrParam("src"), v.new()
	small := v.smallest()
	loop("vector", n, func() {
		VMOVUPS(Mem{Base: src}, x)
		small.add(x)
		ADDQ(imm(64), src)
	})
	small.store()
}

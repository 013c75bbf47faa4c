package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// splitParts is the number of bf16 values that represent one f32 value.
const splitParts = 3

// splitter splits f32 values exactly into three of bf16: the first 8 bits, the next, the last. The
// other parts of an infinity are zero; NaN stays NaN.
type splitter struct {
	v    *vm
	high vec
	rest reg.OpmaskVirtual
}

func (v *vm) splitter() *splitter { return &splitter{v: v, high: v.reg(bits(0xffff0000)), rest: K()} }

// split returns the parts, in the high halves of words.
func (s *splitter) split(x vec) [splitParts]vec {
	top, rest, middle := s.v.new(), s.v.new(), s.v.new()
	VPANDD(s.high, x, top)
	VCMPPS(Imm(notEqual), top, x, s.rest)
	VSUBPS_Z(top, x, s.rest, rest)
	VPANDD(s.high, rest, middle)
	VSUBPS(middle, rest, rest)
	return [...]vec{top, middle, rest}
}

// join makes words of the high halves of two vectors, in the first one's register.
func (s *splitter) join(low, high vec) {
	VPSRLD(Imm(16), low, low)
	VPTERNLOGD(Imm(0xf8), s.high, high, low) // low | high & mask
}

// splitWords emits the packing of rows of f32 to words of two rows, part after part.
func (v *vm) splitWords() {
	v.text("splitWords", "pairs int, dst, src *float32, lds int", "splits pairs > 0 of rows of two vectors to rows of words of bf16; a part is 2 KiB behind the one before.")
	pairs, dst, src, lds := ptrParam("pairs"), ptrParam("dst"), ptrParam("src"), ptrParam("lds")
	scaleBy(lds, 4)
	s := v.splitter()
	loop("pair", pairs, func() {
		for j := range 2 {
			x, y := v.new(), v.new()
			VMOVUPS(Mem{Base: src, Disp: 64 * j}, x)
			VMOVUPS(Mem{Base: src, Index: lds, Scale: 1, Disp: 64 * j}, y)
			low, high := s.split(x), s.split(y)
			for i := range splitParts {
				s.join(low[i], high[i])
				VMOVUPS(low[i], Mem{Base: dst, Disp: 2048*i + 64*j})
			}
		}
		LEAQ(Mem{Base: src, Index: lds, Scale: 2}, src)
		ADDQ(imm(128), dst)
	})
	VZEROUPPER()
	RET()
}

// splitTiles emits the packing of rows of f32 to tiles of 16 rows of 64 bytes of bf16: for each step one of each part.
func (v *vm) splitTiles() {
	v.text("splitTiles", "rows, steps, last int, dst, src *float32, lds int", "splits up to 16 rows of 32*(steps-1)+last elements to tiles of bf16, three for a step.")
	rows, steps, last := ptrParam("rows"), ptrParam("steps"), ptrParam("last")
	dst, src, lds := ptrParam("dst"), ptrParam("src"), ptrParam("lds")
	scaleBy(lds, 4)
	masks := v.colMasks(2, last)
	s := v.splitter()
	from, to, left := GP64(), GP64(), GP64()
	put := func(x vec, j int) {
		for i, p := range s.split(x) {
			VPSRLD(Imm(16), p, p)
			VPMOVDW(p, Mem{Base: to, Disp: 1024*i + 32*j})
		}
	}
	DECQ(steps)
	loop("row", rows, func() {
		MOVQ(src, from)
		MOVQ(dst, to)
		MOVQ(steps, left)
		TESTQ(left, left)
		JZ(LabelRef("end"))
		loop("step", left, func() {
			for j := range 2 {
				x := v.new()
				VMOVUPS(Mem{Base: from, Disp: 64 * j}, x)
				put(x, j)
			}
			ADDQ(imm(128), from)
			ADDQ(imm(1024*splitParts), to)
		})
		Label("end")
		for j := range 2 {
			x := v.new()
			v.loadPart(Mem{Base: from, Disp: 64 * j}, masks[j], x)
			put(x, j)
		}
		ADDQ(lds, src)
		ADDQ(imm(64), dst)
	})
	VZEROUPPER()
	RET()
}

// anyInfinite emits the search for halves that are not finite among whole vectors.
func (v *vm) anyInfinite() {
	v.text("anyInfinite", "n int, src *float32) (found uint64", "says which halves of n > 0 vectors of words are infinite or NaN in any of them.")
	n, src, x, most, least := ptrParam("n"), ptrParam("src"), v.new(), v.new(), v.reg(bits(0xff00ff00))
	v.zero(most)
	loop("vector", n, func() {
		VMOVUPS(Mem{Base: src}, x)
		VPADDW(x, x, x)
		VPMAXUW(x, most, most)
		ADDQ(imm(64), src)
	})
	found, lanes := K(), GP64()
	VPCMPUW(Imm(5), least, most, found) // not less
	KMOVD(found, lanes.As32())
	Store(lanes, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

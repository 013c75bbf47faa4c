package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// zips emits the splitting of rows into their elements at even and odd places, and the inverse.
func (v *vm) zips() {
	v.unzip()
	v.zip()
	if v.wide() {
		v.unzipHalves()
	}
}

// unzipHalves emits unzip for 16-bit elements: a word has one of each.
func (v *vm) unzipHalves() {
	v.text("unzipHalves", "rows, n int, even, odd *byte, ldd int, src *byte, lds int",
		"splits rows of 2n halves, n up to a vector: even[i] = src[2i], odd[i] = src[2i+1].")
	rows, n, even, odd, src := ptrParam("rows"), ptrParam("n"), ptrParam("even"), ptrParam("odd"), ptrParam("src")
	ldd, lds := ptrParam("ldd"), ptrParam("lds")
	scaleBy(ldd, 2)
	scaleBy(lds, 2)
	mask, x := v.lanes(n), v.new()
	loop("rows", rows, func() {
		v.loadPart(Mem{Base: src}, mask, x)
		VPMOVDW(x, mask, Mem{Base: even})
		VPSRLD(Imm(16), x, x)
		VPMOVDW(x, mask, Mem{Base: odd})
		ADDQ(ldd, even)
		ADDQ(ldd, odd)
		ADDQ(lds, src)
	})
	VZEROUPPER()
	RET()
}

func (v *vm) unzip() {
	v.text("unzip", "rows, n int, even, odd *float32, ldd int, src *float32, lds int",
		"splits rows of 2n elements, n up to a vector: even[i] = src[2i], odd[i] = src[2i+1].")
	rows, n, even, odd, src := ptrParam("rows"), ptrParam("n"), ptrParam("even"), ptrParam("odd"), ptrParam("src")
	ldd, lds := ptrParam("ldd"), ptrParam("lds")
	scaleBy(ldd, 4)
	scaleBy(lds, 4)
	both := GP64()
	LEAQ(Mem{Base: n, Index: n, Scale: 1}, both)
	in, out := v.colMasks(2, both), v.lanes(n)
	pick, _ := v.picker()
	x, y := v.new(), v.new()
	loop("rows", rows, func() {
		v.loadPart(Mem{Base: src}, in[0], x)
		v.loadPart(Mem{Base: src, Disp: v.size()}, in[1], y)
		for i, to := range []reg.GPVirtual{even, odd} {
			v.storePart(pick(i, x, y), out, Mem{Base: to})
			ADDQ(ldd, to)
		}
		ADDQ(lds, src)
	})
	VZEROUPPER()
	RET()
}

// halver is picker's first function for AVX2.
func (v *vm) halver() func(odd int, x, y vec) vec {
	return func(odd int, x, y vec) vec {
		d := v.new()
		VSHUFPS(Imm([]uint64{0x88, 0xdd}[odd]), y, x, d)
		VPERMPD(Imm(0xd8), d, d)
		return d
	}
}

func (v *vm) zip() {
	v.text("zip", "rows, n int, dst *float32, ldd int, even, odd *float32, lds int",
		"is the inverse of unzip; rows of even and odd are lds apart.")
	rows, n, dst, even, odd := ptrParam("rows"), ptrParam("n"), ptrParam("dst"), ptrParam("even"), ptrParam("odd")
	ldd, lds := ptrParam("ldd"), ptrParam("lds")
	scaleBy(ldd, 4)
	scaleBy(lds, 4)
	both := GP64()
	LEAQ(Mem{Base: n, Index: n, Scale: 1}, both)
	out, in := v.colMasks(2, both), v.lanes(n)
	_, join := v.picker()
	x, y := v.new(), v.new()
	loop("rows", rows, func() {
		v.loadPart(Mem{Base: even}, in, x)
		v.loadPart(Mem{Base: odd}, in, y)
		low, high := join(x, y)
		v.storePart(low, out[0], Mem{Base: dst})
		v.storePart(high, out[1], Mem{Base: dst, Disp: v.size()})
		ADDQ(lds, even)
		ADDQ(lds, odd)
		ADDQ(ldd, dst)
	})
	VZEROUPPER()
	RET()
}

// joiner is picker's second function for AVX2.
func (v *vm) joiner() func(x, y vec) (low, high vec) {
	return func(x, y vec) (vec, vec) {
		a, b := op3(VUNPCKLPS, y, x, v.new()), op3(VUNPCKHPS, y, x, v.new())
		low, high := v.new(), v.new()
		VPERM2F128(Imm(0x20), b, a, low)
		VPERM2F128(Imm(0x31), b, a, high)
		return low, high
	}
}

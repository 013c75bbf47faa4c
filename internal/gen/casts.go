package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// casts emits the conversions between storage types and float32 and the pass that scales and looks for Inf and NaN.
// AVX-512 takes any length; AVX2 whole vectors only where halves are involved, the rest is Go's.
func (v *vm) casts() {
	for _, t := range types[1:] {
		v.widen(t)
		v.narrow(t)
	}
	for _, t := range types {
		v.scaleCheck(t)
	}
}

// stream repeats body for vectors of n elements: four at a time, one at a time, then the rest by mask if the width
// and type allow it. body gets the vector's number and its mask, nil for a whole one.
func (v *vm) stream(n reg.GPVirtual, partial bool, ptrs map[reg.GPVirtual]int, order []reg.GPVirtual, body func(i int, mask reg.Register)) {
	advance := func(vecs int) {
		for _, p := range order {
			ADDQ(imm(vecs*v.w*ptrs[p]), p)
		}
	}
	SUBQ(imm(4*v.w), n)
	JL(LabelRef("few"))
	Label("many")
	for i := range 4 {
		body(i, nil)
	}
	advance(4)
	SUBQ(imm(4*v.w), n)
	JGE(LabelRef("many"))
	Label("few")
	ADDQ(imm(3*v.w), n)
	JL(LabelRef("last"))
	Label("single")
	body(0, nil)
	advance(1)
	SUBQ(imm(v.w), n)
	JGE(LabelRef("single"))
	Label("last")
	if partial {
		ADDQ(imm(v.w), n)
		JZ(LabelRef("end"))
		body(0, v.lanes(n))
	}
	Label("end")
}

func (v *vm) widen(t string) {
	v.text("widen"+t, "n int, dst *float32, src *byte", "widens n elements; AVX2 leaves out the last n%8.")
	n, dst, src := ptrParam("n"), ptrParam("dst"), ptrParam("src")
	size := typeSize(t)
	v.stream(n, v.wide(), map[reg.GPVirtual]int{dst: 4, src: size}, []reg.GPVirtual{dst, src}, func(i int, mask reg.Register) {
		x, to := v.new(), Mem{Base: dst, Disp: i * v.size()}
		if mask != nil {
			v.loadMasked(t, Mem{Base: src}, mask, x)
			v.storePart(x, mask, to)
			return
		}
		v.load(t, Mem{Base: src, Disp: i * v.w * size}, x)
		VMOVUPS(x, to)
	})
	VZEROUPPER()
	RET()
}

// narrow emits the rounding store.
func (v *vm) narrow(t string) {
	v.text("narrow"+t, "n int, dst *byte, src *float32", "rounds n elements to nearest even; AVX2 leaves out the last n%8.")
	n, dst, src := ptrParam("n"), ptrParam("dst"), ptrParam("src")
	v.hold(func() { v.bfloat(v.new()) })
	size := typeSize(t)
	v.stream(n, v.wide(), map[reg.GPVirtual]int{dst: size, src: 4}, []reg.GPVirtual{dst, src}, func(i int, mask reg.Register) {
		x, to := v.new(), Mem{Base: dst, Disp: i * size * v.w}
		if mask != nil {
			v.loadPart(Mem{Base: src}, mask, x)
			v.narrowPart(t, x, mask, to)
			return
		}
		VMOVUPS(Mem{Base: src, Disp: i * v.size()}, x)
		v.narrowWhole(t, x, to)
	})
	VZEROUPPER()
	RET()
}

// narrowPart stores the lanes of mask (AVX-512).
func (v *vm) narrowPart(t string, x vec, mask reg.Register, to Mem) {
	if t == "F16" {
		VCVTPS2PH(Imm(0), x, mask, to)
	} else {
		VPMOVDW(v.bfloat(x), mask, to)
	}
}

// narrowWhole stores a whole vector as halves.
func (v *vm) narrowWhole(t string, x vec, to Mem) {
	if h := v.halves(t, x); v.wide() {
		VMOVDQU64(h, to)
	} else {
		VMOVDQU(h.AsX(), to)
	}
}

// halves is x rounded to type t, in the low half of the register or, of AVX2, in its low quarter.
func (v *vm) halves(t string, x vec) reg.VecVirtual {
	h := YMM()
	switch {
	case t == "F16" && v.wide():
		VCVTPS2PH(Imm(0), x, h)
	case t == "F16":
		VCVTPS2PH(Imm(0), x, h.AsX())
	case v.wide():
		VPMOVDW(v.bfloat(x), h)
	default:
		v.pack16(v.bfloat(x), h.AsX())
	}
	return h
}

// pack16 collects the low halves of 8 words.
func (v *vm) pack16(b vec, to reg.Register) {
	h := XMM()
	VEXTRACTI128(Imm(1), b, h)
	VPACKUSDW(h, b.AsX(), to)
}

// bfloat is x as bfloat16 patterns in 32-bit lanes: to nearest even, NaN quieted and its top bits kept.
func (v *vm) bfloat(x vec) vec {
	odd := v.and(v.shr(x, 16), bits(1))
	up := v.addInt(v.addInt(x, bits(0x7fff)), odd)
	nan := v.or(x, bits(0x400000))
	return v.shr(v.pick(v.cmp(unordered, x, x), nan, up), 16)
}

func (v *vm) scaleCheck(t string) {
	v.text("scaleCheck"+t, "n int, dst, src *byte, scale float32) (bad uint64",
		"computes float32 dst = src*scale; bad is not zero if a result is Inf or NaN. AVX2 leaves out the last n%8 halves.")
	n, dst, src := ptrParam("n"), ptrParam("dst"), ptrParam("src")
	scale, zero := v.new(), v.new()
	v.splat(paramMem("scale"), scale)
	v.zero(zero)
	sum := make([]vec, 4)
	for i := range sum {
		sum[i] = v.new()
		v.zero(sum[i])
	}
	size := typeSize(t)
	v.stream(n, v.wide() || t == "F32", map[reg.GPVirtual]int{dst: 4, src: size}, []reg.GPVirtual{dst, src}, func(i int, mask reg.Register) {
		x, to := v.new(), Mem{Base: dst, Disp: i * v.size()}
		if mask != nil {
			v.loadMasked(t, Mem{Base: src}, mask, x)
			VMULPS(x, scale, x)
			v.storePart(x, mask, to)
			// The scale may be Inf: lanes past the end, 0*Inf, must not count.
			kept := v.new()
			v.loadPart(to, mask, kept)
			x = kept
		} else {
			v.load(t, Mem{Base: src, Disp: i * v.w * size}, x)
			VMULPS(x, scale, x)
			VMOVUPS(x, to)
		}
		VFMADD231PS(x, zero, sum[i]) // x*0 is NaN if x is Inf or NaN
	})
	all := v.add(v.add(sum[0], sum[1]), v.add(sum[2], sum[3]))
	Store(v.anyNaN(all), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func paramMem(name string) Mem {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// anyNaN is not zero if a lane of x is NaN.
func (v *vm) anyNaN(x vec) reg.GPVirtual {
	r, c := GP64(), v.cmp(unordered, x, x)
	if v.wide() {
		KMOVW(c, r.As32())
	} else {
		VMOVMSKPS(c, r.As32())
	}
	return r
}

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// casts emits the conversions between storage types and float32, and the pass that scales and tests
// for Inf and NaN.
func (v *vm) casts() {
	for _, t := range types[1:] {
		v.widen(t)
		v.narrow(t)
	}
}

// stream repeats body for vectors of n elements, of type t on one side: four at a time, one at a
// time, then the rest. The arguments of body are the vector's number and its edge, nil for a whole
// vector.
func (v *vm) stream(t string, n reg.GPVirtual, ptrs map[reg.GPVirtual]int, order []reg.GPVirtual, body func(i int, e *edge)) {
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
	ADDQ(imm(v.w), n)
	JZ(LabelRef("end"))
	body(0, v.edge(t, n))
	Label("end")
}

func (v *vm) widen(t string) {
	v.text("widen"+t, "n int, dst *float32, src *byte", "widens n elements.")
	n, dst, src := ptrParam("n"), ptrParam("dst"), ptrParam("src")
	size := typeSize(t)
	v.stream(t, n, map[reg.GPVirtual]int{dst: 4, src: size}, []reg.GPVirtual{dst, src}, func(i int, e *edge) {
		x, to := v.new(), Mem{Base: dst, Disp: i * v.size()}
		if e != nil {
			v.loadEdge(t, Mem{Base: src}, e, x)
			v.storePart(x, e.lanes, to)
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
	v.text("narrow"+t, "n int, dst *byte, src *float32", "rounds n elements to nearest even.")
	n, dst, src := ptrParam("n"), ptrParam("dst"), ptrParam("src")
	v.hold(func() { v.bfloat(v.new()) })
	size := typeSize(t)
	v.stream(t, n, map[reg.GPVirtual]int{dst: size, src: 4}, []reg.GPVirtual{dst, src}, func(i int, e *edge) {
		x, to := v.new(), Mem{Base: dst, Disp: i * size * v.w}
		if e != nil {
			v.loadPart(Mem{Base: src}, e.lanes, x)
			v.storeEdge(t, x, e, to)
			return
		}
		VMOVUPS(Mem{Base: src, Disp: i * v.size()}, x)
		v.narrowWhole(t, x, to)
	})
	VZEROUPPER()
	RET()
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
func (v *vm) bfloat(x vec) vec { return v.shr(v.bfloatHigh(x), 16) }

// bfloatHigh is bfloat in the upper halves of the lanes; the lower halves are undefined.
func (v *vm) bfloatHigh(x vec) vec {
	up := v.addInt(x, bits(0x7fff))
	if v.wide() {
		v.where(iaddI, v.test(x, bits(0x10000)), bits(1), up, up)
		v.where(inst{plain: VPORD, bcst: VPORD_BCST, op: "VPORD"}, v.cmp(unordered, x, x), bits(0x400000), x, up)
		return up
	}
	up = v.addInt(up, v.and(v.shr(x, 16), bits(1)))
	return v.pick(v.cmp(unordered, x, x), v.or(x, bits(0x400000)), up)
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

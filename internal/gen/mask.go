package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lanes is a mask of the first n lanes, n at most w: a mask register, or a vector for VMASKMOVPS.
func (v *vm) lanes(n reg.GPVirtual) reg.Register {
	if v.wide() {
		m, k := GP32(), K()
		MOVL(U32(0xffffffff), m)
		BZHIL(n.As32(), m, m)
		KMOVW(m, k)
		return k
	}
	at, base, y := GP64(), GP64(), YMM()
	LEAQ(v.consts.tail(32), base)
	MOVQ(n, at)
	NEGQ(at)
	VMOVUPS(Mem{Base: base, Index: at, Scale: 4}, y)
	return y
}

// loadPart loads the lanes of m that mask holds, zeros elsewhere; reads nothing else.
func (v *vm) loadPart(m Mem, mask reg.Register, d vec) {
	if v.wide() {
		VMOVUPS_Z(m, mask, d)
	} else {
		VMASKMOVPS(m, mask, d)
	}
}

func (v *vm) storePart(s vec, mask reg.Register, m Mem) {
	if v.wide() {
		VMOVUPS(s, mask, m)
	} else {
		VMASKMOVPS(s, mask, m)
	}
}

// typeSize is the size of a storage type in bytes.
func typeSize(t string) int {
	if t == "F32" {
		return 4
	}
	return 2
}

// load widens w elements of type t at m, halves also in a register.
func (v *vm) load(t string, m Op, d vec) {
	switch t {
	case "F32":
		VMOVUPS(m, d)
	case "F16":
		VCVTPH2PS(m, d)
	case "BF16":
		VPMOVZXWD(m, d)
		VPSLLD(Imm(16), d, d)
	}
}

// edge describes the first n lanes of a vector, 1 <= n <= w. AVX2 masks words, not halves: halves
// are moved in pairs, and the last of n separately if n is odd.
type edge struct {
	lanes reg.Register

	pairs, last reg.VecVirtual // masks of the n/2 pairs and of half n-1
	at          reg.GPVirtual  // bytes before half n-1
	lift        reg.VecVirtual // shuffles half n-1 down to 0
}

// edge is the edge of n elements of type t.
func (v *vm) edge(t string, n reg.GPVirtual) *edge {
	e := &edge{lanes: v.lanes(n)}
	if v.wide() || t == "F32" {
		return e
	}
	ones := func(count reg.GPVirtual, scale uint8) reg.VecVirtual {
		at, base, x := GP64(), GP64(), XMM()
		LEAQ(v.consts.tail(32), base)
		MOVQ(count, at)
		NEGQ(at)
		VMOVDQU(Mem{Base: base, Index: at, Scale: scale}, x)
		return x
	}
	half, before, place := GP64(), GP64(), GP64()
	MOVQ(n, half)
	SHRQ(Imm(1), half)
	e.pairs = ones(half, 4)
	LEAQ(Mem{Base: n, Disp: -1}, before)
	e.last, e.lift, e.at = XMM(), XMM(), GP64()
	VPXOR(ones(before, 2), ones(n, 2), e.last)
	LEAQ(Mem{Base: before, Index: before, Scale: 1}, e.at)
	MOVQ(e.at, place)
	SHLQ(Imm(8), place)
	LEAQ(Mem{Base: place, Index: e.at, Scale: 1, Disp: 0x100}, place)
	VMOVQ(place, e.lift)
	return e
}

// half is the position of half n-1 of the vector at m.
func (e *edge) half(m Mem) Mem {
	if m.Index != nil {
		p := GP64()
		LEAQ(m, p)
		m = Mem{Base: p}
	}
	m.Index, m.Scale = e.at, 1
	return m
}

// loadEdge is load for the lanes of e; the others are zero. It reads nothing else.
func (v *vm) loadEdge(t string, m Mem, e *edge, d vec) {
	switch {
	case t == "F32":
		v.loadPart(m, e.lanes, d)
	case !v.wide():
		x, y := XMM(), XMM()
		VPMASKMOVD(m, e.pairs, x)
		VPBROADCASTW(e.half(m), y)
		VPBLENDVB(e.last, y, x, x)
		v.load(t, x, d)
	case t == "F16":
		VCVTPH2PS_Z(m, e.lanes, d)
	default:
		VPMOVZXWD_Z(m, e.lanes, d)
		VPSLLD(Imm(16), d, d)
	}
}

// storeEdge rounds the lanes of e to type t and stores them, and nothing else.
func (v *vm) storeEdge(t string, x vec, e *edge, m Mem) {
	switch {
	case t == "F32":
		v.storePart(x, e.lanes, m)
	case !v.wide():
		h, last := v.halves(t, x).AsX(), XMM()
		VPMASKMOVD(h, e.pairs, m)
		VPSHUFB(e.lift, h, last)
		VPEXTRW(Imm(0), last, e.half(m))
	case t == "F16":
		VCVTPS2PH(Imm(0), x, e.lanes, m)
	default:
		VPMOVDW(v.bfloat(x), e.lanes, m)
	}
}

// scaleBy turns a count of elements of the given size into bytes.
func scaleBy(r reg.GPVirtual, size int) {
	if size == 4 {
		SHLQ(Imm(2), r)
	} else {
		SHLQ(Imm(1), r)
	}
}

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

// size and widening load of a storage type.
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

// loadMasked is load for the lanes of mask; AVX-512 for every type, AVX2 for F32.
func (v *vm) loadMasked(t string, m Mem, mask reg.Register, d vec) {
	switch {
	case t == "F32":
		v.loadPart(m, mask, d)
	case t == "F16":
		VCVTPH2PS_Z(m, mask, d)
	default:
		VPMOVZXWD_Z(m, mask, d)
		VPSLLD(Imm(16), d, d)
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

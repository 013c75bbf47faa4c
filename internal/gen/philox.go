package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// philox emits Philox 4x32-10 for w/2 counters at a time, each in a 64-bit lane, whose upper half
// is undefined: the multiplication reads only the lower one.
func (v *vm) philox() {
	v.text("philox", "n int, dst *int64, state *uint32",
		"writes the words of 4*n counters from state[0] on; state[1:4] is the rest of the counter, state[4:24] the keys.")
	n, dst, state := ptrParam("n"), ptrParam("dst"), ptrParam("state")
	counters := v.w / 2
	iota, step := v.new(), v.new()
	v.ramp(iota, state)
	v.word64(uint32(counters), step)
	m0, m1 := v.new(), v.new()
	v.word64(0xd2511f53, m0)
	v.word64(0xcd9e8d57, m1)
	if v.wide() {
		v.philoxWide(n, iota, step, m0, m1, dst, state)
	} else {
		low := v.new()
		v.word64(0xffffffff, low)
		loop("loop", n, func() {
			c := v.rounds([]vec{iota}, m0, m1, state)[0]
			VPADDQ(step, iota, iota)
			for i := range c {
				VPAND(low, c[i], c[i])
			}
			v.interleave(c, dst)
			ADDQ(imm(128), dst)
		})
	}
	VZEROUPPER()
	RET()
}

// philoxWide loops over three vectors of counters in turn, because each round waits for the one before, then over one. n is
// even.
func (v *vm) philoxWide(n reg.GPVirtual, iota, step, m0, m1 vec, dst, state reg.GPVirtual) {
	low, ones := K(), GP32()
	MOVL(U32(0x5555), ones)
	KMOVW(ones, low)
	vectors := func(count int) {
		at := []vec{iota}
		for i := 1; i < count; i++ {
			next := v.new()
			VPADDQ(step, at[i-1], next)
			at = append(at, next)
		}
		for i, c := range v.rounds(at, m0, m1, state) {
			v.store8(c, low, Mem{Base: dst, Disp: 256 * i})
		}
		VPADDQ(step, at[count-1], iota)
		ADDQ(imm(256*count), dst)
	}
	SUBQ(imm(6), n)
	JL(LabelRef("few"))
	Label("three")
	vectors(3)
	SUBQ(imm(6), n)
	JGE(LabelRef("three"))
	Label("few")
	ADDQ(imm(6), n)
	JZ(LabelRef("end"))
	Label("one")
	vectors(1)
	SUBQ(imm(2), n)
	JNZ(LabelRef("one"))
	Label("end")
}

// store8 stores the words of eight counters contiguously. low are the lower halves of 64-bit lanes.
func (v *vm) store8(c [4]vec, low reg.Register, m Mem) {
	var pairs [4]vec // the first two words of counters 0, 2, 4 and 6, the last two, and those of the odd counters
	for i := range pairs {
		pairs[i] = v.new()
	}
	VPUNPCKLQDQ(c[1], c[0], pairs[0])
	VPUNPCKLQDQ(c[3], c[2], pairs[1])
	VPUNPCKHQDQ(c[1], c[0], pairs[2])
	VPUNPCKHQDQ(c[3], c[2], pairs[3])
	for half, part := range []uint64{0x44, 0xee} {
		even, odd := v.new(), v.new()
		VSHUFI32X4(Imm(part), pairs[1], pairs[0], even)
		VSHUFI32X4(Imm(part), pairs[3], pairs[2], odd)
		for i, part := range []uint64{0x88, 0xdd} {
			d := v.new()
			VSHUFI32X4_Z(Imm(part), odd, even, low, d)
			VMOVDQU64(d, Mem{Base: m.Base, Disp: m.Disp + 128*half + 64*i})
		}
	}
}

// ramp sets 64-bit lane i to i + *start.
func (v *vm) ramp(d vec, start reg.GPVirtual) {
	base := v.new()
	VPBROADCASTD(Mem{Base: start}, base)
	VPADDQ(NewDataAddr(NewStaticSymbol("kernRamp"), 0), base, d)
}

func emitRamp() {
	GLOBL("kernRamp", RODATA|NOPTR)
	for i := range 8 {
		DATA(8*i, U64(uint64(i)))
	}
}

// word64 sets every 64-bit lane to x.
func (v *vm) word64(x uint32, d vec) {
	r, t := GP64(), XMM()
	MOVL(U32(x), r.As32())
	MOVQ(r, t)
	VPBROADCASTQ(t, d)
}

// rounds are the ten rounds of the counters in each of c0, in turn.
func (v *vm) rounds(c0 []vec, m0, m1 vec, state reg.GPVirtual) (c [][4]vec) {
	for _, at := range c0 {
		first := [4]vec{at, v.new(), v.new(), v.new()}
		for i := 1; i < 4; i++ {
			VPBROADCASTD(Mem{Base: state, Disp: 4 * i}, first[i])
		}
		c = append(c, first)
	}
	for r := range 10 {
		for i := range c {
			c[i] = v.round10(c[i], m0, m1, Mem{Base: state, Disp: 4 * (4 + 2*r)})
		}
	}
	return c
}

// round10 is one of the rounds, whose key is at m.
func (v *vm) round10(c [4]vec, m0, m1 vec, key Mem) [4]vec {
	second := key
	second.Disp += 4
	p0, p1, h0, h1 := v.new(), v.new(), v.new(), v.new()
	VPMULUDQ(m0, c[0], p0)
	VPMULUDQ(m1, c[2], p1)
	if v.wide() { // a shuffle and the multiplications have ports of their own; one instruction xors three
		VPSHUFD(Imm(0xf5), p0, h0)
		VPSHUFD(Imm(0xf5), p1, h1)
		VPTERNLOGD_BCST(Imm(0x96), key, c[1], h1)
		VPTERNLOGD_BCST(Imm(0x96), second, c[3], h0)
		return [4]vec{h1, p1, h0, p0}
	}
	k := v.new()
	VPSRLQ(Imm(32), p0, h0)
	VPSRLQ(Imm(32), p1, h1)
	VPBROADCASTD(key, k)
	VPXOR(c[1], h1, h1)
	VPXOR(k, h1, h1)
	k2 := v.new()
	VPBROADCASTD(second, k2)
	VPXOR(c[3], h0, h0)
	VPXOR(k2, h0, h0)
	return [4]vec{h1, p1, h0, p0}
}

// interleave stores the four words of four counters contiguously.
func (v *vm) interleave(c [4]vec, dst reg.GPVirtual) {
	even01, odd01, even23, odd23 := YMM(), YMM(), YMM(), YMM()
	VPUNPCKLQDQ(c[1], c[0], even01) // words 0 and 1 of counters 0 and 2
	VPUNPCKHQDQ(c[1], c[0], odd01)
	VPUNPCKLQDQ(c[3], c[2], even23)
	VPUNPCKHQDQ(c[3], c[2], odd23)
	for i, x := range []struct {
		a, b reg.VecVirtual
		part uint64
	}{{even01, even23, 0x20}, {odd01, odd23, 0x20}, {even01, even23, 0x31}, {odd01, odd23, 0x31}} {
		o := YMM()
		VPERM2I128(Imm(x.part), x.b, x.a, o)
		VMOVDQU(o, Mem{Base: dst, Disp: 32 * i})
	}
}

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
	iota, step, low := v.new(), v.new(), v.new()
	v.ramp(iota, state)
	v.word64(uint32(counters), step)
	v.mask32(low)
	m0, m1 := v.new(), v.new()
	v.word64(0xd2511f53, m0)
	v.word64(0xcd9e8d57, m1)
	if v.wide() {
		SHRQ(Imm(1), n) // n is even
	}
	loop("loop", n, func() {
		c := v.rounds(iota, m0, m1, state)
		VPADDQ(step, iota, iota)
		for i := range c {
			v.and64(low, c[i])
		}
		for half := range counters / 4 {
			v.interleave(c, half, dst)
		}
		ADDQ(imm(128*counters/4), dst)
	})
	VZEROUPPER()
	RET()
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

func (v *vm) mask32(d vec) { v.word64(0xffffffff, d) }

func (v *vm) and64(mask, d vec) {
	if v.wide() {
		VPANDQ(mask, d, d)
	} else {
		VPAND(mask, d, d)
	}
}

// rounds are the ten rounds of the counters in c0.
func (v *vm) rounds(c0, m0, m1 vec, state reg.GPVirtual) [4]vec {
	c := [4]vec{v.new(), v.new(), v.new(), v.new()}
	if v.wide() {
		VMOVDQA64(c0, c[0])
	} else {
		VMOVDQA(c0, c[0])
	}
	for i := 1; i < 4; i++ {
		VPBROADCASTD(Mem{Base: state, Disp: 4 * i}, c[i])
	}
	for r := range 10 {
		p0, p1, h0, h1, k := v.new(), v.new(), v.new(), v.new(), v.new()
		VPMULUDQ(m0, c[0], p0)
		VPMULUDQ(m1, c[2], p1)
		if v.wide() { // a shuffle and the multiplications have ports of their own; one instruction xors three
			VPSHUFD(Imm(0xf5), p0, h0)
			VPSHUFD(Imm(0xf5), p1, h1)
			VPTERNLOGD_BCST(Imm(0x96), Mem{Base: state, Disp: 4 * (4 + 2*r)}, c[1], h1)
			VPTERNLOGD_BCST(Imm(0x96), Mem{Base: state, Disp: 4 * (5 + 2*r)}, c[3], h0)
			c = [4]vec{h1, p1, h0, p0}
			continue
		}
		VPSRLQ(Imm(32), p0, h0)
		VPSRLQ(Imm(32), p1, h1)
		VPBROADCASTD(Mem{Base: state, Disp: 4 * (4 + 2*r)}, k)
		VPXOR(c[1], h1, h1)
		VPXOR(k, h1, h1)
		k2 := v.new()
		VPBROADCASTD(Mem{Base: state, Disp: 4 * (5 + 2*r)}, k2)
		VPXOR(c[3], h0, h0)
		VPXOR(k2, h0, h0)
		c = [4]vec{h1, p1, h0, p0}
	}
	return c
}

// interleave stores the four words of counters 4*half to 4*half+3 contiguously.
func (v *vm) interleave(c [4]vec, half int, dst reg.GPVirtual) {
	var w [4]reg.VecVirtual
	for i := range c {
		w[i] = YMM()
		if half == 0 {
			VMOVDQA(c[i].AsY(), w[i])
		} else {
			VEXTRACTI64X4(Imm(1), c[i], w[i])
		}
	}
	even01, odd01, even23, odd23 := YMM(), YMM(), YMM(), YMM()
	VPUNPCKLQDQ(w[1], w[0], even01) // words 0 and 1 of counters 0 and 2
	VPUNPCKHQDQ(w[1], w[0], odd01)
	VPUNPCKLQDQ(w[3], w[2], even23)
	VPUNPCKHQDQ(w[3], w[2], odd23)
	for i, x := range []struct {
		a, b reg.VecVirtual
		part uint64
	}{{even01, even23, 0x20}, {odd01, odd23, 0x20}, {even01, even23, 0x31}, {odd01, odd23, 0x31}} {
		o := YMM()
		VPERM2I128(Imm(x.part), x.b, x.a, o)
		VMOVDQU(o, Mem{Base: dst, Disp: 128*half + 32*i})
	}
}

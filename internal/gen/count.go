package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const infinity = 0x7f800000

// countParams are those of a countFunc.
const countParams = "n int, x *float32) (lo, hi float32, nan, inf, negInf, zeros int32"

// count emits a countFunc: whole vectors, one pass over them.
func (v *vm) count() {
	v.text("count", countParams, "is a countFunc.")
	n, x := ptrParam("n"), ptrParam("x")
	lo, hi := v.new(), v.new()
	v.splat(v.consts.mem(infinity), lo)
	v.splat(v.consts.mem(infinity|signBit), hi)
	v.hold(func() {
		for _, b := range []bits{infinity, infinity | signBit, signBit, 1, 0} {
			v.reg(b)
		}
	})
	var sums []vec // NaN, Inf, NegInf, Zeros
	for range 4 {
		s := v.new()
		v.zero(s)
		sums = append(sums, s)
	}
	Label("loop")
	e := v.new()
	VMOVUPS(Mem{Base: x}, e)
	magnitude := v.abs(e)
	for i, where := range []cond{
		v.cmp(unordered, e, e), v.cmp(equal, magnitude, bits(infinity)), v.cmp(equal, e, bits(infinity|signBit)), v.cmp(equal, e, bits(0)),
	} {
		if v.wide() {
			v.where(iaddI, where, bits(1), sums[i], sums[i])
		} else { // all ones is -1
			VPSUBD(where, sums[i], sums[i])
		}
	}
	finite := v.cmp(less, magnitude, bits(infinity))
	if v.wide() {
		VMINPS(e, lo, finite, lo)
		VMAXPS(e, hi, finite, hi)
	} else {
		VMINPS(v.pick(finite, e, bits(infinity)), lo, lo)
		VMAXPS(v.pick(finite, e, bits(infinity|signBit)), hi, hi)
	}
	ADDQ(imm(v.size()), x)
	SUBQ(imm(v.w), n)
	JG(LabelRef("loop"))
	for i, r := range []reg.VecVirtual{v.fold(minI, []vec{lo}), v.fold(maxI, []vec{hi})} {
		Store(r, ReturnIndex(i))
	}
	for i, s := range sums {
		r := GP32()
		VMOVD(v.fold(iaddI, []vec{s}), r)
		Store(r, ReturnIndex(2+i))
	}
	VZEROUPPER()
	RET()
}

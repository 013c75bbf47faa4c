package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// row emits body for each vector of a row of n > 0 elements, at the offset at in bytes. mask is nil
// for whole vectors; for the rest it is part, the lanes of the last n modulo the width.
func (v *vm) row(label string, n, last reg.GPVirtual, part reg.Register, body func(at reg.GPVirtual, mask reg.Register)) {
	left, at := GP64(), GP64()
	XORQ(at, at)
	MOVQ(n, left)
	SHRQ(Imm(v.log2()), left)
	JZ(LabelRef(label + "Tail"))
	loop(label, left, func() {
		body(at, nil)
		ADDQ(imm(v.size()), at)
	})
	Label(label + "Tail")
	TESTQ(last, last)
	JZ(LabelRef(label + "Done"))
	body(at, part)
	Label(label + "Done")
}

// log2 is the binary logarithm of the width.
func (v *vm) log2() uint64 {
	if v.wide() {
		return 4
	}
	return 3
}

// normBack emits a normBackFunc.
func (v *vm) normBack() {
	v.text("normBack", "n int, dx, x, dy, gamma, dgamma, dbeta *float32, mean, rstd, inv, center float32", "is a normBackFunc.")
	n, last := ptrParam("n"), GP64()
	MOVQ(n, last)
	ANDQ(imm(v.w-1), last)
	part := v.lanes(last)
	x, dy, gamma := ptrParam("x"), ptrParam("dy"), ptrParam("gamma")
	mean, rstd := v.new(), v.new()
	v.splat(paramMem("mean"), mean)
	v.splat(paramMem("rstd"), rstd)
	in := func(p, at reg.GPVirtual, mask reg.Register) vec {
		return v.fetch(Mem{Base: p, Index: at, Scale: 1}, mask)
	}
	out := func(y vec, p, at reg.GPVirtual, mask reg.Register) {
		m := Mem{Base: p, Index: at, Scale: 1}
		if mask == nil {
			VMOVUPS(y, m)
		} else {
			v.storePart(y, mask, m)
		}
	}
	sum, dot := v.new(), v.new()
	v.zero(sum)
	v.zero(dot)
	dgamma, dbeta := ptrParam("dgamma"), ptrParam("dbeta")
	v.row("sums", n, last, part, func(at reg.GPVirtual, mask reg.Register) {
		xhat, d := v.mul(v.sub(in(x, at, mask), mean), rstd), in(dy, at, mask)
		s := in(dgamma, at, mask)
		v.addMul(s, d, xhat)
		out(s, dgamma, at, mask)
		out(v.add(in(dbeta, at, mask), d), dbeta, at, mask)
		g := v.mul(d, in(gamma, at, mask))
		VADDPS(g, sum, sum)
		v.addMul(dot, g, xhat)
	})
	// a*g + b*xhat + c
	spread := func(s vec, factor string) vec {
		k, y := v.new(), v.new()
		VBROADCASTSS(v.fold(addI, []vec{s}).AsX(), y)
		v.splat(paramMem(factor), k)
		y = v.only(v.cmp(notEqual, k, f(0)), v.mul(v.mul(y, k), rstd)) // 0 times Inf would be NaN
		return v.xor(y, bits(signBit))
	}
	b, c := spread(dot, "inv"), spread(sum, "center")
	dx := ptrParam("dx")
	v.row("out", n, last, part, func(at reg.GPVirtual, mask reg.Register) {
		xhat, d := v.mul(v.sub(in(x, at, mask), mean), rstd), in(dy, at, mask)
		g := v.mul(d, in(gamma, at, mask))
		out(v.fma(g, rstd, v.fma(xhat, b, c)), dx, at, mask)
	})
	VZEROUPPER()
	RET()
}

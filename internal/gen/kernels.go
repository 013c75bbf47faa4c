package main

import "math"

func unary(name string, unroll int, g func(v *vm, x vec) vec) kernel {
	return kernel{name, "src", "", unroll, func(v *vm, x, _ []vec) vec { return g(v, x[0]) }}
}

func binary(name string, unroll int, g func(v *vm, a, b vec) vec) kernel {
	return kernel{name, "a b", "", unroll, func(v *vm, x, _ []vec) vec { return g(v, x[0], x[1]) }}
}

func compare(name string, pred uint64) kernel {
	return binary(name, 2, func(v *vm, a, b vec) vec { return v.truth(v.cmp(pred, a, b)) })
}

// grad is dy times the derivative d at x, the operands of a gradient.
func grad(name string, d func(v *vm, x vec) vec) kernel {
	return binary(name, 1, func(v *vm, x, dy vec) vec { return v.mul(d(v, x), dy) })
}

// kernels are the elementwise kernels; the Go forms of the same names are their reference.
var kernels = []kernel{
	unary("Neg", 4, func(v *vm, x vec) vec { return v.xor(x, bits(signBit)) }),
	unary("Abs", 4, (*vm).abs),
	unary("Sqrt", 2, (*vm).sqrt),
	unary("Rsqrt", 2, func(v *vm, x vec) vec { return v.div(f(1), v.sqrt(x)) }),
	unary("Recip", 2, func(v *vm, x vec) vec { return v.div(f(1), x) }),
	unary("Square", 4, func(v *vm, x vec) vec { return v.mul(x, x) }),
	unary("Floor", 4, func(v *vm, x vec) vec { return v.round(x, 1) }),
	unary("Ceil", 4, func(v *vm, x vec) vec { return v.round(x, 2) }),
	unary("Rint", 4, func(v *vm, x vec) vec { return v.round(x, 0) }),
	unary("Sign", 2, func(v *vm, x vec) vec {
		one := v.or(v.and(x, bits(signBit)), f(1))
		return v.pick(v.cmp(notEqualOrdered, x, f(0)), one, x)
	}),
	unary("Relu", 4, (*vm).relu),
	unary("Not", 2, func(v *vm, x vec) vec { return v.truth(v.cmp(equal, x, f(0))) }),
	unary("IsNaN", 2, func(v *vm, x vec) vec { return v.truth(v.cmp(unordered, x, x)) }),
	unary("IsInf", 2, func(v *vm, x vec) vec { return v.truth(v.cmp(equal, v.abs(x), inf)) }),
	unary("RoundF16", 4, (*vm).roundF16),
	unary("RoundBF16", 2, func(v *vm, x vec) vec { return v.shl(v.bfloat(x), 16) }),
	unary("RoundTF32", 2, (*vm).roundTF32),
	unary("Exp", 1, (*vm).exp),
	unary("Expm1", 1, (*vm).expm1),
	unary("Log", 1, (*vm).log),
	unary("Log1p", 1, (*vm).log1p),
	unary("Tanh", 1, (*vm).tanh),
	unary("Erf", 1, (*vm).erf),
	unary("Sigmoid", 1, (*vm).sigmoid),
	unary("Sin", 1, func(v *vm, x vec) vec { return v.sinCos(x, 0) }),
	unary("Cos", 1, func(v *vm, x vec) vec { return v.sinCos(x, 1) }),
	unary("Softplus", 1, (*vm).softplus),
	unary("GeluErf", 1, func(v *vm, x vec) vec { return v.mul(v.cdf(x), x) }),
	unary("GeluTanh", 1, func(v *vm, x vec) vec { return v.mul(v.geluGate(x), x) }),
	unary("Silu", 1, func(v *vm, x vec) vec { return v.mul(v.sigmoid(x), x) }),

	binary("Add", 4, func(v *vm, a, b vec) vec { return v.add(a, b) }),
	binary("Sub", 4, func(v *vm, a, b vec) vec { return v.sub(a, b) }),
	binary("Mul", 4, func(v *vm, a, b vec) vec { return v.mul(a, b) }),
	binary("Pow", 1, (*vm).pow),
	binary("Div", 2, func(v *vm, a, b vec) vec { return v.div(a, b) }),
	binary("Min", 2, (*vm).minimum),
	binary("Max", 2, (*vm).maximum),
	compare("Eq", equal),
	compare("Ne", notEqual),
	compare("Lt", less),
	compare("Le", lessEq),
	compare("Gt", greater),
	compare("Ge", greaterEq),
	binary("And", 2, func(v *vm, a, b vec) vec {
		return v.only(v.cmp(notEqual, a, f(0)), v.truth(v.cmp(notEqual, b, f(0))))
	}),
	binary("Or", 2, func(v *vm, a, b vec) vec {
		return v.pick(v.cmp(notEqual, a, f(0)), f(1), v.truth(v.cmp(notEqual, b, f(0))))
	}),
	binary("CopySign", 4, func(v *vm, a, b vec) vec { return v.or(v.abs(a), v.and(b, bits(signBit))) }),
	binary("Larger", 2, func(v *vm, a, b vec) vec {
		return v.pick(v.cmp(unordered, a, a), a, v.pick(v.cmp(lessEq, b, a), a, b))
	}),
	binary("ReluGrad", 4, func(v *vm, x, dy vec) vec { return v.only(v.cmp(greater, x, f(0)), dy) }),
	grad("GeluErfGrad", func(v *vm, x vec) vec {
		pdf := v.mul(v.exp(v.mul(v.mul(x, x), f(-0.5))), f(1/math.Sqrt(2*math.Pi)))
		return v.fma(x, pdf, v.cdf(x))
	}),
	grad("GeluTanhGrad", func(v *vm, x vec) vec {
		s, slope := v.logistic(v.geluArg(x))
		t := v.mul(v.poly(v.mul(x, x), 3*geluB, geluA), x)
		return v.fma(t, slope, s)
	}),
	grad("SiluGrad", func(v *vm, x vec) vec {
		s, slope := v.logistic(x)
		return v.fma(x, slope, s)
	}),

	{"FMA", "a b c", "", 4, func(v *vm, x, _ []vec) vec { return v.fma(x[0], x[1], x[2]) }},
	{"MulAdd", "a b c", "", 4, func(v *vm, x, _ []vec) vec { return v.add(v.mul(x[0], x[1]), x[2]) }},
	{"Select", "a b c", "", 2, func(v *vm, x, _ []vec) vec { return v.pick(v.cmp(notEqual, x[0], f(0)), x[1], x[2]) }},
	{"Clip", "a b c", "", 1, func(v *vm, x, _ []vec) vec { return v.minimum(v.maximum(x[0], x[1]), x[2]) }},

	{"axpb", "src", "a b", 4, func(v *vm, x, s []vec) vec { return v.fma(x[0], s[0], s[1]) }},
	{"axpy", "src y", "a", 4, func(v *vm, x, s []vec) vec { return v.fma(x[0], s[0], x[1]) }},
	{"expAxpb", "src", "a b", 1, func(v *vm, x, s []vec) vec { return v.exp(v.fma(x[0], s[0], s[1])) }},
	{"exp2Axpb", "src", "a b", 1, func(v *vm, x, s []vec) vec { return v.exp2(v.fma(x[0], s[0], s[1])) }},
	{"softGrad", "dp prob", "a b", 2, func(v *vm, x, s []vec) vec { return v.mul(v.mul(v.add(x[0], s[1]), x[1]), s[0]) }},
	{"affine", "src gamma beta", "rstd mean", 2, func(v *vm, x, s []vec) vec {
		return v.fma(v.mul(v.sub(x[0], s[1]), s[0]), x[1], x[2])
	}},
	{"normGrad", "dy xhat", "a b c", 2, func(v *vm, x, s []vec) vec {
		return v.fma(x[0], s[0], v.fma(x[1], s[1], s[2]))
	}},
}

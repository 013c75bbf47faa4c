package onnx

import (
	"math"

	"ampc/ir"
)

var elementExports = []export{
	same(ir.OpNeg, "Neg", 13), same(ir.OpAbs, "Abs", 13), same(ir.OpSign, "Sign", 13), same(ir.OpSqrt, "Sqrt", 13), same(ir.OpReciprocal, "Reciprocal", 13),
	same(ir.OpExp, "Exp", 13), same(ir.OpLog, "Log", 13), same(ir.OpSin, "Sin", 7), same(ir.OpCos, "Cos", 7), same(ir.OpTan, "Tan", 7), same(ir.OpAtan, "Atan", 7),
	same(ir.OpErf, "Erf", 13), same(ir.OpTanh, "Tanh", 13), same(ir.OpSigmoid, "Sigmoid", 13), same(ir.OpRelu, "Relu", 13),
	same(ir.OpFloor, "Floor", 13), same(ir.OpCeil, "Ceil", 13), same(ir.OpRoundEven, "Round", 11),
	same(ir.OpSoftplus, "Softplus", 1), same(ir.OpSoftsign, "Softsign", 1), same(ir.OpSelu, "Selu", 6),
	same(ir.OpIsNaN, "IsNaN", 13), same(ir.OpIsInf, "IsInf", 10), same(ir.OpMish, "Mish", 18),
	same(ir.OpAdd, "Add", 13), same(ir.OpSub, "Sub", 13), same(ir.OpMul, "Mul", 13), same(ir.OpDiv, "Div", 13), same(ir.OpPow, "Pow", 13),
	same(ir.OpMin, "Min", 13), same(ir.OpMax, "Max", 13), same(ir.OpAddN, "Sum", 13), same(ir.OpPrelu, "PRelu", 9),
	same(ir.OpEq, "Equal", 13), same(ir.OpLt, "Less", 13), same(ir.OpLe, "LessOrEqual", 12), same(ir.OpGt, "Greater", 13), same(ir.OpGe, "GreaterOrEqual", 12),
	only(same(ir.OpNot, "Not", 1), bools), only(same(ir.OpNot, "BitwiseNot", 18), ints),
	only(same(ir.OpAnd, "And", 7), bools), only(same(ir.OpAnd, "BitwiseAnd", 18), ints),
	only(same(ir.OpOr, "Or", 7), bools), only(same(ir.OpOr, "BitwiseOr", 18), ints),
	only(same(ir.OpXor, "Xor", 7), bools), only(same(ir.OpXor, "BitwiseXor", 18), ints),
	attributed(ir.OpLeakyRelu, "LeakyRelu", 6, func(n *ir.Node) []any { return []any{"alpha", n.Float("alpha")} }),
	attributed(ir.OpElu, "Elu", 6, func(n *ir.Node) []any { return []any{"alpha", n.Float("alpha")} }),
	attributed(ir.OpHardsigmoid, "HardSigmoid", 6, func(n *ir.Node) []any { return []any{"alpha", n.Float("alpha"), "beta", n.Float("beta")} }),
	attributed(ir.OpGelu, "Gelu", 20, func(n *ir.Node) []any { return []any{"approximate", geluNames[n.Str("approx")]} }),
	only(same(ir.OpHardswish, "HardSwish", 14), func(_ *exporter, n *ir.Node) bool {
		return float32(n.Float("alpha")) == float32(1.0/6) && n.Float("beta") == 0.5
	}),
	written(ir.OpHardswish, "HardSigmoid", 6, func(x *exporter, n *ir.Node) string {
		gate := x.op("", "HardSigmoid", x.ins(n), "alpha", n.Float("alpha"), "beta", n.Float("beta"))
		return x.op(x.result(n, 0), "Mul", []string{x.in(n, 0), gate})
	}),
	attributed(ir.OpCast, "Cast", 13, func(n *ir.Node) []any { return []any{"to", int64(TypeOf(n.Out[0].Type.DType))} }),
	only(same(ir.OpMod, "Mod", 13), func(x *exporter, n *ir.Node) bool { return !floats(x, n) }),
	only(written(ir.OpMod, "Floor", 13, func(x *exporter, n *ir.Node) string {
		a, b := x.in(n, 0), x.in(n, 1)
		whole := x.op("", "Mul", []string{x.op("", "Floor", []string{x.op("", "Div", []string{a, b})}), b})
		return x.op(x.result(n, 0), "Sub", []string{a, whole})
	}), floats),
	written(ir.OpNe, "Not", 1, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "Not", []string{x.op("", "Equal", x.ins(n))})
	}),
	written(ir.OpRsqrt, "Reciprocal", 13, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "Reciprocal", []string{x.op("", "Sqrt", x.ins(n))})
	}),
	written(ir.OpSquare, "Mul", 13, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "Mul", []string{x.in(n, 0), x.in(n, 0)})
	}),
	written(ir.OpWhere, "Where", 9, func(x *exporter, n *ir.Node) string {
		in := x.ins(n)
		if len(in) < 3 {
			in = append(in, "")
		}
		if in[2] == "" {
			in[2] = x.lit(n.Out[0].Type.DType, 0)
		}
		return x.op(x.result(n, 0), "Where", in)
	}),
	written(ir.OpClip, "Clip", 13, func(x *exporter, n *ir.Node) string {
		d := n.Out[0].Type.DType
		limit := func(name string) string {
			if v := n.Float(name); !math.IsInf(v, 0) {
				return x.lit(d, v)
			}
			return ""
		}
		return x.op(x.result(n, 0), "Clip", []string{x.in(n, 0), limit("lo"), limit("hi")})
	}),
	written(ir.OpSilu, "Sigmoid", 13, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "Mul", []string{x.in(n, 0), x.op("", "Sigmoid", x.ins(n))})
	}),
	written(ir.OpMish, "Softplus", 13, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "Mul", []string{x.in(n, 0), x.op("", "Tanh", []string{x.op("", "Softplus", x.ins(n))})})
	}),
	written(ir.OpRound, "Cast", 13, func(x *exporter, n *ir.Node) string {
		to := n.Attrs.Get("to").(ir.DType)
		low := x.op("", "Cast", x.ins(n), "to", int64(TypeOf(to)))
		return x.op(x.result(n, 0), "Cast", []string{low}, "to", int64(TypeOf(n.Out[0].Type.DType)))
	}),
	written(ir.OpAffine, "Mul", 13, exportAffine),
	written(ir.OpGelu, "Erf", 13, exportGelu),
	written(ir.OpExpm1, "Exp", 13, exportExpm1),
	written(ir.OpLog1p, "Log", 13, exportLog1p),
	written(ir.OpDropout, "Identity", 13, func(x *exporter, n *ir.Node) string { return x.op(x.result(n, 0), "Identity", []string{x.in(n, 0)}) }),
}

var geluNames = map[string]string{"erf": "none", "tanh": "tanh"}

// wide is operand 0 in f32, because arithmetic in 16 bits would round more often than the row does.
// out converts a result to its dtype and gives it its name.
func (x *exporter) wide(n *ir.Node) (in string, d ir.DType, out func(name string) string) {
	own := n.Out[0].Type.DType
	if !own.Low() {
		return x.in(n, 0), own, nil
	}
	in = x.op("", "Cast", x.ins(n)[:1], "to", 1)
	return in, ir.F32, func(name string) string {
		return x.op(x.result(n, 0), "Cast", []string{name}, "to", int64(TypeOf(own)))
	}
}

// last makes the result of n by op, and gives it the dtype it has.
func (x *exporter) last(n *ir.Node, out func(name string) string, op string, in ...string) string {
	if out == nil {
		return x.op(x.result(n, 0), op, in)
	}
	return out(x.op("", op, in))
}

func exportAffine(x *exporter, n *ir.Node) string {
	scale, shift := n.Float("scale"), n.Float("shift")
	in, d, out := x.wide(n)
	switch {
	case shift == 0:
		return x.last(n, out, "Mul", in, x.lit(d, scale))
	case scale != 1:
		in = x.op("", "Mul", []string{in, x.lit(d, scale)})
	}
	return x.last(n, out, "Add", in, x.lit(d, shift))
}

// exportGelu writes x·Φ(x) out, for opsets before Gelu.
func exportGelu(x *exporter, n *ir.Node) string {
	in, d, out := x.wide(n)
	var inner string
	if n.Str("approx") == "tanh" {
		cube := x.op("", "Mul", []string{in, x.op("", "Mul", []string{in, in})})
		sum := x.op("", "Add", []string{in, x.op("", "Mul", []string{cube, x.lit(d, 0.044715)})})
		inner = x.op("", "Tanh", []string{x.op("", "Mul", []string{sum, x.lit(d, math.Sqrt(2/math.Pi))})})
	} else {
		inner = x.op("", "Erf", []string{x.op("", "Mul", []string{in, x.lit(d, math.Sqrt2/2)})})
	}
	half := x.op("", "Mul", []string{in, x.lit(d, 0.5)})
	return x.last(n, out, "Mul", half, x.op("", "Add", []string{inner, x.lit(d, 1)}))
}

func exportExpm1(x *exporter, n *ir.Node) string {
	in, d, out := x.wide(n)
	return x.last(n, out, "Where", x.expm1(d, in)...)
}

// expm1 returns the operands of the Where that computes eˣ−1: near zero, where eˣ−1 has lost its
// digits, 2t/(1−t) with t = tanh(x/2).
func (x *exporter) expm1(d ir.DType, in string) []string {
	t := x.op("", "Tanh", []string{x.op("", "Mul", []string{in, x.lit(d, 0.5)})})
	near := x.op("", "Div", []string{x.op("", "Mul", []string{t, x.lit(d, 2)}), x.op("", "Sub", []string{x.lit(d, 1), t})})
	far := x.op("", "Sub", []string{x.op("", "Exp", []string{in}), x.lit(d, 1)})
	small := x.op("", "Less", []string{x.op("", "Abs", []string{in}), x.lit(d, 0.5)})
	return []string{small, near, far}
}

func exportLog1p(x *exporter, n *ir.Node) string {
	in, d, out := x.wide(n)
	return x.last(n, out, "Where", x.log1p(d, in)...)
}

// log1p returns the operands of the Where that computes log(1+x): log(u)·x/(u−1) with u = 1+x where
// that is not 1 (Goldberg 1991, theorem 4), x itself where it is, and log(u) far away.
func (x *exporter) log1p(d ir.DType, in string) []string {
	one := x.lit(d, 1)
	u := x.op("", "Add", []string{in, one})
	log := x.op("", "Log", []string{u})
	off := x.op("", "Sub", []string{u, one})
	exact := x.op("", "Mul", []string{log, x.op("", "Div", []string{in, off})})
	tiny := x.op("", "Equal", []string{u, one})
	small := x.op("", "Less", []string{x.op("", "Abs", []string{in}), one})
	near := x.op("", "Where", []string{tiny, in, exact})
	return []string{small, near, log}
}

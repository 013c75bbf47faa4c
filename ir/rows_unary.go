package ir

import "math"

const (
	whyRange  = "exp/log need range"
	whySimple = "one rounding, no range"
	whyOrder  = "keeps order"
	whyPoles  = "unbounded near its poles"
)

var unaryRows = map[Op]Def{
	OpNeg: pointwise(Def{Name: "neg", Doc: "Changes the sign.", In: in(number("x")), Class: Clear, Why: "flips one bit", Unit: UnitSame,
		Grad: along(func(b *Builder, _, _, d *Value) *Value { return b.Neg(d) }),
		Range: func(_ *Node, in []Interval) []Interval {
			return []Interval{{-in[0].Hi, -in[0].Lo, in[0].NaN}}
		}}, func(c *Code, _ *Node, x Reg) Reg { return c.Neg(x) }),
	OpAbs: pointwise(Def{Name: "abs", Doc: "Drops the sign.", In: in(number("x")), Class: Clear, Why: "clears one bit", Unit: UnitSame,
		Grad: along(func(b *Builder, x, _, d *Value) *Value { return b.Mul(d, b.Sign(x)) }),
		Range: func(_ *Node, in []Interval) []Interval {
			return []Interval{{0, math.Max(math.Abs(in[0].Lo), math.Abs(in[0].Hi)), in[0].NaN}}
		}}, func(c *Code, _ *Node, x Reg) Reg { return c.Abs(x) }),
	OpSign: pointwise(Def{Name: "sign", Doc: "-1, 0 or 1; zeros keep their sign and NaN stays.", In: in(number("x")), Class: Clear, Why: whyOrder, Unit: UnitAny,
		NoGrad: flat, Range: bounded(-1, 1)}, func(c *Code, _ *Node, x Reg) Reg {
		zero := c.Like(x, 0)
		return c.Select(c.Lt(zero, x), c.Like(x, 1), c.Select(c.Lt(x, zero), c.Like(x, -1), x))
	}),
	OpSqrt: pointwise(Def{Name: "sqrt", Doc: "Square root, correctly rounded.", Class: PromoteC, Why: whySimple, Poles: "takes the root of a number below 0",
		Grad: along(func(b *Builder, _, y, d *Value) *Value { return b.Div(b.Affine(d, 0.5, 0), y) }),
		Range: func(_ *Node, in []Interval) []Interval {
			return []Interval{{math.Sqrt(max(in[0].Lo, 0)), math.Sqrt(max(in[0].Hi, 0)), in[0].NaN || in[0].Lo < 0}}
		}},
		func(c *Code, _ *Node, x Reg) Reg { return c.Sqrt(x) }),
	OpRsqrt: pointwise(Def{Name: "rsqrt", Doc: "1/sqrt(x), both correctly rounded.", Class: Keep, Why: whyPoles, Poles: "divides by the root of 0",
		Grad: along(func(b *Builder, _, y, d *Value) *Value {
			return b.Affine(b.Mul(d, b.Mul(y, b.Square(y))), -0.5, 0)
		})}, func(c *Code, _ *Node, x Reg) Reg { return c.Div(c.Like(x, 1), c.Sqrt(x)) }),
	OpSquare: pointwise(Def{Name: "square", Doc: "x·x.", In: in(number("x")), Class: Keep, Why: "squares overflow f16", Unit: unitPower(2),
		Grad: along(func(b *Builder, x, _, d *Value) *Value { return b.Mul(b.Affine(d, 2, 0), x) }),
		Range: func(_ *Node, in []Interval) []Interval {
			m := in[0].magnitude()
			lo := 0.0
			if in[0].Lo > 0 || in[0].Hi < 0 {
				lo = min(in[0].Lo*in[0].Lo, in[0].Hi*in[0].Hi)
			}
			return []Interval{{lo, m * m, in[0].NaN}}
		}},
		func(c *Code, _ *Node, x Reg) Reg { return c.Mul(x, x) }),
	OpReciprocal: pointwise(Def{Name: "reciprocal", Doc: "1/x.", In: in(Operand{Name: "x", Entry: Divides}), Class: Keep, Why: whyPoles, Poles: "divides by 0", Unit: unitPower(-1),
		Grad: along(func(b *Builder, _, y, d *Value) *Value { return b.Neg(b.Mul(d, b.Square(y))) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Div(c.Like(x, 1), x) }),
	OpAffine: pointwise(Def{Name: "affine", Doc: "x·scale + shift with constant numbers, each rounded once to f32; takes no side in a choice of dtype as a constant tensor would.",
		In: in(number("x")), Class: Clear, Why: "constants have no dtype", Unit: unitAffine,
		Attrs: []AttrDef{{Name: "scale", Kind: AttrFloat, Default: 1.0, Entry: Multiplied, Doc: "factor"}, {Name: "shift", Kind: AttrFloat, Default: 0.0, Entry: Added, Doc: "addend"}},
		Grad:  func(b *Builder, n *Node, d []*Value) []*Value { return []*Value{b.Affine(d[0], n.Float("scale"), 0)} },
		Range: func(n *Node, in []Interval) []Interval {
			p, q := in[0].Lo*n.Float("scale"), in[0].Hi*n.Float("scale")
			return []Interval{{min(p, q) + n.Float("shift"), max(p, q) + n.Float("shift"), in[0].NaN}}
		}}, elemAffine),

	OpExp: pointwise(Def{Name: "exp", Doc: "eˣ.", Class: Keep, Why: whyRange, Range: monotone(math.Exp),
		Grad: along(func(b *Builder, _, y, d *Value) *Value { return b.Mul(d, y) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Exp(x) }),
	OpExpm1: pointwise(Def{Name: "expm1", Doc: "eˣ-1, accurate near zero.", Class: Keep, Why: whyRange, Range: monotone(math.Expm1),
		Grad: along(func(b *Builder, _, y, d *Value) *Value { return b.Mul(d, b.Affine(y, 1, 1)) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Expm1(x) }),
	OpLog: pointwise(Def{Name: "log", Doc: "Natural logarithm; NaN below zero, -Inf at zero.", Class: Keep, Why: whyRange, Poles: "takes the logarithm of 0 or less",
		Grad: along(func(b *Builder, x, _, d *Value) *Value { return b.Div(d, x) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Log(x) }),
	OpLog1p: pointwise(Def{Name: "log1p", Doc: "log(1+x), accurate near zero.", Class: Keep, Why: whyRange, Poles: "takes the logarithm of 0 or less",
		Grad: along(func(b *Builder, x, _, d *Value) *Value { return b.Div(d, b.Affine(x, 1, 1)) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Log1p(x) }),
	OpSin: pointwise(Def{Name: "sin", Doc: "Sine of radians.", Class: Keep, Why: "large arguments need their last bits", Range: bounded(-1, 1),
		Grad: along(func(b *Builder, x, _, d *Value) *Value { return b.Mul(d, b.Cos(x)) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Sin(x) }),
	OpCos: pointwise(Def{Name: "cos", Doc: "Cosine of radians.", Class: Keep, Why: "large arguments need their last bits", Range: bounded(-1, 1),
		Grad: along(func(b *Builder, x, _, d *Value) *Value { return b.Neg(b.Mul(d, b.Sin(x))) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Cos(x) }),
	OpTan: pointwise(Def{Name: "tan", Doc: "Tangent of radians.", Class: Keep, Why: whyPoles,
		Grad: along(func(b *Builder, _, y, d *Value) *Value { return b.Mul(d, b.Affine(b.Square(y), 1, 1)) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Tan(x) }),
	OpAtan: pointwise(Def{Name: "atan", Doc: "Arc tangent in radians.", Class: PromoteC, Why: whySimple, Range: monotone(math.Atan),
		Grad: along(func(b *Builder, x, _, d *Value) *Value { return b.Div(d, b.Affine(b.Square(x), 1, 1)) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Atan(x) }),
	OpErf: pointwise(Def{Name: "erf", Doc: "Error function.", Class: PromoteC, Why: whySimple, Range: monotone(math.Erf),
		Grad: along(func(b *Builder, x, _, d *Value) *Value {
			return b.Mul(d, b.Affine(b.Exp(b.Neg(b.Square(x))), 2/math.Sqrt(math.Pi), 0))
		})}, func(c *Code, _ *Node, x Reg) Reg { return c.Erf(x) }),

	OpFloor: pointwise(Def{Name: "floor", Doc: "Largest integer not above x.", Class: Clear, Why: whyOrder, NoGrad: flat, Range: monotone(math.Floor)},
		func(c *Code, _ *Node, x Reg) Reg { return c.Floor(x) }),
	OpCeil: pointwise(Def{Name: "ceil", Doc: "Smallest integer not below x.", Class: Clear, Why: whyOrder, NoGrad: flat, Range: monotone(math.Ceil)},
		func(c *Code, _ *Node, x Reg) Reg { return c.Ceil(x) }),
	OpTrunc: pointwise(Def{Name: "trunc", Doc: "Nearest integer that is no farther from 0 than x; zeros keep their sign.", Class: Clear, Why: whyOrder, NoGrad: flat, Range: monotone(math.Trunc)},
		func(c *Code, _ *Node, x Reg) Reg {
			return c.Select(c.Lt(x, c.Like(x, 0)), c.Ceil(x), c.Floor(x))
		}),
	OpRoundEven: pointwise(Def{Name: "round_even", Doc: "Nearest integer, ties to even.", Class: Clear, Why: whyOrder, NoGrad: flat, Range: monotone(math.RoundToEven)},
		func(c *Code, _ *Node, x Reg) Reg { return c.Rint(x) }),
	OpClip: pointwise(Def{Name: "clip", Doc: "Limits x to [lo, hi]; NaN stays.", In: in(number("x")), Class: Clear, Why: whyOrder,
		Attrs: []AttrDef{{Name: "hi", Kind: AttrFloat, Takes: NotNaN, Default: math.Inf(1), Doc: "upper limit"}, {Name: "lo", Kind: AttrFloat, Takes: NotNaN, Default: math.Inf(-1), Doc: "lower limit"}},
		Grad:  along(func(b *Builder, x, y, d *Value) *Value { return b.Where(b.Eq(x, y), d, nil) }),
		Range: func(n *Node, in []Interval) []Interval {
			lo, hi := n.Float("lo"), n.Float("hi")
			return []Interval{{min(max(in[0].Lo, lo), hi), min(max(in[0].Hi, lo), hi), in[0].NaN}}
		}}, elemClip),
	OpNot: pointwise(Def{Name: "not", Doc: "Logical not of bools, bitwise of integers.", In: in(Operand{Name: "x", Kinds: KMask}), Class: Clear, Why: "logic", Unit: UnitAny, NoGrad: "not a float"},
		func(c *Code, _ *Node, x Reg) Reg { return c.Not(x) }),
	OpIsNaN: pointwise(Def{Name: "isnan", Doc: "Whether x is NaN.", Class: Clear, Why: "its result is a bool", Unit: UnitAny, Infer: inferPredicate, Out: out(Result{Name: "yes"}), NoGrad: "not a float"},
		func(c *Code, _ *Node, x Reg) Reg { return c.IsNaN(x) }),
	OpIsInf: pointwise(Def{Name: "isinf", Doc: "Whether x is infinite.", Class: Clear, Why: "its result is a bool", Unit: UnitAny, Infer: inferPredicate, Out: out(Result{Name: "yes"}), NoGrad: "not a float"},
		func(c *Code, _ *Node, x Reg) Reg { return c.IsInf(x) }),
}

// elemAffine omits the factor 1 and the addend 0, so that it is exact with only the other one.
// Integers truncate their constants.
func elemAffine(c *Code, n *Node, x Reg) Reg {
	if s := n.Float("scale"); s != 1 {
		x = c.Mul(x, c.Like(x, s))
	}
	if s := n.Float("shift"); s != 0 {
		x = c.Add(x, c.Like(x, s))
	}
	return x
}

func unitAffine(n *Node) (Unit, error) {
	if n.Float("shift") != 0 {
		return UnitOne(n)
	}
	return UnitSame(n)
}

// elemClip omits a limit that is infinite: integers have none.
func elemClip(c *Code, n *Node, x Reg) Reg {
	if lo := n.Float("lo"); !math.IsInf(lo, -1) {
		x = c.Max(x, c.Like(x, lo))
	}
	if hi := n.Float("hi"); !math.IsInf(hi, 1) {
		x = c.Min(x, c.Like(x, hi))
	}
	return x
}

func (b *Builder) unary(op Op, x *Value) *Value { return b.one(op, []*Value{x}, nil) }

// Neg returns -x.
//
//   - PyTorch: torch.neg.
func (b *Builder) Neg(x *Value) *Value { return b.unary(OpNeg, x) }

// Abs returns |x|.
//
//   - PyTorch: torch.abs.
func (b *Builder) Abs(x *Value) *Value { return b.unary(OpAbs, x) }

// Sign returns -1, 0 or 1.
//
//   - PyTorch: torch.sign.
func (b *Builder) Sign(x *Value) *Value { return b.unary(OpSign, x) }

// Sqrt returns the square root.
//
//   - PyTorch: torch.sqrt.
func (b *Builder) Sqrt(x *Value) *Value { return b.unary(OpSqrt, x) }

// Rsqrt returns 1/sqrt(x).
//
//   - PyTorch: torch.rsqrt.
func (b *Builder) Rsqrt(x *Value) *Value { return b.unary(OpRsqrt, x) }

// Square returns x·x.
//
//   - PyTorch: torch.square.
func (b *Builder) Square(x *Value) *Value { return b.unary(OpSquare, x) }

// Reciprocal returns 1/x.
//
//   - PyTorch: torch.reciprocal.
func (b *Builder) Reciprocal(x *Value) *Value { return b.unary(OpReciprocal, x) }

// Affine returns x·scale + shift.
//
//   - PyTorch: x*scale + shift.
func (b *Builder) Affine(x *Value, scale, shift float64) *Value {
	return b.one(OpAffine, []*Value{x}, A("scale", scale, "shift", shift))
}

// Exp returns eˣ.
//
//   - PyTorch: torch.exp.
func (b *Builder) Exp(x *Value) *Value { return b.unary(OpExp, x) }

// Expm1 returns eˣ-1.
//
//   - PyTorch: torch.expm1.
func (b *Builder) Expm1(x *Value) *Value { return b.unary(OpExpm1, x) }

// Log returns the natural logarithm.
//
//   - PyTorch: torch.log.
func (b *Builder) Log(x *Value) *Value { return b.unary(OpLog, x) }

// Log1p returns log(1+x).
//
//   - PyTorch: torch.log1p.
func (b *Builder) Log1p(x *Value) *Value { return b.unary(OpLog1p, x) }

// Sin returns the sine of radians.
//
//   - PyTorch: torch.sin.
func (b *Builder) Sin(x *Value) *Value { return b.unary(OpSin, x) }

// Cos returns the cosine of radians.
//
//   - PyTorch: torch.cos.
func (b *Builder) Cos(x *Value) *Value { return b.unary(OpCos, x) }

// Tan returns the tangent of radians.
//
//   - PyTorch: torch.tan.
func (b *Builder) Tan(x *Value) *Value { return b.unary(OpTan, x) }

// Atan returns the arc tangent in radians.
//
//   - PyTorch: torch.atan.
func (b *Builder) Atan(x *Value) *Value { return b.unary(OpAtan, x) }

// Erf returns the error function.
//
//   - PyTorch: torch.erf.
func (b *Builder) Erf(x *Value) *Value { return b.unary(OpErf, x) }

// Floor returns the largest integer not above x.
//
//   - PyTorch: torch.floor.
func (b *Builder) Floor(x *Value) *Value { return b.unary(OpFloor, x) }

// Ceil returns the smallest integer not below x.
//
//   - PyTorch: torch.ceil.
func (b *Builder) Ceil(x *Value) *Value { return b.unary(OpCeil, x) }

// Trunc returns x without its fraction: the nearest integer that is no farther from 0.
//
//   - PyTorch: torch.trunc.
func (b *Builder) Trunc(x *Value) *Value { return b.unary(OpTrunc, x) }

// RoundEven returns the nearest integer, ties to even.
//
//   - PyTorch: torch.round.
func (b *Builder) RoundEven(x *Value) *Value { return b.unary(OpRoundEven, x) }

// Clip limits x to [lo, hi]; an infinite limit is none.
//
//   - PyTorch: torch.clamp, F.hardtanh, F.relu6; limits are numbers.
func (b *Builder) Clip(x *Value, lo, hi float64) *Value {
	return b.one(OpClip, []*Value{x}, A("lo", lo, "hi", hi))
}

// Not returns the logical (bools) or bitwise (integers) complement.
//
//   - PyTorch: torch.logical_not, torch.bitwise_not.
func (b *Builder) Not(x *Value) *Value { return b.unary(OpNot, x) }

// IsNaN asks of each element whether it is NaN.
//
//   - Shapes: x[...] to the same.
//   - DTypes: x float; the result is bool.
//   - Errors: x is not a float.
//   - PyTorch: torch.isnan.
func (b *Builder) IsNaN(x *Value) *Value { return b.unary(OpIsNaN, x) }

// IsInf asks of each element whether it is infinite.
//
//   - Shapes: x[...] to the same.
//   - DTypes: x float; the result is bool.
//   - Errors: x is not a float.
//   - PyTorch: torch.isinf.
func (b *Builder) IsInf(x *Value) *Value { return b.unary(OpIsInf, x) }

package ranges

import (
	"math"

	"ampc/ir"
)

var inf = math.Inf(1)

// everything is the interval of a value about which nothing is known.
var everything = ir.Interval{Lo: -inf, Hi: inf, NaN: true}

func point(x float64) ir.Interval { return ir.Interval{Lo: x, Hi: x} }

// bounded reports whether both ends are finite.
func bounded(v ir.Interval) bool { return !math.IsInf(v.Lo, 0) && !math.IsInf(v.Hi, 0) }

// magnitude is the largest absolute value.
func magnitude(v ir.Interval) float64 { return max(-v.Lo, v.Hi) }

func union(a, b ir.Interval) ir.Interval {
	return ir.Interval{Lo: min(a.Lo, b.Lo), Hi: max(a.Hi, b.Hi), NaN: a.NaN || b.NaN}
}

// hull is the smallest interval that contains some values. NaN among them (from 0·Inf, Inf−Inf)
// means that the bound is not known and that NaN is possible.
func hull(nan bool, xs ...float64) ir.Interval {
	v := ir.Interval{Lo: inf, Hi: -inf, NaN: nan}
	for _, x := range xs {
		if math.IsNaN(x) {
			return everything
		}
		v.Lo, v.Hi = min(v.Lo, x), max(v.Hi, x)
	}
	return v
}

// product is 0 if one factor is, even if the other is infinite: a bound is not a value.
func product(x, y float64) float64 {
	if x == 0 || y == 0 {
		return 0
	}
	return x * y
}

func mul(a, b ir.Interval) ir.Interval {
	nan := a.NaN || b.NaN || contains(a, 0) && !bounded(b) || contains(b, 0) && !bounded(a)
	return hull(nan, product(a.Lo, b.Lo), product(a.Lo, b.Hi), product(a.Hi, b.Lo), product(a.Hi, b.Hi))
}

func add(a, b ir.Interval) ir.Interval {
	nan := a.NaN || b.NaN || math.IsInf(a.Lo, -1) && math.IsInf(b.Hi, 1) || math.IsInf(a.Hi, 1) && math.IsInf(b.Lo, -1)
	return ir.Interval{Lo: a.Lo + b.Lo, Hi: a.Hi + b.Hi, NaN: nan}
}

func neg(a ir.Interval) ir.Interval { return ir.Interval{Lo: -a.Hi, Hi: -a.Lo, NaN: a.NaN} }

func contains(a ir.Interval, x float64) bool { return a.Lo <= x && x <= a.Hi }

func div(a, b ir.Interval) ir.Interval {
	if b.Lo < 0 && b.Hi > 0 || b.Lo == 0 && b.Hi == 0 {
		return everything
	}
	inverse := ir.Interval{Lo: 1 / b.Hi, Hi: 1 / b.Lo, NaN: b.NaN || contains(b, 0) && contains(a, 0)}
	if b.Lo == 0 {
		inverse.Hi = inf
	}
	if b.Hi == 0 {
		inverse.Lo = -inf
	}
	return mul(a, inverse)
}

// rising applies a function that does not decrease.
func rising(a ir.Interval, f func(float64) float64) ir.Interval {
	return hull(a.NaN, f(a.Lo), f(a.Hi))
}

// domain is rising for functions that are NaN below lo.
func domain(a ir.Interval, lo float64, f func(float64) float64) ir.Interval {
	if a.Hi < lo {
		return everything
	}
	v := hull(false, f(max(a.Lo, lo)), f(a.Hi))
	v.NaN = a.NaN || a.Lo < lo
	return v
}

func abs(a ir.Interval) ir.Interval {
	lo := 0.0
	if !contains(a, 0) {
		lo = min(math.Abs(a.Lo), math.Abs(a.Hi))
	}
	return ir.Interval{Lo: lo, Hi: magnitude(a), NaN: a.NaN}
}

func within(lo, hi float64) func(ir.Interval) ir.Interval {
	return func(a ir.Interval) ir.Interval { return ir.Interval{Lo: lo, Hi: hi, NaN: a.NaN || !bounded(a)} }
}

func lift(f func(float64) float64) func(ir.Interval) ir.Interval {
	return func(a ir.Interval) ir.Interval { return rising(a, f) }
}

// unary and binary are the interval forms of the primitives.
var unary = map[ir.Prim]func(ir.Interval) ir.Interval{
	ir.PNeg: neg, ir.PAbs: abs, ir.PFloor: lift(math.Floor), ir.PCeil: lift(math.Ceil), ir.PRint: lift(math.RoundToEven),
	ir.PSqrt: func(a ir.Interval) ir.Interval { return domain(a, 0, math.Sqrt) },
	ir.PLog:  func(a ir.Interval) ir.Interval { return domain(a, 0, math.Log) }, ir.PLog1p: func(a ir.Interval) ir.Interval { return domain(a, -1, math.Log1p) },
	ir.PExp: lift(math.Exp), ir.PExpm1: lift(math.Expm1), ir.PErf: lift(math.Erf), ir.PTanh: lift(math.Tanh), ir.PAtan: lift(math.Atan),
	ir.PSin: within(-1, 1), ir.PCos: within(-1, 1), ir.PTan: func(ir.Interval) ir.Interval { return everything },
}

var binary = map[ir.Prim]func(a, b ir.Interval) ir.Interval{
	ir.PAdd: add, ir.PSub: func(a, b ir.Interval) ir.Interval { return add(a, neg(b)) }, ir.PMul: mul, ir.PDiv: div, ir.PPow: pow,
	ir.PMin: func(a, b ir.Interval) ir.Interval {
		return ir.Interval{Lo: min(a.Lo, b.Lo), Hi: min(a.Hi, b.Hi), NaN: a.NaN || b.NaN}
	},
	ir.PMax: func(a, b ir.Interval) ir.Interval {
		return ir.Interval{Lo: max(a.Lo, b.Lo), Hi: max(a.Hi, b.Hi), NaN: a.NaN || b.NaN}
	},
}

func pow(a, b ir.Interval) ir.Interval {
	if a.Lo < 0 {
		return everything
	}
	return hull(a.NaN || b.NaN, math.Pow(a.Lo, b.Lo), math.Pow(a.Lo, b.Hi), math.Pow(a.Hi, b.Lo), math.Pow(a.Hi, b.Hi))
}

// code evaluates elementwise code over intervals. Two occurrences of one operand count as
// independent, so x−x is not known to be 0: bounds are safe, not tight.
func code(c *ir.Code, results []ir.Reg, in []ir.Interval, elements float64) []ir.Interval {
	reg := make([]ir.Interval, len(c.Ins))
	for k, i := range c.Ins {
		reg[k] = instr(i, reg, in, elements)
	}
	out := make([]ir.Interval, len(results))
	for k, r := range results {
		out[k] = reg[r]
	}
	return out
}

func instr(i ir.Instr, reg, in []ir.Interval, elements float64) ir.Interval {
	if f := unary[i.Op]; f != nil {
		return f(reg[i.A])
	}
	if f := binary[i.Op]; f != nil {
		return f(reg[i.A], reg[i.B])
	}
	switch i.Op {
	case ir.PIn:
		return in[i.Int]
	case ir.PConst:
		if i.Type.Float() {
			return point(i.Imm)
		}
		return point(float64(i.Int))
	case ir.PIndex:
		return ir.Interval{Lo: 0, Hi: max(elements-1, 0)}
	case ir.PFma:
		return add(mul(reg[i.A], reg[i.B]), reg[i.C])
	case ir.PSelect:
		return union(reg[i.B], reg[i.C])
	case ir.PPhilox:
		return ir.Interval{Lo: 0, Hi: 1<<32 - 1}
	case ir.PRound:
		return stored(reg[i.A], i.To)
	case ir.PConv:
		if !i.Type.Float() {
			return rising(ir.Interval{Lo: reg[i.A].Lo, Hi: reg[i.A].Hi}, math.Trunc)
		}
		return reg[i.A]
	}
	return ir.Interval{Lo: 0, Hi: 1} // comparisons and logic
}

package ir

import (
	"fmt"
	"math"
	"slices"
)

// Helpers of the rows that mix elements: products, windows, norms.

// fits reports whether two dimensions may be equal: they are, or one is unknown.
func fits(a, b Dim) bool { return a == b || a == UnknownDim || b == UnknownDim }

// narrow returns the known one of two dimensions that fit.
func narrow(a, b Dim) Dim { return max(a, b) }

// lowDType is the stored dtype of a Low row: out, or the common dtype of its Low operands.
func (n *Node) lowDType() DType {
	d := Invalid
	for i, v := range n.In {
		if v == nil || !v.Type.DType.Float() || n.OperandClass(i) != Low {
			continue
		}
		if d == Invalid {
			d = v.Type.DType
		}
		d = Promote(d, v.Type.DType)
	}
	return n.outDType(d)
}

// keptDType is the stored dtype of a Keep row: out, or f32 (f64 if an operand is f64).
func (n *Node) keptDType() DType { return n.outDType(n.statDType()) }

// statDType is the dtype of statistics, sums and counts: f32, or f64 if an operand is f64.
func (n *Node) statDType() DType {
	for _, v := range n.In {
		if v != nil && v.Type.DType == F64 {
			return F64
		}
	}
	return F32
}

// wantRank fails unless v's rank is in [lo, hi] or unknown.
func wantRank(what string, v *Value, lo, hi int) error {
	switch r := v.Type.Shape.Rank(); {
	case !v.Type.Shape.Known() || r >= lo && r <= hi:
		return nil
	case lo == hi:
		return fmt.Errorf("%s %s has type %s, want rank %d", what, v, v.Type, lo)
	case hi >= MaxRank:
		return fmt.Errorf("%s %s has type %s, want rank %d or more", what, v, v.Type, lo)
	default:
		return fmt.Errorf("%s %s has type %s, want rank %d to %d", what, v, v.Type, lo, hi)
	}
}

// wantShape fails unless v (nil: absent) has the given dimensions.
func wantShape(what string, v *Value, d ...Dim) error {
	if v == nil || !v.Type.Shape.Known() {
		return nil
	}
	got := v.Type.Shape.Dims()
	ok := len(got) == len(d)
	for i := 0; ok && i < len(d); i++ {
		ok = fits(got[i], d[i])
	}
	if !ok {
		return fmt.Errorf("%s %s has type %s, want shape %s", what, v, v.Type, dimsString(d, nil))
	}
	return nil
}

// firstError returns the first of errs that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// operand returns operand i, nil where it is absent.
func (n *Node) operand(i int) *Value {
	if i >= len(n.In) {
		return nil
	}
	return n.In[i]
}

// values is an operand list without the absent ones at its end.
func values(vs ...*Value) []*Value {
	for len(vs) > 0 && vs[len(vs)-1] == nil {
		vs = vs[:len(vs)-1]
	}
	return vs
}

// size is a dimension in cost formulas, which know no graph: symbols count as defaultNominal.
func size(d Dim) int64 {
	if d < 0 {
		return defaultNominal
	}
	return int64(d)
}

// count is the number of elements in cost formulas.
func count(t Type) int64 {
	if !t.Shape.Known() {
		return unknownElements
	}
	n := int64(1)
	for _, d := range t.Shape.Dims() {
		n *= size(d)
	}
	return n
}

// flops is the cost of k flops per element of operand i.
func flops(i int, k int64) func(*Node) Cost {
	return func(n *Node) Cost { return Cost{Flops: k * count(n.In[i].Type)} }
}

// magnitude is the largest absolute value of an interval.
func (v Interval) magnitude() float64 { return max(-v.Lo, v.Hi, v.Lo, -v.Hi) }

// sure is k if every dimension of s is a number, and infinite otherwise: a range must not depend on
// a nominal size.
func sure(s Shape, k int64) float64 {
	if !s.Static() {
		return math.Inf(1)
	}
	return float64(k)
}

// around is the interval of values whose magnitude is at most m. If m is infinite, or was computed
// from 0·Inf, they may be NaN.
func around(m float64, nan bool) Interval {
	if m != m || math.IsInf(m, 0) {
		return Interval{Lo: math.Inf(-1), Hi: math.Inf(1), NaN: true}
	}
	return Interval{Lo: -m, Hi: m, NaN: nan}
}

// within is the interval of values between those of in[i]: means, maxima, choices.
func within(i int) func(*Node, []Interval) []Interval {
	return func(_ *Node, in []Interval) []Interval { return []Interval{in[i]} }
}

// only keeps the named attributes, which a gradient row shares with its row.
func (a Attrs) only(names ...string) Attrs {
	return slices.DeleteFunc(slices.Clone(a), func(x Attr) bool { return !slices.Contains(names, x.Name) })
}

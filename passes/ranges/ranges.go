// Package ranges bounds the values of a training step in two ways. Static intervals follow from
// initializers, norms, softmax, constants and the lengths of reductions, through forward, backward
// and update. Recorded ranges come from running the step. Findings are values that overflow or
// underflow in their stored dtype, and constants and updates that are lost in it.
//
// Static intervals are valid for the first step: weights have the range of their initializers
// (times Options.Growth), inputs that of Options.Inputs or of their kind. Operands count as
// independent; see Moore, Interval Analysis, 1966.
package ranges

import (
	"math"

	"ampc/ir"
	"ampc/ir/eval"
)

// Options are assumptions that the graph does not contain.
type Options struct {
	Inputs map[string]ir.Interval // of float inputs; an input without one is unbounded
	Growth float64                // weights may grow to this multiple of their initial range; 0: 1
	// Recorded ranges replace static ones.
	Recorded map[string]Recorded
}

// Result holds the interval of every value of a graph.
type Result struct {
	g  *ir.Graph
	in []ir.Interval // by Value.ID
	o  Options
}

// Of returns the interval of v before it is rounded to its stored dtype.
func (r *Result) Of(v *ir.Value) ir.Interval { return r.in[v.ID] }

// Static computes the intervals of all values of g. It numbers the graph.
func Static(g *ir.Graph, o Options) *Result {
	values, _ := g.Number()
	r := &Result{g: g, in: make([]ir.Interval, values), o: o}
	for _, v := range g.Vars {
		r.in[v.ID] = r.variable(v)
	}
	for _, n := range g.Nodes {
		r.node(n)
	}
	return r
}

// maxNormal is the largest magnitude of a draw from a standard normal distribution here: the
// inverse CDF at 2^-33.
const maxNormal = 6.5

func (r *Result) variable(v *ir.Value) ir.Interval {
	if rec, ok := r.o.Recorded[v.Name]; ok {
		return rec.interval()
	}
	if iv, ok := r.o.Inputs[v.Name]; ok {
		return iv
	}
	switch {
	case v.Type.DType == ir.Bool:
		return ir.Interval{Lo: 0, Hi: 1}
	case !v.Type.DType.Float():
		return ir.Interval{Lo: math.MinInt32, Hi: math.MaxInt32}
	case v.Kind == ir.Input:
		return everything
	case v.Attr.Get("role") == ir.RoleScale:
		return r.scale(v)
	}
	iv := initial(v.Init)
	switch {
	case v.Kind == ir.Const:
	case v.Kind == ir.State && r.g.NextOf(v) != nil:
		return everything // moments and averages depend on the gradients
	case r.o.Growth > 1:
		iv = mul(iv, ir.Interval{Lo: 1, Hi: r.o.Growth})
	}
	return iv
}

// scale is the range in which the row that updates a loss scale keeps it.
func (r *Result) scale(v *ir.Value) ir.Interval {
	iv := initial(v.Init)
	next := r.g.NextOf(v)
	if next == nil || next.Def.Op != ir.OpUpdateScale {
		return iv
	}
	top := next.Def.Float("cap")
	if top == 0 {
		top = math.MaxFloat32
	}
	return union(iv, ir.Interval{Lo: next.Def.Float("floor"), Hi: top})
}

func initial(i *ir.Init) ir.Interval {
	if i == nil {
		return point(0)
	}
	a := i.Args
	around := func(mean, reach float64) ir.Interval { return ir.Interval{Lo: mean - reach, Hi: mean + reach} }
	switch i.Func {
	case "":
		return point(a[0])
	case "zeros":
		return point(0)
	case "ones":
		return point(1)
	case "normal":
		return around(a[0], maxNormal*a[1])
	case "trunc_normal":
		return around(a[0], 2*a[1])
	case "uniform":
		return ir.Interval{Lo: a[0], Hi: a[1]}
	case "kaiming":
		return around(0, maxNormal*math.Sqrt(2/a[0]))
	case "xavier":
		return around(0, math.Sqrt(6/(a[0]+a[1])))
	case "data":
		return hull(false, a...)
	}
	return everything
}

// node bounds the results of n by the row's own rule, by its elementwise code, or not at all. It
// does not round: Of is the interval before the stored dtype.
func (r *Result) node(n *ir.Node) {
	in := make([]ir.Interval, len(n.In))
	for i, v := range n.In {
		if v != nil {
			in[i] = stored(r.in[v.ID], v.Type.DType)
		}
	}
	for i, iv := range r.results(n, in) {
		v := n.Out[i]
		if rec, ok := r.recorded(v); ok {
			iv = rec.interval()
		}
		r.in[v.ID] = iv
	}
}

func (r *Result) results(n *ir.Node, in []ir.Interval) []ir.Interval {
	d := n.Def()
	out := make([]ir.Interval, len(n.Out))
	for i, v := range n.Out {
		out[i] = everything
		if v.Type.DType == ir.Bool {
			out[i] = ir.Interval{Lo: 0, Hi: 1}
		}
	}
	switch {
	case d.Range != nil:
		copy(out, d.Range(n, in))
	case d.Elem != nil:
		c, regs := ir.NodeCode(n)
		copy(out, code(c, regs, in, float64(r.g.Elements(n.Out[0].Type))))
	}
	return out
}

// stored is an interval rounded to d.
func stored(v ir.Interval, d ir.DType) ir.Interval {
	if !d.Low() || v == everything {
		return v
	}
	v.Lo, v.Hi = eval.Round(v.Lo, d), eval.Round(v.Hi, d)
	return v
}

// recorded is the recorded range of v.
func (r *Result) recorded(v *ir.Value) (Recorded, bool) { return recorded(r.o.Recorded, v) }

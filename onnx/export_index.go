package onnx

import (
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

var indexExports = []export{
	{op: ir.OpEmbedding, to: "Gather", since: 13, reads: readsIndices, write: func(x *exporter, n *ir.Node) { x.indexed(n, "Gather", "axis", 0) }},
	{op: ir.OpGather, to: "Gather", since: 13, reads: readsIndices, write: func(x *exporter, n *ir.Node) { x.indexed(n, "Gather", "axis", n.Int("axis")) }},
	{op: ir.OpGatherElements, to: "GatherElements", since: 13, reads: readsIndices, write: func(x *exporter, n *ir.Node) { x.indexed(n, "GatherElements", "axis", n.Int("axis")) }},
	{op: ir.OpScatter, to: "ScatterElements", since: 13, reads: readsIndices, write: func(x *exporter, n *ir.Node) { x.indexed(n, "ScatterElements", "axis", n.Int("axis")) }},
	{op: ir.OpScatterAdd, to: "ScatterElements", since: 16, reads: readsIndices, write: func(x *exporter, n *ir.Node) {
		x.indexed(n, "ScatterElements", "axis", n.Int("axis"), "reduction", "add")
	}},
	written(ir.OpOneHot, "Equal", 13, exportOneHot),
	pointing(ir.OpArgmax, "ArgMax"), pointing(ir.OpArgmin, "ArgMin"),
	{op: ir.OpTopK, to: "TopK", since: 11, write: func(x *exporter, n *ir.Node) {
		index := x.pointed(n, 1)
		x.ops([]string{x.result(n, 0), index}, "TopK", []string{x.in(n, 0), x.ints(n.Int("k"))}, "axis", n.Int("axis"), "largest", !n.Flag("smallest"))
		x.narrow(n, 1, index)
	}},
	written(ir.OpCumsum, "CumSum", 14, func(x *exporter, n *ir.Node) string {
		axis := x.constant(eval.Ints(ir.I64, nil, n.Int("axis")))
		return x.op(x.result(n, 0), "CumSum", []string{x.in(n, 0), axis}, "exclusive", n.Flag("exclusive"), "reverse", n.Flag("reverse"))
	}),
}

// indices is operand 1 before indices from the end were counted from the front:
// operators of ONNX do that themselves.
func indices(n *ir.Node) *ir.Value {
	v := n.In[1]
	w := v.Def
	if w == nil || w.Op != ir.OpWhere || len(w.In) < 3 || w.In[2] == nil || w.In[0].Def == nil || w.In[1].Def == nil {
		return v
	}
	ids, below, sum := w.In[2], w.In[0].Def, w.In[1].Def
	if below.Op == ir.OpLt && below.In[0] == ids && number(below.In[1], 0) && sum.Op == ir.OpAdd && sum.In[0] == ids && number(sum.In[1], axisSize(n)) {
		return ids
	}
	return v
}

// axisSize is the size of the axis that indices point into.
func axisSize(n *ir.Node) float64 {
	s := n.In[0].Type.Shape
	a := n.Int("axis")
	if n.Op == ir.OpEmbedding {
		a = 0
	}
	if a < 0 {
		a += int64(s.Rank())
	}
	return float64(s.Dims()[a])
}

// number reports whether v is x everywhere.
func number(v *ir.Value, x float64) bool {
	switch {
	case v.Def != nil:
		y, ok := v.Filled()
		return ok && y == x
	case v.Kind == ir.Const && v.Init != nil && (v.Init.Func == "" || v.Init.Func == "data") && len(v.Init.Args) == 1:
		return v.Init.Args[0] == x
	case v.Kind == ir.Const && v.Type.Shape.Elements() == 1:
		e, err := eval.InitVar(v, 0)
		return err == nil && e.At(0) == x
	}
	return false
}

func readsIndices(n *ir.Node) []*ir.Value {
	in := slices.Clone(n.In)
	in[1] = indices(n)
	return in
}

func (x *exporter) indexed(n *ir.Node, op string, attrs ...any) {
	in := x.ins(n)
	in[1] = x.name(indices(n))
	x.op(x.result(n, 0), op, in, attrs...)
}

func exportOneHot(x *exporter, n *ir.Node) string {
	t := n.Out[0].Type
	rank, a := t.Shape.Rank(), n.Int("axis")
	if a < 0 {
		a += int64(rank)
	}
	ids := x.op("", "Unsqueeze", []string{x.in(n, 0), x.ints(a)})
	hot := x.op("", "Equal", []string{ids, x.along(n.In[0].Type.DType, rank, a, n.Int("depth"))})
	return x.op(x.result(n, 0), "Cast", []string{hot}, "to", int64(TypeOf(t.DType)))
}

func pointing(op ir.Op, to string) export {
	return export{op: op, to: to, since: 13, write: func(x *exporter, n *ir.Node) {
		index := x.pointed(n, 0)
		x.op(index, to, x.ins(n), "axis", n.Int("axis"), "keepdims", n.Flag("keep"))
		x.narrow(n, 0, index)
	}}
}

// pointed is the name of indices as ONNX makes them, in 64 bits: that of a cast
// of ours to these, where there is one.
func (x *exporter) pointed(n *ir.Node, i int) string {
	if n.Out[i].Type.DType == ir.I64 {
		return x.result(n, i)
	}
	for _, r := range x.needed[n.Out[i]] {
		if r.Op == ir.OpCast && r.Out[0].Type.DType == ir.I64 && x.vals[r.Out[0]] == "" {
			return x.result(r, 0)
		}
	}
	return x.fresh(n.Out[i].Name + ".i64")
}

// narrow converts result i of n to our type if anything reads it in that type.
func (x *exporter) narrow(n *ir.Node, i int, index string) {
	v := n.Out[i]
	if v.Type.DType != ir.I64 && x.read(v) {
		x.op(x.result(n, i), "Cast", []string{index}, "to", int64(TypeOf(v.Type.DType)))
	} else {
		x.vals[v] = index
	}
}

// read reports whether a node that is not yet written reads v.
func (x *exporter) read(v *ir.Value) bool {
	return slices.Contains(x.g.Return, v) || slices.ContainsFunc(x.needed[v], func(r *ir.Node) bool { return x.vals[r.Out[0]] == "" })
}

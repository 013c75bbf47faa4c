package onnx

import (
	"cmp"
	"slices"
	"sync"

	"ampc/ir"
)

// export is the other half of a row: how one of our ops is written with the
// row's operator.
type export struct {
	op    ir.Op
	to    string // the operator
	since int64  // the first opset that has it so
	rank  int    // among those of one opset: the first that says a node writes it
	// when says whether it says this node; nil: any.
	when func(x *exporter, n *ir.Node) bool
	// reads are the values that are read; nil: all operands.
	reads func(n *ir.Node) []*ir.Value
	write func(x *exporter, n *ir.Node)
}

// exports are all ways to write each op, the latest opset first: those of the rows, and
// nodes that were carried.
var exports = sync.OnceValue(func() map[ir.Op][]export {
	t := map[ir.Op][]export{ir.OpForeign: foreignExports}
	for _, r := range table() {
		for _, e := range r.exports {
			t[e.op] = append(t[e.op], e)
		}
	}
	for _, op := range ir.Ops() {
		if d := op.Def(); t[op] == nil && d.Elem != nil && d.Expand == nil && d.GradOf == ir.OpInvalid && d.Class != ir.Fixed {
			t[op] = []export{codeForm(op)}
		}
	}
	for _, list := range t {
		slices.SortFunc(list, func(a, b export) int {
			return cmp.Or(cmp.Compare(b.since, a.since), cmp.Compare(a.rank, b.rank))
		})
	}
	return t
})

// same is an op that is one operator with the same operands and without attributes.
func same(op ir.Op, to string, since int64) export {
	return export{op: op, to: to, since: since, write: func(x *exporter, n *ir.Node) { x.op(x.result(n, 0), to, x.ins(n)) }}
}

// written is one that several nodes say, of which to is the main one.
func written(op ir.Op, to string, since int64, f func(x *exporter, n *ir.Node) string) export {
	return export{op: op, to: to, since: since, write: func(x *exporter, n *ir.Node) {
		if name := f(x, n); x.vals[n.Out[0]] == "" {
			x.vals[n.Out[0]] = name
		}
	}}
}

// attributed is one operator with attributes made of the node.
func attributed(op ir.Op, to string, since int64, f func(n *ir.Node) []any) export {
	return export{op: op, to: to, since: since, write: func(x *exporter, n *ir.Node) {
		x.op(x.result(n, 0), to, x.ins(n), f(n)...)
	}}
}

// only is e for some nodes.
func only(e export, when func(x *exporter, n *ir.Node) bool) export {
	e.when = when
	return e
}

// bools is e for truth values, ints for integers.
func bools(_ *exporter, n *ir.Node) bool { return n.In[0].Type.DType == ir.Bool }
func ints(x *exporter, n *ir.Node) bool  { return !bools(x, n) }
func floats(_ *exporter, n *ir.Node) bool {
	return n.In[0].Type.DType.Float()
}

// firstOnly reports whether nothing reads the results behind the first.
func firstOnly(x *exporter, n *ir.Node) bool {
	return !slices.ContainsFunc(n.Out[1:], x.wants)
}

// static reports whether all sizes are known.
func static(_ *exporter, n *ir.Node) bool {
	for _, v := range slices.Concat(n.In, n.Out) {
		if v != nil && !v.Type.Shape.Static() {
			return false
		}
	}
	return true
}

// sized reports whether the sizes of operand 0 and of the first result are known from axis first on:
// the batch before them may have a name.
func sized(n *ir.Node, first int) bool {
	for _, t := range []ir.Type{n.In[0].Type, n.Out[0].Type} {
		if !t.Shape.Known() || t.Shape.Rank() < first || slices.ContainsFunc(t.Shape.Dims()[first:], func(d ir.Dim) bool { return d < 0 }) {
			return false
		}
	}
	return true
}

// upper reports whether channels stand second.
func upper(_ *exporter, n *ir.Node) bool { return n.Str("layout") != "NHWC" }

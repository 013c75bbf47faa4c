package onnx

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"ampc/ir"
)

// row says how one operator of ONNX is understood.
type row struct {
	domain string
	op     string
	since  int64  // the first opset version that is read; all later ones are
	ours   string // the ops it becomes, for docs/onnx-ops.md
	not    string // what of it is refused, for docs/onnx-ops.md
	single bool   // f64 is computed in f32
	own    bool   // results have a dtype of their own, not that of operand 0
	stats  bool   // all results but the first have
	exact  bool   // computed in f32 under every policy
	// imp builds the node and returns its results, nil for one that is not
	// computed. It may run twice: in a scratch graph, and in the graph.
	imp func(c *call) []*ir.Value
	// values imports what is more than ops on tensors; imp is nil then.
	values func(c *call) []*value
	// exports are the ops of ours that are written with the operator, and how.
	exports []export
}

type rowKey struct{ domain, op string }

var table = sync.OnceValue(func() map[rowKey]*row {
	t := map[rowKey]*row{}
	for i, rows := range [][]row{linearRows, windowRows, normRows, softmaxRows, lossRows, resizeRows, recurrentRows, attentionRows, unaryRows, binaryRows, shapeRows, indexRows, scatterRows, reduceRows, trainingRows, valueRows, quantRows, contribRows, contribAttentionRows, moreRows} {
		for k := range rows {
			r := rows[k]
			r.single = r.single || i < 8 // the families that kernels have no f64 for
			t[rowKey{r.domain, r.op}] = &r
		}
	}
	rank := 0
	for _, list := range [][]export{elementExports, shapeExports, indexExports, reduceExports, linearExports, windowExports, normExports, sequenceExports} {
		for _, e := range list {
			rank++
			e.rank = rank
			r := t[rowKey{"", e.to}] // what is written is read, too: a nil row would panic in every test
			r.exports = append(r.exports, e)
		}
	}
	return t
})

// RowDoc is a row of the table, for documentation.
type RowDoc struct {
	Domain, Op string
	Since      int64
	Ours, Not  string
	Exports    []ExportDoc
}

// ExportDoc is an op of ours that is written with an operator, from an opset on.
type ExportDoc struct {
	Op    ir.Op
	Since int64
}

// Rows lists the operators that are understood, sorted by domain and name.
func Rows() []RowDoc {
	var out []RowDoc
	for _, r := range table() {
		d := RowDoc{Domain: r.domain, Op: r.op, Since: r.since, Ours: r.ours, Not: r.not}
		for _, e := range r.exports {
			d.Exports = append(d.Exports, ExportDoc{e.op, max(e.since, leastOpset)})
		}
		slices.SortFunc(d.Exports, func(a, b ExportDoc) int {
			return cmp.Or(strings.Compare(a.Op.String(), b.Op.String()), cmp.Compare(a.Since, b.Since))
		})
		d.Exports = slices.Compact(d.Exports)
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b RowDoc) int {
		return strings.Compare(a.Domain+" "+a.Op, b.Domain+" "+b.Op)
	})
	return out
}

func one(y *ir.Value) []*ir.Value { return []*ir.Value{y} }

package onnx

import (
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
	return t
})

// RowDoc is a row of the table, for documentation.
type RowDoc struct {
	Domain, Op string
	Since      int64
	Ours, Not  string
}

// Rows lists the operators that are understood, sorted by domain and name.
func Rows() []RowDoc {
	var out []RowDoc
	for _, r := range table() {
		out = append(out, RowDoc{r.domain, r.op, r.since, r.ours, r.not})
	}
	slices.SortFunc(out, func(a, b RowDoc) int {
		return strings.Compare(a.Domain+" "+a.Op, b.Domain+" "+b.Op)
	})
	return out
}

func one(y *ir.Value) []*ir.Value { return []*ir.Value{y} }

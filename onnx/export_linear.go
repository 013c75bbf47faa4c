package onnx

import (
	"slices"

	"ampc/ir"
)

var linearExports = []export{
	written(ir.OpMatmul, "MatMul", 13, exportMatmul),
	written(ir.OpLinear, "Gemm", 13, exportLinear),
	only(written(ir.OpAttention, "MatMul", 13, exportAttention), firstOnly),
	only(written(ir.OpAttention, "Attention", 23, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "Attention", x.ins(n), "scale", n.AttentionScale(), "is_causal", n.Flag("causal"))
	}), func(x *exporter, n *ir.Node) bool {
		q, k := n.In[0].Type.Shape.Dims(), n.In[1].Type.Shape.Dims()
		return firstOnly(x, n) && (!n.Flag("causal") || q[2] == k[2])
	}),
	only(written(ir.OpRope, "Cos", 13, exportRope), static),
}

// flipped is operand i with its last two axes exchanged.
func (x *exporter) flipped(n *ir.Node, i int) string {
	var perm []int64
	rank := n.In[i].Type.Shape.Rank()
	for k := range rank {
		perm = append(perm, int64(k))
	}
	perm[rank-1], perm[rank-2] = perm[rank-2], perm[rank-1]
	return x.op("", "Transpose", []string{x.in(n, i)}, "perm", perm)
}

// exportMatmul is a Gemm where matrices stand transposed and are no stacks.
func exportMatmul(x *exporter, n *ir.Node) string {
	ta, tb := n.Flag("ta"), n.Flag("tb")
	a, b := x.in(n, 0), x.in(n, 1)
	if (ta || tb) && n.In[0].Type.Shape.Rank() == 2 && n.In[1].Type.Shape.Rank() == 2 {
		return x.op(x.result(n, 0), "Gemm", []string{a, b}, "transA", ta, "transB", tb)
	}
	if ta {
		a = x.flipped(n, 0)
	}
	if tb {
		b = x.flipped(n, 1)
	}
	return x.op(x.result(n, 0), "MatMul", []string{a, b})
}

func exportLinear(x *exporter, n *ir.Node) string {
	tb := n.Flag("tb")
	if n.In[0].Type.Shape.Rank() == 2 {
		return x.op(x.result(n, 0), "Gemm", x.ins(n), "transB", tb)
	}
	w := x.in(n, 1)
	if tb {
		w = x.flipped(n, 1)
	}
	if x.in(n, 2) == "" {
		return x.op(x.result(n, 0), "MatMul", []string{x.in(n, 0), w})
	}
	return x.op(x.result(n, 0), "Add", []string{x.op("", "MatMul", []string{x.in(n, 0), w}), x.in(n, 2)})
}

// exportAttention multiplies the queries by the scale first: the scores are as
// large as they are after it, which matters in f16.
func exportAttention(x *exporter, n *ir.Node) string {
	d := n.In[0].Type.DType
	q, k := n.In[0].Type.Shape.Dims(), n.In[1].Type.Shape.Dims()
	query := x.op("", "Mul", []string{x.in(n, 0), x.lit(d, n.AttentionScale())})
	key, value := x.in(n, 1), x.in(n, 2)
	if q[1] != k[1] {
		key, value = x.repeated(n, 1), x.repeated(n, 2)
	}
	key = x.op("", "Transpose", []string{key}, "perm", []int64{0, 1, 3, 2})
	scores := x.op("", "MatMul", []string{query, key})
	if mask := x.in(n, 3); mask != "" {
		scores = x.op("", "Add", []string{scores, mask})
	}
	if n.Flag("causal") {
		if q[2] < 0 || k[2] < 0 {
			x.fail("its lengths are not known: give its dimensions sizes")
			return ""
		}
		rows, cols := x.rowsFrom(int64(q[2]), int64(k[2]-q[2])), x.along(ir.I64, 2, 1, int64(k[2]))
		seen := x.op("", "LessOrEqual", []string{cols, rows})
		scores = x.op("", "Where", []string{seen, scores, x.lit(d, minusInf)})
	}
	return x.op(x.result(n, 0), "MatMul", []string{x.op("", "Softmax", []string{scores}, "axis", -1), value})
}

// repeated is operand i with each head standing as often as queries share it.
func (x *exporter) repeated(n *ir.Node, i int) string {
	d := ir.Sizes(n.In[i].Type.Shape)
	times := int64(n.In[0].Type.Shape.Dims()[1]) / d[1]
	if slices.Min(d) < 0 {
		x.fail("its sizes are not known: give its dimensions sizes")
	}
	wide := x.op("", "Expand", []string{x.view(x.in(n, i), d[0], d[1], 1, d[2], d[3]), x.ints(d[0], d[1], times, d[2], d[3])})
	return x.view(wide, d[0], d[1]*times, d[2], d[3])
}

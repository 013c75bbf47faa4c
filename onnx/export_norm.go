package onnx

import (
	"slices"

	"ampc/ir"
)

var normExports = []export{
	attributed(ir.OpSoftmax, "Softmax", 13, func(n *ir.Node) []any { return []any{"axis", n.Int("axis")} }),
	attributed(ir.OpLogSoftmax, "LogSoftmax", 13, func(n *ir.Node) []any { return []any{"axis", n.Int("axis")} }),
	{op: ir.OpLayerNorm, to: "LayerNormalization", since: 17, when: func(x *exporter, n *ir.Node) bool { return static(x, n) || firstOnly(x, n) && normSized(n) }, write: exportLayerNorm},
	only(written(ir.OpRMSNorm, "RMSNormalization", 23, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "RMSNormalization", []string{x.in(n, 0), x.ofLast(n, 1, 1)}, "axis", -n.Int("dims"), "epsilon", n.Float("eps"))
	}), func(x *exporter, n *ir.Node) bool { return firstOnly(x, n) && normSized(n) }),
	only(written(ir.OpGroupNorm, "GroupNormalization", 21, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "GroupNormalization", x.scaled(n), "num_groups", n.Int("groups"), "epsilon", n.Float("eps"))
	}), plainNorm),
	only(written(ir.OpGroupNorm, "InstanceNormalization", 13, exportGroupNorm), func(x *exporter, n *ir.Node) bool { return plainNorm(x, n) && static(x, n) }),
	only(written(ir.OpInstanceNorm, "InstanceNormalization", 13, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "InstanceNormalization", x.scaled(n), "epsilon", n.Float("eps"))
	}), plainNorm),
	only(written(ir.OpBatchNormInfer, "BatchNormalization", 9, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "BatchNormalization", append(x.scaled(n), x.in(n, 3), x.in(n, 4)), "epsilon", n.Float("eps"))
	}), upper),
}

// normSized reports whether the sizes of the dimensions that a norm normalizes over are known.
func normSized(n *ir.Node) bool {
	s := n.In[0].Type.Shape
	return s.Known() && sized(n, s.Rank()-int(n.Int("dims")))
}

// plainNorm reports whether nothing reads statistics and channels stand second.
func plainNorm(x *exporter, n *ir.Node) bool {
	return upper(x, n) && firstOnly(x, n) && n.In[0].Type.Shape.Rank() > 2 && n.In[0].Type.Shape.Dims()[1] > 0
}

// scaled are operand 0, and a scale and a bias per channel, which ONNX always has.
func (x *exporter) scaled(n *ir.Node) []string {
	c := int64(n.In[0].Type.Shape.Dims()[1])
	d := n.In[0].Type.DType
	return []string{x.in(n, 0), x.filled(opt(n, 1), d, c, 1), x.filled(opt(n, 2), d, c, 0)}
}

// opt is operand i, nil where it is absent.
func opt(n *ir.Node, i int) *ir.Value {
	if i >= len(n.In) {
		return nil
	}
	return n.In[i]
}

// ofLast is operand i, or a tensor of one number in the shape of the last dimensions.
func (x *exporter) ofLast(n *ir.Node, i int, number float64) string {
	if v := opt(n, i); v != nil {
		return x.name(v)
	}
	s := ir.Sizes(n.In[0].Type.Shape)
	s = s[len(s)-int(n.Int("dims")):]
	flat := x.filled(nil, n.In[0].Type.DType, product(s), number)
	if len(s) == 1 {
		return flat
	}
	return x.view(flat, s...)
}

func exportLayerNorm(x *exporter, n *ir.Node) {
	out := []string{x.result(n, 0)}
	for i, v := range n.Out {
		if i == 0 || !x.wants(v) {
			continue
		}
		for len(out) < i {
			out = append(out, "")
		}
		out = append(out, x.stats(n, v))
	}
	in := []string{x.in(n, 0), x.ofLast(n, 1, 1), x.in(n, 2)}
	x.ops(out, "LayerNormalization", in, "axis", -n.Int("dims"), "epsilon", n.Float("eps"))
	for i, name := range out {
		if i > 0 && name != "" && x.read(n.Out[i]) {
			x.op(x.result(n, i), "Reshape", []string{name, x.ints(ir.Sizes(n.Out[i].Type.Shape)...)})
		}
	}
}

// stats is the name of a statistic with the reduced dimensions as 1: that of a
// reshape of ours to these, where there is one.
func (x *exporter) stats(n *ir.Node, v *ir.Value) string {
	want := ir.Sizes(n.In[0].Type.Shape)
	for i := len(want) - int(n.Int("dims")); i < len(want); i++ {
		want[i] = 1
	}
	for _, r := range x.needed[v] {
		if r.Op == ir.OpReshape && slices.Equal(ir.Sizes(r.Out[0].Type.Shape), want) {
			return x.result(r, 0)
		}
	}
	return x.fresh(v.Name + ".kept")
}

// exportGroupNorm normalizes groups as channels, for opsets before 21.
func exportGroupNorm(x *exporter, n *ir.Node) string {
	d, groups := ir.Sizes(n.In[0].Type.Shape), n.Int("groups")
	t := n.In[0].Type.DType
	apart := x.view(x.in(n, 0), d[0], groups, product(d[1:])/max(groups, 1))
	in := []string{apart, x.filled(nil, t, groups, 1), x.filled(nil, t, groups, 0)}
	y := x.view(x.op("", "InstanceNormalization", in, "epsilon", n.Float("eps")), d...)
	per := append([]int64{d[1]}, slices.Repeat([]int64{1}, len(d)-2)...)
	for i, op := range []string{"Mul", "Add"} {
		if v := opt(n, 1+i); v != nil {
			y = x.op("", op, []string{y, x.view(x.name(v), per...)})
		}
	}
	return y
}

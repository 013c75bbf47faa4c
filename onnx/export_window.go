package onnx

import (
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

var windowExports = []export{
	only(written(ir.OpConv, "Conv", 11, func(x *exporter, n *ir.Node) string {
		attrs := append(x.windowAttrs(n), "group", n.Int("groups"))
		return x.op(x.result(n, 0), "Conv", x.ins(n), attrs...)
	}), upper),
	only(written(ir.OpConvTranspose, "ConvTranspose", 11, func(x *exporter, n *ir.Node) string {
		attrs := append(x.windowAttrs(n), "group", n.Int("groups"))
		if p := n.Ints("output_padding"); slices.ContainsFunc(p, func(k int64) bool { return k != 0 }) {
			attrs = append(attrs, "output_padding", p)
		}
		return x.op(x.result(n, 0), "ConvTranspose", x.ins(n), attrs...)
	}), upper),
	{op: ir.OpMaxPool, to: "MaxPool", since: 12, when: func(x *exporter, n *ir.Node) bool { return upper(x, n) && (!x.wants(n.Out[1]) || sized(n, 2)) }, write: exportMaxPool},
	only(written(ir.OpAvgPool, "AveragePool", 11, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "AveragePool", x.ins(n), x.averageAttrs(n)...)
	}), func(x *exporter, n *ir.Node) bool { return upper(x, n) && !dilated(n) }),
	only(written(ir.OpAvgPool, "AveragePool", 19, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "AveragePool", x.ins(n), append(x.averageAttrs(n), "dilations", n.Ints("dilations"))...)
	}), func(x *exporter, n *ir.Node) bool { return upper(x, n) && dilated(n) }),
	only(written(ir.OpAdaptiveAvgPool, "AveragePool", 11, exportAdaptive), func(x *exporter, n *ir.Node) bool { return upper(x, n) && sized(n, 2) }),
}

func dilated(n *ir.Node) bool {
	return slices.ContainsFunc(n.Ints("dilations"), func(k int64) bool { return k != 1 })
}

// windowAttrs are those that every sliding window has.
func (x *exporter) windowAttrs(n *ir.Node) []any {
	kernel := n.Ints("kernel")
	if kernel == nil {
		kernel = ir.Sizes(n.In[1].Type.Shape)[2:]
	}
	attrs := []any{"kernel_shape", kernel}
	for _, name := range []string{"strides", "pads", "dilations"} {
		if v := n.Ints(name); v != nil && (name != "dilations" || dilated(n)) {
			attrs = append(attrs, name, v)
		}
	}
	return attrs
}

func (x *exporter) averageAttrs(n *ir.Node) []any {
	attrs := []any{"kernel_shape", n.Ints("kernel"), "ceil_mode", n.Flag("ceil"), "count_include_pad", n.Flag("count_include_pad")}
	for _, name := range []string{"strides", "pads"} {
		if v := n.Ints(name); v != nil {
			attrs = append(attrs, name, v)
		}
	}
	return attrs
}

// exportMaxPool counts indices within a channel, as ours do: those of ONNX are of
// the whole tensor.
func exportMaxPool(x *exporter, n *ir.Node) {
	attrs := append(x.windowAttrs(n), "ceil_mode", n.Flag("ceil"))
	out := []string{x.result(n, 0)}
	at := n.Out[1]
	if !x.wants(at) {
		x.ops(out, "MaxPool", x.ins(n), attrs...)
		return
	}
	index := x.fresh(at.Name + ".i64")
	x.ops(append(out, index), "MaxPool", x.ins(n), attrs...)
	plane := product(ir.Sizes(n.In[0].Type.Shape)[2:])
	within := x.op("", "Mod", []string{index, x.constant(eval.Ints(ir.I64, nil, plane))})
	x.op(x.result(n, 1), "Cast", []string{within}, "to", int64(TypeOf(at.Type.DType)))
}

// exportAdaptive is a pool where the parts are of one size, else a product with the
// shares of each part along each axis.
func exportAdaptive(x *exporter, n *ir.Node) string {
	from, to := ir.Sizes(n.In[0].Type.Shape)[2:], ir.Sizes(n.Out[0].Type.Shape)[2:]
	even := true
	kernel := make([]int64, len(from))
	for i := range from {
		even = even && from[i]%to[i] == 0
		kernel[i] = from[i] / to[i]
	}
	if even {
		return x.op(x.result(n, 0), "AveragePool", x.ins(n), "kernel_shape", kernel, "strides", kernel)
	}
	in, d, out := x.wide(n)
	rank := len(from) + 2
	for i := range from {
		perm := make([]int64, rank)
		for k := range perm {
			perm[k] = int64(k)
		}
		perm[i+2], perm[rank-1] = perm[rank-1], perm[i+2]
		in = x.op("", "Transpose", []string{in}, "perm", perm)
		in = x.op("", "MatMul", []string{in, x.shares(d, from[i], to[i])})
		in = x.op("", "Transpose", []string{in}, "perm", perm)
	}
	if out != nil {
		return out(in)
	}
	return x.op(x.result(n, 0), "Identity", []string{in})
}

// shares is the matrix of a mean over parts of an axis.
func (x *exporter) shares(d ir.DType, from, to int64) string {
	e := eval.New(ir.Type{DType: d, Shape: ir.MakeShape(ir.Dim(from), ir.Dim(to))})
	for i := range to {
		lo, hi := i*from/to, ((i+1)*from+to-1)/to
		for k := lo; k < hi; k++ {
			e.F[k*to+i] = eval.Round(1/float64(hi-lo), d)
		}
	}
	return x.constant(e)
}

package onnx

import (
	"slices"

	"ampc/ir"
)

var reduceExports = []export{
	reducing(ir.OpReduceSum, "ReduceSum", 13), reducing(ir.OpReduceMean, "ReduceMean", 18), reducing(ir.OpReduceMax, "ReduceMax", 18), reducing(ir.OpReduceMin, "ReduceMin", 18),
	reducing(ir.OpReduceProd, "ReduceProd", 18), reducing(ir.OpReduceL1, "ReduceL1", 18), reducing(ir.OpReduceL2, "ReduceL2", 18), reducing(ir.OpLogSumExp, "ReduceLogSumExp", 18),
	written(ir.OpReduceVar, "ReduceMean", 13, exportVariance),
	only(written(ir.OpSumTo, "ReduceSum", 13, exportSumTo), static),
}

// reducing takes its axes as an operand from an opset on, as an attribute before.
func reducing(op ir.Op, to string, operandFrom int64) export {
	return written(op, to, 13, func(x *exporter, n *ir.Node) string {
		return x.reduce(x.result(n, 0), to, operandFrom, x.in(n, 0), n.Flag("keep"), n.Ints("axes")...)
	})
}

func (x *exporter) reduce(out, to string, operandFrom int64, in string, keep bool, axes ...int64) string {
	switch {
	case len(axes) == 0:
		return x.op(out, to, []string{in}, "keepdims", keep)
	case x.opset >= operandFrom:
		return x.op(out, to, []string{in, x.ints(axes...)}, "keepdims", keep)
	}
	return x.op(out, to, []string{in}, "axes", axes, "keepdims", keep)
}

// exportVariance is the mean of squared distances, times n/(n−correction).
func exportVariance(x *exporter, n *ir.Node) string {
	in, d, out := x.wide(n)
	axes := n.Ints("axes")
	dims := n.In[0].Type.Shape.Dims()
	count := int64(1)
	for i, k := range dims {
		if len(axes) == 0 || slices.Contains(axes, int64(i)) || slices.Contains(axes, int64(i-len(dims))) {
			count *= int64(k)
		}
	}
	if count < 0 {
		x.fail("the number of elements is not known: give its dimensions sizes")
	}
	off := x.op("", "Sub", []string{in, x.reduce("", "ReduceMean", 18, in, true, axes...)})
	square := x.op("", "Mul", []string{off, off})
	left := count - n.Int("correction")
	if left == count {
		if out == nil {
			return x.reduce(x.result(n, 0), "ReduceMean", 18, square, n.Flag("keep"), axes...)
		}
		return out(x.reduce("", "ReduceMean", 18, square, n.Flag("keep"), axes...))
	}
	sum := x.reduce("", "ReduceSum", 13, square, n.Flag("keep"), axes...)
	return x.last(n, out, "Div", sum, x.lit(d, float64(left)))
}

func exportSumTo(x *exporter, n *ir.Node) string {
	from, to := n.In[0].Type.Shape.Dims(), n.Out[0].Type.Shape.Dims()
	var axes []int64
	for i, d := range from {
		k := i - (len(from) - len(to))
		if k < 0 || to[k] != d {
			axes = append(axes, int64(i))
		}
	}
	in := x.in(n, 0)
	if axes != nil {
		in = x.reduce("", "ReduceSum", 13, in, true, axes...)
	}
	return x.reshape(n, in, n.In[0].Type.Shape)
}

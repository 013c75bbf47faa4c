package onnx

import "ampc/ir"

// reduction is a row that sums up axes: those of an attribute, and from the
// given opset on those of an operand.
func reduction(op string, operandFrom int64, f func(c *call, x *ir.Value, keep bool, axes []int64) *ir.Value, ours string) row {
	return row{op: op, since: 1, ours: ours, not: "axes that depend on data", imp: func(c *call) []*ir.Value {
		axes, _ := c.axesOf(1, operandFrom)
		axes = c.axes(axes, c.rank(0))
		if len(axes) == 0 && c.flag("noop_with_empty_axes", false) {
			return one(c.x(0))
		}
		return one(f(c, c.x(0), c.flag("keepdims", true), axes))
	}}
}

// plainReduction is one that a method of the builder is.
func plainReduction(f func(b *ir.Builder, x *ir.Value, keep bool, axes ...int64) *ir.Value) func(c *call, x *ir.Value, keep bool, axes []int64) *ir.Value {
	return func(c *call, x *ir.Value, keep bool, axes []int64) *ir.Value { return f(c.b, x, keep, axes...) }
}

// inFloats computes integers in f64 and gives their dtype back.
func inFloats(f func(b *ir.Builder, x *ir.Value, keep bool, axes ...int64) *ir.Value) func(c *call, x *ir.Value, keep bool, axes []int64) *ir.Value {
	return func(c *call, x *ir.Value, keep bool, axes []int64) *ir.Value {
		d := c.typ(0).DType
		if d.Float() {
			return f(c.b, x, keep, axes...)
		}
		return c.cast(f(c.b, c.cast(x, ir.F64), keep, axes...), d)
	}
}

// ordered takes a truth value as 0 or 1.
func ordered(f func(b *ir.Builder, x *ir.Value, keep bool, axes ...int64) *ir.Value) func(c *call, x *ir.Value, keep bool, axes []int64) *ir.Value {
	return func(c *call, x *ir.Value, keep bool, axes []int64) *ir.Value {
		if c.typ(0).DType != ir.Bool {
			return f(c.b, x, keep, axes...)
		}
		return c.cast(f(c.b, c.cast(x, ir.I32), keep, axes...), ir.Bool)
	}
}

func sumSquare(b *ir.Builder, x *ir.Value, keep bool, axes ...int64) *ir.Value {
	return b.ReduceSum(b.Square(x), keep, axes...)
}

var reduceRows = []row{
	reduction("ReduceSum", 13, plainReduction((*ir.Builder).ReduceSum), "reduce_sum"),
	reduction("ReduceMean", 18, inFloats((*ir.Builder).ReduceMean), "reduce_mean"),
	reduction("ReduceMax", 18, ordered((*ir.Builder).ReduceMax), "reduce_max"),
	reduction("ReduceMin", 18, ordered((*ir.Builder).ReduceMin), "reduce_min"),
	reduction("ReduceProd", 18, plainReduction((*ir.Builder).ReduceProd), "reduce_prod"),
	reduction("ReduceL1", 18, inFloats((*ir.Builder).ReduceL1), "reduce_l1"),
	reduction("ReduceL2", 18, inFloats((*ir.Builder).ReduceL2), "reduce_l2"),
	reduction("ReduceSumSquare", 18, plainReduction(sumSquare), "square, reduce_sum"),
	reduction("ReduceLogSum", 18, inFloats(func(b *ir.Builder, x *ir.Value, keep bool, axes ...int64) *ir.Value {
		return b.Log(b.ReduceSum(x, keep, axes...))
	}), "reduce_sum, log"),
	reduction("ReduceLogSumExp", 18, inFloats(logSumExp), "logsumexp"),
}

// logSumExp puts the reduced axes back where they stay.
func logSumExp(b *ir.Builder, x *ir.Value, keep bool, axes ...int64) *ir.Value {
	y := b.LogSumExp(x, axes...)
	if !keep || y == nil {
		return y
	}
	shape := sizes(x.Type)
	if len(axes) == 0 {
		for i := range shape {
			shape[i] = 1
		}
	}
	for _, a := range axes {
		shape[a] = 1
	}
	return b.Reshape(y, shape...)
}

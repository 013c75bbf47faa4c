package bridge

import (
	"reflect"

	"ampc/ir"
)

// gradRules are those of the ops that gorgonia.Grad adds. Parameters' gradients
// are derived by ampc, so these are read only where a cost, or a node that is
// fetched, is built from gradients. Each is the derivative of its op's value,
// also where Gorgonia's own is wrong.
func gradRules() map[string]rule {
	return map[string]rule{
		"softmaxDiffOp":   (*call).softmaxGrad,
		"sparsemaxDiffOp": (*call).sparsemaxGrad,
		"maxPoolDiffOp":   (*call).ofOutput,
		"avgPoolDiffOp":   (*call).ofOutput,
		"upsampleDiffOp":  (*call).ofOutput,
		"dropoutDiffOp":   (*call).ofOutput,
		"batchnormDiffOp": func(c *call) *ir.Value { return c.ofNorm("BatchNormOp") },
		"groupNormDiffOp": func(c *call) *ir.Value { return c.ofNorm("GroupNormOp") },
		"byIndicesOpDiffOp": func(c *call) *ir.Value {
			return c.pull(c.b.Gather(c.x(0), c.x(2), c.int("axis")), c.x(0), c.x(1))
		},
		"sliceIncrOp": func(c *call) *ir.Value { return c.pull(c.slice(), c.x(0), c.x(1)) },
		"col2imOp":    (*call).col2im,
	}
}

// ofOutput has an op's operand, its result and the result's gradient.
func (c *call) ofOutput() *ir.Value { return c.pull(c.x(1), c.x(0), c.x(2)) }

// ofNorm has a norm's operand and its result's gradient; the norm is a node of
// the op that the gradient's op points to.
func (c *call) ofNorm(name string) *ir.Value {
	op := c.op.Field(0).Pointer()
	for _, n := range c.walk.all {
		if opType(n) == name && reflect.ValueOf(n.Op()).Pointer() == op {
			return c.pull(c.value(n), c.x(0), c.x(1))
		}
	}
	c.fail(c.n, "the graph has no %s that it belongs to", name)
	return nil
}

// pull takes the gradient dy of y back to x, along the first operands that lead
// from x to y.
func (c *call) pull(y, x, dy *ir.Value) *ir.Value {
	if y == nil || x == nil || dy == nil {
		return nil
	}
	for y != x {
		n := y.Def
		if n == nil || n.Def().Grad == nil {
			c.fail(c.n, "it is not the gradient of %s", y)
			return nil
		}
		d := make([]*ir.Value, len(n.Out))
		d[y.Idx] = c.b.Reshape(dy, sizes(y)...)
		y, dy = n.In[0], n.Def().Grad(c.b, n, d)[0]
		if c.b.Err() != nil {
			return nil
		}
	}
	return dy
}

// sizes is the shape of v, which is known.
func sizes(v *ir.Value) []int64 {
	var out []int64
	for _, d := range v.Type.Shape.Dims() {
		out = append(out, int64(d))
	}
	return out
}

// softmaxGrad has softmax's operand, its result y and the gradient of y.
func (c *call) softmaxGrad() *ir.Value {
	if c.flag("isLog") {
		return c.b.LogSoftmaxGrad(c.x(1), c.x(2), c.softmaxAxis())
	}
	return c.b.SoftmaxGrad(c.x(1), c.x(2), c.softmaxAxis())
}

// sparsemaxGrad has sparsemax's result y and the gradient of y: on the support
// it is that gradient less its mean there. The axis is that of the op of y.
func (c *call) sparsemaxGrad() *ir.Value {
	y, dy := c.x(0), c.x(1)
	if y == nil || dy == nil || opType(c.in[0]) != "sparsemaxOp" {
		return nil
	}
	forward := &call{importer: c.importer, n: c.in[0], op: structOf(c.in[0].Op())}
	axis, b := forward.softmaxAxis(), c.b
	support := b.Cast(b.Gt(y, c.scalar(0)), y.Type.DType)
	mean := b.Div(b.ReduceSum(b.Mul(dy, support), true, axis), b.ReduceSum(support, true, axis))
	return b.Mul(b.Sub(dy, mean), support)
}

// col2im has the gradient of an im2col, which here is a convolution.
func (c *call) col2im() *ir.Value {
	dy := c.x(0)
	if dy == nil {
		return nil
	}
	w := c.picks(c.int("unpaddedC"), dy.Type.DType)
	return c.b.ConvGradX(c.b.Transpose(dy, 0, 3, 1, 2), w, c.columns().With("size", c.pair("unpaddedH", "unpaddedW")))
}

// picks are filters that pick one element of an im2col's window each.
func (c *call) picks(channels int64, d ir.DType) *ir.Value {
	n := channels * c.int("h") * c.int("w")
	one := c.b.OneHot(c.b.Iota(ir.I32, 0, n), n, -1, d)
	return c.b.Reshape(one, n, channels, c.int("h"), c.int("w"))
}

package bridge

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"ampc/ir"
)

// im2col alone, outside a convolution, is a convolution whose filters pick one
// element of the window each.
func (c *call) im2col() *ir.Value {
	x := c.x(0)
	if x == nil {
		return nil
	}
	w := c.picks(int64(x.Type.Shape.Dim(1)), x.Type.DType)
	return c.b.Transpose(c.b.Conv(x, w, nil, c.columns()), 0, 2, 3, 1)
}

// columns are the attributes of a convolution that an im2col stands for.
func (c *call) columns() ir.Attrs {
	pad := c.pair("padH", "padW")
	return ir.A("pads", append(pad, pad...), "strides", c.pair("strideH", "strideW"), "dilations", c.pair("dilationH", "dilationW"))
}

// window are the attributes of a pool. Given four paddings, Gorgonia adds the
// second of each pair before the data.
func (c *call) window() ir.Attrs {
	begin, end := c.pair("padNorth", "padWest"), c.pair("padSouth", "padEast")
	if c.flag("explicitPadding") {
		begin, end = end, begin
	}
	return ir.A("kernel", c.pair("h", "w"), "pads", append(begin, end...), "strides", c.pair("strideH", "strideW"))
}

// avgPool divides the sums of its windows by the width of its input, not by
// the size of the window: that is what Gorgonia computes.
func (c *call) avgPool() *ir.Value {
	x := c.x(0)
	if x == nil {
		return nil
	}
	mean := c.b.AvgPool(x, c.window().With("count_include_pad", true))
	return c.b.Affine(mean, float64(c.int("h")*c.int("w"))/float64(x.Type.Shape.Dim(3)), 0)
}

func (c *call) upsample() *ir.Value {
	to := c.n.Shape()
	return c.b.Resize(c.x(0), "nearest", "asymmetric", int64(to[2]), int64(to[3]))
}

func (c *call) dropout() *ir.Value {
	p := c.number("probability")
	if p == 0 || !c.flag("isTraining") {
		return c.x(0)
	}
	x := c.x(0)
	return c.b.Dropout(x, p, c.draw())
}

// draw declares what random rows draw with, once, under names that users cannot take.
func (c *call) draw() ir.Draw {
	declare := func(kind ir.VarKind, name string, d ir.DType, init *ir.Init) *ir.Value {
		for _, v := range c.out.Graph.Vars {
			if v.Attr.Get("role") == name {
				return v
			}
		}
		return c.b.Declare(kind, c.free(ir.Reserved+name), ir.T(d), init, ir.A("role", name))
	}
	zero := &ir.Init{Args: []float64{0}}
	return ir.Draw{
		Seed:    declare(ir.State, "seed", ir.I64, zero),
		Attempt: declare(ir.State, "attempt", ir.I32, zero),
		Micro:   declare(ir.Input, "micro", ir.I32, nil),
		Site:    c.b.Site(),
	}
}

// Kinds of randomOp.
const (
	uniform = iota
	gaussian
	binomial
)

// maxTrials bounds a binomial: it is drawn trial by trial.
const maxTrials = 1024

func (c *call) random() *ir.Value {
	a, b, shape := c.number("a"), c.number("b"), longs(c.n.Shape())
	switch kind := c.int("which"); {
	case kind == uniform:
		return c.b.Uniform(c.dtype(c.n), a, b, c.draw(), shape...)
	case kind == gaussian:
		return c.b.Normal(c.dtype(c.n), a, b, c.draw(), shape...)
	case kind == binomial && (a < 1 || a > maxTrials):
		c.fail(c.n, "a binomial of %.0f trials, want 1 to %d", a, maxTrials)
	case kind == binomial: // Gorgonia drops the fraction of the trials
		trials := append([]int64{int64(a)}, shape...)
		return c.b.ReduceSum(c.b.Bernoulli(c.dtype(c.n), b, c.draw(), trials...), false, 0)
	default:
		c.fail(c.n, "its kind of random numbers is %d", kind)
	}
	return nil
}

// batchNorm normalizes; scale and bias are nodes of their own. In training the
// running statistics are states that start as the op's.
func (c *call) batchNorm() *ir.Value {
	x := c.x(0)
	op, ok := c.n.Op().(*G.BatchNormOp)
	if x == nil || !ok {
		return nil
	}
	a := ir.A("eps", c.number("epsilon"))
	if c.flag("training") && !c.training { // nothing to update: the batch's own statistics
		return c.b.BatchNorm(x, nil, nil, nil, nil, a)
	}
	mean, variance := op.Stats()
	r := runningNorm{op: op, mean: c.stat("mean", mean), variance: c.stat("var", variance)}
	if !c.flag("training") {
		return c.b.BatchNormInfer(x, nil, nil, r.mean, r.variance, a)
	}
	c.out.norms = append(c.out.norms, r)
	return c.b.BatchNorm(x, nil, nil, r.mean, r.variance, a.With("momentum", c.number("momentum")))
}

// stat declares a running statistic that starts as t.
func (c *call) stat(name string, t tensor.Tensor) *ir.Value {
	init, typ, ok := c.data(t)
	if !ok {
		return nil
	}
	return c.b.Declare(ir.State, c.free(fmt.Sprintf("norm%d.%s", c.n.ID(), name)), typ, init, nil)
}

// data is an initializer that holds the elements of v, in the node's type.
func (c *call) data(v G.Value) (*ir.Init, ir.Type, bool) {
	h, err := hostOf(v)
	if err != nil {
		c.fail(c.n, "%v", err)
		return nil, ir.Type{}, false
	}
	args := make([]float64, h.Len())
	for i := range args {
		args[i] = h.At(i)
	}
	return &ir.Init{Func: "data", Args: args}, h.Type.IR().With(c.dtype(c.n)), true
}

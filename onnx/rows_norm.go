package onnx

import (
	"slices"

	"ampc/ir"
)

var normRows = []row{
	{op: "BatchNormalization", stats: true, since: 6, ours: "batch_norm_infer, or reduce_mean, reduce_var and it", not: "statistics for each position (spatial=0)", imp: batchNorm},
	{op: "InstanceNormalization", since: 6, ours: "instance_norm", imp: func(c *call) []*ir.Value {
		return one(c.b.InstanceNorm(c.x(0), c.x(1), c.x(2), ir.A("eps", c.float("epsilon", 1e-5))))
	}},
	{op: "GroupNormalization", since: 18, ours: "group_norm", imp: groupNorm},
	{op: "LayerNormalization", stats: true, since: 1, ours: "layer_norm", imp: layerNorm},
	{op: "RMSNormalization", stats: true, since: 23, ours: "rms_norm", imp: rmsNorm},
	{op: "SimplifiedLayerNormalization", since: 1, ours: "rms_norm", imp: rmsNorm},
	{op: "LpNormalization", since: 1, ours: "reduce_l1 or reduce_l2, div", imp: lpNorm},
	{op: "MeanVarianceNormalization", since: 9, ours: "reduce_mean, reduce_var and arithmetic", imp: mvn},
	{op: "LRN", since: 1, ours: "square, avg_pool, pow, div", imp: lrn},
}

func batchNorm(c *call) []*ir.Value {
	if c.opset < 9 && !c.flag("spatial", true) {
		c.refuse("statistics for each position (spatial=0) are not supported")
		return nil
	}
	eps := ir.A("eps", c.float("epsilon", 1e-5))
	training := c.opset >= 14 && c.flag("training_mode", false) || c.opset < 7 && !c.flag("is_test", false) && c.wants(1)
	x, d := c.x(0), c.dims(0)
	if len(d) < 2 {
		c.fail("operand 0 has rank %d, want 2 or more", len(d))
		return nil
	}
	keep := c.float("momentum", 0.9) // the share of what was; ours is that of what comes
	norm := func(mean, variance *ir.Value, attrs ir.Attrs) *ir.Value {
		if len(d) > 2 {
			return c.b.BatchNormInfer(x, c.x(1), c.x(2), mean, variance, attrs)
		}
		y := c.reshape(x, d[0], d[1], 1)
		return c.reshape(c.b.BatchNormInfer(y, c.x(1), c.x(2), mean, variance, attrs), d...)
	}
	c.keep(3)
	c.keep(4)
	if !training {
		return one(norm(c.x(3), c.x(4), ir.A("eps", c.float("epsilon", 1e-5), "momentum", 1-keep)))
	}
	axes := append([]int64{0}, spatialAxes(len(d))...)
	mean, variance := c.b.ReduceMean(x, false, axes...), c.b.ReduceVar(x, 0, false, axes...)
	running := func(was, is *ir.Value) *ir.Value {
		return c.b.Add(c.b.Affine(was, keep, 0), c.b.Affine(is, 1-keep, 0))
	}
	return []*ir.Value{norm(mean, variance, eps), running(c.x(3), mean), running(c.x(4), variance)}
}

// groupNorm takes a scale and a bias per group before opset 21, per channel from it on.
func groupNorm(c *call) []*ir.Value {
	groups, d := c.int("num_groups", 0), c.dims(0)
	if len(d) < 3 || groups < 1 || d[1]%groups != 0 {
		c.fail("num_groups is %d, which does not divide the channels of %v", groups, d)
		return nil
	}
	scale, bias := c.x(1), c.x(2)
	if c.opset < 21 {
		per := func(x *ir.Value) *ir.Value {
			return c.reshape(c.b.Broadcast(c.reshape(x, groups, 1), groups, d[1]/groups), d[1])
		}
		scale, bias = per(scale), per(bias)
	}
	return one(c.b.GroupNorm(c.x(0), scale, bias, ir.A("groups", groups, "eps", c.float("epsilon", 1e-5))))
}

// lastDims is how many dimensions the attribute axis says, and the shape of
// their statistics.
func (c *call) lastDims() (dims int64, stats []int64) {
	d := c.dims(0)
	a := c.axis(c.int("axis", -1), len(d))
	stats = slices.Clone(d)
	for i := a; i < int64(len(d)); i++ {
		stats[i] = 1
	}
	return int64(len(d)) - a, stats
}

// affine tells operands that a norm takes, of the shape of what it normalizes,
// from those that are to be broadcast.
func (c *call) fitted(i int, dims int64) *ir.Value {
	if !c.has(i) {
		return nil
	}
	d := c.dims(0)
	if want := d[len(d)-int(dims):]; !slices.Equal(c.dims(i), want) {
		return c.b.Broadcast(c.x(i), want...)
	}
	return c.x(i)
}

func layerNorm(c *call) []*ir.Value {
	if c.rank(0) == 0 {
		c.fail("operand 0 is a scalar, which has no axis to normalize")
		return nil
	}
	dims, stats := c.lastDims()
	y := c.b.LayerNorm(c.x(0), c.fitted(1, dims), c.fitted(2, dims), ir.A("dims", dims, "eps", c.float("epsilon", 1e-5)))
	if y == nil || y.Def == nil {
		return one(y)
	}
	out := []*ir.Value{y, nil, nil}
	for i := 1; i < 3; i++ {
		if c.wants(i) {
			out[i] = c.reshape(y.Def.Out[i], stats...)
		}
	}
	return out
}

func rmsNorm(c *call) []*ir.Value {
	if c.rank(0) == 0 {
		c.fail("operand 0 is a scalar, which has no axis to normalize")
		return nil
	}
	dims, stats := c.lastDims()
	y := c.b.RMSNorm(c.x(0), c.fitted(1, dims), ir.A("dims", dims, "eps", c.float("epsilon", 1e-5)))
	if y == nil || y.Def == nil || !c.wants(1) {
		return one(y)
	}
	return []*ir.Value{y, c.reshape(y.Def.Out[1], stats...)}
}

// lpNorm leaves zeros where all are.
func lpNorm(c *call) []*ir.Value {
	a := c.axis(c.int("axis", -1), c.rank(0))
	x := c.x(0)
	var norm *ir.Value
	switch p := c.int("p", 2); p {
	case 1:
		norm = c.b.ReduceL1(x, true, a)
	case 2:
		norm = c.b.ReduceL2(x, true, a)
	default:
		c.refuse("p %d is not supported", p)
		return nil
	}
	return one(c.b.Div(x, c.b.Where(c.b.Eq(norm, c.lit(norm, 0)), c.lit(norm, 1), norm)))
}

func mvn(c *call) []*ir.Value {
	axes := c.list("axes")
	if axes == nil {
		axes = []int64{0, 2, 3}
	}
	axes = c.axes(axes, c.rank(0))
	x := c.x(0)
	std := c.b.Sqrt(c.b.ReduceVar(x, 0, true, axes...))
	return one(c.b.Div(c.b.Sub(x, c.b.ReduceMean(x, true, axes...)), c.b.Affine(std, 1, 1e-9)))
}

// lrn is the mean of squares over neighbouring channels, as a pool over them.
func lrn(c *call) []*ir.Value {
	d, size := c.dims(0), c.int("size", 0)
	if len(d) < 2 || size < 1 || size > 1<<16 {
		c.fail("size %d does not fit an operand of shape %v", size, d)
		return nil
	}
	x := c.x(0)
	planes := c.reshape(c.b.Square(x), d[0], 1, d[1], product(d[2:]))
	before := (size - 1) / 2
	planes = c.b.Pad(planes, []int64{0, 0, before, 0}, []int64{0, 0, size - 1 - before, 0}, 0)
	mean := c.reshape(c.b.AvgPool(planes, ir.A("kernel", []int64{size, 1})), d...)
	base := c.b.Affine(mean, c.float("alpha", 1e-4), c.float("bias", 1))
	return one(c.b.Div(x, c.b.Pow(base, c.lit(base, c.float("beta", 0.75)))))
}

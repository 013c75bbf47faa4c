package onnx

import (
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

var indexRows = []row{
	{op: "Gather", since: 1, ours: "gather", imp: func(c *call) []*ir.Value {
		a := c.axis(c.int("axis", 0), c.rank(0))
		if c.rank(0) == 0 {
			c.fail("operand 0 is a scalar, which has no axis")
			return nil
		}
		return one(c.b.Gather(c.x(0), c.indices(1, c.dims(0)[a]), a))
	}},
	{op: "GatherElements", since: 11, ours: "gather_elements", imp: func(c *call) []*ir.Value {
		a := c.axis(c.int("axis", 0), c.rank(0))
		if c.rank(0) == 0 {
			c.fail("operand 0 is a scalar, which has no axis")
			return nil
		}
		return one(c.b.GatherElements(c.x(0), c.indices(1, c.dims(0)[a]), a))
	}},
	{op: "GatherND", since: 11, ours: "gather_elements on the flattened axes", imp: gatherND},
	{op: "OneHot", own: true, since: 9, ours: "one_hot", not: "a depth that depends on data", imp: oneHot},
	{op: "ArgMax", since: 1, ours: "argmax", imp: func(c *call) []*ir.Value { return argument(c, (*ir.Builder).Argmax) }},
	{op: "ArgMin", since: 1, ours: "argmin", imp: func(c *call) []*ir.Value { return argument(c, (*ir.Builder).Argmin) }},
	{op: "TopK", since: 1, ours: "topk", not: "a count that depends on data", imp: topK},
	{op: "CumSum", since: 11, ours: "cumsum", not: "an axis that depends on data", imp: cumSum},
}

// indices is operand i, indices into an axis of n elements, counted from the front.
func (c *call) indices(i int, n int64) *ir.Value {
	if c.env == nil && c.has(i) && c.in[i].from == nil {
		if k := c.im.known(c.in[i]); k != nil {
			return c.fromFront(k, n)
		}
	}
	ids := c.x(i)
	return c.b.Where(c.b.Lt(ids, c.lit(ids, 0)), c.b.Add(ids, c.lit(ids, float64(n))), ids)
}

func (c *call) fromFront(k *eval.Tensor, n int64) *ir.Value {
	out := k.Clone()
	for i, x := range out.I {
		if x < -n || x >= n {
			c.fail("index %d is out of range for an axis of size %d", x, n)
			return nil
		}
		if x < 0 {
			out.I[i] += n
		}
	}
	return c.constant(out)
}

// linear turns tuples of indices, the last axis of operand i, into indices into
// the flattened axes of these sizes. It returns them without their last axis.
func (c *call) linear(i int, over []int64) *ir.Value {
	d := c.dims(i)
	ids := c.x(i)
	if c.typ(i).DType != ir.I64 {
		ids = c.cast(ids, ir.I64)
	}
	var sum *ir.Value
	last := int64(len(d) - 1)
	stride := product(over)
	for k, n := range over {
		stride /= max(n, 1)
		part := c.reshape(c.b.Slice(ids, []int64{last}, []int64{int64(k)}, []int64{int64(k) + 1}), d[:last]...)
		part = c.b.Where(c.b.Lt(part, c.lit(part, 0)), c.b.Add(part, c.lit(part, float64(n))), part)
		part = c.b.Mul(part, c.lit(part, float64(stride)))
		if sum == nil {
			sum = part
		} else {
			sum = c.b.Add(sum, part)
		}
	}
	return sum
}

func gatherND(c *call) []*ir.Value {
	d, ids, batch := c.dims(0), c.dims(1), c.int("batch_dims", 0)
	if len(ids) == 0 || len(d) == 0 {
		c.fail("an operand is a scalar, which has no axis")
		return nil
	}
	k := ids[len(ids)-1]
	if batch < 0 || batch >= int64(len(ids)) || k < 1 || batch+k > int64(len(d)) || !slices.Equal(d[:batch], ids[:batch]) {
		c.fail("indices of shape %v do not fit data of shape %v with batch_dims %d", ids, d, batch)
		return nil
	}
	outer, over, rest := d[:batch], d[batch:batch+k], d[batch+k:]
	picked := ids[batch : len(ids)-1]
	at := c.reshape(c.linear(1, over), product(outer), product(picked), 1)
	x := c.reshape(c.x(0), product(outer), product(over), product(rest))
	at = c.b.Broadcast(at, product(outer), product(picked), product(rest))
	return one(c.reshape(c.b.GatherElements(x, at, 1), slices.Concat(outer, picked, rest)...))
}

// oneHot counts indices from the end where negative; others give the off value.
func oneHot(c *call) []*ir.Value {
	depth, rank := int64(c.number(1, "depth")), c.rank(0)+1
	if depth < 1 {
		c.fail("depth is %d, which is out of range", depth)
		return nil
	}
	a := c.axis(c.int("axis", -1), rank)
	ids := c.x(0)
	if c.typ(0).DType.Float() {
		ids = c.cast(ids, ir.I64)
	}
	ids = c.b.Where(c.b.Lt(ids, c.lit(ids, 0)), c.b.Add(ids, c.lit(ids, float64(depth))), ids)
	hot := c.b.OneHot(ids, depth, a, ir.F32)
	values, one1 := c.x(2), []int64{1}
	off := c.reshape(c.b.Slice(values, []int64{0}, []int64{0}, one1))
	on := c.reshape(c.b.Slice(values, []int64{0}, one1, []int64{2}))
	return one(c.b.Where(c.b.Ne(hot, c.lit(hot, 0)), on, off))
}

// argument takes the last of equal elements by reversing the axis.
func argument(c *call, f func(b *ir.Builder, x *ir.Value, axis int64, keep bool) *ir.Value) []*ir.Value {
	a := c.axis(c.int("axis", 0), c.rank(0))
	last := c.flag("select_last_index", false)
	x := c.x(0)
	if last {
		x = c.b.Flip(x, a)
	}
	y := f(c.b, x, a, c.flag("keepdims", true))
	if y == nil || c.rank(0) == 0 {
		return nil
	}
	y = c.cast(y, ir.I64)
	if last {
		y = c.b.Sub(c.lit(y, float64(c.dims(0)[a]-1)), y)
	}
	return one(y)
}

func topK(c *call) []*ir.Value {
	k := c.int("k", 0)
	if c.opset >= 10 {
		k = int64(c.number(1, "count"))
	}
	v, i := c.b.TopK(c.x(0), k, c.int("axis", -1), !c.flag("largest", true))
	if i == nil {
		return nil
	}
	return []*ir.Value{v, c.cast(i, ir.I64)}
}

func cumSum(c *call) []*ir.Value {
	x, d := c.x(0), c.dims(0)
	a := c.axis(int64(c.number(1, "axis")), len(d))
	exclusive, reverse := c.flag("exclusive", false), c.flag("reverse", false)
	if len(d) == 0 {
		c.fail("operand 0 is a scalar, which has no axis")
		return nil
	}
	return one(c.b.Cumsum(x, a, exclusive, reverse))
}

package onnx

import (
	"slices"

	"ampc/ir"
)

var scatterRows = []row{
	{op: "Scatter", since: 9, ours: "scatter", imp: scatterElements},
	{op: "ScatterElements", since: 11, ours: "scatter, scatter_add; for mul, max and min one scatter for each index along the axis", not: "more than 64 of those", imp: scatterElements},
	{op: "ScatterND", since: 11, ours: "the same on the flattened axes", not: "more than 64 of those", imp: scatterND},
}

// maxUnrolled bounds what is written out one after the other.
const maxUnrolled = 64

func scatterElements(c *call) []*ir.Value {
	a := c.axis(c.int("axis", 0), c.rank(0))
	if c.rank(0) == 0 {
		c.fail("operand 0 is a scalar, which has no axis")
		return nil
	}
	return one(c.scatter(c.x(0), c.indices(1, c.dims(0)[a]), c.x(2), c.dims(1), a))
}

// scatter writes updates to the places ids along an axis. Several to one place
// are combined in their order by the attribute reduction.
func (c *call) scatter(x, ids, updates *ir.Value, shape []int64, axis int64) *ir.Value {
	var f func(b *ir.Builder, x, y *ir.Value) *ir.Value
	switch r := c.str("reduction", "none"); r {
	case "none":
		return c.b.Scatter(x, ids, updates, axis)
	case "add":
		if x == nil || x.Type.DType.Float() {
			return c.b.ScatterAdd(x, ids, updates, axis)
		}
		f = (*ir.Builder).Add
	case "mul":
		f = (*ir.Builder).Mul
	case "max":
		f = (*ir.Builder).Max
	case "min":
		f = (*ir.Builder).Min
	default:
		c.refuse("reduction %q is not supported", r)
		return nil
	}
	if shape[axis] > maxUnrolled {
		c.refuse("reduction %q of %d updates is not supported: it is unrolled, up to %d updates", c.str("reduction", ""), shape[axis], maxUnrolled)
		return nil
	}
	on := []int64{axis}
	for i := range shape[axis] { // places within one such slice differ
		at := c.b.Slice(ids, on, []int64{i}, []int64{i + 1})
		up := c.b.Slice(updates, on, []int64{i}, []int64{i + 1})
		x = c.b.Scatter(x, at, f(c.b, c.b.GatherElements(x, at, axis), up), axis)
	}
	return x
}

func scatterND(c *call) []*ir.Value {
	d, ids := c.dims(0), c.dims(1)
	if len(ids) == 0 || len(d) == 0 {
		c.fail("an operand is a scalar, which has no axis")
		return nil
	}
	k := ids[len(ids)-1]
	if k < 1 || k > int64(len(d)) {
		c.fail("indices of shape %v do not fit data of shape %v", ids, d)
		return nil
	}
	over, rest := d[:k], product(d[k:])
	m := product(ids[:len(ids)-1])
	at := c.b.Broadcast(c.reshape(c.linear(1, over), m, 1), m, rest)
	x := c.reshape(c.x(0), product(over), rest)
	y := c.scatter(x, at, c.reshape(c.x(2), m, rest), []int64{m, rest}, 0)
	return one(c.reshape(y, slices.Clone(d)...))
}

package bridge

import (
	"gorgonia.org/tensor"

	"ampc/ir"
)

// repeat repeats every element along an axis, in place: ab becomes aabb.
func (c *call) repeat() *ir.Value {
	x, to, along := c.x(0), longs(c.n.Shape()), int(c.int("along"))
	if x == nil {
		return nil
	}
	from := make([]int64, len(to))
	for i := range from {
		from[i] = 1
		if i < x.Type.Shape.Rank() {
			from[i] = int64(x.Type.Shape.Dim(i))
		}
	}
	x = c.b.Reshape(x, from...)
	if from[along] == 1 {
		return c.b.Broadcast(x, to...)
	}
	wide := append(append([]int64{}, from[:along+1]...), to[along]/from[along])
	wide = append(wide, from[along+1:]...)
	return c.b.Reshape(c.b.Broadcast(c.b.Unsqueeze(x, int64(along+1)), wide...), to...)
}

func (c *call) concat() *ir.Value {
	var xs []*ir.Value
	for k := range c.in {
		xs = append(xs, c.x(k))
	}
	return c.b.Concat(c.int("axis"), xs...)
}

// slice takes a range of one axis; Gorgonia then drops an axis of size 1,
// which the node's shape says.
func (c *call) slice() *ir.Value {
	s, ok := c.n.Op().(interface{ IsSlice() tensor.Slice })
	if !ok {
		c.fail(c.n, "its slice cannot be read")
		return nil
	}
	r := s.IsSlice()
	if r == nil || r.End() <= r.Start() {
		return c.x(0)
	}
	axes := []int64{c.int("along")}
	return c.b.SliceStep(c.x(0), axes, []int64{int64(r.Start())}, []int64{int64(r.End())}, []int64{int64(max(r.Step(), 1))})
}

// at is one element.
func (c *call) at() *ir.Value {
	var axes, ends []int64
	starts := c.ints("coordinates")
	for i, k := range starts {
		axes, ends = append(axes, int64(i)), append(ends, k+1)
	}
	return c.b.Slice(c.x(0), axes, starts, ends)
}

// diagonal puts the elements of x, in order, on the diagonal of a matrix.
func (c *call) diagonal() *ir.Value {
	x := c.x(0)
	if x == nil {
		return nil
	}
	n := x.Type.Shape.Elements()
	eye := c.b.OneHot(c.b.Iota(ir.I32, 0, n), n, -1, x.Type.DType)
	return c.b.Mul(c.b.Reshape(x, n, 1), eye)
}

// sparsemax is the projection on the simplex (Martins and Astudillo 2016): with
// z sorted descending, the support are the k for which 1+k·z_k exceeds the sum
// of the first k, and the threshold is their mean excess.
func (c *call) sparsemax() *ir.Value {
	x, axis := c.x(0), c.softmaxAxis()
	if x == nil {
		return nil
	}
	b := c.b
	size := int64(x.Type.Shape.Dim(int(axis)))
	sorted, _ := b.TopK(x, size, axis, false)
	rank := x.Type.Shape.Rank()
	along := int(axis)
	if along < 0 {
		along += rank
	}
	ones := make([]int64, rank)
	for i := range ones {
		ones[i] = 1
	}
	ones[along] = size
	k := b.Affine(b.Cast(b.Iota(ir.I32, int64(along), ones...), x.Type.DType), 1, 1)
	sums := b.Cumsum(sorted, int64(along), false, false)
	support := b.Cast(b.Gt(b.Affine(b.Mul(k, sorted), 1, 1), sums), x.Type.DType)
	count := b.ReduceSum(support, true, int64(along))
	excess := b.Affine(b.ReduceSum(b.Mul(sorted, support), true, int64(along)), 1, -1)
	return b.Relu(b.Sub(x, b.Div(excess, count)))
}

package ir

import "math"

// Short forms of expansions and gradients. All accept nil values, which a builder returns after a
// mistake.

// sumOver is reduce_sum over the given axes; none: all.
func (b *Builder) sumOver(x *Value, keep bool, axes ...int64) *Value {
	return b.ReduceSum(x, keep, axes...)
}

// sumAxes sums over a list of axes. For an empty list it returns x.
func (b *Builder) sumAxes(x *Value, axes []int64) *Value {
	if len(axes) == 0 {
		return x
	}
	return b.ReduceSum(x, false, axes...)
}

// sumAll is the sum of all elements, a scalar.
func (b *Builder) sumAll(x *Value) *Value {
	if x == nil || x.Type.Shape == MakeShape() {
		return x
	}
	return b.ReduceSum(x, false)
}

// maxOver is the maximum along one axis, which stays with size 1.
func (b *Builder) maxOver(x *Value, axis int64) *Value { return b.ReduceMax(x, true, axis) }

// sumBut sums over all axes but one.
func (b *Builder) sumBut(x *Value, axis int) *Value {
	if x == nil {
		return nil
	}
	r := x.Type.Shape.Rank()
	if !x.Type.Shape.Known() {
		b.Fail("the gradient needs the rank of %s", x)
		return nil
	}
	if axis < 0 {
		axis += r
	}
	return b.sumAxes(x, allBut(int64(r), int64(axis)))
}

// reshaped gives x the dimensions d. A dimension that is not a number must be x's own at the same
// position, or the only one of this kind.
func (b *Builder) reshaped(x *Value, d ...Dim) *Value {
	if x == nil || x.Type.Shape == MakeShape(d...) && x.Type.Shape.Static() {
		return x
	}
	from := x.Type.Shape.Dims()
	shape := make([]int64, len(d))
	for i, k := range d {
		switch {
		case k > 0:
			shape[i] = int64(k)
		case i < len(from) && from[i] == k:
			shape[i] = 0
		default:
			shape[i] = -1
		}
	}
	return b.Reshape(x, shape...)
}

// rows flattens all dimensions but the last.
func (b *Builder) rows(x *Value) *Value {
	if x == nil || x.Type.Shape.Rank() == 2 {
		return x
	}
	if !x.Type.Shape.Known() {
		b.Fail("the gradient needs the rank of %s", x)
		return nil
	}
	if k := x.Type.Shape.Dim(-1); k > 0 {
		return b.Reshape(x, -1, int64(k))
	}
	b.Fail("the gradient needs the last dimension of %s, which has type %s", x, b.g.TypeString(x.Type))
	return nil
}

// plusGrad adds two gradients. nil stands for zero.
func (b *Builder) plusGrad(x, y *Value) *Value {
	switch {
	case x == nil:
		return y
	case y == nil:
		return x
	}
	return b.Add(x, y)
}

// alongChannels makes a vector broadcast along the channels of a node's data of rank r.
func (b *Builder) alongChannels(n *Node, v *Value, r int) *Value {
	after := int64(r - 1 - n.channelAxis(r))
	if v == nil || after == 0 {
		return v
	}
	return b.Unsqueeze(v, span(1, 1+after)...)
}

// iotaAlong is 0, 1, 2, ... along an axis of s, whose size is known, and size 1
// along all others.
func (b *Builder) iotaAlong(d DType, s Shape, axis int) *Value {
	one := make([]int64, s.Rank())
	for i := range one {
		one[i] = 1
	}
	one[axis] = int64(s.Dim(axis))
	return b.Iota(d, int64(axis), one...)
}

// causalMask is 0 where query i attends to key j, which is j ≤ i + keys − queries, and −Inf
// elsewhere.
func (b *Builder) causalMask(queries, keys Dim) *Value {
	if queries < 0 || keys < 0 {
		b.needsSizes(T(F32, queries, keys), "a causal mask needs the number of queries and keys")
		return nil
	}
	s := MakeShape(queries, keys)
	i, j := b.iotaAlong(I32, s, 0), b.iotaAlong(I32, s, 1)
	seen := b.Le(j, b.Affine(i, 1, float64(keys-queries)))
	return b.Where(seen, b.Scalar(F32, 0), b.Scalar(F32, math.Inf(-1)))
}

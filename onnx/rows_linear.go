package onnx

import (
	"slices"

	"ampc/ir"
)

var linearRows = []row{
	{op: "MatMul", since: 1, ours: "matmul", imp: func(c *call) []*ir.Value { return one(c.matmul(0, 1, false, false)) }},
	{op: "Gemm", since: 1, ours: "linear, or matmul and add", imp: gemm},
	{op: "Einsum", since: 12, ours: "transpose, reshape, reduce_sum and matmul", imp: func(c *call) []*ir.Value {
		return one(c.b.Einsum(c.str("equation", ""), c.all(0)...))
	}},
}

// matmul multiplies operands, of which one axis alone may be.
func (c *call) matmul(i, j int, ta, tb bool) *ir.Value {
	x, y, dx, dy := c.x(i), c.x(j), c.dims(i), c.dims(j)
	if len(dx) == 0 || len(dy) == 0 {
		c.fail("an operand is a scalar, want a matrix")
		return nil
	}
	if d := c.typ(i).DType; !d.Float() {
		return c.whole(x, y, dx, dy)
	}
	if c.im.part && len(dx) > 1 && len(dy) > 1 { // elsewhere the graph keeps its nodes
		x, ta = untransposed(x, ta)
		y, tb = untransposed(y, tb)
	}
	return c.product(x, y, dx, dy, ta, tb)
}

// untransposed is what a transposition of the last two axes reads, which a product
// reads by columns as well. Exporters write one for each weight of a tied embedding.
func untransposed(x *ir.Value, t bool) (*ir.Value, bool) {
	if x == nil || x.Def == nil || x.Def.Op != ir.OpTranspose {
		return x, t
	}
	perm := slices.Clone(x.Def.Ints("perm"))
	n := len(perm)
	perm[n-2], perm[n-1] = perm[n-1], perm[n-2]
	for i, a := range perm {
		if int(a) != i {
			return x, t
		}
	}
	return x.Def.In[0], !t
}

func (c *call) product(x, y *ir.Value, dx, dy []int64, ta, tb bool) *ir.Value {
	if len(dx) == 1 {
		x = c.reshape(x, 1, dx[0])
	}
	if len(dy) == 1 {
		y = c.reshape(y, dy[0], 1)
	}
	z := c.b.Matmul(x, y, ta, tb)
	if z == nil || len(dx) > 1 && len(dy) > 1 {
		return z
	}
	shape := sizes(z.Type)
	if len(dy) == 1 {
		shape = slices.Delete(shape, len(shape)-1, len(shape))
	}
	if len(dx) == 1 {
		k := len(shape) - 1
		if len(dy) > 1 {
			k--
		}
		shape = slices.Delete(shape, k, k+1)
	}
	return c.reshape(z, shape...)
}

// whole multiplies matrices of integers as sums of products, all in memory at once.
func (c *call) whole(x, y *ir.Value, dx, dy []int64) *ir.Value {
	n := int64(1)
	if len(dy) > 1 {
		n = dy[len(dy)-1]
	}
	if len(dx) < 2 || len(dy) < 2 || len(dx) >= ir.MaxRank || len(dy) >= ir.MaxRank || product(dx)*n > 1<<22 || c.flag("transA", false) || c.flag("transB", false) {
		c.refuse("this product of integers is not supported: it is large, or has a vector or a transposed operand")
		return nil
	}
	x = c.reshape(x, append(slices.Clone(dx), 1)...)
	shape := slices.Insert(slices.Clone(dy), len(dy)-2, 1)
	return c.b.ReduceSum(c.b.Mul(x, c.reshape(y, shape...)), false, -2)
}

func gemm(c *call) []*ir.Value {
	ta, tb := c.flag("transA", false), c.flag("transB", false)
	alpha, beta := c.float("alpha", 1), c.float("beta", 1)
	if alpha == 1 && beta == 1 && !ta && c.has(2) && c.rank(2) == 1 && c.rank(1) == 2 && c.typ(0).DType.Float() {
		if n := c.dims(1)[1-b2i(tb)]; c.dims(2)[0] == n {
			return one(c.b.Linear(c.x(0), c.x(1), c.x(2), tb))
		}
	}
	y := c.matmul(0, 1, ta, tb)
	if alpha != 1 {
		y = c.b.Affine(y, alpha, 0)
	}
	if !c.has(2) || beta == 0 {
		return one(y)
	}
	z := c.x(2)
	if beta != 1 {
		z = c.b.Affine(z, beta, 0)
	}
	return one(c.b.Add(y, z))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

package onnx

import "ampc/ir"

// pairwise is a row of two operands that broadcast: by numpy's rules from opset 7
// on, before by attributes.
func pairwise(op string, since int64, f func(b *ir.Builder, x, y *ir.Value) *ir.Value, ours string) row {
	return row{op: op, since: since, ours: ours, imp: func(c *call) []*ir.Value { return one(f(c.b, c.x(0), c.second())) }}
}

// second is operand 1 of an elementwise node, in a shape that broadcasts.
func (c *call) second() *ir.Value {
	y := c.x(1)
	if c.opset >= 7 || c.n.Domain != "" || !c.flag("broadcast", false) || !c.set("axis") {
		return y
	}
	rank, own := c.rank(0), c.dims(1)
	after := int64(rank) - c.axis(c.int("axis", 0), rank) - int64(len(own))
	for ; after > 0; after-- {
		own = append(own, 1)
	}
	return c.reshape(y, own...)
}

// fold2 is a row of any number of operands, from left to right.
func fold2(op string, f func(b *ir.Builder, x, y *ir.Value) *ir.Value, ours string) row {
	return row{op: op, since: 1, ours: ours, imp: func(c *call) []*ir.Value { return one(leftToRight(c, f)) }}
}

func leftToRight(c *call, f func(b *ir.Builder, x, y *ir.Value) *ir.Value) *ir.Value {
	y := c.x(0)
	for i := 1; i < len(c.in); i++ {
		y = f(c.b, y, c.x(i))
	}
	return y
}

var binaryRows = []row{
	pairwise("Add", 1, (*ir.Builder).Add, "add"),
	pairwise("Sub", 1, (*ir.Builder).Sub, "sub"),
	pairwise("Mul", 1, (*ir.Builder).Mul, "mul"),
	pairwise("Div", 1, (*ir.Builder).Div, "div"),
	pairwise("And", 1, (*ir.Builder).And, "and"),
	pairwise("Or", 1, (*ir.Builder).Or, "or"),
	pairwise("Xor", 1, (*ir.Builder).Xor, "xor"),
	pairwise("BitwiseAnd", 18, (*ir.Builder).And, "and"),
	pairwise("BitwiseOr", 18, (*ir.Builder).Or, "or"),
	pairwise("BitwiseXor", 18, (*ir.Builder).Xor, "xor"),
	pairwise("Equal", 1, (*ir.Builder).Eq, "eq"),
	pairwise("Greater", 1, (*ir.Builder).Gt, "gt"),
	pairwise("Less", 1, (*ir.Builder).Lt, "lt"),
	pairwise("GreaterOrEqual", 12, (*ir.Builder).Ge, "ge"),
	pairwise("LessOrEqual", 12, (*ir.Builder).Le, "le"),
	fold2("Max", (*ir.Builder).Max, "max"),
	fold2("Min", (*ir.Builder).Min, "min"),
	fold2("Sum", (*ir.Builder).Add, "add"),
	{op: "Mean", since: 1, ours: "add, affine", imp: func(c *call) []*ir.Value {
		return one(c.b.Affine(leftToRight(c, (*ir.Builder).Add), 1/float64(len(c.in)), 0))
	}},
	{op: "Where", since: 9, ours: "where", imp: func(c *call) []*ir.Value { return one(c.b.Where(c.x(0), c.x(1), c.x(2))) }},
	{op: "PRelu", since: 1, ours: "prelu", imp: prelu},
	{op: "Pow", since: 1, ours: "pow, cast", imp: pow},
	{op: "Mod", since: 10, ours: "mod", imp: mod},
}

// prelu takes a slope per channel before opset 7.
func prelu(c *call) []*ir.Value {
	slope, own := c.x(1), c.dims(1)
	if c.opset < 7 && len(own) == 1 && c.rank(0) > 2 {
		shape := []int64{own[0]}
		for range c.rank(0) - 2 {
			shape = append(shape, 1)
		}
		slope = c.reshape(slope, shape...)
	}
	return one(c.b.Prelu(c.x(0), slope))
}

// pow computes integers in f64, and its result has the base's dtype.
func pow(c *call) []*ir.Value {
	x, y := c.x(0), c.second()
	base, exponent := c.typ(0).DType, c.typ(1).DType
	at := base
	if !base.Float() {
		at = ir.F64
	}
	if at != base {
		x = c.cast(x, at)
	}
	if at != exponent {
		y = c.cast(y, at)
	}
	x = c.b.Pow(x, y)
	if at != base {
		x = c.cast(x, base)
	}
	return one(x)
}

// mod takes the sign of the divisor, or with fmod that of the dividend.
func mod(c *call) []*ir.Value {
	x, y := c.x(0), c.x(1)
	if !c.flag("fmod", false) {
		return one(c.b.Mod(x, y))
	}
	if c.typ(0).DType == ir.U8 {
		return one(c.b.Mod(x, y))
	}
	r := c.b.Mod(c.b.Abs(x), c.b.Abs(y))
	return one(c.b.Where(c.b.Lt(x, c.b.Scalar(c.typ(0).DType, 0)), c.b.Neg(r), r))
}

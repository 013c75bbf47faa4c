package onnx

import (
	"math"

	"ampc/ir"
)

// unary is a row of one operand and one result.
func unary(op string, f func(b *ir.Builder, x *ir.Value) *ir.Value, ours string) row {
	return row{op: op, since: 1, ours: ours, imp: func(c *call) []*ir.Value { return one(f(c.b, c.x(0))) }}
}

// unaryAttr is one whose importer reads attributes.
func unaryAttr(op string, f func(c *call, x *ir.Value) *ir.Value, ours string) row {
	return row{op: op, since: 1, ours: ours, imp: func(c *call) []*ir.Value { return one(f(c, c.x(0))) }}
}

var unaryRows = []row{
	unaryAttr("Abs", func(c *call, x *ir.Value) *ir.Value {
		if c.typ(0).DType == ir.U8 {
			return x
		}
		return c.b.Abs(x)
	}, "abs"),
	unary("Neg", (*ir.Builder).Neg, "neg"),
	unary("Sign", (*ir.Builder).Sign, "sign"),
	unary("Sqrt", (*ir.Builder).Sqrt, "sqrt"),
	unary("Reciprocal", (*ir.Builder).Reciprocal, "reciprocal"),
	unary("Exp", (*ir.Builder).Exp, "exp"),
	unary("Log", (*ir.Builder).Log, "log"),
	unary("Sin", (*ir.Builder).Sin, "sin"),
	unary("Cos", (*ir.Builder).Cos, "cos"),
	unary("Tan", (*ir.Builder).Tan, "tan"),
	unary("Atan", (*ir.Builder).Atan, "atan"),
	unary("Erf", (*ir.Builder).Erf, "erf"),
	unary("Tanh", (*ir.Builder).Tanh, "tanh"),
	unary("Sigmoid", (*ir.Builder).Sigmoid, "sigmoid"),
	unary("Relu", (*ir.Builder).Relu, "relu"),
	unary("Floor", (*ir.Builder).Floor, "floor"),
	unary("Ceil", (*ir.Builder).Ceil, "ceil"),
	unary("Round", (*ir.Builder).RoundEven, "round_even"),
	unary("Not", (*ir.Builder).Not, "not"),
	unary("BitwiseNot", (*ir.Builder).Not, "not"),
	unary("IsNaN", (*ir.Builder).IsNaN, "isnan"),
	unary("Softplus", (*ir.Builder).Softplus, "softplus"),
	unary("Softsign", (*ir.Builder).Softsign, "softsign"),
	unary("Mish", (*ir.Builder).Mish, "mish"),
	unary("HardSwish", (*ir.Builder).Hardswish, "hardswish"),
	unaryAttr("Identity", func(c *call, x *ir.Value) *ir.Value { return x }, "none"),
	unaryAttr("LeakyRelu", func(c *call, x *ir.Value) *ir.Value { return c.b.LeakyRelu(x, c.float("alpha", 0.01)) }, "leaky_relu"),
	unaryAttr("Elu", func(c *call, x *ir.Value) *ir.Value { return c.b.Elu(x, c.float("alpha", 1)) }, "elu"),
	unaryAttr("Selu", selu, "selu, or elu and affine"),
	unaryAttr("Celu", celu, "elu and affine"),
	unaryAttr("HardSigmoid", func(c *call, x *ir.Value) *ir.Value {
		return c.b.Hardsigmoid(x, c.float("alpha", 0.2), c.float("beta", 0.5))
	}, "hardsigmoid"),
	unaryAttr("ThresholdedRelu", func(c *call, x *ir.Value) *ir.Value {
		return c.b.Where(c.b.Gt(x, c.lit(x, c.float("alpha", 1))), x, nil)
	}, "gt, where"),
	unaryAttr("Shrink", shrink, "comparisons, where"),
	unaryAttr("Gelu", func(c *call, x *ir.Value) *ir.Value { return c.b.Gelu(x, approximation(c)) }, "gelu"),
	unaryAttr("Swish", func(c *call, x *ir.Value) *ir.Value {
		return c.b.Mul(x, c.b.Sigmoid(c.b.Affine(x, c.float("alpha", 1), 0)))
	}, "affine, sigmoid, mul"),
	unaryAttr("IsInf", isInf, "isinf, comparisons, and"),
	unary("Sinh", func(b *ir.Builder, x *ir.Value) *ir.Value {
		e := b.Expm1(b.Abs(x)) // (e + e/(e+1))/2 keeps its digits near 0
		return b.Mul(b.Sign(x), b.Affine(b.Add(e, b.Div(e, b.Affine(e, 1, 1))), 0.5, 0))
	}, "expm1 and arithmetic"),
	unary("Cosh", func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.Affine(b.Add(b.Exp(x), b.Exp(b.Neg(x))), 0.5, 0)
	}, "exp and arithmetic"),
	unary("Asin", func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.Atan(b.Div(x, b.Sqrt(b.Mul(b.Affine(x, -1, 1), b.Affine(x, 1, 1)))))
	}, "atan, sqrt and arithmetic"),
	unary("Acos", func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.Affine(b.Atan(b.Sqrt(b.Div(b.Affine(x, -1, 1), b.Affine(x, 1, 1)))), 2, 0)
	}, "atan, sqrt and arithmetic"),
	unary("Asinh", func(b *ir.Builder, x *ir.Value) *ir.Value {
		a := b.Abs(x)
		s := b.Square(a)
		return b.Mul(b.Sign(x), b.Log1p(b.Add(a, b.Div(s, b.Affine(b.Sqrt(b.Affine(s, 1, 1)), 1, 1)))))
	}, "log1p, sqrt and arithmetic"),
	unary("Acosh", func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.Log(b.Add(x, b.Sqrt(b.Mul(b.Affine(x, 1, -1), b.Affine(x, 1, 1)))))
	}, "log, sqrt and arithmetic"),
	unary("Atanh", func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.Affine(b.Log1p(b.Div(b.Affine(x, 2, 0), b.Affine(x, -1, 1))), 0.5, 0)
	}, "log1p and arithmetic"),
	{op: "Cast", own: true, since: 1, ours: "cast", imp: castTo},
	{op: "CastLike", own: true, since: 15, ours: "cast", imp: func(c *call) []*ir.Value { return one(c.cast(c.x(0), c.typ(1).DType)) }},
	{op: "Clip", since: 1, ours: "clip, or min and max", imp: clip},
	{op: "Dropout", since: 1, ours: "none", not: "training mode: its random numbers are not defined", imp: dropout},
}

func selu(c *call, x *ir.Value) *ir.Value {
	// The defaults before opset 6 were rounded to four digits.
	alpha, gamma := c.float("alpha", 1.67326319217681884765625), c.float("gamma", 1.05070102214813232421875)
	if !c.set("alpha") && !c.set("gamma") && c.opset >= 6 {
		return c.b.Selu(x)
	}
	return c.b.Affine(c.b.Elu(x, alpha), gamma, 0)
}

func celu(c *call, x *ir.Value) *ir.Value {
	alpha := c.float("alpha", 1)
	return c.b.Where(c.b.Gt(x, c.lit(x, 0)), x, c.b.Affine(c.b.Expm1(c.b.Affine(x, 1/alpha, 0)), alpha, 0))
}

func shrink(c *call, x *ir.Value) *ir.Value {
	lambda, bias := c.float("lambd", 0.5), c.float("bias", 0)
	if x == nil {
		return nil
	}
	b := c.b
	above := b.Where(b.Gt(x, c.lit(x, lambda)), b.Affine(x, 1, -bias), nil)
	return b.Where(b.Lt(x, c.lit(x, -lambda)), b.Affine(x, 1, bias), above)
}

func approximation(c *call) string {
	if c.str("approximate", "none") == "tanh" {
		return "tanh"
	}
	return "erf"
}

func isInf(c *call, x *ir.Value) *ir.Value {
	y := c.b.IsInf(x)
	zero := func() *ir.Value { return c.b.Scalar(c.typ(0).DType, 0) }
	if !c.flag("detect_negative", true) {
		y = c.b.And(y, c.b.Gt(x, zero()))
	}
	if !c.flag("detect_positive", true) {
		y = c.b.And(y, c.b.Lt(x, zero()))
	}
	return y
}

var castNames = map[string]DataType{"FLOAT": 1, "UINT8": 2, "INT32": 6, "INT64": 7, "BOOL": 9, "FLOAT16": 10, "DOUBLE": 11}

func castTo(c *call) []*ir.Value {
	to := DataType(0)
	if c.opset < 6 {
		to = castNames[c.str("to", "")]
	} else {
		to = DataType(c.int("to", 0))
	}
	d, err := to.ours()
	if err != nil {
		c.refuse("%v", err)
		return nil
	}
	return one(c.cast(c.x(0), d))
}

func clip(c *call) []*ir.Value {
	x := c.x(0)
	if c.opset < 11 {
		return one(c.b.Clip(x, c.float("min", math.Inf(-1)), c.float("max", math.Inf(1))))
	}
	// A lower limit above the upper one gives the upper one everywhere.
	if c.has(1) {
		x = c.b.Max(x, c.x(1))
	}
	if c.has(2) {
		x = c.b.Min(x, c.x(2))
	}
	return one(x)
}

func dropout(c *call) []*ir.Value {
	training := c.opset < 7 && c.set("is_test") && !c.flag("is_test", true)
	if c.opset >= 12 && c.has(2) {
		training = c.number(2, "training mode") != 0
	}
	if training {
		ratio := c.float("ratio", 0.5)
		if c.opset >= 12 && c.has(1) {
			ratio = c.number(1, "ratio")
		}
		if ratio != 0 {
			c.refuse("training mode draws random numbers that ONNX does not define")
			return nil
		}
	}
	x := c.x(0)
	if !c.wants(1) {
		return one(x)
	}
	mask := ir.Bool
	if c.opset < 10 {
		mask = c.typ(0).DType
	}
	return []*ir.Value{x, c.b.Full(mask, 1, c.dims(0)...)}
}

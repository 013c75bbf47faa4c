package bridge

import (
	"math"

	"ampc/ir"
)

// rule builds what a node computes; nil after a mistake.
type rule func(c *call) *ir.Value

const noRule = "no rule for this op"

// refused says why an op of Gorgonia's has no rule.
var refused = map[string]string{
	"letOp":     "gorgonia.Set has no counterpart: bind the value with gorgonia.Let",
	"ctcLossOp": noRule,
	"yoloOp":    noRule,
}

// ruleTable is by the name of the op's Go type in gorgonia.org/gorgonia v0.9.18.
func ruleTable() map[string]rule {
	return map[string]rule{
		"constantScalar": (*call).constant,
		"constantTensor": (*call).constant,
		"readOp":         func(c *call) *ir.Value { return c.x(0) },
		"Iop":            func(c *call) *ir.Value { return c.x(0) },
		"sizeOp":         func(c *call) *ir.Value { return c.scalar(sizeOf(c)) },
		"dtConvOp":       func(c *call) *ir.Value { return c.as(c.x(0)) },

		"elemBinOp":   (*call).binary,
		"elemUnaryOp": (*call).unary,
		"minBetween":  func(c *call) *ir.Value { return c.b.Min(c.x(0), c.x(1)) },
		"maxBetween":  func(c *call) *ir.Value { return c.b.Max(c.x(0), c.x(1)) },
		"clampOp":     func(c *call) *ir.Value { return c.b.Clip(c.x(0), c.number("min"), c.number("max")) },

		"linAlgBinOp": (*call).product,
		"tensordotOp": (*call).tensordot,
		"sumOp":       func(c *call) *ir.Value { return c.b.ReduceSum(c.x(0), false, c.ints("along")...) },
		"maxOp":       func(c *call) *ir.Value { return c.b.ReduceMax(c.x(0), false, c.ints("along")...) },

		"reshapeOp":   func(c *call) *ir.Value { return c.x(0) }, // value gives it the node's shape
		"transposeOp": func(c *call) *ir.Value { return c.b.Transpose(c.x(0), c.ints("pattern")...) },
		"repeatOp":    (*call).repeat,
		"concatOp":    (*call).concat,
		"sliceOp":     (*call).slice,
		"atOp":        (*call).at,
		"byIndicesOp": func(c *call) *ir.Value { return c.b.Gather(c.x(0), c.x(1), c.int("axis")) },
		"diagFlatOp":  (*call).diagonal,

		"softmaxOp":           (*call).softmax,
		"sparsemaxOp":         (*call).sparsemax,
		"im2colOp":            (*call).im2col,
		"maxPoolOp":           func(c *call) *ir.Value { return c.b.MaxPool(c.x(0), c.window()) },
		"avgPoolOp":           (*call).avgPool,
		"globalAveragePoolOp": func(c *call) *ir.Value { return c.b.GlobalAvgPool(c.x(0), "NCHW") },
		"upsampleOp":          (*call).upsample,
		"dropoutOp":           (*call).dropout,
		"BatchNormOp":         (*call).batchNorm,
		"GroupNormOp": func(c *call) *ir.Value {
			return c.b.GroupNorm(c.x(0), nil, nil, ir.A("eps", c.number("epsilon"), "groups", c.int("numGroups")))
		},
		"randomOp": (*call).random,
	}
}

// constant is a number, or a tensor that becomes a declaration.
func (c *call) constant() *ir.Value {
	if c.n.Value() == nil {
		c.fail(c.n, "the constant has no value")
		return nil
	}
	init, typ, ok := c.data(c.n.Value())
	switch {
	case !ok:
		return nil
	case typ.Shape == ir.MakeShape():
		return c.scalar(init.Args[0])
	}
	return c.b.Declare(ir.Const, c.free("const"), typ, init, nil)
}

// sizeOf is the size of an axis; a number's is 1.
func sizeOf(c *call) float64 {
	shape, axis := c.in[0].Shape(), int(c.int("axis"))
	if axis >= len(shape) {
		return 1
	}
	return float64(shape[axis])
}

// as casts v to the node's element type.
func (c *call) as(v *ir.Value) *ir.Value {
	if d := c.dtype(c.n); v != nil && v.Type.DType != d {
		return c.b.Cast(v, d)
	}
	return v
}

// binaries are in the order of Gorgonia's operator numbers. Comparisons give
// bool; those with retSame are cast to the operands' type.
var binaries = []func(b *ir.Builder, x, y *ir.Value) *ir.Value{
	(*ir.Builder).Add, (*ir.Builder).Sub, (*ir.Builder).Mul, (*ir.Builder).Div, (*ir.Builder).Pow,
	(*ir.Builder).Lt, (*ir.Builder).Gt, (*ir.Builder).Le, (*ir.Builder).Ge, (*ir.Builder).Eq, (*ir.Builder).Ne,
}

// Operator numbers that patterns look for.
const (
	opAdd = 0
	opSub = 1
	opMul = 2
	opDiv = 3
	opLt  = 5
	opGte = 8
)

func (c *call) binary() *ir.Value {
	k := operatorOf(c.n)
	if k < 0 || k >= len(binaries) {
		c.fail(c.n, "its operator number is %d", k)
		return nil
	}
	x, y := c.slim(0), c.slim(1)
	if x == nil || y == nil {
		return nil
	}
	if s, ok := ir.Broadcast(x.Type.Shape, y.Type.Shape); !ok || s != c.shape() {
		x = c.x(0)
		if s, ok = ir.Broadcast(x.Type.Shape, y.Type.Shape); !ok || s != c.shape() {
			y = c.x(1)
		}
	}
	return c.as(binaries[k](c.b, x, y))
}

// shape is the node's own.
func (c *call) shape() ir.Shape {
	s, err := shapeOf(c.n.Shape())
	if err != nil {
		c.fail(c.n, "%v", err)
	}
	return s
}

var unaries = map[string]func(b *ir.Builder, x *ir.Value) *ir.Value{
	"abs": (*ir.Builder).Abs, "sign": (*ir.Builder).Sign, "ceil": (*ir.Builder).Ceil, "floor": (*ir.Builder).Floor,
	"sin": (*ir.Builder).Sin, "cos": (*ir.Builder).Cos, "exp": (*ir.Builder).Exp,
	"ln":   (*ir.Builder).Log,
	"log2": func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Affine(b.Log(x), 1/math.Ln2, 0) },
	"neg":  (*ir.Builder).Neg, "square": (*ir.Builder).Square, "sqrt": (*ir.Builder).Sqrt,
	"inv": (*ir.Builder).Reciprocal, "invSqrt": (*ir.Builder).Rsqrt,
	"cube": func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Mul(b.Square(x), x) },
	"tanh": (*ir.Builder).Tanh, "sigmoid": (*ir.Builder).Sigmoid,
	"log1p": (*ir.Builder).Log1p, "expm1": (*ir.Builder).Expm1, "softplus": (*ir.Builder).Softplus,
}

func (c *call) unary() *ir.Value {
	f := unaries[c.n.Op().String()]
	if f == nil {
		c.fail(c.n, "its operator is %s", c.n.Op())
		return nil
	}
	return f(c.b, c.x(0))
}

// Numbers of the linear algebra operators.
const (
	matMul = iota
	matVec
	vecDot
	outer
	batchedMatMul
)

func (c *call) product() *ir.Value {
	ta, tb := c.flag("transA"), c.flag("transB")
	x, y := c.x(0), c.x(1)
	if x == nil || y == nil {
		return nil
	}
	switch kind := c.op.Field(0).Uint(); kind {
	case matMul, batchedMatMul:
		return c.b.Matmul(x, y, ta, tb)
	case matVec:
		return c.b.Matmul(x, c.b.Reshape(y, -1, 1), ta, false)
	case vecDot:
		return c.b.Matmul(c.b.Reshape(x, 1, -1), c.b.Reshape(y, -1, 1), false, false)
	case outer:
		return c.b.Mul(c.b.Reshape(x, -1, 1), c.b.Reshape(y, 1, -1))
	default:
		c.fail(c.n, "its operator number is %d", kind)
		return nil
	}
}

// tensordot writes the contraction as an einsum: a letter per axis, contracted
// axes sharing theirs.
func (c *call) tensordot() *ir.Value {
	x, y := c.x(0), c.x(1)
	if x == nil || y == nil {
		return nil
	}
	xl, yl := make([]byte, x.Type.Shape.Rank()), make([]byte, y.Type.Shape.Rank())
	next := byte('a')
	for i := range xl {
		xl[i] = next
		next++
	}
	contracted := map[byte]bool{}
	xs, ys := c.ints("aAxes"), c.ints("bAxes")
	for i, a := range xs {
		yl[ys[i]] = xl[a]
		contracted[xl[a]] = true
	}
	for i := range yl {
		if yl[i] == 0 {
			yl[i] = next
			next++
		}
	}
	var free []byte
	for _, l := range append(append([]byte{}, xl...), yl...) {
		if !contracted[l] {
			free = append(free, l)
		}
	}
	return c.b.Einsum(string(xl)+","+string(yl)+"->"+string(free), x, y)
}

func (c *call) softmaxAxis() int64 {
	if axis := c.int("axis"); axis >= 0 {
		return axis
	}
	return -1
}

func (c *call) softmax() *ir.Value {
	if c.flag("isLog") {
		return c.b.LogSoftmax(c.x(0), c.softmaxAxis())
	}
	return c.b.Softmax(c.x(0), c.softmaxAxis())
}

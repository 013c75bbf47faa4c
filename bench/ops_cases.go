package main

import (
	"math"

	"ampc"
	"ampc/ir"
)

// An opCase is one op beside torch's of the same name in bench/torch/ops.py:
// operands, and how ampc spells it.
type opCase struct {
	name string
	in   []opInput
	ours func(m *ampc.Model, v []ampc.Tensor) ampc.Tensor
	edge bool // values at the edges of the domain: every element is compared, none measured
	flat bool // has no gradient
}

// An opInput is an operand. Inputs are low or f32 under a preset, weights f32,
// what is given is f32 and has no gradient, indices are integers below limit.
type opInput struct {
	kind   string // input, weight, given or index
	shape  []int
	lo, hi float64   // uniform between them; both 0: normal
	limit  int       // of an index
	values []float64 // instead of random ones
}

func input(shape ...int) opInput  { return opInput{kind: "input", shape: shape} }
func weight(shape ...int) opInput { return opInput{kind: "weight", shape: shape} }
func between(lo, hi float64, shape ...int) opInput {
	return opInput{kind: "input", shape: shape, lo: lo, hi: hi}
}
func (in opInput) weight() opInput { in.kind = "weight"; return in }
func given(lo, hi float64, shape ...int) opInput {
	return opInput{kind: "given", shape: shape, lo: lo, hi: hi}
}
func index(limit int, shape ...int) opInput {
	return opInput{kind: "index", shape: shape, limit: limit}
}
func exactly(v ...float64) opInput { return opInput{kind: "input", shape: []int{len(v)}, values: v} }
func rows(n int, v ...float64) opInput {
	return opInput{kind: "input", shape: []int{len(v) / n, n}, values: v}
}
func labels(v ...float64) opInput { return opInput{kind: "index", shape: []int{len(v)}, values: v} }

type (
	one = func(b *ir.Builder, x *ir.Value) *ir.Value
	two = func(b *ir.Builder, x, y *ir.Value) *ir.Value
)

// pointwiseOps are functions of one operand, by torch's names, with the range that they are measured in.
var pointwiseOps = []struct {
	name   string
	f      one
	lo, hi float64
	flat   bool
}{
	{"abs", (*ir.Builder).Abs, 0, 0, false}, {"neg", (*ir.Builder).Neg, 0, 0, false}, {"sign", (*ir.Builder).Sign, 0, 0, true},
	{"sqrt", (*ir.Builder).Sqrt, 0.1, 4, false}, {"rsqrt", (*ir.Builder).Rsqrt, 0.1, 4, false}, {"square", (*ir.Builder).Square, 0, 0, false},
	{"reciprocal", (*ir.Builder).Reciprocal, 0.1, 4, false}, {"exp", (*ir.Builder).Exp, 0, 0, false}, {"expm1", (*ir.Builder).Expm1, 0, 0, false},
	{"log", (*ir.Builder).Log, 0.1, 4, false}, {"log1p", (*ir.Builder).Log1p, -0.5, 4, false}, {"sin", (*ir.Builder).Sin, 0, 0, false},
	{"cos", (*ir.Builder).Cos, 0, 0, false}, {"tan", (*ir.Builder).Tan, -1, 1, false}, {"atan", (*ir.Builder).Atan, 0, 0, false},
	{"erf", (*ir.Builder).Erf, 0, 0, false}, {"tanh", (*ir.Builder).Tanh, 0, 0, false}, {"sigmoid", (*ir.Builder).Sigmoid, 0, 0, false},
	{"relu", (*ir.Builder).Relu, 0, 0, false}, {"leaky_relu", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.LeakyRelu(x, 0.01) }, 0, 0, false},
	{"elu", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Elu(x, 1) }, 0, 0, false}, {"selu", (*ir.Builder).Selu, 0, 0, false},
	{"gelu", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Gelu(x, "erf") }, 0, 0, false},
	{"gelu_tanh", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Gelu(x, "tanh") }, 0, 0, false},
	{"silu", (*ir.Builder).Silu, 0, 0, false}, {"mish", (*ir.Builder).Mish, 0, 0, false}, {"softplus", (*ir.Builder).Softplus, 0, 0, false},
	{"softsign", (*ir.Builder).Softsign, 0, 0, false}, {"hardswish", (*ir.Builder).Hardswish, -4, 4, false},
	{"hardsigmoid", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Hardsigmoid(x, 1.0/6, 0.5) }, -4, 4, false},
	{"floor", (*ir.Builder).Floor, 0, 0, true}, {"ceil", (*ir.Builder).Ceil, 0, 0, true}, {"round", (*ir.Builder).RoundEven, 0, 0, true},
	{"clamp", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Clip(x, -3, 3) }, -4, 4, false},
}

var pairOps = []struct {
	name string
	f    two
	in   [2]opInput
}{
	{"add", (*ir.Builder).Add, [2]opInput{input(32, 40), input(40)}}, {"sub", (*ir.Builder).Sub, [2]opInput{input(32, 40), input(40)}},
	{"mul", (*ir.Builder).Mul, [2]opInput{input(32, 40), input(40)}}, {"div", (*ir.Builder).Div, [2]opInput{input(32, 40), between(0.5, 2, 40)}},
	{"remainder", (*ir.Builder).Mod, [2]opInput{between(1, 2, 32, 40), between(3, 4, 40)}},
	{"pow", (*ir.Builder).Pow, [2]opInput{between(0.2, 3, 32, 40), between(-2, 2, 32, 40)}},
	{"maximum", (*ir.Builder).Max, [2]opInput{input(32, 40), input(32, 40)}}, {"minimum", (*ir.Builder).Min, [2]opInput{input(32, 40), input(32, 40)}},
	{"prelu", (*ir.Builder).Prelu, [2]opInput{input(32, 40), weight(1)}},
	{"matmul", func(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Matmul(x, y, false, false) }, [2]opInput{input(24, 64), input(64, 16)}},
	{"bmm", func(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Matmul(x, y, false, false) }, [2]opInput{input(3, 8, 32), input(3, 32, 8)}},
	{"mse_loss", (*ir.Builder).MSE, [2]opInput{input(16, 20), input(16, 20)}}, {"l1_loss", (*ir.Builder).L1Loss, [2]opInput{input(16, 20), input(16, 20)}},
	{"huber_loss", func(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Huber(x, y, 1) }, [2]opInput{input(16, 20), input(16, 20)}},
	{"kl_div", func(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.KLDiv(x, y, nil) }, [2]opInput{between(-4, -0.1, 16, 20), between(0.1, 0.9, 16, 20)}},
	{"binary_cross_entropy", (*ir.Builder).BCE, [2]opInput{between(0.1, 0.9, 16, 20), between(0, 1, 16, 20)}},
	{"bce_with_logits", (*ir.Builder).BCEWithLogits, [2]opInput{input(16, 20), between(0, 1, 16, 20)}},
	{"soft_cross_entropy", func(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.SoftCrossEntropy(x, y, -1) }, [2]opInput{input(16, 20), between(0, 0.1, 16, 20)}},
}

// unaryOp makes a case of a function of one operand.
func unaryOp(name string, f one, x opInput) opCase {
	return opCase{name: name, in: []opInput{x}, ours: func(m *ampc.Model, v []ampc.Tensor) ampc.Tensor { return m.FromIR(f(m.IR(), v[0].IR())) }}
}

// of makes a case of a function that takes all operands.
func of(name string, f func(b *ir.Builder, v []*ir.Value) *ir.Value, in ...opInput) opCase {
	return opCase{name: name, in: in, ours: func(m *ampc.Model, v []ampc.Tensor) ampc.Tensor {
		in := make([]*ir.Value, len(v))
		for i, x := range v {
			in[i] = x.IR()
		}
		return m.FromIR(f(m.IR(), in))
	}}
}

// opCases is the comparison: every op, and the edges of those that have some.
func opCases() []opCase {
	inf, nan, zero := math.Inf(1), math.NaN(), math.Copysign(0, -1)
	special := exactly(-inf, -4, -3, -1.5, zero, 0, 0.5, 3, 4, inf, nan)
	var out []opCase
	for _, u := range pointwiseOps {
		c := unaryOp(u.name, u.f, between(u.lo, u.hi, 32, 40))
		c.flat = u.flat
		out = append(out, c)
		c.in, c.edge, c.name = []opInput{special}, true, u.name+"@"
		out = append(out, c)
	}
	for _, p := range pairOps {
		out = append(out, of(p.name, func(b *ir.Builder, v []*ir.Value) *ir.Value { return p.f(b, v[0], v[1]) }, p.in[:]...))
	}
	out = append(out, shapeCases()...)
	out = append(out, layerCases()...)
	return append(out, edgeCases(inf, nan, zero)...)
}

// edgeCases are ties, zeros and values that are not finite, for ops of more than one operand.
func edgeCases(inf, nan, zero float64) []opCase {
	pair := func(name string, f two, x, y opInput) opCase {
		c := of(name+"@", func(b *ir.Builder, v []*ir.Value) *ir.Value { return f(b, v[0], v[1]) }, x, y)
		c.edge = true
		return c
	}
	along := func(name string, f one, x ...float64) opCase {
		c := unaryOp(name+"@", f, exactly(x...))
		c.edge = true
		return c
	}
	loss := func(name string, f two, x, y opInput) opCase { return pair(name, f, x, y) }
	ignored := of("cross_entropy_ignored@", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.CrossEntropy(v[0], v[1], nil) }, input(2, 3), labels(-100, -100))
	ignored.edge = true
	return []opCase{
		pair("maximum", (*ir.Builder).Max, exactly(1, 0, zero, nan, 1, inf, nan), exactly(1, zero, 0, 1, nan, inf, nan)),
		pair("minimum", (*ir.Builder).Min, exactly(1, 0, zero, nan, 1, inf, nan), exactly(1, zero, 0, 1, nan, inf, nan)),
		pair("pow", (*ir.Builder).Pow, exactly(0, 0, 0, -2, -2, -2, -2, 2, 1, nan, inf, zero, 0, -1, nan), exactly(0, 2, -1, 2, 3, 0.5, 0, 0, nan, 0, 0, 0, 1, inf, 1)),
		pair("div", (*ir.Builder).Div, exactly(1, 0, inf), exactly(0, 0, inf)),
		pair("prelu", (*ir.Builder).Prelu, exactly(-inf, -4, zero, 0, 3, inf, nan), opInput{kind: "weight", shape: []int{1}, values: []float64{0.25}}),
		pair("remainder", (*ir.Builder).Mod, exactly(7, -7, 7, -7, 1), exactly(3, 3, -3, -3, 0)),
		loss("bce_with_logits", (*ir.Builder).BCEWithLogits, exactly(inf), exactly(0)),
		loss("bce_with_logits_big", (*ir.Builder).BCEWithLogits, exactly(200, -200, 0), exactly(0, 1, 0.5)),
		loss("bce_with_logits_right", (*ir.Builder).BCEWithLogits, exactly(inf), exactly(1)),
		loss("binary_cross_entropy", (*ir.Builder).BCE, exactly(0, 0, 1, 1, 0.5), exactly(0, 1, 0, 1, 0)),
		loss("l1_loss", (*ir.Builder).L1Loss, exactly(1, 2, -1), exactly(1, 1, 1)),
		loss("huber_loss", func(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Huber(x, y, 1) }, exactly(1, 2, -1, inf), exactly(0, 0, 0, 0)),
		loss("kl_div", func(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.KLDiv(x, y, nil) }, rows(2, -1, -2), rows(2, 0, 0.5)),
		ignored,
		along("amax", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.ReduceMax(x, false) }, 1, 3, 3, 2),
		along("amax_nan", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.ReduceMax(x, false) }, 1, 3, nan, 2),
		along("amin", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.ReduceMin(x, false) }, 1, 1, 3, 2),
		along("prod", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.ReduceProd(x, false) }, 0, 2, 3),
		along("norm2", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.ReduceL2(x, false) }, 0, 0),
		along("norm1", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.ReduceL1(x, false) }, 0, -2),
		along("logsumexp", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.LogSumExp(x) }, -inf, -inf),
		along("logsumexp_inf", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.LogSumExp(x) }, inf, 1),
		along("softmax", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Softmax(x, 0) }, -inf, -inf),
		along("softmax_one", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Softmax(x, 0) }, -inf, 1),
		along("log_softmax", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.LogSoftmax(x, 0) }, -inf, 1),
		along("cumsum", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Cumsum(x, 0, false, false) }, 1, nan, 2),
		along("var", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.ReduceVar(x, 0, false) }, 1, 1),
	}
}

package ir

import (
	"fmt"
	"math"
)

const whyActivation = "follows its operand"

var activationRows = map[Op]Def{
	OpRelu: pointwise(Def{Name: "relu", Doc: "x above zero, else +0; NaN stays.", In: in(number("x")), Class: Clear, Why: whyOrder, Unit: UnitSame,
		Range: monotone(func(x float64) float64 { return max(x, 0) }),
		Grad:  along(func(b *Builder, _, y, d *Value) *Value { return b.reluGrad(d, y) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Max(x, c.Like(x, 0)) }),
	OpReluGrad: gradRow(Def{Name: "relu_grad", GradOf: OpRelu, Doc: "dy where y is above zero, else zero.", In: in(x("dy"), Operand{Name: "y", Sign: true}), Class: Clear, Why: "passes or drops",
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.sumTo(b.reluGrad(d[0], n.In[1]), n.In[0]), nil}
		},
	}, func(c *Code, _ *Node, dy, y Reg) Reg { zero := c.Like(dy, 0); return c.Select(c.Lt(zero, y), dy, zero) }),

	OpLeakyRelu: pointwise(Def{Name: "leaky_relu", Doc: "x above zero, else alpha·x.", Attrs: alpha(0.01), Class: Clear, Why: whyOrder, Unit: UnitSame,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.leakyReluGrad(d[0], n.In[0], n.Float("alpha"))}
		}}, func(c *Code, n *Node, x Reg) Reg { return leaky(c, n, x, x) }),
	OpLeakyReluGrad: gradRow(Def{Name: "leaky_relu_grad", GradOf: OpLeakyRelu, Doc: "dy where x is above zero, else alpha·dy.", Attrs: alpha(0.01), Class: Clear, Why: "scales by one of two numbers",
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.sumTo(b.leakyReluGrad(d[0], n.In[1], n.Float("alpha")), n.In[0]), nil}
		}}, func(c *Code, n *Node, dy, x Reg) Reg { return leaky(c, n, x, dy) }),
	OpPrelu: {
		Name: "prelu", Doc: "x above zero, else slope·x with a learned slope that broadcasts.",
		In: in(x("x"), x("slope")), Out: out(Result{Name: "y"}), Class: PromoteC, Why: whyWider,
		Infer: inferBroadcast, Grad: gradPrelu,
		Elem: func(c *Code, _ *Node) []Reg {
			v := c.In(0)
			return []Reg{c.Select(c.Lt(c.Like(v, 0), v), v, c.Mul(c.In(1), v))}
		},
	},
	OpElu: pointwise(Def{Name: "elu", Doc: "x above zero, else alpha·(eˣ-1).", Attrs: alpha(1), Class: PromoteC, Why: whyActivation,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.gradElu(n.In[0], d[0], 1, n.Float("alpha"))}
		}}, func(c *Code, n *Node, x Reg) Reg { return elu(c, x, n.Float("alpha")) }),
	OpSelu: pointwise(Def{Name: "selu", Doc: "1.0507·elu(x; 1.6733), the constants of Klambauer et al. 2017.", Class: PromoteC, Why: whyActivation,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.gradElu(n.In[0], d[0], seluScale, seluScale*seluAlpha)}
		}}, func(c *Code, _ *Node, x Reg) Reg { return c.Mul(c.Like(x, seluScale), elu(c, x, seluAlpha)) }),

	OpTanh: pointwise(Def{Name: "tanh", Doc: "Hyperbolic tangent.", Class: PromoteC, Why: whyActivation, Range: monotone(math.Tanh),
		Grad: along(func(b *Builder, _, y, d *Value) *Value { return b.tanhGrad(d, y) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Tanh(x) }),
	OpTanhGrad: gradRow(Def{Name: "tanh_grad", GradOf: OpTanh, Doc: "dy·(1-y²) from the result y of tanh.", In: in(x("dy"), x("y")), Class: PromoteC, Why: whyActivation,
		Expand: func(b *Builder, n *Node) []*Value {
			return []*Value{b.Mul(n.In[0], b.Affine(b.Square(n.In[1]), -1, 1))}
		}}, func(c *Code, _ *Node, dy, y Reg) Reg {
		return c.Mul(dy, c.Sub(c.Like(y, 1), c.Mul(y, y)))
	}),
	OpSigmoid: pointwise(Def{Name: "sigmoid", Doc: "1/(1+e⁻ˣ).", Class: PromoteC, Why: whyActivation,
		Range: monotone(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }),
		Grad:  along(func(b *Builder, _, y, d *Value) *Value { return b.sigmoidGrad(d, y) })},
		func(c *Code, _ *Node, x Reg) Reg { return sigmoid(c, x) }),
	OpSigmoidGrad: gradRow(Def{Name: "sigmoid_grad", GradOf: OpSigmoid, Doc: "dy·y·(1-y) from the result y of sigmoid.", In: in(x("dy"), x("y")), Class: PromoteC, Why: whyActivation,
		Expand: func(b *Builder, n *Node) []*Value {
			y := n.In[1]
			return []*Value{b.Mul(n.In[0], b.Mul(y, b.Affine(y, -1, 1)))}
		}}, func(c *Code, _ *Node, dy, y Reg) Reg {
		return c.Mul(dy, c.Mul(y, c.Sub(c.Like(y, 1), y)))
	}),
	OpGelu: pointwise(Def{Name: "gelu", Doc: "x·Φ(x), by erf or its tanh approximation (Hendrycks and Gimpel 2016).", Attrs: approx, Class: PromoteC, Why: whyActivation,
		Infer: inferGelu, Bound: cancels,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.GeluGrad(d[0], n.In[0], n.Str("approx"))}
		}}, elemGelu),
	OpGeluGrad: gradRow(Def{Name: "gelu_grad", GradOf: OpGelu, Doc: "dy·gelu'(x).", Attrs: approx, Class: PromoteC, Why: whyActivation,
		Infer: inferGelu, Bound: cancels, Expand: expandGeluGrad}, elemGeluGrad),
	OpSilu: pointwise(Def{Name: "silu", Doc: "x·sigmoid(x), also called swish.", Class: PromoteC, Why: whyActivation, Bound: cancels,
		Grad: along(func(b *Builder, x, _, d *Value) *Value { return b.siluGrad(d, x) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Mul(x, sigmoid(c, x)) }),
	OpSiluGrad: gradRow(Def{Name: "silu_grad", GradOf: OpSilu, Doc: "dy·s·(1 + x·(1-s)) with s = sigmoid(x).", Class: PromoteC, Why: whyActivation, Bound: cancels,
		Expand: func(b *Builder, n *Node) []*Value {
			s := b.Sigmoid(n.In[1])
			return []*Value{b.Mul(n.In[0], b.Mul(s, b.Affine(b.Mul(n.In[1], b.Affine(s, -1, 1)), 1, 1)))}
		}}, func(c *Code, _ *Node, dy, x Reg) Reg {
		s, one := sigmoid(c, x), c.Like(x, 1)
		return c.Mul(dy, c.Mul(s, c.Add(one, c.Mul(x, c.Sub(one, s)))))
	}),
	OpMish: pointwise(Def{Name: "mish", Doc: "x·tanh(softplus(x)) (Misra 2019).", Class: PromoteC, Why: whyActivation, Bound: cancels,
		Grad: along(func(b *Builder, x, _, d *Value) *Value {
			t := b.Tanh(b.Softplus(x))
			slope := b.Mul(b.Mul(x, b.Affine(b.Square(t), -1, 1)), b.Sigmoid(x))
			return b.Mul(d, b.Add(t, slope))
		})}, mish),
	OpSoftplus: pointwise(Def{Name: "softplus", Doc: "log(1+eˣ), without overflow.", Class: Keep, Why: whyRange, Bound: cancels,
		Grad: along(func(b *Builder, x, _, d *Value) *Value { return b.Mul(d, b.Sigmoid(x)) })},
		func(c *Code, _ *Node, x Reg) Reg { return softplus(c, x) }),
	OpSoftsign: pointwise(Def{Name: "softsign", Doc: "x/(1+|x|).", Class: PromoteC, Why: whyActivation,
		Range: monotone(func(x float64) float64 { return x / (1 + math.Abs(x)) }),
		Grad:  along(func(b *Builder, x, _, d *Value) *Value { return b.Div(d, b.Square(b.Affine(b.Abs(x), 1, 1))) })},
		func(c *Code, _ *Node, x Reg) Reg { return c.Div(x, c.Add(c.Like(x, 1), c.Abs(x))) }),
	OpHardsigmoid: pointwise(Def{Name: "hardsigmoid", Doc: "alpha·x + beta, limited to [0, 1]; no gradient at the ends.", Attrs: hard, Class: PromoteC, Why: whyActivation, Range: bounded(0, 1),
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.Affine(b.Where(b.withinRamp(n), d[0], nil), n.Float("alpha"), 0)}
		}}, func(c *Code, n *Node, x Reg) Reg { return ramp(c, n, x) }),
	OpHardswish: pointwise(Def{Name: "hardswish", Doc: "x·hardsigmoid(x); at the ends the gradient is that of the rising part.", Attrs: hard, Class: PromoteC, Why: whyActivation,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			x, a := n.In[0], n.Float("alpha")
			slope := b.Where(b.inRamp(n), b.Affine(x, a, 0), nil)
			return []*Value{b.Mul(d[0], b.Add(b.Hardsigmoid(x, a, n.Float("beta")), slope))}
		}}, func(c *Code, n *Node, x Reg) Reg { return c.Mul(x, ramp(c, n, x)) }),
}

// The constants of selu: the fixed point of zero mean and unit variance.
const (
	seluScale = 1.0507009873554805
	seluAlpha = 1.6732632423543772
)

var (
	approx = []AttrDef{{Name: "approx", Kind: AttrString, Default: "erf", Doc: "erf or tanh"}}
	hard   = []AttrDef{{Name: "alpha", Kind: AttrFloat, Takes: AnyFinite, Default: 1.0 / 6, Doc: "slope"}, {Name: "beta", Kind: AttrFloat, Takes: AnyFinite, Default: 0.5, Doc: "value at zero"}}
)

func alpha(def float64) []AttrDef {
	return []AttrDef{{Name: "alpha", Kind: AttrFloat, Takes: AnyFinite, Default: def, Doc: "factor below zero"}}
}

// gradRow completes the row of an activation's gradient. Its operands are dy and the values that
// forward keeps, all of one shape. It is linear in dy, so it carries dy's loss scale.
func gradRow(d Def, f func(c *Code, n *Node, dy, x Reg) Reg) Def {
	if d.In == nil {
		d.In = in(x("dy"), x("x"))
	}
	d.Out = out(Result{Name: "dx"})
	if d.Infer == nil {
		d.Infer = inferBroadcast
	}
	d.Unit, d.Flags = UnitProduct, InPlace
	d.Elem = func(c *Code, n *Node) []Reg { return []Reg{f(c, n, c.In(0), c.In(1))} }
	return d
}

// cancels is the bound of activations that subtract nearly equal numbers: the error is relative to
// the operands, not to the small result.
func cancels(*Node) Bound { return Bound{ULP: 4, K: 4} }

func leaky(c *Code, n *Node, x, y Reg) Reg {
	return c.Select(c.Lt(c.Like(x, 0), x), y, c.Mul(c.Like(y, n.Float("alpha")), y))
}

func elu(c *Code, x Reg, alpha float64) Reg {
	return c.Select(c.Lt(c.Like(x, 0), x), x, c.Mul(c.Like(x, alpha), c.Expm1(x)))
}

func sigmoid(c *Code, x Reg) Reg {
	one := c.Like(x, 1)
	return c.Div(one, c.Add(one, c.Exp(c.Neg(x))))
}

// softplus is max(x,0) + log1p(e^-|x|): the exponential never overflows.
func softplus(c *Code, x Reg) Reg {
	return c.Add(c.Max(x, c.Like(x, 0)), c.Log1p(c.Exp(c.Neg(c.Abs(x)))))
}

// mish is x·tanh(log(1+eˣ)) = x·n/(n+2) with n = eˣ(eˣ+2). With e = exp(-|x|), which does not overflow, n/(n+2)
// is e(e+2) / (e(e+2) + 2) for negative x; for others, both multiplied by e², it is (1+2e) / (1+2e + 2e²).
func mish(c *Code, _ *Node, x Reg) Reg {
	one, two := c.Like(x, 1), c.Like(x, 2)
	e := c.Exp(c.Neg(c.Abs(x)))
	rises := c.Le(c.Like(x, 0), x)
	n := c.Select(rises, c.Add(c.Mul(two, e), one), c.Mul(e, c.Add(e, two)))
	rest := c.Select(rises, c.Mul(two, c.Mul(e, e)), two)
	return c.Mul(x, c.Div(n, c.Add(n, rest)))
}

// ramp is alpha·x + beta within [0, 1].
func ramp(c *Code, n *Node, x Reg) Reg {
	y := c.Add(c.Mul(x, c.Like(x, n.Float("alpha"))), c.Like(x, n.Float("beta")))
	return c.Min(c.Max(y, c.Like(x, 0)), c.Like(x, 1))
}

// inRamp asks where ramp still rises, its ends included.
func (b *Builder) inRamp(n *Node) *Value {
	y := b.Affine(n.In[0], n.Float("alpha"), n.Float("beta"))
	return b.Eq(y, b.Clip(y, 0, 1))
}

// withinRamp is inRamp without the ends.
func (b *Builder) withinRamp(n *Node) *Value {
	y := b.Clip(b.Affine(n.In[0], n.Float("alpha"), n.Float("beta")), 0, 1)
	return b.Lt(b.Floor(y), y)
}

func inferGelu(n *Node) ([]Type, error) {
	if a := n.Str("approx"); a != "erf" && a != "tanh" {
		return nil, fmt.Errorf("approx is %q, want erf or tanh", a)
	}
	return inferBroadcast(n)
}

// tanhInner is √(2/π)·(x + 0.044715·x³), and x².
func tanhInner(c *Code, x Reg) (inner, x2 Reg) {
	x2 = c.Mul(x, x)
	cubic := c.Add(x, c.Mul(c.Like(x, 0.044715), c.Mul(x2, x)))
	return c.Mul(c.Like(x, math.Sqrt(2/math.Pi)), cubic), x2
}

func elemGelu(c *Code, n *Node, x Reg) Reg {
	var t Reg
	if n.Str("approx") == "tanh" {
		inner, _ := tanhInner(c, x)
		t = c.Tanh(inner)
	} else {
		t = c.Erf(c.Mul(x, c.Like(x, math.Sqrt2/2)))
	}
	return c.Mul(c.Mul(c.Like(x, 0.5), x), c.Add(c.Like(x, 1), t))
}

func elemGeluGrad(c *Code, n *Node, dy, x Reg) Reg {
	half, one := c.Like(x, 0.5), c.Like(x, 1)
	if n.Str("approx") == "tanh" {
		inner, x2 := tanhInner(c, x)
		t := c.Tanh(inner)
		slope := c.Mul(c.Like(x, math.Sqrt(2/math.Pi)), c.Add(one, c.Mul(c.Like(x, 3*0.044715), x2)))
		rest := c.Mul(c.Mul(half, x), c.Mul(c.Sub(one, c.Mul(t, t)), slope))
		return c.Mul(dy, c.Add(c.Mul(half, c.Add(one, t)), rest))
	}
	cdf := c.Mul(half, c.Add(one, c.Erf(c.Mul(x, c.Like(x, math.Sqrt2/2)))))
	pdf := c.Mul(c.Like(x, 1/math.Sqrt(2*math.Pi)), c.Exp(c.Mul(c.Like(x, -0.5), c.Mul(x, x))))
	return c.Mul(dy, c.Add(cdf, c.Mul(x, pdf)))
}

func expandGeluGrad(b *Builder, n *Node) []*Value {
	dy, x := n.In[0], n.In[1]
	x2 := b.Square(x)
	if n.Str("approx") == "tanh" {
		k := math.Sqrt(2 / math.Pi)
		t := b.Tanh(b.Mul(x, b.Affine(x2, k*0.044715, k)))
		slope := b.Affine(x2, 3*k*0.044715, k)
		rest := b.Mul(b.Affine(x, 0.5, 0), b.Mul(b.Affine(b.Square(t), -1, 1), slope))
		return []*Value{b.Mul(dy, b.Add(b.Affine(t, 0.5, 0.5), rest))}
	}
	cdf := b.Affine(b.Erf(b.Affine(x, math.Sqrt2/2, 0)), 0.5, 0.5)
	pdf := b.Affine(b.Exp(b.Affine(x2, -0.5, 0)), 1/math.Sqrt(2*math.Pi), 0)
	return []*Value{b.Mul(dy, b.Add(cdf, b.Mul(x, pdf)))}
}

func gradPrelu(b *Builder, n *Node, d []*Value) []*Value {
	x, slope := n.In[0], n.In[1]
	negative := b.Clip(x, math.Inf(-1), 0)
	dx := b.Where(b.Lt(negative, x), d[0], b.Mul(d[0], slope))
	return []*Value{b.sumTo(dx, x), b.sumTo(b.Mul(d[0], negative), slope)}
}

// gradElu is the gradient of above·x over zero and below·(eˣ-1) under it. The
// exponential sees no positive x, so that what is not selected stays finite.
func (b *Builder) gradElu(x, d *Value, above, below float64) *Value {
	negative := b.Clip(x, math.Inf(-1), 0)
	return b.Where(b.Eq(negative, x), b.Mul(d, b.Affine(b.Exp(negative), below, 0)), b.Affine(d, above, 0))
}

// Relu returns x above zero, else zero.
//
//   - PyTorch: nn.ReLU, F.relu.
func (b *Builder) Relu(x *Value) *Value { return b.unary(OpRelu, x) }

// reluGrad returns dy where y is above zero, else zero.
func (b *Builder) reluGrad(dy, y *Value) *Value { return b.binary(OpReluGrad, dy, y) }

// LeakyRelu returns x above zero, else alpha·x.
//
//   - PyTorch: nn.LeakyReLU, F.leaky_relu.
func (b *Builder) LeakyRelu(x *Value, alpha float64) *Value {
	return b.one(OpLeakyRelu, []*Value{x}, A("alpha", alpha))
}

// leakyReluGrad returns dy where x is above zero, else alpha·dy.
func (b *Builder) leakyReluGrad(dy, x *Value, alpha float64) *Value {
	return b.one(OpLeakyReluGrad, []*Value{dy, x}, A("alpha", alpha))
}

// Prelu returns x above zero, else slope·x; slope broadcasts.
//
//   - PyTorch: nn.PReLU, F.prelu; slope broadcasts from the right: give it [C,1,1] for images.
func (b *Builder) Prelu(x, slope *Value) *Value { return b.binary(OpPrelu, x, slope) }

// Elu returns x above zero, else alpha·(eˣ-1).
//
//   - PyTorch: nn.ELU, F.elu.
func (b *Builder) Elu(x *Value, alpha float64) *Value {
	return b.one(OpElu, []*Value{x}, A("alpha", alpha))
}

// Selu returns the self-normalizing elu.
//
//   - PyTorch: nn.SELU, F.selu.
func (b *Builder) Selu(x *Value) *Value { return b.unary(OpSelu, x) }

// Tanh returns the hyperbolic tangent.
//
//   - PyTorch: nn.Tanh, torch.tanh.
func (b *Builder) Tanh(x *Value) *Value { return b.unary(OpTanh, x) }

// tanhGrad returns dy·(1-y²) from the result y of tanh.
func (b *Builder) tanhGrad(dy, y *Value) *Value { return b.binary(OpTanhGrad, dy, y) }

// Sigmoid returns 1/(1+e⁻ˣ).
//
//   - PyTorch: nn.Sigmoid, torch.sigmoid.
func (b *Builder) Sigmoid(x *Value) *Value { return b.unary(OpSigmoid, x) }

// sigmoidGrad returns dy·y·(1-y) from the result y of sigmoid.
func (b *Builder) sigmoidGrad(dy, y *Value) *Value { return b.binary(OpSigmoidGrad, dy, y) }

// Gelu returns x·Φ(x); approx is "erf" or "tanh".
func (b *Builder) Gelu(x *Value, approx string) *Value {
	return b.one(OpGelu, []*Value{x}, A("approx", approx))
}

// GeluGrad returns dy·gelu'(x).
func (b *Builder) GeluGrad(dy, x *Value, approx string) *Value {
	return b.one(OpGeluGrad, []*Value{dy, x}, A("approx", approx))
}

// Silu returns x·sigmoid(x).
//
//   - PyTorch: nn.SiLU, F.silu.
func (b *Builder) Silu(x *Value) *Value { return b.unary(OpSilu, x) }

// siluGrad returns dy·silu'(x).
func (b *Builder) siluGrad(dy, x *Value) *Value { return b.binary(OpSiluGrad, dy, x) }

// Mish returns x·tanh(softplus(x)).
//
//   - PyTorch: nn.Mish, F.mish.
func (b *Builder) Mish(x *Value) *Value { return b.unary(OpMish, x) }

// Softplus returns log(1+eˣ).
//
//   - PyTorch: nn.Softplus, F.softplus; beta is 1 and there is no threshold.
func (b *Builder) Softplus(x *Value) *Value { return b.unary(OpSoftplus, x) }

// Softsign returns x/(1+|x|).
//
//   - PyTorch: nn.Softsign, F.softsign.
func (b *Builder) Softsign(x *Value) *Value { return b.unary(OpSoftsign, x) }

// Hardsigmoid returns alpha·x + beta, limited to [0, 1].
//
//   - PyTorch: nn.Hardsigmoid, with alpha 1/6 and beta 1/2.
func (b *Builder) Hardsigmoid(x *Value, alpha, beta float64) *Value {
	return b.one(OpHardsigmoid, []*Value{x}, A("alpha", alpha, "beta", beta))
}

// Hardswish returns x·hardsigmoid(x) with slope 1/6 and value 1/2 at zero.
//
//   - PyTorch: nn.Hardswish, F.hardswish.
func (b *Builder) Hardswish(x *Value) *Value { return b.unary(OpHardswish, x) }

package ir

import (
	"fmt"
	"math"
)

// Random rows draw by Philox 4x32-10 at counter (element/4, rng, micro, attempt) under the seed's
// key: the numbers depend on nothing else, neither threads nor order. rng is the site, unique in
// the graph. attempt counts launched steps. micro is the micro-batch (absent: 0); an i64 micro
// contains in its high 32 bits the number of counters of the tensor before element 0, which are
// those of the lower ranks.
var (
	rngAttr = AttrDef{Name: "rng", Kind: AttrInt, Required: true, Doc: "site: its numbers are the same in every graph that keeps it"}
	drawn   = []Operand{
		{Name: "seed", Kinds: KInt, Class: Fixed, Named: true},
		{Name: "attempt", Kinds: KInt, Class: Fixed, Named: true},
		{Name: "micro", Kinds: KInt, Class: Fixed, Named: true, Optional: true},
	}
	dtypeAttr = AttrDef{Name: "dtype", Kind: AttrDType, Default: F32, Doc: "of the result"}
)

var randomRows = map[Op]Def{
	OpDropout: dropout(Def{
		Name: "dropout", Doc: "Zero with probability p, else x/(1-p).",
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			in := append([]*Value{d[0]}, n.In[1:]...)
			return append(b.Emit(OpDropoutGrad, in, n.Attrs.Without("out")), make([]*Value, len(n.In)-1)...)
		},
	}, "x", "y"),
	OpDropoutGrad: dropout(Def{
		Name: "dropout_grad", GradOf: OpDropout, Doc: "Zero where the dropout of the same rng dropped, else dy/(1-p): the mask is drawn again, not kept.",
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			in := append([]*Value{d[0]}, n.In[1:]...)
			return append(b.Emit(OpDropoutGrad, in, n.Attrs.Without("out")), make([]*Value, len(n.In)-1)...)
		},
	}, "dy", "dx"),
	OpUniform: noise(Def{
		Name: "uniform", Doc: "lo + (hi-lo)·u, u one of 2²⁴ equally spaced numbers from 0 to below 1.",
		Attrs: []AttrDef{{Name: "lo", Kind: AttrFloat, Takes: AnyFinite, Default: 0.0, Doc: "lower limit"}, {Name: "hi", Kind: AttrFloat, Takes: AnyFinite, Default: 1.0, Doc: "upper limit"}},
		Range: func(n *Node, _ []Interval) []Interval { return []Interval{{Lo: n.Float("lo"), Hi: n.Float("hi")}} },
	}, func(c *Code, n *Node, word Reg) Reg {
		lo, hi := n.Float("lo"), n.Float("hi")
		return c.Add(c.Mul(c.unit24(word), c.F(hi-lo)), c.F(lo))
	}),
	OpNormal: noise(Def{
		Name: "normal", Doc: "mean + std·z, z standard normal by a polynomial inverse of its distribution (Giles 2012), within ±5.5.",
		Attrs: []AttrDef{{Name: "mean", Kind: AttrFloat, Takes: AnyFinite, Default: 0.0, Doc: "centre"}, {Name: "std", Kind: AttrFloat, Takes: AtLeast0, Default: 1.0, Doc: "standard deviation"}},
		Range: func(n *Node, _ []Interval) []Interval {
			m, s := n.Float("mean"), 5.5*math.Abs(n.Float("std"))
			return []Interval{{Lo: m - s, Hi: m + s}}
		},
	}, func(c *Code, n *Node, word Reg) Reg {
		return c.Add(c.Mul(c.normal(word), c.F(n.Float("std"))), c.F(n.Float("mean")))
	}),
	OpBernoulli: noise(Def{
		Name: "bernoulli", Doc: "1 with probability p, else 0.",
		Attrs: []AttrDef{{Name: "p", Kind: AttrFloat, Takes: ZeroToOne, Default: 0.5, Doc: "probability of 1"}}, Range: bit,
	}, func(c *Code, n *Node, word Reg) Reg {
		return c.Select(c.Lt(c.unit24(word), c.F(n.Float("p"))), c.F(1), c.F(0))
	}),
}

// dropout completes the row of dropout or of its gradient.
func dropout(d Def, from, to string) Def {
	d.In, d.Out = append(in(x(from)), drawn...), out(Result{Name: to})
	d.Attrs = []AttrDef{{Name: "p", Kind: AttrFloat, Takes: ZeroToOne, Default: 0.5, Doc: "probability of zero"}, rngAttr}
	d.Flags, d.Class, d.Why, d.Unit = Random|NoMerge|InPlace|Regularizes, Clear, "drops or scales", unitFirst
	d.Infer, d.Elem, d.Range = inferDropout, elemDropout, func(n *Node, in []Interval) []Interval {
		k := 1 / max(1-n.Float("p"), math.SmallestNonzeroFloat32)
		return []Interval{{min(0, k*in[0].Lo), max(0, k*in[0].Hi), in[0].NaN}}
	}
	return d
}

// noise completes the row of a source of random numbers.
func noise(d Def, f func(c *Code, n *Node, word Reg) Reg) Def {
	d.In, d.Out = append(append([]Operand(nil), drawn...), likeIn), out(Result{Name: "y"})
	d.Attrs = append(d.Attrs, shapeAttr, dtypeAttr, rngAttr)
	d.Flags, d.Class, d.Why, d.Unit = Random|NoMerge, Fixed, "its dtype is given", UnitAny
	d.NoGrad, d.Infer = "reads no float", inferNoise
	d.Elem = func(c *Code, n *Node) []Reg { return []Reg{f(c, n, c.word(n, 0))} }
	return d
}

// word draws for the element; the operands from first on identify the run.
func (c *Code) word(n *Node, first int) Reg {
	micro := c.I(0)
	if n.operand(first+2) != nil {
		micro = c.In(first + 2)
	}
	return c.Philox(c.In(first), c.In(first+1), micro, n.Int("rng"))
}

// unit24 is the low 24 bits of a word as a number in [0, 1), exactly.
func (c *Code) unit24(word Reg) Reg {
	return c.Mul(c.Conv(c.And(word, c.Like(word, 1<<24-1)), F32), c.F(0x1p-24))
}

func elemDropout(c *Code, n *Node) []Reg {
	x, p := c.In(0), n.Float("p")
	scale := 0.0
	if p < 1 {
		scale = 1 / (1 - p)
	}
	dropped := c.Lt(c.unit24(c.word(n, 1)), c.F(p))
	return []Reg{c.Select(dropped, c.Like(x, 0), c.Mul(x, c.Like(x, scale)))}
}

func inferDropout(n *Node) ([]Type, error) {
	return []Type{n.In[0].Type.With(n.outDType(n.In[0].Type.DType))}, firstError(n.checkDraw(1), n.checkOut())
}

// checkDraw checks that seed, attempt and micro are scalars, and that there is a site.
func (n *Node) checkDraw(first int) error {
	for i := first; i < min(first+3, len(n.In)); i++ {
		if v := n.In[i]; v != nil && v.Type.Shape.Rank() != 0 {
			return fmt.Errorf("%s %s has type %s, want a scalar", n.OperandDef(i).Name, v, v.Type)
		}
	}
	if r := n.Int("rng"); r < 0 || r > math.MaxUint32 {
		return fmt.Errorf("rng is %d, want a number of 32 bits", r)
	}
	return nil
}

func inferNoise(n *Node) ([]Type, error) {
	if err := firstError(n.checkDraw(0), n.checkDType()); err != nil {
		return nil, err
	}
	if v := n.like(); v != nil {
		return []Type{v.Type.With(n.DT("dtype"))}, n.checkShapeAttr(0)
	}
	d, err := sizesOf(n.Ints("shape"))
	return []Type{{n.DT("dtype"), MakeShape(d...)}}, err
}

// normal is standard normal, symmetric, from a word: bit 31 the sign, bits 0
// to 22 the tail t = (k+½)·2⁻²⁴ in (0, ½). With w = -log(4t(1-t)) it is
// √2·erfinv(1-2t) by the two polynomials of M. Giles, "Approximating the erfinv
// function" (GPU Computing Gems 2, 2012). All in exact primitives, so every
// backend draws the same bits.
func (c *Code) normal(word Reg) Reg {
	k := c.Conv(c.And(word, c.Like(word, 1<<23-1)), F32)
	t := c.Mul(c.Add(k, c.F(0.5)), c.F(0x1p-24))
	w := c.Neg(c.logSmall(c.Mul(c.Mul(c.F(4), t), c.Sub(c.F(1), t))))
	middle := c.horner(c.Sub(w, c.F(2.5)), 2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
		-0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
	tail := c.horner(c.Sub(c.Sqrt(w), c.F(3)), -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
		-0.0076224613, 0.00943887047, 1.00167406, 2.83297682)
	z := c.Mul(c.Select(c.Lt(w, c.F(5)), middle, tail), c.Mul(c.Sub(c.F(1), c.Mul(c.F(2), t)), c.F(math.Sqrt2)))
	negative := c.Lt(c.Like(word, 1<<31-1), word)
	return c.Select(negative, c.Neg(z), z)
}

// horner evaluates a polynomial, highest coefficient first, product and sum rounded apart.
func (c *Code) horner(x Reg, coef ...float64) Reg {
	p := c.F(coef[0])
	for _, k := range coef[1:] {
		p = c.Add(c.Mul(p, x), c.F(k))
	}
	return p
}

// logSmall is the logarithm of y in [2⁻³¹, 1] from exact primitives: y is
// scaled into [1, 2) by powers of two, then log y = 2·atanh((y-1)/(y+1)).
func (c *Code) logSmall(y Reg) Reg {
	e := c.F(0)
	for _, k := range [...]int{16, 8, 4, 2, 1} {
		low := c.Lt(y, c.F(math.Ldexp(1, 1-k)))
		y = c.Select(low, c.Mul(y, c.F(math.Ldexp(1, k))), y)
		e = c.Select(low, c.Add(e, c.F(float64(k))), e)
	}
	s := c.Div(c.Sub(y, c.F(1)), c.Add(y, c.F(1)))
	series := c.horner(c.Mul(s, s), 2.0/13, 2.0/11, 2.0/9, 2.0/7, 2.0/5, 2.0/3, 2)
	return c.Sub(c.Mul(s, series), c.Mul(e, c.F(math.Ln2)))
}

// Draw names the numbers of a random op: the variables of the run, and the site.
type Draw struct {
	Seed, Attempt, Micro *Value // Micro may be nil
	Site                 int64  // see Builder.Site
}

func (d Draw) operands() []*Value { return []*Value{d.Seed, d.Attempt, d.Micro} }

// Dropout zeroes x with probability p and scales the rest up.
func (b *Builder) Dropout(x *Value, p float64, d Draw) *Value {
	return b.one(OpDropout, values(append([]*Value{x}, d.operands()...)...), A("p", p, "rng", d.Site))
}

func (b *Builder) noise(op Op, t DType, d Draw, shape []int64, a Attrs) *Value {
	a = a.With("dtype", t).With("rng", d.Site)
	if len(shape) > 0 {
		a = a.With("shape", shape)
	}
	return b.one(op, values(d.operands()...), a)
}

// Uniform draws from [lo, hi].
func (b *Builder) Uniform(t DType, lo, hi float64, d Draw, shape ...int64) *Value {
	return b.noise(OpUniform, t, d, shape, A("lo", lo, "hi", hi))
}

// Normal draws from the normal distribution.
func (b *Builder) Normal(t DType, mean, std float64, d Draw, shape ...int64) *Value {
	return b.noise(OpNormal, t, d, shape, A("mean", mean, "std", std))
}

// Bernoulli draws 1 with probability p, else 0.
func (b *Builder) Bernoulli(t DType, p float64, d Draw, shape ...int64) *Value {
	return b.noise(OpBernoulli, t, d, shape, A("p", p))
}

package ir

import (
	"fmt"
	"math"
)

// Loss scaling. Scales are powers of two, so scaling and unscaling never
// round; every row here but the two reductions is exact.

func scalarF32(name string) Operand { return Operand{Name: name, Class: Fixed, Named: true} }

// scaleF32 is an operand that is a loss scale or the factor that removes it.
func scaleF32(name string) Operand {
	o := scalarF32(name)
	o.NoGrad = "a loss scale is a constant of its step"
	return o
}

func flagOperand(name string, optional bool) Operand {
	return Operand{Name: name, Kinds: KBool, Class: Fixed, Named: true, Optional: optional}
}

func optionalScalar(name string) Operand {
	o := scalarF32(name)
	o.Optional = true
	return o
}

var precisionRows = map[Op]Def{
	OpScale: {
		Name: "scale", Doc: "Multiplies by a loss scale: the seed of a backward sweep.",
		In: in(x("x"), scaleF32("scale")), Out: out(Result{Name: "y"}), Class: Fixed, Why: "f32", Unit: UnitProduct,
		Infer: inferScaled,
		Elem:  func(c *Code, _ *Node) []Reg { return []Reg{c.Mul(c.In(0), c.In(1))} },
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.Scale(d[0], n.In[1]), nil}
		},
	},
	OpUnscale: {
		Name: "unscale", Doc: "Takes the loss scale off: multiplies by a multiplier that carries its inverse. The result has unit 1.",
		In: in(Operand{Name: "x", ReadsLow: true}, scaleF32("mul")), Out: out(Result{Name: "y"}), Class: Fixed, Why: "f32", Unit: unitUnscale,
		Infer: func(n *Node) ([]Type, error) { return []Type{n.In[0].Type.With(F32)}, wantScalar(n, "mul", F32) },
		Elem:  func(c *Code, _ *Node) []Reg { return []Reg{c.Mul(c.In(0), c.In(1))} },
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.Mul(d[0], n.In[1]), nil}
		},
	},
	OpMultiplier: {
		Name: "multiplier", Doc: "What a scaled gradient is multiplied by when it is used: 2^shift / scale / count, times min(1, max/(norm+1e-6)) where a norm is given. 0 for a count of 0.",
		In:  in(optionalScalar("scale"), Operand{Name: "count", Kinds: KNum, Class: Fixed, Named: true, Optional: true}, optionalScalar("norm")),
		Out: out(Result{Name: "y"}),
		Attrs: []AttrDef{
			{Name: "shift", Kind: AttrInt, Default: 0, Doc: "a power of two that the seed was divided by"},
			{Name: "max", Kind: AttrFloat, Takes: AtLeast0, Default: 0.0, Doc: "largest norm; 0: no clipping"},
		},
		Class: Fixed, Why: "f32", Unit: unitMultiplier, NoGrad: "belongs to the update",
		Infer: inferMultiplier, Elem: elemMultiplier,
	},
	OpAnyNonfinite: {
		Name: "any_nonfinite", Doc: "Is true where any element of any operand is Inf or NaN.",
		In: in(Operand{Name: "x", ReadsLow: true, Variadic: true}), Out: out(Result{Name: "y"}), Class: Fixed, Why: "bool", Unit: UnitAny,
		Flags:  Checks,
		NoGrad: "is a truth value",
		Infer:  func(*Node) ([]Type, error) { return []Type{T(Bool)}, nil },
		Cost:   costOfOperands(1),
		Bound:  noBound,
	},
	OpGlobalNorm: {
		Name: "global_norm", Nonfinite: addedUp, Doc: "Is the 2-norm of all elements of all operands g, each times mul (where given).",
		In:  in(Operand{Name: "mul", Class: Fixed, Optional: true}, Operand{Name: "g", ReadsLow: true, Variadic: true}),
		Out: out(Result{Name: "y"}), Flags: TotalNorm, Class: Fixed, Why: "long sums lose bits", Unit: unitNorm, NoGrad: "belongs to the update",
		Infer: func(n *Node) ([]Type, error) {
			if m := n.In[0]; m != nil && m.Type != T(F32) {
				return nil, fmt.Errorf("mul %s is %s, want f32[]", m, m.Type)
			}
			return []Type{T(F32)}, nil
		},
		Bound: func(n *Node) Bound { return Bound{ULP: 2, K: operandElements(n)} },
		Cost:  costOfOperands(2),
	},
	OpUpdateScale: {
		Name: "update_scale", Doc: "Advances a dynamic loss scale by one step: growth after every clean steps, backoff when the tolerated overflows are used up, untouched where the forward pass itself was not finite.",
		In: in(Operand{Name: "scale"}, Operand{Name: "good", Kinds: KInt}, Operand{Name: "left", Kinds: KInt}, Operand{Name: "fwd_run", Kinds: KInt},
			Operand{Name: "floor_hits", Kinds: KInt}, flagOperand("found_inf", false), flagOperand("fwd", true)),
		Out: out(Result{Name: "scale"}, Result{Name: "good"}, Result{Name: "left"}, Result{Name: "fwd_run"}, Result{Name: "floor_hits"}),
		Attrs: []AttrDef{
			{Name: "growth", Kind: AttrFloat, Takes: Above0, Default: 2.0, Doc: "factor after enough clean steps"}, {Name: "backoff", Kind: AttrFloat, Takes: Above0, Default: 0.5, Doc: "factor on overflow"},
			{Name: "every", Kind: AttrInt, Default: 2000, Doc: "clean steps before a growth"},
			{Name: "floor", Kind: AttrFloat, Takes: AtLeast0, Default: 0.0, Doc: "smallest scale; 0: none"}, {Name: "cap", Kind: AttrFloat, Takes: AtLeast0, Default: 0.0, Doc: "largest scale; 0: a growth to Inf is left out"},
			{Name: "hysteresis", Kind: AttrInt, Default: 1, Doc: "the overflow that lowers the scale"},
			{Name: "sticky", Kind: AttrBool, Doc: "a backoff does not renew the hysteresis"},
			{Name: "renew", Kind: AttrBool, Doc: "every clean step renews the hysteresis"},
		},
		Flags: Writer | NoMerge, Class: Fixed, Why: "scaler", NoGrad: "belongs to the update",
		Unit:  func(n *Node) (Unit, error) { return n.In[0].Unit, nil },
		Infer: inferUpdateScale, Elem: elemUpdateScale,
	},
}

func inferScaled(n *Node) ([]Type, error) {
	return []Type{n.In[0].Type}, wantScalar(n, "scale", F32)
}

// wantScalar checks that the named operand, if present, is a scalar of dtype d.
func wantScalar(n *Node, name string, d DType) error {
	if v := n.Operand(name); v != nil && v.Type != T(d) {
		return fmt.Errorf("%s %s is %s, want %s[]", name, v, v.Type, d)
	}
	return nil
}

// at is where a value was computed, for messages that name two values.
func at(v *Value) string {
	p := v.Pos
	if v.Def != nil {
		p = v.Def.Pos
	}
	if s := p.String(); s != "" {
		return v.String() + " (" + s + ")"
	}
	return v.String()
}

func unitUnscale(n *Node) (Unit, error) {
	if u := n.In[0].Unit.times(n.In[1].Unit, 1); u != "" {
		return "", fmt.Errorf("%s has scale unit %s and %s has scale unit %s: the product must have scale unit 1 (is it unscaled twice, or by another loss's scale?)", at(n.In[0]), n.In[0].Unit, at(n.In[1]), n.In[1].Unit)
	}
	return "", nil
}

func unitNorm(n *Node) (Unit, error) {
	var m Unit
	if n.In[0] != nil {
		m = n.In[0].Unit
	}
	for _, g := range n.In[1:] {
		if g.Unit.times(m, 1) == "" {
			continue
		}
		if n.In[0] == nil {
			return "", fmt.Errorf("%s reads %s, which carries the loss scale %s; unscale it first", n.Name(), at(g), g.Unit)
		}
		return "", fmt.Errorf("%s has scale unit %s and %s has scale unit %s: a norm wants unscaled gradients", at(g), g.Unit, at(n.In[0]), m)
	}
	return "", nil
}

func unitMultiplier(n *Node) (Unit, error) {
	for _, name := range [...]string{"count", "norm"} {
		if v := n.Operand(name); v != nil && v.Unit != "" {
			return "", fmt.Errorf("%s reads the %s %s, which carries the loss scale %s; unscale it first", n.Name(), name, at(v), v.Unit)
		}
	}
	if s := n.Operand("scale"); s != nil {
		return Unit("").times(s.Unit, -1), nil
	}
	return "", nil
}

func inferMultiplier(n *Node) ([]Type, error) {
	for _, name := range [...]string{"scale", "norm"} {
		if err := wantScalar(n, name, F32); err != nil {
			return nil, err
		}
	}
	if v := n.Operand("norm"); v != nil && n.Float("max") == 0 {
		return nil, fmt.Errorf("norm %s is given and max is 0: give the largest norm, or no norm", v)
	}
	if c := n.Operand("count"); c != nil && c.Type.Shape != MakeShape() {
		return nil, fmt.Errorf("count %s is %s, want a scalar", c, c.Type)
	}
	if s := n.Int("shift"); s < -126 || s > 127 {
		return nil, fmt.Errorf("shift %d is outside -126..127", s)
	}
	return []Type{T(F32)}, nil
}

// elemMultiplier divides by the scale before the count: the first is exact.
func elemMultiplier(c *Code, n *Node) []Reg {
	m := c.F(math.Ldexp(1, int(n.Int("shift"))))
	if len(n.In) > 0 && n.In[0] != nil {
		m = c.Div(m, c.In(0))
	}
	if len(n.In) > 1 && n.In[1] != nil {
		k := c.Conv(c.In(1), F32)
		m = c.Select(c.Eq(k, c.F(0)), c.F(0), c.Div(m, k))
	}
	if len(n.In) > 2 && n.In[2] != nil {
		m = c.Mul(m, c.Min(c.F(1), c.Div(c.F(n.Float("max")), c.Add(c.In(2), c.F(1e-6)))))
	}
	return []Reg{m}
}

func inferUpdateScale(n *Node) ([]Type, error) {
	want := []Type{T(F32), T(I32), T(I32), T(I32), T(I32), T(Bool), T(Bool)}
	for i, v := range n.In {
		if v != nil && v.Type != want[i] {
			return nil, fmt.Errorf("%s %s is %s, want %s", n.OperandDef(i).Name, v, v.Type, want[i])
		}
	}
	return want[:5], nil
}

// elemUpdateScale is the state machine of the Doc sentence. The next value of each state is
// selected from those of three cases: forward (fwd), overflow (bad) and clean.
func elemUpdateScale(c *Code, n *Node) []Reg {
	scale, good, left, run, hits, bad := c.In(0), c.In(1), c.In(2), c.In(3), c.In(4), c.In(5)
	zero, one, hysteresis := c.I(0), c.I(1), c.I(n.Int("hysteresis"))
	fwd := c.Ne(zero, zero)
	if n.operand(6) != nil {
		fwd = c.In(6)
		bad = c.And(bad, c.Not(fwd))
	}
	floor := c.F(n.Float("floor"))

	used := c.Sub(left, one)
	backoff := c.And(bad, c.Le(used, zero))
	renewed := hysteresis
	if n.Flag("sticky") {
		renewed = one
	}
	lower := c.Mul(scale, c.F(n.Float("backoff")))
	if n.Float("floor") > 0 {
		lower = c.Max(floor, lower)
	}

	steps := c.Add(good, one)
	clean := c.Not(c.Or(bad, fwd))
	grow := c.And(clean, c.Le(c.I(n.Int("every")), steps))
	higher := c.Mul(scale, c.F(n.Float("growth")))
	if limit := n.Float("cap"); limit > 0 {
		higher = c.Min(c.F(limit), higher)
	} else {
		higher = c.Select(c.IsInf(higher), scale, higher)
	}
	cleanLeft := c.Select(grow, hysteresis, left)
	if n.Flag("renew") {
		cleanLeft = hysteresis
	}

	return []Reg{
		c.Select(backoff, lower, c.Select(grow, higher, scale)),
		c.Select(clean, c.Select(grow, zero, steps), zero),
		c.Select(bad, c.Select(backoff, renewed, used), c.Select(clean, cleanLeft, left)),
		c.Select(fwd, c.Add(run, one), zero),
		c.Select(c.And(backoff, c.Eq(scale, floor)), c.Add(hits, one), hits),
	}
}

func operandElements(n *Node) int64 {
	var k int64
	for _, v := range n.In {
		if v != nil {
			k += max(v.Type.Shape.Elements(), 0)
		}
	}
	return k
}

func costOfOperands(flopsEach int64) func(n *Node) Cost {
	return func(n *Node) Cost { return Cost{Flops: flopsEach * operandElements(n)} }
}

// Scale multiplies x by a loss scale.
func (b *Builder) Scale(x, scale *Value) *Value {
	return b.one(OpScale, []*Value{x, scale}, nil)
}

// Unscale multiplies x by mul, whose unit is the inverse of x's.
func (b *Builder) Unscale(x, mul *Value) *Value {
	return b.one(OpUnscale, []*Value{x, mul}, nil)
}

// Multiplier is 2^shift / scale / count, clipped to max over norm; operands may be nil.
func (b *Builder) Multiplier(scale, count, norm *Value, shift int, max float64) *Value {
	return b.one(OpMultiplier, []*Value{scale, count, norm}, A("shift", shift, "max", max))
}

// AnyNonfinite is true where any element of any x is Inf or NaN.
//
//   - Shapes: any to a scalar.
//   - DTypes: floats; the result is bool.
//   - Errors: no operand.
//   - PyTorch: torch.isfinite(x).logical_not().any().
func (b *Builder) AnyNonfinite(x ...*Value) *Value {
	return b.one(OpAnyNonfinite, x, nil)
}

// GlobalNorm is the 2-norm of all g together, each times mul; mul may be nil.
func (b *Builder) GlobalNorm(mul *Value, g ...*Value) *Value {
	return b.one(OpGlobalNorm, append([]*Value{mul}, g...), nil)
}

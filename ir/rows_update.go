package ir

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
)

// The update of variables. Every row is exact, in f32, and ends in a selection by skip: if skip is
// true, the next value is the old one, bit for bit.

// optimizerIn are the operands of a row that updates a weight: the weight, its gradient, moments,
// then the scalars. The gradient times mul has unit 1.
func optimizerIn(moments ...string) []Operand {
	ops := in(Operand{Name: "w"}, Operand{Name: "g", ReadsLow: true})
	for _, m := range moments {
		ops = append(ops, Operand{Name: m, Optional: moments[0] == m && len(moments) == 1})
	}
	return append(ops, scalarF32("lr"), flagOperand("skip", true), optionalScalar("mul"))
}

var updateRows = map[Op]Def{
	OpAccum: {
		Name: "accum", Doc: "Adds a micro-batch's g to an accumulator: g alone where first, the accumulator as it is where not ok.",
		In:  in(Operand{Name: "acc", Kinds: KNum}, Operand{Name: "g", Kinds: KNum, ReadsLow: true}, flagOperand("first", false), flagOperand("ok", true)),
		Out: out(Result{Name: "y"}), Flags: Writer | NoMerge | InPlace, Class: Fixed, Why: "f32 accumulator", Unit: UnitSame, NoGrad: "belongs to the update",
		Infer: inferAccum,
		Elem: func(c *Code, n *Node) []Reg {
			acc := c.In(0)
			s := c.Select(c.In(2), c.Conv(c.In(1), c.Type(acc)), c.Add(acc, c.In(1)))
			if n.operand(3) != nil {
				s = c.Select(c.In(3), s, acc)
			}
			return []Reg{s}
		},
	},
	OpAccumTree: {
		Name: "accum_tree", Doc: "One level of a binary tree over micro-batches. Where the low bits of micro, as many as level says, are all set, it adds g to the accumulator if the bit above them is set, and takes g alone if not. Elsewhere the accumulator stays as it is. Level 0 takes what each micro-batch computes, the others what the level below has written.",
		In:    in(Operand{Name: "acc", Kinds: KNum}, Operand{Name: "g", Kinds: KNum, ReadsLow: true}, Operand{Name: "micro", Kinds: KInt, Class: Fixed, Named: true}),
		Out:   out(Result{Name: "y"}),
		Attrs: []AttrDef{{Name: "level", Kind: AttrInt, Required: true, Doc: "from 0 at the leaves; what stands there is a sum of 2^(level+1) micro-batches when it is complete"}},
		Flags: Writer | NoMerge | InPlace, Class: Fixed, Why: "f32 accumulator", Unit: UnitSame, NoGrad: "belongs to the update",
		Infer: inferAccumTree,
		Elem:  elemAccumTree,
	},
	OpCommit: {
		Name: "commit", Doc: "Is the next value of a variable: new where the step is taken, old where it is skipped.",
		In:  in(Operand{Name: "old", Kinds: KAny}, Operand{Name: "new", Kinds: KAny}, flagOperand("skip", false)),
		Out: out(Result{Name: "y"}), Flags: Writer | NoMerge | InPlace, Class: Fixed, Why: "state", NoGrad: "belongs to the update",
		Infer: func(n *Node) ([]Type, error) {
			if n.In[0].Type != n.In[1].Type {
				return nil, fmt.Errorf("old %s is %s, new %s is %s", n.In[0], n.In[0].Type, n.In[1], n.In[1].Type)
			}
			return []Type{n.In[0].Type}, wantScalar(n, "skip", Bool)
		},
		Elem: func(c *Code, _ *Node) []Reg { return []Reg{c.Select(c.In(2), c.In(0), c.In(1))} },
	},
	OpCount: {
		Name: "count", Doc: "Is n+1, or n where the step is skipped.",
		In:  in(Operand{Name: "n", Kinds: KInt}, flagOperand("skip", true)),
		Out: out(Result{Name: "y"}), Flags: Writer | NoMerge | InPlace, Class: Fixed, Why: "counter", NoGrad: "belongs to the update",
		Infer: func(n *Node) ([]Type, error) { return []Type{n.In[0].Type}, wantScalar(n, "skip", Bool) },
		Elem: func(c *Code, n *Node) []Reg {
			old := c.In(0)
			return []Reg{unlessSkipped(c, n, 1, old, c.Add(old, c.Like(old, 1)))}
		},
	},
	OpBiasCorrection: {
		Name: "bias_correction", Doc: "Advances 1-beta^t by one taken step: beta*c + (1-beta).",
		In: in(Operand{Name: "c"}, flagOperand("skip", true)), Out: out(Result{Name: "y"}),
		Attrs: []AttrDef{{Name: "beta", Kind: AttrFloat, Takes: BelowOne, Required: true, Doc: "decay whose bias this corrects"}},
		Flags: Writer | NoMerge | InPlace, Class: Fixed, Why: "f32 counter", NoGrad: "belongs to the update",
		Infer: func(n *Node) ([]Type, error) {
			if n.In[0].Type.DType != F32 {
				return nil, fmt.Errorf("%s is %s, want f32", n.In[0], n.In[0].Type)
			}
			return []Type{n.In[0].Type}, wantScalar(n, "skip", Bool)
		},
		Elem: func(c *Code, n *Node) []Reg {
			old := c.In(0)
			return []Reg{unlessSkipped(c, n, 1, old, average(c, n.Float("beta"), old, c.F(1)))}
		},
	},
	OpEMA: {
		Name: "ema", Doc: "Advances a running average of a weight: decay*avg + (1-decay)*w, and w itself while steps is 0.",
		In: in(Operand{Name: "avg"}, Operand{Name: "w"}, Operand{Name: "steps", Kinds: KInt, Named: true}, flagOperand("skip", true)), Out: out(Result{Name: "y"}),
		Attrs: []AttrDef{{Name: "decay", Kind: AttrFloat, Takes: ZeroToOne, Required: true, Doc: "share of the average that is kept"}},
		Flags: Writer | NoMerge | InPlace, Class: Fixed, Why: "f32 average", NoGrad: "belongs to the update",
		Infer: func(n *Node) ([]Type, error) {
			if n.In[0].Type.Shape != n.In[1].Type.Shape {
				return nil, fmt.Errorf("avg %s is %s, w %s is %s", n.In[0], n.In[0].Type, n.In[1], n.In[1].Type)
			}
			return []Type{n.In[0].Type}, firstError(wantScalar(n, "steps", I32), wantScalar(n, "skip", Bool))
		},
		Elem: func(c *Code, n *Node) []Reg {
			old, w := c.In(0), c.In(1)
			next := c.Select(c.Eq(c.In(2), c.I(0)), w, average(c, n.Float("decay"), old, w))
			return []Reg{unlessSkipped(c, n, 3, old, next)}
		},
	},
	OpSchedule: {
		Name: "schedule", Doc: "Is the learning rate at a step: the base rate, risen linearly over warmup steps, then constant, along half a cosine or a line down to min of it at step total, or times drop after every so many steps, or in phases.",
		In: in(Operand{Name: "rate"}, Operand{Name: "step", Kinds: KInt}), Out: out(Result{Name: "lr"}),
		Attrs: []AttrDef{
			{Name: "kind", Kind: AttrString, Default: "constant", Doc: "constant, cosine, linear, step or phases"},
			{Name: "warmup", Kind: AttrInt, Default: 0, Doc: "steps until the full rate"}, {Name: "total", Kind: AttrInt, Default: 0, Doc: "steps until the least rate, warm-up included"}, {Name: "min", Kind: AttrFloat, Takes: ZeroToOne, Default: 0.0, Doc: "as a share of the rate"},
			{Name: "every", Kind: AttrInt, Default: 1, Doc: "steps between two drops"}, {Name: "drop", Kind: AttrFloat, Takes: Above0, Default: 1.0, Doc: "factor of a drop"},
			{Name: "steps", Kind: AttrInts, Doc: "of each phase, after the warm-up"}, {Name: "from", Kind: AttrFloats, Doc: "share of the rate at the start of each phase"}, {Name: "to", Kind: AttrFloats, Doc: "share at its end"},
			{Name: "power", Kind: AttrFloats, Doc: "the way between, of each phase: 1 is a line, p is (1-u)^p, 0 half a cosine"},
		},
		Class: Fixed, Why: "f32", NoGrad: "belongs to the update", Infer: inferSchedule, Elem: elemSchedule,
	},
	OpSGD: {
		Name: "sgd", Doc: "Steps a weight down its gradient: m' = momentum*m + g + decay*w; w' = w - lr*m', or with nesterov w - lr*(g + decay*w + momentum*m').",
		In: optimizerIn("m"), Out: out(Result{Name: "w"}, Result{Name: "m", Optional: true}),
		Attrs: []AttrDef{
			{Name: "momentum", Kind: AttrFloat, Takes: BelowOne, Default: 0.0, Doc: "share of the last step that is kept"},
			{Name: "nesterov", Kind: AttrBool, Doc: "look one step of momentum ahead"}, decayAttr,
		},
		Flags: Writer | NoMerge | InPlace, Class: Fixed, Why: "f32 master weight", Unit: unitOptimizer, NoGrad: "belongs to the update",
		Infer: inferOptimizer, Elem: elemSGD,
	},
	OpAdam: {
		Name: "adam", Doc: "Adam with decay added to the gradient; c1 and c2 are the bias corrections after this step. w' = w - lr * (m'/c1) / (sqrt(v'/c2) + eps).",
		In: adamIn(), Out: out(Result{Name: "w"}, Result{Name: "m"}, Result{Name: "v"}), Attrs: adamAttrs,
		Flags: Writer | NoMerge | InPlace, Class: Fixed, Why: "f32 master weight", Unit: unitOptimizer, NoGrad: "belongs to the update",
		Infer: inferOptimizer, Elem: func(c *Code, n *Node) []Reg { return elemAdam(c, n, false) },
	},
	OpAdamW: {
		Name: "adamw", Doc: "Adam with decay taken off the weight first: w - lr*decay*w; c1 and c2 are the bias corrections after this step.",
		In: adamIn(), Out: out(Result{Name: "w"}, Result{Name: "m"}, Result{Name: "v"}), Attrs: adamAttrs,
		Flags: Writer | NoMerge | InPlace, Class: Fixed, Why: "f32 master weight", Unit: unitOptimizer, NoGrad: "belongs to the update",
		Infer: inferOptimizer, Elem: func(c *Code, n *Node) []Reg { return elemAdam(c, n, true) },
	},
	OpAssign: {
		Name: "assign", Doc: "Is the next value of a weight that ops of the update computed: next where the step is taken, w where it is skipped. g and lr, the gradient and the learning rate that next was computed from, say what it is.",
		In:  in(Operand{Name: "w"}, Operand{Name: "next", ReadsLow: true}, Operand{Name: "g", ReadsLow: true, Unread: true}, Operand{Name: "lr", Class: Fixed, Named: true, ReadsLow: true, Unread: true}, flagOperand("skip", true)),
		Out: out(Result{Name: "w"}), Flags: Writer | NoMerge | InPlace, Class: Fixed, Why: "f32 master weight", NoGrad: "belongs to the update",
		Infer: inferAssign,
		Elem:  func(c *Code, n *Node) []Reg { return []Reg{unlessSkipped(c, n, 4, c.In(0), c.In(1))} },
	},
}

func adamIn() []Operand { return append(optimizerIn("m", "v"), scalarF32("c1"), scalarF32("c2")) }

var (
	decayAttr = AttrDef{Name: "decay", Kind: AttrFloat, Takes: AtLeast0, Default: 0.0, Doc: "weight decay"}
	adamAttrs = []AttrDef{
		{Name: "beta1", Kind: AttrFloat, Takes: BelowOne, Default: 0.9, Doc: "decay of the first moment"},
		{Name: "beta2", Kind: AttrFloat, Takes: BelowOne, Default: 0.999, Doc: "decay of the second moment"},
		{Name: "eps", Kind: AttrFloat, Takes: AtLeast0, Default: 1e-8, Doc: "added to the root of the second moment"}, decayAttr,
	}
)

// oneMinus is 1-x of the shortest decimal of x, rounded once to f32. (1-0.999 in float64 is not
// 0.001.)
func oneMinus(x float64) float64 {
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(x, 'g', -1, 64))
	if !ok {
		return 1 - x
	}
	f, _ := r.Sub(big.NewRat(1, 1), r).Float32()
	return float64(f)
}

// average is beta*old + (1-beta)*x.
func average(c *Code, beta float64, old, x Reg) Reg {
	return c.Add(c.Mul(c.F(beta), old), c.Mul(c.F(oneMinus(beta)), x))
}

// unlessSkipped selects next, or old if operand i, the skip, is present and true.
func unlessSkipped(c *Code, n *Node, i int, old, next Reg) Reg {
	if n.operand(i) == nil {
		return next
	}
	return c.Select(c.In(i), old, next)
}

func inferAccum(n *Node) ([]Type, error) {
	acc, g := n.In[0], n.In[1]
	if acc.Type.Shape != g.Type.Shape || acc.Type.DType.Float() != g.Type.DType.Float() {
		return nil, fmt.Errorf("acc %s is %s, g %s is %s", acc, acc.Type, g, g.Type)
	}
	return []Type{acc.Type}, firstError(wantScalar(n, "first", Bool), wantScalar(n, "ok", Bool))
}

// MaxTree is the largest number of levels of a tree over micro-batches: f32 counts the
// micro-batches exactly.
const MaxTree = 20

func inferAccumTree(n *Node) ([]Type, error) {
	if l := n.Int("level"); l < 0 || l >= MaxTree {
		return nil, fmt.Errorf("level is %d, want 0 to %d", l, MaxTree-1)
	}
	types, err := inferAccum(n)
	return types, firstError(err, wantScalar(n, "micro", I32))
}

func elemAccumTree(c *Code, n *Node) []Reg {
	acc, g, level := c.In(0), c.In(1), int(n.Int("level"))
	whole := func(x Reg) Reg { return c.Eq(x, c.Floor(x)) }
	micro := c.Conv(c.In(2), F32)
	above := c.Floor(c.Mul(micro, c.F(math.Ldexp(1, -level))))
	s := c.Select(whole(c.Mul(above, c.F(0.5))), c.Conv(g, c.Type(acc)), c.Add(acc, g))
	if level > 0 {
		s = c.Select(whole(c.Mul(c.Add(micro, c.F(1)), c.F(math.Ldexp(1, -level)))), s, acc)
	}
	return []Reg{s}
}

// inferOptimizer infers for every result the type of the variable that it updates. The gradient and
// the moments have the weight's shape.
func inferOptimizer(n *Node) ([]Type, error) {
	w := n.In[0]
	types := []Type{w.Type}
	for i, v := range n.In[1:] {
		if o := n.OperandDef(i + 1); o.Named {
			break
		} else if v != nil && v.Type.Shape != w.Type.Shape {
			return nil, fmt.Errorf("%s %s is %s, weight %s is %s", o.Name, v, v.Type, w, w.Type)
		} else if v != nil && i > 0 {
			types = append(types, v.Type)
		}
	}
	if n.Op == OpSGD && len(types) == 1 && n.Float("momentum") != 0 {
		return nil, fmt.Errorf("momentum %g needs the operand m", n.Float("momentum"))
	}
	for _, name := range [...]string{"lr", "mul", "c1", "c2"} {
		if err := wantScalar(n, name, F32); err != nil {
			return nil, err
		}
	}
	return types, wantScalar(n, "skip", Bool)
}

// inferAssign infers the type of the weight for the result and for next. The gradient has the
// weight's shape.
func inferAssign(n *Node) ([]Type, error) {
	w, next, g := n.In[0], n.In[1], n.In[2]
	if next.Type.Shape != w.Type.Shape || g.Type.Shape != w.Type.Shape {
		return nil, fmt.Errorf("weight %s is %s, next %s is %s, g %s is %s", w, w.Type, next, next.Type, g, g.Type)
	}
	return []Type{w.Type}, firstError(wantShape("lr", n.Operand("lr")), wantScalar(n, "skip", Bool))
}

// unitOptimizer checks that the units of gradient and multiplier cancel: the weight has unit 1.
func unitOptimizer(n *Node) (Unit, error) {
	g, mul := n.In[1], n.Operand("mul")
	var m Unit
	if mul != nil {
		m = mul.Unit
	}
	switch {
	case g.Unit.times(m, 1) == "":
		return "", nil
	case mul == nil:
		return "", fmt.Errorf("%s reads the gradient %s, which carries the loss scale %s, and no multiplier takes it off", n.Name(), at(g), g.Unit)
	}
	return "", fmt.Errorf("the gradient %s has scale unit %s and the multiplier %s has scale unit %s: the product must have scale unit 1", at(g), g.Unit, at(mul), m)
}

// scaledGradient is operand 1 times operand mul, if present.
func scaledGradient(c *Code, n *Node, mul int) Reg {
	g := c.In(1)
	if n.operand(mul) != nil {
		g = c.Mul(g, c.In(mul))
	}
	return g
}

// decayed adds decay*w to a gradient.
func decayed(c *Code, n *Node, g, w Reg) Reg {
	if d := n.Float("decay"); d != 0 {
		return c.Add(g, c.Mul(c.F(d), w))
	}
	return g
}

func elemSGD(c *Code, n *Node) []Reg {
	const m, lr, skip, mul = 2, 3, 4, 5
	w := c.In(0)
	g := decayed(c, n, scaledGradient(c, n, mul), w)
	if n.operand(m) == nil {
		return []Reg{unlessSkipped(c, n, skip, w, c.Sub(w, c.Mul(c.In(lr), g)))}
	}
	momentum := c.F(n.Float("momentum"))
	old := c.In(m)
	next := c.Add(c.Mul(momentum, old), g)
	u := next
	if n.Flag("nesterov") {
		u = c.Add(g, c.Mul(momentum, next))
	}
	return []Reg{
		unlessSkipped(c, n, skip, w, c.Sub(w, c.Mul(c.In(lr), u))),
		unlessSkipped(c, n, skip, old, next),
	}
}

func elemAdam(c *Code, n *Node, decoupled bool) []Reg {
	const m, v, lr, skip, mul, c1, c2 = 2, 3, 4, 5, 6, 7, 8
	w, rate := c.In(0), c.In(lr)
	g, from := scaledGradient(c, n, mul), w
	if decoupled {
		if d := n.Float("decay"); d != 0 {
			from = c.Sub(w, c.Mul(c.Mul(rate, c.F(d)), w))
		}
	} else {
		g = decayed(c, n, g, w)
	}
	m1 := average(c, n.Float("beta1"), c.In(m), g)
	v1 := average(c, n.Float("beta2"), c.In(v), c.Mul(g, g))
	step := c.Div(c.Div(m1, c.In(c1)), c.Add(c.Sqrt(c.Div(v1, c.In(c2))), c.F(n.Float("eps"))))
	return []Reg{
		unlessSkipped(c, n, skip, w, c.Sub(from, c.Mul(rate, step))),
		unlessSkipped(c, n, skip, c.In(m), m1),
		unlessSkipped(c, n, skip, c.In(v), v1),
	}
}

func inferSchedule(n *Node) ([]Type, error) {
	if n.In[0].Type != T(F32) || n.In[1].Type != T(I32) {
		return nil, fmt.Errorf("rate %s is %s and step %s is %s, want f32[] and i32[]", n.In[0], n.In[0].Type, n.In[1], n.In[1].Type)
	}
	switch k := n.Str("kind"); {
	case k != "constant" && k != "cosine" && k != "linear" && k != "step" && k != "phases":
		return nil, fmt.Errorf("kind %q, want constant, cosine, linear, step or phases", k)
	case (k == "cosine" || k == "linear") && n.Int("total") <= n.Int("warmup"):
		return nil, fmt.Errorf("%d steps in all, %d of them warm-up", n.Int("total"), n.Int("warmup"))
	case k == "step" && n.Int("every") < 1:
		return nil, fmt.Errorf("every=%d, want at least 1", n.Int("every"))
	case k == "phases":
		return []Type{T(F32)}, checkPhases(n)
	}
	return []Type{T(F32)}, nil
}

func checkPhases(n *Node) error {
	steps, from, to, power := n.Ints("steps"), n.Floats("from"), n.Floats("to"), n.Floats("power")
	if len(steps) == 0 || len(from) != len(steps) || len(to) != len(steps) || len(power) != len(steps) {
		return fmt.Errorf("%d steps, %d from, %d to and %d power, want one of each for every phase", len(steps), len(from), len(to), len(power))
	}
	for i := range steps {
		if steps[i] < 1 || !(from[i] >= 0) || !(to[i] >= 0) || !(power[i] >= 0) {
			return fmt.Errorf("phase %d: %d steps from %g to %g by power %g, want at least one step and nothing below 0", i+1, steps[i], from[i], to[i], power[i])
		}
	}
	return nil
}

// elemSchedule multiplies the rate by the rise during warm-up and by the fall afterwards.
func elemSchedule(c *Code, n *Node) []Reg {
	rate, step := c.In(0), c.Conv(c.In(1), F32)
	warmup := c.F(float64(n.Int("warmup")))
	y := c.Mul(rate, scheduleFall(c, n, c.Sub(step, warmup)))
	if n.Int("warmup") > 0 {
		rise := c.Div(c.Add(step, c.F(1)), warmup)
		y = c.Select(c.Lt(step, warmup), c.Mul(rate, rise), y)
	}
	return []Reg{y}
}

// scheduleFall is the factor of the rate k steps after the warm-up.
func scheduleFall(c *Code, n *Node, k Reg) Reg {
	share := c.F(n.Float("min"))
	down := func(f Reg) Reg { return c.Add(share, c.Mul(c.F(oneMinus(n.Float("min"))), f)) }
	at := func() Reg { // progress from 0 to 1
		return c.Max(c.F(0), c.Min(c.F(1), c.Div(k, c.F(float64(n.Int("total")-n.Int("warmup"))))))
	}
	switch n.Str("kind") {
	case "cosine":
		return down(halfCosine(c, at()))
	case "linear":
		return down(c.Sub(c.F(1), at()))
	case "step":
		return stepPower(c, n, c.Floor(c.Div(c.Max(c.F(0), k), c.F(float64(n.Int("every"))))))
	case "phases":
		return schedulePhases(c, n, k)
	}
	return c.F(1)
}

// schedulePhases is the factor of the phase that step k is in; after the end, that of the last
// phase.
func schedulePhases(c *Code, n *Node, k Reg) Reg {
	steps, from, to, power := n.Ints("steps"), n.Floats("from"), n.Floats("to"), n.Floats("power")
	end := int64(0)
	for _, s := range steps {
		end += s
	}
	y := c.F(to[len(to)-1])
	for i := len(steps) - 1; i >= 0; i-- {
		start := end - steps[i]
		u := c.Max(c.F(0), c.Min(c.F(1), c.Div(c.Sub(k, c.F(float64(start))), c.F(float64(steps[i])))))
		var left Reg // remaining part
		switch rest := c.Sub(c.F(1), u); power[i] {
		case 0:
			left = halfCosine(c, u)
		case 1:
			left = rest
		default:
			left = c.Pow(rest, c.F(power[i]))
		}
		value := c.Add(c.F(to[i]), c.Mul(c.F(from[i]-to[i]), left))
		y = c.Select(c.Lt(k, c.F(float64(end))), value, y)
		end = start
	}
	return y
}

// halfCosine is (1+cos(pi*u))/2 for u in [0,1], by the Taylor series of the sine around the middle.
// The error is below 3e-8, and the bits are the same on every system, which a library's cosine does
// not guarantee.
func halfCosine(c *Code, u Reg) Reg {
	z := c.Mul(c.F(3.141592653589793), c.Sub(u, c.F(0.5))) // cos(pi*u) = -sin(z)
	z2 := c.Mul(z, z)
	p := c.F(-1.0 / 39916800)
	for _, k := range []float64{1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1} {
		p = c.Add(c.Mul(p, z2), c.F(k))
	}
	return c.Max(c.F(0), c.Sub(c.F(0.5), c.Mul(c.F(0.5), c.Mul(p, z))))
}

// stepPower is drop^k for a whole k below 1024, by squaring.
func stepPower(c *Code, n *Node, k Reg) Reg {
	y, f := c.F(1), c.F(n.Float("drop"))
	rest := c.Min(k, c.F(1023))
	for range 10 {
		half := c.Floor(c.Mul(rest, c.F(0.5)))
		odd := c.Ne(rest, c.Add(half, half))
		y = c.Select(odd, c.Mul(y, f), y)
		f, rest = c.Mul(f, f), half
	}
	return y
}

// Accum adds g to acc: g alone where first, acc as it is where ok (may be nil) does not hold.
func (b *Builder) Accum(next, acc, g, first, ok *Value) *Value {
	return b.EmitWrite(OpAccum, []*Value{acc, g, first, ok}, nil, next)[0]
}

// AccumTree adds g to a level of a binary tree over micro-batches, of which this is
// number micro.
func (b *Builder) AccumTree(acc, g, micro *Value, level int64) *Value {
	return b.EmitWrite(OpAccumTree, []*Value{acc, g, micro}, A("level", level), acc)[0]
}

// Commit writes v: fresh where the step is taken, v where it is skipped.
func (b *Builder) Commit(v, fresh, skip *Value) *Value {
	return b.EmitWrite(OpCommit, []*Value{v, fresh, skip}, nil, v)[0]
}

// CountUp writes n: n+1, or n where skip (may be nil) holds.
func (b *Builder) CountUp(n, skip *Value) *Value {
	return b.EmitWrite(OpCount, []*Value{n, skip}, nil, n)[0]
}

// BiasCorrection writes c: 1-beta^t after one more taken step.
func (b *Builder) BiasCorrection(c, skip *Value, beta float64) *Value {
	return b.EmitWrite(OpBiasCorrection, []*Value{c, skip}, A("beta", beta), c)[0]
}

// EMA writes avg: the running average with w in it; steps counts those before.
func (b *Builder) EMA(avg, w, steps, skip *Value, decay float64) *Value {
	return b.EmitWrite(OpEMA, []*Value{avg, w, steps, skip}, A("decay", decay), avg)[0]
}

// Schedule is the learning rate at a step.
func (b *Builder) Schedule(rate, step *Value, a Attrs) *Value {
	return b.one(OpSchedule, []*Value{rate, step}, a)
}

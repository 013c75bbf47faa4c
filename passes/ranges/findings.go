package ranges

import (
	"cmp"
	"fmt"
	"math"

	"ampc/ir"
	"ampc/ir/eval"
)

// Kind is what a finding is about.
type Kind string

const (
	Overflow   Kind = "overflow"    // a value is, or may be, out of range of its dtype
	Underflow  Kind = "underflow"   // all elements of a value are, or may be, rounded to 0
	MaskBeyond Kind = "mask"        // a mask constant out of range of the dtype in which it is used
	Vanished   Kind = "vanished"    // a constant that is 0 in its stored dtype
	Epsilon    Kind = "epsilon"     // an additive constant that is lost before a division, log or rsqrt
	Reciprocal Kind = "reciprocal"  // a constant whose reciprocal overflows
	LostUpdate Kind = "lost_update" // a step smaller than half a unit in the last place of the weight
)

// Finding is a place where the range of a value does not fit its dtype.
type Finding struct {
	Kind    Kind
	Certain bool // for every input; otherwise for some inputs in the assumed ranges
	Error   bool // the result is wrong, not only at risk
	Value   string
	Pos     ir.Pos
	Text    string
	Fix     string

	node *ir.Node // node that computes or reads Value; may be nil
}

func (f Finding) String() string {
	s := string(f.Kind) + ": " + f.Value + ": " + f.Text
	if f.Fix != "" {
		s += "; " + f.Fix
	}
	if p := f.Pos.String(); p != "" {
		s = p + ": " + s
	}
	return s
}

// Findings checks every value of the graph against its stored dtype.
func (r *Result) Findings() []Finding {
	f := &finder{Result: r, uses: r.g.Uses()}
	for _, v := range r.g.Vars {
		if v.Kind == ir.Const {
			f.constant(v)
		}
	}
	for _, n := range r.g.Nodes {
		for _, v := range n.Out {
			f.rangeOf(n, v)
		}
		f.epsilon(n)
		f.update(n)
	}
	return f.list
}

// Lost finds the constants before a division, a log or a root that their stored dtype loses: the
// findings of kind Epsilon and Reciprocal. Each of them makes a step wrong. It omits what a cast of
// the user rounds. It costs little if no constant can be lost.
func Lost(g *ir.Graph, o Options) []Finding {
	if !losesConstants(g) {
		return nil
	}
	var list []Finding
	for _, f := range Static(g, o).Findings() {
		if f.Kind == Reciprocal || f.Kind == Epsilon && !f.node.Why.Has(ir.MarkStoresCast) {
			list = append(list, f)
		}
	}
	return list
}

// losesConstants reports whether some node that stores 16 bits adds, or divides
// by, a constant.
func losesConstants(g *ir.Graph) bool {
	return g.Select(func(_ ir.Section, n *ir.Node) bool {
		if len(n.Out) == 0 || !n.Out[0].Type.DType.Low() {
			return false
		}
		for _, name := range n.Numbers(ir.Added) {
			if x := n.Float(name); x != 0 && eval.Round(x, n.Out[0].Type.DType) == 0 {
				return true
			}
		}
		for i, v := range n.In {
			if e := n.OperandDef(i).Entry; (e == ir.Added || e == ir.Divides) && v != nil && v.OneConstant() {
				return true
			}
		}
		return false
	}).Len() > 0
}

type finder struct {
	*Result
	uses *ir.Uses
	list []Finding
}

func (f *finder) report(n *ir.Node, v *ir.Value, x Finding) {
	x.Value, x.node = v.String(), n
	if n != nil {
		x.Pos = n.Pos
	} else {
		x.Pos = v.Pos
	}
	f.list = append(f.list, x)
}

func ends(v ir.Interval) string { return fmt.Sprintf("[%.4g, %.4g]", v.Lo, v.Hi) }

// rangeOf looks for values out of range of their dtype. It ignores unbounded intervals.
func (f *finder) rangeOf(n *ir.Node, v *ir.Value) {
	d := v.Type.DType
	iv := f.in[v.ID]
	if !d.Low() || math.IsInf(iv.Lo, -1) && math.IsInf(iv.Hi, 1) {
		return
	}
	largest, smallest := d.Max(), d.SmallestSubnormal()
	fix := fmt.Sprintf("keep %s in f32, or use bf16", cmp.Or(v.Decider(), v))
	switch {
	case iv.Lo > largest || iv.Hi < -largest:
		f.report(n, v, Finding{Kind: Overflow, Certain: true, Error: true, Text: fmt.Sprintf("lies in %s, beyond %s", ends(iv), d), Fix: fix})
	case bounded(iv) && magnitude(iv) > largest:
		f.report(n, v, Finding{Kind: Overflow, Text: fmt.Sprintf("may reach %.4g, the largest %s is %.5g", magnitude(iv), d, largest), Fix: fix})
	case iv.Lo == 0 && iv.Hi == 0:
	case magnitude(iv) < smallest/2:
		f.report(n, v, Finding{Kind: Underflow, Certain: true, Error: true, Text: fmt.Sprintf("lies in %s and is 0 in %s", ends(iv), d), Fix: "scale it, or keep it in f32"})
		return
	}
	if x := f.least(v); x < smallest/2 {
		f.report(n, v, Finding{Kind: Underflow, Text: fmt.Sprintf("may be as small as %.4g, which is 0 in %s", x, d), Fix: "scale it, or keep it in f32"})
	}
}

// least is the smallest known magnitude above zero of v: the recorded one, or the end of an
// interval without zero. Inf means that none is known.
func (f *finder) least(v *ir.Value) float64 {
	if rec, ok := f.recorded(v); ok {
		if rec.Least == 0 {
			return inf
		}
		return rec.Least
	}
	iv := f.in[v.ID]
	if contains(iv, 0) || !bounded(iv) {
		return inf
	}
	return min(math.Abs(iv.Lo), math.Abs(iv.Hi))
}

// constant checks the value of a scalar constant where its readers store low.
func (f *finder) constant(v *ir.Value) {
	iv := f.in[v.ID]
	if v.Type.Shape.Elements() != 1 || iv.Lo != iv.Hi {
		return
	}
	for _, u := range f.uses.Of(v) {
		if len(u.Node.Out) == 0 {
			continue
		}
		f.constantIn(v, iv.Lo, u)
	}
}

func (f *finder) constantIn(v *ir.Value, c float64, u ir.Use) {
	d := u.Node.Out[0].Type.DType
	if !d.Low() || c == 0 {
		return
	}
	largest := d.Max()
	entry := u.Node.OperandDef(u.Arg()).Entry
	masks := u.Node.Def().Elem != nil && (entry == ir.NoEntry || entry == ir.Added || entry == ir.Subtracted)
	switch {
	case u.Node.Op != ir.OpCast && masks && math.Abs(c) > largest && !math.IsInf(c, 0):
		f.report(u.Node, v, Finding{Kind: MaskBeyond, Certain: true, Text: fmt.Sprintf("%g is beyond %s", c, d), Fix: fmt.Sprintf("clamp it to %g", math.Copysign(largest/2, c))})
	case u.Node.Op == ir.OpCast && eval.Round(c, d) == 0:
		f.report(u.Node, v, Finding{Kind: Vanished, Certain: true, Error: true, Text: fmt.Sprintf("%g is 0 in %s", c, d), Fix: "keep its reader in f32"})
	case entry == ir.Divides && math.Abs(1/eval.Round(c, d)) > largest:
		f.report(u.Node, v, Finding{Kind: Reciprocal, Certain: true, Error: true, Text: fmt.Sprintf("1/%g overflows %s", c, d), Fix: "keep the division in f32"})
	}
}

// additive splits n into a value and a constant added to it.
func (f *finder) additive(n *ir.Node) (x *ir.Value, c float64, ok bool) {
	for _, name := range n.Numbers(ir.Added) {
		return n.In[0], n.Float(name), n.Float(name) != 0
	}
	for i, v := range n.In {
		if len(n.In) != 2 || v == nil || n.OperandDef(i).Entry != ir.Added || !v.OneConstant() {
			continue
		}
		if iv := f.in[v.ID]; iv.Lo == iv.Hi && iv.Lo != 0 {
			return n.In[1-i], iv.Lo, true
		}
	}
	return nil, 0, false
}

// epsilon finds constants that protect a division, a log or a root, and that are 0 in the dtype of
// their sum.
func (f *finder) epsilon(n *ir.Node) {
	x, c, ok := f.additive(n)
	if !ok || len(n.Out) == 0 {
		return
	}
	y := n.Out[0]
	d := y.Type.DType
	if !d.Low() || eval.Round(c, d) != 0 || f.in[x.ID].Lo > 0 || f.in[x.ID].Hi < 0 {
		return
	}
	if at := f.singular(y, 0); at != nil {
		f.report(n, y, Finding{Kind: Epsilon, Certain: true, Error: true,
			Text: fmt.Sprintf("adds %g, which is 0 in %s where the sum is stored, and %s follows", c, d, at.Name()),
			Fix:  fmt.Sprintf("keep %s in f32 (Policy.Keep, or pin=f32), or use the fused norm", y)})
	}
}

// singular finds a reader that is not finite at zero, also through nodes whose result is zero
// there.
func (f *finder) singular(v *ir.Value, depth int) *ir.Node {
	if depth > 4 {
		return nil
	}
	for _, u := range f.uses.Of(v) {
		may, through := u.Node.AtZero(u.Arg())
		if may&ir.Finite == 0 {
			return u.Node
		}
		through = through || u.Node.Def().Is(ir.View) || u.Node.Def().Is(ir.Moves)
		if through && len(u.Node.Out) > 0 {
			if at := f.singular(u.Node.Out[0], depth+1); at != nil {
				return at
			}
		}
	}
	return nil
}

// update compares the size of a step with the spacing of 16-bit weights. Adam changes every weight
// by about the rate, SGD by the rate times the unscaled gradient, as far as that is known.
func (f *finder) update(n *ir.Node) {
	w, lr := n.Operand("w"), n.Operand("lr")
	if w == nil || lr == nil || n.Operand("next") != nil || !w.Type.DType.Low() || !n.Def().Is(ir.Writer) {
		return
	}
	typical := magnitude(f.in[w.ID]) / maxNormal
	digits := 11
	if w.Type.DType == ir.BF16 {
		digits = 8
	}
	step := f.step(n, lr)
	if typical == 0 || !bounded(step) {
		return
	}
	half := math.Ldexp(1, int(math.Floor(math.Log2(typical)))-digits)
	if s := magnitude(step); s < half {
		f.report(n, w, Finding{Kind: LostUpdate, Text: fmt.Sprintf("steps of about %.3g are under half an ulp (%.3g) of weights around %.3g in %s", s, half, typical, w.Type.DType), Fix: "keep f32 master weights"})
	}
}

// step bounds the change of a weight by optimizer n.
func (f *finder) step(n *ir.Node, lr *ir.Value) ir.Interval {
	rate := f.in[lr.ID]
	if lr.IsVar() {
		rate = initial(lr.Init)
	}
	if n.Operand("v") != nil { // second moments
		return rate
	}
	step := mul(rate, f.in[n.Operand("g").ID])
	if m := n.Operand("mul"); m != nil {
		step = mul(step, f.in[m.ID])
	}
	return mul(step, point(1/(1-n.Float("momentum")))) // limit of the sum of equal steps
}

// Veto says why v should not be stored low: its range times factor exceeds the largest value of
// low, or recorded values were not finite. It returns "" if neither is known, as for unbounded
// intervals.
func (r *Result) Veto(v *ir.Value, low ir.DType, factor float64) string {
	largest := low.Max()
	iv := r.in[v.ID]
	seen, recorded := r.recorded(v)
	switch {
	case recorded && seen.Nonfinite > 0:
		return fmt.Sprintf("%d of %d recorded elements were not finite", seen.Nonfinite, seen.Elements)
	case !bounded(iv) || magnitude(iv)*factor <= largest:
		return ""
	case recorded:
		return fmt.Sprintf("its recorded range %s times %g passes %g, the largest %s", ends(iv), factor, largest, low)
	}
	return fmt.Sprintf("its range %s times %g passes %g, the largest %s", ends(iv), factor, largest, low)
}

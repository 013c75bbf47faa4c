package doctor

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/ir/eval"
)

// describe fills in what and where.
func (x *exam) describe(v *ir.Value) *Diagnosis {
	r := x.sick.rangeOf(v)
	d := &Diagnosis{Micro: x.sick.micro, DType: v.Type.DType, Scale: x.factor(v), Output: &r, Direction: x.direction(v)}
	if !v.IsVar() {
		for _, op := range v.Def.In {
			if op != nil && op.Type.DType.Float() {
				d.Inputs = append(d.Inputs, x.sick.rangeOf(op))
			}
		}
	}
	x.name(d, v)
	return d
}

func (x *exam) direction(v *ir.Value) Direction {
	s := ir.Forward
	if !v.IsVar() {
		s = x.section[v.Def]
	}
	switch {
	case s == ir.Update:
		return Update
	case s == ir.Backward || s == ir.Prepare && x.sweeps(v, false):
		return Backward
	case !v.IsVar() && (x.sweeps(v, true) || strings.HasPrefix(v.Name, innerPrefix)):
		return Inner
	}
	return Forward
}

// sweeps reports whether v carries the scale of a loss, or of a gradient inside
// the forward pass.
func (x *exam) sweeps(v *ir.Value, inner bool) bool {
	return slices.ContainsFunc(x.sick.g.Vars, func(s *ir.Value) bool {
		return s.Attr.Get("role") == ir.RoleScale && ir.InnerScale(s) == inner && v.Unit.Has(s.Name)
	})
}

// innerPrefix stands before the names of gradients inside the forward pass.
const innerPrefix = "grad."

// name says which node of the user's v is: a cast that the compiler placed
// stands for what it casts.
func (x *exam) name(d *Diagnosis, v *ir.Value) {
	for v.Def != nil && v.Def.Op == ir.OpCast && v.Def.In[0].Def != nil && strings.HasPrefix(v.Name, v.Def.In[0].Name+".") {
		v = v.Def.In[0]
	}
	d.Node, d.Op, d.Pos = v.Name, v.Kind.String(), v.Pos.String()
	if n := v.Def; n != nil {
		d.Op, d.Pos = n.Def().Name, n.Pos.String()
		if inner, ok := strings.CutPrefix(v.Name, innerPrefix); ok && d.Direction == Inner {
			d.Of = inner
		}
		if n.Of != nil {
			d.Of = n.Of.Out[0].Name
		}
	}
	if n := x.reader(v); d.Pos == "" && n != nil { // nobody wrote it: the compiler did, for its reader
		d.Pos = n.Pos.String()
	}
	home := x.home(d, v)
	if i := strings.LastIndexByte(home, '.'); i > 0 {
		d.Scope = home[:i]
	}
}

// home is the value of the forward pass in whose scope v belongs: a gradient's
// is what it is the gradient of, an update's the parameter.
func (x *exam) home(d *Diagnosis, v *ir.Value) string {
	switch {
	case d.Of != "":
		return d.Of
	case v.Def != nil && v.Def.Op == ir.OpCast && v.Def.In[0].IsVar():
		return v.Def.In[0].Name
	case d.Direction != Update:
		return v.Name
	}
	for _, p := range x.sick.g.Vars {
		if p.Kind == ir.Param && strings.HasSuffix(v.Name, "."+p.Name) {
			return p.Name
		}
	}
	return ""
}

// blameVar judges a variable that was not finite before the step.
func (x *exam) blameVar(d *Diagnosis, v *ir.Value) {
	if v.Kind == ir.Input {
		d.Cause, d.Why = BadInput, fmt.Sprintf("the batch holds what is not finite in %s", v.Name)
		d.Advice = "look at where the batch is read or normalised; no precision helps"
		return
	}
	d.Cause, d.Why = BadState, fmt.Sprintf("%s %s was not finite before the step", v.Kind, v.Name)
	d.Advice = "go back to a checkpoint from before; a step with the finiteness checks on (no NoSkip) never writes one"
}

// judge finds the cause of a node whose operands are finite and whose result v is not.
func (x *exam) judge(d *Diagnosis, v *ir.Value) error {
	if err := x.healthy(v); err != nil {
		return err
	}
	wide := x.wide(v)
	d.Wide = &wide
	if !wide.Finite() {
		d.Cause, d.Why = NotPrecision, "f32 is not finite here either: "+explain(v.Def)
		d.Advice = "look at the data, the learning rate and the formula; no precision and no loss scale helps"
		return nil
	}
	exact, err := x.sick.again(x.ctx, x.b, v.Def, nil)
	if err != nil {
		return err
	}
	switch {
	case !exact[v.Idx].Finite():
		return x.singular(d, v)
	case x.vanishes(d, v.Def):
	case x.strays(v, exact[v.Idx]) && x.lost(d, v):
	default:
		d.Exact = exact[v.Idx].AbsMax
		x.overflow(d, v)
	}
	return nil
}

// overflow judges a result that was finite until it was stored.
func (x *exam) overflow(d *Diagnosis, v *ir.Value) {
	top, plain := v.Type.DType.Max(), d.Exact/d.Scale
	reaches := fmt.Sprintf("its result reaches %.6g, the largest %s is %.5g", d.Exact, v.Type.DType, top)
	switch {
	case d.Exact < top/2: // what is stored does not overflow
		x.within(d, v)
	case d.Direction == Forward || d.Direction == Update && d.Scale == 1:
		d.Cause, d.Why = ForwardOverflow, reaches
		d.Advice = x.remedy(d, v)
		if d.Output.masked() {
			d.Advice = fmt.Sprintf("a mask needs no more than %g; or %s", -top/2, d.Advice)
		}
		if v.Def.Op == ir.OpCast && v.Def.In[0].Kind == ir.Param {
			d.Advice = "look at the learning rate: the weights have grown beyond the dtype; or " + d.Advice
		}
	case d.Scale != 1 && plain <= top:
		d.SafeScale = math.Ldexp(1, int(math.Floor(math.Log2(top/plain))))
		d.Why = fmt.Sprintf("%s; without the loss scale of %g it is %.6g", reaches, d.Scale, plain)
		x.blameScale(d, v)
	default:
		d.Cause, d.Why = GradientOverflow, reaches+" even at scale 1"
		if d.Scale != 1 {
			d.Why = fmt.Sprintf("%s; without the loss scale of %g it is still %.6g", reaches, d.Scale, plain)
		}
		d.Advice = x.remedy(d, v) + ", or clip what it is computed from"
	}
}

// within judges a node whose result in f32, on the same operands, its dtype holds:
// something that it computes inside is narrower.
func (x *exam) within(d *Diagnosis, v *ir.Value) {
	d.Cause = GradientOverflow
	if d.Direction == Forward {
		d.Cause = ForwardOverflow
	}
	d.Why = fmt.Sprintf("on the same operands in f32 its result reaches no more than %.6g: what %s computes on the way overflows", d.Exact, v.Def.Def().Name)
	d.Advice = x.remedy(d, v)
}

// remedy says how v is kept in f32. That takes its whole layer: what reads v, or
// what it is computed from, would be narrowed next.
func (x *exam) remedy(d *Diagnosis, v *ir.Value) string {
	switch pinned := x.pinned(v); {
	case d.Direction == Update:
		return fmt.Sprintf("compute %s in f32", v.Name)
	case pinned != "":
		return fmt.Sprintf("take the pin to 16 bits off %s", pinned)
	case d.Scope != "":
		return fmt.Sprintf("keep the layer in f32 (Policy.Keep(%q), or Precision(PinF32))", d.Scope)
	}
	name := x.kept(v)
	return fmt.Sprintf("keep %s and what reads it in f32 (Policy.Keep(%q), or Precision(PinF32))", name, name)
}

// pinned names the node that code pinned to 16 bits: v's own, or its reader; ""
// where there is none.
func (x *exam) pinned(v *ir.Value) string {
	for _, n := range []*ir.Node{v.Def, x.reader(v)} {
		if n != nil && n.Pin == ir.PinLow {
			return n.Out[0].Name
		}
	}
	return ""
}

// kept names what a policy can keep in f32 so that v is: the node itself, or
// what reads a variable that is cast.
func (x *exam) kept(v *ir.Value) string {
	if v.Def.Op != ir.OpCast {
		return v.Name
	}
	if from := v.Def.In[0]; from.Def != nil {
		return from.Name
	}
	if n := x.reader(v); n != nil {
		return n.Out[0].Name
	}
	return v.Name
}

// reader is the first node that reads v, nil where none does.
func (x *exam) reader(v *ir.Value) *ir.Node {
	for _, n := range x.sick.g.Nodes {
		if slices.Contains(n.In, v) {
			return n
		}
	}
	return nil
}

// patience is how many backoffs in a row a dynamic scale may need before the
// search for it is a fault.
const patience = 3

// blameScale tells the search for a scale, which ends by itself, from a scale
// that is too high for longer.
func (x *exam) blameScale(d *Diagnosis, v *ir.Value) {
	d.Cause, d.Advice = ScaleTooHigh, fmt.Sprintf("a scale of %g or less fits", d.SafeScale)
	backoff, floor, dynamic := x.scaler(v)
	if !dynamic {
		return
	}
	left := int(math.Ceil(math.Log2(d.Scale/d.SafeScale)/-math.Log2(backoff))) - 1 // after the backoff of this step
	switch {
	case d.SafeScale < floor:
		d.Advice = fmt.Sprintf("a scale of %g fits, and the scaler's floor is %g: lower the floor, or keep %s in f32", d.SafeScale, floor, d.Node)
	case left <= patience && x.c.Skips < patience:
		d.Cause, d.Why, d.Advice = None, "scale search: "+d.Why, "nothing: the scaler has gone down to a scale that fits"
		if left > 0 {
			d.Advice = fmt.Sprintf("nothing: the scaler is at %g after %d more skipped steps", d.SafeScale, left)
		}
	default:
		d.Advice = fmt.Sprintf("start the scaler at %g: it takes %d more skipped steps to get there", d.SafeScale, left)
	}
}

// scaler finds how the scale that v carries goes down; false where it is static.
func (x *exam) scaler(v *ir.Value) (backoff, floor float64, dynamic bool) {
	for _, n := range x.sick.g.Body[ir.Update] {
		if n.Op == ir.OpUpdateScale && v.Unit.Has(n.In[0].Name) {
			return n.Float("backoff"), n.Float("floor"), true
		}
	}
	return 0, 0, false
}

// singular judges a result that is not finite even before it is stored.
func (x *exam) singular(d *Diagnosis, v *ir.Value) error {
	if d.Scale != 1 {
		factor := map[*ir.Value]float64{}
		for _, op := range v.Def.In {
			if op != nil {
				factor[op] = 1 / x.factor(op)
			}
		}
		plain, err := x.sick.again(x.ctx, x.b, v.Def, factor)
		if err != nil {
			return err
		}
		if plain[v.Idx].Finite() {
			d.Exact = plain[v.Idx].AbsMax * d.Scale
			x.overflow(d, v)
			return nil
		}
	}
	if !x.lost(d, v) {
		d.Cause, d.Why, d.Advice = Singular, explain(v.Def), x.remedy(d, v)+"; no loss scale helps"
	}
	return nil
}

// strays reports whether a result is far from what f32 has there: it does not
// overflow by its nature.
func (x *exam) strays(v *ir.Value, exact Range) bool {
	f := x.factor(v)
	return x.wide(v).AbsMax*f <= v.Type.DType.Max()/2 && exact.AbsMax > v.Type.DType.Max()
}

// lost looks upstream of v for values that are 0 and are not in f32: where a
// constant was lost, or else where the first of them became 0.
func (x *exam) lost(d *Diagnosis, v *ir.Value) bool {
	var source *ir.Value
	seen := map[*ir.Value]bool{v: true}
	for queue := []*ir.Value{v}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at.Def == nil {
			continue
		}
		if at != v && x.vanishes(d, at.Def) {
			d.Why += "; then " + explain(v.Def)
			return true
		}
		because := x.zeroedBy(at, at == v)
		for _, op := range because {
			if !seen[op] {
				seen[op] = true
				queue = append(queue, op)
			}
		}
		if at != v && len(because) == 0 && (source == nil || x.order[at] < x.order[source]) {
			source = at
		}
	}
	if source == nil {
		return false
	}
	d.Cause, d.From = Singular, source.Name
	d.Why = fmt.Sprintf("%s; %s %s", explain(v.Def), source.Name, x.rounded(source))
	d.Advice = fmt.Sprintf("keep %s and what it is computed from in f32, or add an epsilon that the dtype holds; no loss scale helps", source.Name)
	return true
}

// zeroedBy are the operands whose new zeros can be why v has its own: a sum is
// not 0 for a few of its terms. Any will do for a v that has none.
func (x *exam) zeroedBy(v *ir.Value, any bool) []*ir.Value {
	var because []*ir.Value
	for _, op := range v.Def.In {
		if op != nil && op.Type.DType.Float() && x.zeroed(op) > 0 && (any || x.zeroed(op) >= x.zeroed(v)/2) {
			because = append(because, op)
		}
	}
	return because
}

// rounded says how v came to be 0.
func (x *exam) rounded(v *ir.Value) string {
	zeros := x.sick.rangeOf(v).Zeros - x.wide(v).Zeros
	if d := v.Type.DType; d.Low() {
		return fmt.Sprintf("was rounded to 0 in %s, %d times", d, zeros)
	}
	for _, op := range v.Def.In {
		if op != nil && op.Type.DType.Low() {
			return fmt.Sprintf("cancels to 0, %d times, because %s is rounded to %s", zeros, op.Name, op.Type.DType)
		}
	}
	return fmt.Sprintf("is 0 %d times where f32 has another number", zeros)
}

// zeroed is the share of v's elements that are 0 and, by count, not in f32.
func (x *exam) zeroed(v *ir.Value) float64 {
	r := x.sick.rangeOf(v)
	return float64(r.Zeros-x.wide(v).Zeros) / float64(max(r.Elements, 1))
}

// vanishes reports whether node n loses a constant, and then says so in d.
func (x *exam) vanishes(d *Diagnosis, n *ir.Node) bool {
	if len(n.Out) == 0 || !n.Out[0].Type.DType.Float() {
		return false
	}
	y := n.Out[0]
	c, how := x.constantOf(n)
	switch {
	case c == 0 || math.IsInf(c, 0):
		return false
	case how == divides && y.Type.DType.Low() && math.Abs(1/eval.Round(c, y.Type.DType)) > y.Type.DType.Max():
		d.Why = fmt.Sprintf("1/%g overflows %s", c, y.Type.DType)
	case how == adds && y.Type.DType.Low() && eval.Round(c, y.Type.DType) == 0 && x.zeroed(y) > 0:
		d.Why = fmt.Sprintf("the constant %g that %s adds is 0 in %s", c, n.Def().Name, y.Type.DType)
	case how == stores && x.sick.rangeOf(y).Zeros > 0:
		d.Why = fmt.Sprintf("the constant %g is 0 in %s", c, y.Type.DType)
	default:
		return false
	}
	d.Cause, d.From = VanishedConstant, y.Name
	d.Advice = fmt.Sprintf("%s, or use a constant that %s holds in place of %g", x.remedy(d, y), y.Type.DType, c)
	return true
}

type use uint8

const (
	adds use = iota
	divides
	stores
)

// constantOf finds a single number known at compile time that n adds, divides
// by, or stores; 0 where there is none.
func (x *exam) constantOf(n *ir.Node) (float64, use) {
	switch n.Op {
	case ir.OpAffine:
		return n.Float("shift"), adds
	case ir.OpReciprocal:
		return x.number(n.In[0]), divides
	case ir.OpCast, ir.OpFull:
		if constant(n.Out[0]) {
			return x.number(n.Out[0]), stores
		}
	case ir.OpDiv:
		return x.number(n.In[1]), divides
	case ir.OpAdd:
		for _, v := range n.In {
			if c := x.number(v); c != 0 {
				return c, adds
			}
		}
	}
	return 0, adds
}

// number is what v holds in f32 if it is one number known at compile time.
func (x *exam) number(v *ir.Value) float64 {
	if v == nil || !constant(v) {
		return 0
	}
	r := x.wide(v)
	if r.Min != r.Max || !r.Finite() {
		return 0
	}
	return r.Min
}

// explain says what a node does where it is not finite on finite operands.
func explain(n *ir.Node) string {
	s := n.Def().Poles
	if s == "" {
		s = "is not finite on operands that are"
	}
	return n.Def().Name + " " + s
}

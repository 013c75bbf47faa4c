package doctor

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
)

// describe fills in which value is not finite, where it is computed, and the ranges around it.
func (x *analysis) describe(v *ir.Value) *Diagnosis {
	r := x.actual.withExponents(x.actual.rangeOf(v), v)
	d := &Diagnosis{Micro: x.c.First + x.actual.micro, DType: v.Type.DType, Scale: x.factor(v), Output: &r, Direction: x.direction(v)}
	if !v.IsVar() {
		for _, op := range v.Def.In {
			if op != nil && op.Type.DType.Float() {
				d.Inputs = append(d.Inputs, x.actual.withExponents(x.actual.rangeOf(op), op))
			}
		}
	}
	if d.Scale != 1 {
		d.ScaleName = x.scaleWord(v)
	}
	x.name(d, v)
	return d
}

func (x *analysis) direction(v *ir.Value) Direction {
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
func (x *analysis) sweeps(v *ir.Value, inner bool) bool {
	return slices.ContainsFunc(x.scales, func(s *ir.Value) bool { return ir.InnerScale(s) == inner && v.Unit.Has(s.Name) })
}

// innerPrefix stands before the names of gradients inside the forward pass.
const innerPrefix = "grad."

// name fills in the node of the source that v belongs to. For a cast that the compiler inserted, it is
// the node that is cast.
func (x *analysis) name(d *Diagnosis, v *ir.Value) {
	for v.Def != nil && inserted(v.Def) && v.Def.In[0].Def != nil {
		v = v.Def.In[0]
	}
	d.Node, d.Op, d.Pos = v.Name, v.Kind.String(), v.Pos.String()
	if n := v.Def; n != nil {
		d.Op, d.Pos = n.Def().Name, n.Pos.String()
		if inner, ok := strings.CutPrefix(v.Name, innerPrefix); ok && d.Direction == Inner {
			d.Of = inner
		}
		if n.Of != nil {
			d.Of = real(n.Of.Out[0]).Name
		}
	}
	if n := x.reader(v); d.Pos == "" && n != nil { // the compiler inserted it for its reader
		d.Pos = n.Pos.String()
	}
	home := x.home(d, v)
	if i := strings.LastIndexByte(home, '.'); i > 0 {
		d.Scope = home[:i]
	}
}

// home is the name of the forward value whose scope v belongs to: for a gradient, the value that it
// is the gradient of; in the update, the parameter.
func (x *analysis) home(d *Diagnosis, v *ir.Value) string {
	switch {
	case d.Of != "":
		return d.Of
	case d.Direction != Update && strings.HasPrefix(v.Name, ir.Reserved) && x.reader(v) != nil: // the compiler's own: it belongs where it is read
		n := x.reader(v)
		if n.Of != nil {
			n = n.Of
		}
		y := real(n.Out[0]) // x.f16 where a cast of x moved before the op that computes it
		return strings.TrimSuffix(y.Name, "."+y.Type.DType.String())
	case v.Def != nil && v.Def.Op == ir.OpCast && v.Def.In[0].IsVar():
		return v.Def.In[0].Name
	case d.Direction != Update:
		return v.Name
	}
	for _, p := range x.g.Vars {
		if p.Kind == ir.Param && strings.HasSuffix(v.Name, "."+p.Name) {
			return p.Name
		}
	}
	return ""
}

// blameVar judges a variable that was not finite before the step.
func (x *analysis) blameVar(d *Diagnosis, v *ir.Value) {
	if v.Kind == ir.Input {
		d.Cause, d.Why = BadInput, fmt.Sprintf("the batch has Inf or NaN in %s", v.Name)
		d.Advice = "check how the batch is read and normalized; no precision helps"
		return
	}
	d.Cause, d.Why = BadState, fmt.Sprintf("%s %s was not finite before the step", v.Kind, v.Name)
	d.Advice = "load an earlier checkpoint; a step with finiteness checks (without NoSkip) never writes such a state"
}

// judge finds the cause of a node whose operands are finite and whose result v is not.
func (x *analysis) judge(d *Diagnosis, v *ir.Value) {
	wide := x.wide(v)
	shown := x.reference.withExponents(wide, x.reference.to[v])
	d.Wide = &shown
	if x.reference.traced != nil && (!wide.Finite() || x.farFromF32(v, x.exact)) { // what v comes from is asked for
		x.reference.incomplete = true
		return
	}
	if !wide.Finite() {
		d.Cause, d.Why = NotPrecision, "f32 is not finite here either: "+explain(v.Def)
		d.Advice = "look at the data, the learning rate and the formula; no precision and no loss scale helps"
		switch labels, op := x.noTarget(v), x.cancelled(v); {
		case labels != "":
			d.Why = fmt.Sprintf("the mean over no valid target: %s", labels)
			d.Advice = "leave out such a batch, or give it a valid label; with micro-batches the count is over all of them"
		case op != nil:
			d.From = op.Name
			d.Why += fmt.Sprintf("; %s is as low as %.4g, the difference of numbers of magnitude %.4g: the rounding before it is larger",
				op.Name, x.wide(op).Min, x.operands(op))
			d.Advice = fmt.Sprintf("compute %s without a cancellation, as the mean of (x-mean)², or as the op that does", op.Name)
		default:
			x.zeroDivisor(d, v)
		}
		return
	}
	switch {
	case !x.exact.Finite():
		x.singular(d, v)
	case x.vanishes(d, v.Def):
	case x.farFromF32(v, x.exact) && x.lost(d, v):
	default:
		d.Exact = x.exact.AbsMax
		x.overflow(d, v)
	}
}

// computeAlone computes v's node alone, in f32, on its operands; if the result is not finite, also
// without the loss scale.
func (x *analysis) computeAlone(d *Diagnosis, v *ir.Value) error {
	if v.Def.Op == ir.OpCast { // in f32 it is its operand
		x.exact = x.actual.rangeOf(v.Def.In[0])
		x.plain = x.exact
		return nil
	}
	exact, err := x.computeNode(v.Def, nil)
	if err != nil {
		return err
	}
	x.exact = exact[v.Idx]
	x.plain = x.exact
	if x.exact.Finite() || d.Scale == 1 {
		return nil
	}
	factor := map[*ir.Value]float64{}
	for _, op := range v.Def.In {
		if op != nil {
			factor[op] = 1 / x.factor(op)
		}
	}
	plain, err := x.computeNode(v.Def, factor)
	if err != nil {
		return err
	}
	x.plain = plain[v.Idx]
	return nil
}

// noTarget says in words that v is a mean whose count of targets is 0; "" if it is not.
func (x *analysis) noTarget(v *ir.Value) string {
	n := v.Def
	if n.Op != ir.OpDiv || n.In[1] == nil {
		return ""
	}
	count := n.In[1]
	for _, w := range x.g.Body[ir.Backward] { // over several micro-batches it adds up
		if count.Def == nil && slices.ContainsFunc(w.Out, func(o *ir.Value) bool { return o.Next == count }) {
			if at := slices.IndexFunc(w.In, isCount); at >= 0 {
				count = w.In[at]
			}
		}
	}
	if !isCount(count) || x.actual.rangeOf(n.In[1]).AbsMax != 0 {
		return ""
	}
	of := ""
	for _, op := range count.Def.In {
		if op != nil && !op.Type.DType.Float() {
			of = " of " + op.Name
		}
	}
	return fmt.Sprintf("every label%s is ignored by %s", of, count.Def.Def().Name)
}

// zeroDivisor names what a divisor of 0 is reduced from. A quotient of two results of the same row, such
// as a sum and that of a mask, is a mean.
func (x *analysis) zeroDivisor(d *Diagnosis, v *ir.Value) {
	n := v.Def
	at := 0
	for i := range n.In {
		if n.OperandDef(i).Entry == ir.Divides {
			at = i
		}
	}
	by := n.In[at]
	of, values := reduced(by), x.actual.rangeOf(by)
	if n.OperandDef(at).Entry != ir.Divides || of == nil || values.Zeros == 0 {
		return
	}
	zero := fmt.Sprintf("%s, the %s of %s, is 0", real(by).Name, of.Def().Name, real(of.In[0]).Name)
	if values.AbsMax != 0 {
		zero += " in places"
	}
	if over := reduced(n.In[0]); at > 0 && over != nil && over.Op == of.Op {
		d.Why = "the mean over no valid target: " + zero
		d.Advice = "leave out such a batch, or give it a valid target"
		return
	}
	d.Why += "; " + zero
}

// reduced is the row, neither elementwise nor a move, that computes v, moves and casts looked through;
// nil if there is none.
func reduced(v *ir.Value) *ir.Node {
	for v.Def != nil && (v.Def.Op == ir.OpCast || v.Def.Def().Is(ir.Moves) || v.Def.Def().Is(ir.View)) {
		v = v.Def.In[0]
	}
	if v.Def == nil || v.Def.Def().Elem != nil || v.Def.Def().Class == ir.Low || v.Def.In[0] == nil {
		return nil
	}
	return v.Def
}

// isCount reports whether v is the number of targets that a loss row counted.
func isCount(v *ir.Value) bool {
	if v == nil || v.Def == nil {
		return false
	}
	out := v.Def.Def().Out
	return v.Idx < len(out) && out[v.Idx].Name == "count"
}

// cancelled is the value, upstream of v, that is below 0 because f32 does not resolve a difference;
// nil if there is none.
func (x *analysis) cancelled(v *ir.Value) *ir.Value {
	for at := v; at.Def != nil; {
		var next *ir.Value
		for _, op := range at.Def.In {
			if op != nil && op.Def != nil && op.Type.DType.Float() && x.reference.to[op] != nil && x.wide(op).Min < 0 && x.wide(op).Finite() {
				next = op
			}
		}
		if next == nil {
			return nil
		}
		if x.operands(next)*0x1p-18 > -x.wide(next).Min {
			return next
		}
		if at = next; next.Def.Def().Class == ir.Low {
			return nil
		}
	}
	return nil
}

// operands is the largest magnitude in f32 of what v is computed from.
func (x *analysis) operands(v *ir.Value) float64 {
	m := 0.0
	for _, op := range v.Def.In {
		if op != nil && op.Type.DType.Float() && x.reference.to[op] != nil {
			m = max(m, x.wide(op).AbsMax)
		}
	}
	return m
}

// overflow judges a result that was finite until it was stored.
func (x *analysis) overflow(d *Diagnosis, v *ir.Value) {
	top, plain := v.Type.DType.Max(), d.Exact/d.Scale
	reaches := fmt.Sprintf("its result reaches %.6g, the largest %s is %.5g", d.Exact, v.Type.DType, top)
	switch {
	case d.Exact < top/2: // what is stored does not overflow
		x.within(d, v)
	case d.Direction == Forward || d.Direction == Update && d.Scale == 1:
		d.Cause, d.Why = ForwardOverflow, reaches
		if d.Output.masked() {
			d.Advice = fmt.Sprintf("a mask value of %g is enough", -top/2)
		}
		if v.Def.Op == ir.OpCast && v.Def.In[0].Kind == ir.Param {
			d.Advice = "look at the learning rate: the weights have grown beyond the dtype"
		}
	case d.Scale == 1:
		d.Cause, d.Why = GradientOverflow, reaches+" even at scale 1"
	case plain <= top:
		d.Cause, d.Why = ScaleTooHigh, fmt.Sprintf("%s; without the %s of %g it is %.6g", reaches, x.scaleWord(v), d.Scale, plain)
	default:
		d.Cause, d.Why = GradientOverflow, fmt.Sprintf("%s; without the %s of %g it is still %.6g", reaches, x.scaleWord(v), d.Scale, plain)
	}
}

// scaleWord is what the scale that v carries is called.
func (x *analysis) scaleWord(v *ir.Value) string {
	switch {
	case x.sweeps(v, false) && x.sweeps(v, true):
		return "scales"
	case x.sweeps(v, true):
		return "inner gradient's scale"
	}
	return "loss scale"
}

// within judges a node whose dtype holds the result in f32 on the same operands: an intermediate
// value of the node overflows.
func (x *analysis) within(d *Diagnosis, v *ir.Value) {
	d.Cause = GradientOverflow
	if d.Direction == Forward {
		d.Cause = ForwardOverflow
	}
	d.Why = fmt.Sprintf("on the same operands in f32 its result is at most %.6g: an intermediate value of %s overflows", d.Exact, v.Def.Def().Name)
}

// reader is the first node that reads v, nil where none does.
func (x *analysis) reader(v *ir.Value) *ir.Node {
	for _, n := range x.g.Nodes {
		if slices.Contains(n.In, v) {
			return n
		}
	}
	return nil
}

// singular judges a result that is not finite even before it is stored.
func (x *analysis) singular(d *Diagnosis, v *ir.Value) {
	switch {
	case x.plain.Finite():
		d.Exact = x.plain.AbsMax * d.Scale
		x.overflow(d, v)
	case !x.lost(d, v):
		d.Cause, d.Why = Singular, explain(v.Def)
	}
}

// explain says in words why a node is not finite on finite operands.
func explain(n *ir.Node) string {
	s := n.Def().Poles
	if s == "" {
		s = "is not finite on operands that are"
	}
	return n.Def().Name + " " + s
}

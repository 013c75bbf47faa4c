package doctor

import (
	"fmt"
	"math"

	"ampc/ir"
	"ampc/ir/eval"
)

// farFromF32 reports whether v overflows although its value in f32 fits: its operands are far from
// those in f32.
func (x *analysis) farFromF32(v *ir.Value, exact Range) bool {
	f := x.factor(v)
	return x.wide(v).AbsMax*f <= v.Type.DType.Max()/2 && exact.AbsMax > v.Type.DType.Max()
}

// lost looks upstream of v for values that are 0, or below it, and are not in
// f32: where a constant was lost, or else where the first of them became so.
func (x *analysis) lost(d *Diagnosis, v *ir.Value) bool {
	var source *ir.Value
	seen := map[*ir.Value]bool{v: true}
	x.path = seen
	for queue := []*ir.Value{v}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at.Def == nil {
			continue
		}
		if at != v && x.vanishes(d, at.Def) {
			d.Why += "; then " + explain(v.Def)
			return true
		}
		because := x.spoiledBy(at, at == v)
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
	return true
}

// spoiledBy are the operands whose zeros or signs, which f32 does not have, can be the reason for
// those of v: a sum is not 0 because a few of its terms are. If any, every such operand counts.
func (x *analysis) spoiledBy(v *ir.Value, any bool) []*ir.Value {
	var because []*ir.Value
	for _, op := range v.Def.In {
		if op == nil || !op.Type.DType.Float() || x.reference.to[op] == nil {
			continue
		}
		if s := max(x.zeroed(op), x.flipped(op)); s > 0 && (any || s >= max(x.zeroed(v), x.flipped(v))/2) {
			because = append(because, op)
		}
	}
	return because
}

// rounded says in words why v is 0, or below 0.
func (x *analysis) rounded(v *ir.Value) string {
	s, wide := x.actual.rangeOf(v), x.wide(v)
	is := fmt.Sprintf("is 0 %d times", s.Zeros-wide.Zeros)
	if x.flipped(v) > 0 {
		is = fmt.Sprintf("is as low as %.4g", s.Min)
	}
	var sides []string
	operands := 0.0
	for _, op := range x.roundings(v) {
		sides = append(sides, op.Name)
		operands = max(operands, x.wide(op).AbsMax)
	}
	switch {
	case v.Type.DType.Low() && x.flipped(v) == 0:
		return fmt.Sprintf("was rounded to 0 in %s, %d times", v.Type.DType, s.Zeros-wide.Zeros)
	case len(sides) > 0 && x.operands(v) > 4*wide.AbsMax:
		return fmt.Sprintf("%s where f32 has no less than %.4g: %s cancels what is rounded to %s before, %s, of magnitude %.4g",
			is, smallest(wide), v.Def.Def().Name, x.lowDType(), enumerated(sides), operands)
	case len(sides) > 0:
		return fmt.Sprintf("%s because of the rounding of %s to %s", is, enumerated(sides), x.lowDType())
	}
	return is + " where f32 has another number"
}

// smallest is the distance from 0 of the number of a range that is nearest to a wrong sign.
func smallest(r Range) float64 {
	if r.Min >= 0 {
		return r.Min
	}
	return min(r.AbsMax, -r.Min)
}

// lowDType is the 16-bit dtype of the step.
func (x *analysis) lowDType() ir.DType {
	if x.stores(ir.BF16) {
		return ir.BF16
	}
	return ir.F16
}

// roundings are the values nearest upstream of v that are stored in 16 bits,
// where v is a sum or difference of what is made of them.
func (x *analysis) roundings(v *ir.Value) []*ir.Value {
	var found []*ir.Value
	seen := map[*ir.Value]bool{}
	var walk func(v *ir.Value, depth int)
	walk = func(v *ir.Value, depth int) {
		for _, op := range v.Def.In {
			if op == nil || seen[op] || op.Def == nil || constant(op) || !op.Type.DType.Float() {
				continue
			}
			seen[op] = true
			switch {
			case op.Type.DType.Low():
				found = append(found, op)
			case depth > 0 && op.Def.Def().Class != ir.Low:
				walk(op, depth-1)
			}
		}
	}
	walk(v, upstream)
	return found
}

// upstream is how many nodes upstream a rounding is looked for.
const upstream = 4

// zeroed is the share of v's elements that are 0 and, by count, not in f32.
func (x *analysis) zeroed(v *ir.Value) float64 {
	r := x.actual.rangeOf(v)
	return float64(r.Zeros-x.wide(v).Zeros) / float64(max(r.Elements, 1))
}

// flipped is 1 if v is below 0 and its value in f32 is not, or hardly; else 0.
func (x *analysis) flipped(v *ir.Value) float64 {
	r, wide := x.actual.rangeOf(v), x.wide(v)
	if r.Min < 0 && (wide.Min >= 0 || r.Min < 8*wide.Min && wide.Max > -wide.Min) {
		return 1
	}
	return 0
}

// spoiled are the nodes from the rounding to v, which it makes singular. If a difference cancels,
// they include what it is computed from, back to the products.
func (x *analysis) spoiled(d *Diagnosis, v *ir.Value) []*ir.Node {
	source := v
	for _, n := range x.g.Nodes {
		for _, o := range n.Out {
			if o.Name == d.From {
				source = o
			}
		}
	}
	var nodes []*ir.Node
	for at := range x.path {
		if at.Def != nil {
			nodes = append(nodes, at.Def)
		}
	}
	seen := map[*ir.Node]bool{}
	var walk func(n *ir.Node, depth int)
	walk = func(n *ir.Node, depth int) {
		if n == nil || seen[n] || depth == 0 || n.Def().Class == ir.Low || x.section[n] == ir.Prepare {
			return
		}
		seen[n] = true
		nodes = append(nodes, n)
		for _, op := range n.In {
			if op != nil {
				walk(op.Def, depth-1)
			}
		}
	}
	if source.Def != nil && x.cancels(source) {
		walk(source.Def, before)
	}
	return append(nodes, v.Def)
}

// cancels reports whether v is much smaller in f32 than its operands, or is not stored in 16 bits.
func (x *analysis) cancels(v *ir.Value) bool {
	return !v.Type.DType.Low() || x.operands(v) > 4*x.wide(v).AbsMax
}

// before is how many nodes may lie between a rounding and the difference that cancels.
const before = 8

// vanishes reports whether a constant of node n is 0 in its dtype, or its reciprocal overflows, and
// then fills in d.
func (x *analysis) vanishes(d *Diagnosis, n *ir.Node) bool {
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
	case how == stores && x.actual.rangeOf(y).Zeros > 0:
		d.Why = fmt.Sprintf("the constant %g is 0 in %s", c, y.Type.DType)
	default:
		return false
	}
	d.Cause, d.From = VanishedConstant, y.Name
	d.Advice = fmt.Sprintf("use a constant that %s holds in place of %g", y.Type.DType, c)
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
func (x *analysis) constantOf(n *ir.Node) (float64, use) {
	for _, name := range n.Numbers(ir.Added) {
		return n.Float(name), adds
	}
	for i, v := range n.In {
		switch c := x.number(v); {
		case c == 0:
		case n.OperandDef(i).Entry == ir.Divides:
			return c, divides
		case n.OperandDef(i).Entry == ir.Added:
			return c, adds
		}
	}
	if len(n.Out) > 0 && constant(n.Out[0]) {
		return x.number(n.Out[0]), stores
	}
	return 0, adds
}

// number is what v holds in f32 if it is one number known at compile time.
func (x *analysis) number(v *ir.Value) float64 {
	if v == nil || !constant(v) {
		return 0
	}
	r := x.wide(v)
	if r.Min != r.Max || !r.Finite() {
		return 0
	}
	return r.Min
}

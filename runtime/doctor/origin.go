package doctor

import (
	"math"
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// origin is the first value of the part that ran last that is not finite, nil if all are. Only
// flaws that reach the step's results, checks or variables count: an Inf that changes
// nothing, as in a mask, does not.
func (x *analysis) origin() *ir.Value {
	if x.actual.part == lower.Prepare {
		return nil
	}
	for _, sinks := range x.sinks(x.actual.part) {
		t := &tracer{analysis: x, seen: map[*ir.Value][]*ir.Value{}}
		var all []*ir.Value
		for _, v := range sinks {
			if x.actual.bad(v) {
				all = append(all, t.from(v)...)
			}
		}
		if v := x.first(all); v != nil {
			return v
		}
	}
	return nil
}

// stopEarly ends the replay after the first step whose result must be finite and is not, if its
// origin can be found by then: later flaws follow from it. If the origin has −Inf alone, as masks
// have it, the part runs to its end, which may show another. No scaled gradient is a mask.
func (x *analysis) stopEarly(found **ir.Value) {
	asked := map[lower.BufferID][]*ir.Value{}
	parts := []lower.Part{lower.Micro, lower.Update}
	if !x.updates {
		parts = parts[:1]
	}
	for _, part := range parts {
		for _, sinks := range x.sinks(part) {
			for _, v := range sinks {
				if id := x.actual.home(v); id != lower.None && !v.IsVar() {
					asked[id] = append(asked[id], v)
				}
			}
		}
	}
	certain := func(v *ir.Value) bool {
		f := x.actual.flaw(v)
		return f > onlyNegInf || f == onlyNegInf && v.Unit != ""
	}
	x.actual.afterStep = func(part lower.Part, step int) bool {
		if part == lower.Prepare {
			return true
		}
		for _, id := range x.actual.p.Parts[part][step].Out {
			if !slices.ContainsFunc(asked[id], func(v *ir.Value) bool { return x.actual.made(v) && certain(v) }) {
				continue
			}
			if v := x.origin(); v != nil && certain(v) {
				*found = v
				return false
			}
		}
		return true
	}
}

// first chooses the origin to blame: one with NaN or +Inf before those with −Inf alone, which masks
// have on purpose; of these the earliest, and constants last.
func (x *analysis) first(all []*ir.Value) *ir.Value {
	rank := func(v *ir.Value) int {
		n := x.order[v]
		if x.actual.flaw(v) == onlyNegInf {
			n += 2 * len(x.order)
			if constant(v) {
				n += len(x.order)
			}
		}
		return n
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *ir.Value) int { return rank(a) - rank(b) })
}

// sinks are the values that must be finite, in the order of the search: values of the forward pass,
// gradients, results of the update.
func (x *analysis) sinks(part lower.Part) [][]*ir.Value {
	var forward, backward, update []*ir.Value
	at := func(v *ir.Value) {
		switch {
		case v == nil || !v.Type.DType.Float():
		case v.Def == nil || x.section[v.Def] == ir.Forward || x.section[v.Def] == ir.Prepare:
			forward = append(forward, v)
		case x.section[v.Def] == ir.Backward:
			backward = append(backward, v)
		default:
			update = append(update, v)
		}
	}
	for s, n := range x.g.Nodes {
		for _, v := range n.In {
			if s == ir.Update || writes(n) || n.Op == ir.OpAnyNonfinite {
				if v != nil && v.Def != nil {
					at(v)
				}
			}
		}
		if s == ir.Update {
			for _, v := range n.Out {
				if v.Next != nil {
					at(v)
				}
			}
		}
	}
	for _, v := range x.g.Return {
		if len(forward)+len(backward) == 0 || x.actual.flaw(v) != onlyNegInf {
			at(v)
		}
	}
	if part == lower.Update {
		return [][]*ir.Value{update}
	}
	return [][]*ir.Value{forward, backward}
}

// writes reports whether n gives a variable its next value.
func writes(n *ir.Node) bool {
	return slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return v.Next != nil })
}

// tracer walks from a value that is not finite to the origins of its flaw.
type tracer struct {
	*analysis
	seen map[*ir.Value][]*ir.Value
}

// from returns the origins of v's flaw: variables that are not finite, and results that are not
// finite although the operands are. There is none if v has an Inf on purpose, as in a mask.
func (t *tracer) from(v *ir.Value) []*ir.Value {
	if known, ok := t.seen[v]; ok {
		return known
	}
	t.seen[v] = nil
	switch {
	case t.meant(v):
	case v.IsVar():
		t.seen[v] = []*ir.Value{v}
	default:
		t.seen[v] = t.through(v)
	}
	return t.seen[v]
}

func (t *tracer) through(v *ir.Value) []*ir.Value {
	var deeper []*ir.Value
	flawed := t.flawed(v)
	for _, op := range flawed {
		deeper = append(deeper, t.from(op)...)
	}
	if len(deeper) == 0 && (len(flawed) == 0 || t.actual.flaw(v) == hasNaN) {
		return []*ir.Value{v}
	}
	return deeper
}

// flawed are the operands that v's flaw comes from: those with a NaN if v has one, too, else
// all that are not finite.
func (t *tracer) flawed(v *ir.Value) []*ir.Value {
	var nan, all []*ir.Value
	for _, op := range v.Def.In {
		if !t.actual.bad(op) {
			continue
		}
		all = append(all, op)
		if t.actual.flaw(op) == hasNaN {
			nan = append(nan, op)
		}
	}
	if len(nan) > 0 && t.actual.flaw(v) == hasNaN {
		return nan
	}
	return all
}

// meant reports whether v has an Inf on purpose: in a constant, or in a mask that is an input or
// a state.
func (t *tracer) meant(v *ir.Value) bool {
	switch f := t.actual.flaw(v); {
	case v.Kind == ir.Const:
		return f != hasNaN
	case v.Kind == ir.Input || v.Kind == ir.State && v.Attr.Get("role") == nil:
		return f == onlyNegInf
	}
	x, _ := v.Filled()
	return math.IsInf(x, 0)
}

// constant reports whether v is known at compile time.
func constant(v *ir.Value) bool {
	if v.IsVar() {
		return v.Kind == ir.Const
	}
	return !slices.ContainsFunc(v.Def.In, func(op *ir.Value) bool { return op != nil && !constant(op) })
}

package prove

import (
	"maps"
	"slices"

	"ampc/ir"
)

// scalers checks every write that updates a loss scale, or that records an overflow for the step
// that does. It requires that an Inf or NaN in any gradient with the scale counts, in every
// micro-batch; that finite values do not; and that a loss that is not finite is told from an
// overflow, or counts as one.
func (p *proof) scalers() {
	if p.rules.Unchecked {
		return
	}
	g := p.guards()
	carried := g.carried()
	advanced := map[ir.Unit]bool{}
	var notes []*ir.Node
	for _, n := range p.g.Body[ir.Update] {
		switch {
		case n.Operand("found_inf") != nil && n.Def().Is(ir.Writer):
			unit := n.In[0].Unit
			advanced[unit] = true
			p.judged++
			g.advance(n, unit, carried[unit])
		case len(n.Out) == 1 && n.Out[0].Next != nil && n.Out[0].Type == ir.T(ir.Bool):
			notes = append(notes, n)
		}
	}
	for _, n := range notes {
		g.note(n, carried, advanced)
	}
}

// carried lists the gradients with each loss scale: those that update weights, and gradients inside
// the forward section that are divided by their scale.
func (g *guard) carried() map[ir.Unit][]*ir.Value {
	m := map[ir.Unit][]*ir.Value{}
	seen := make([]bool, g.values)
	add := func(v *ir.Value) {
		if v.Unit != "" && !seen[v.ID] {
			seen[v.ID] = true
			m[v.Unit] = append(m[v.Unit], v)
		}
	}
	for _, t := range g.skipGroups {
		for _, v := range t.leaves {
			add(v)
		}
	}
	for _, n := range g.p.g.Body[ir.Forward] {
		for i, v := range n.In {
			if v != nil && n.OperandDef(i).Name == "x" && n.Operand("mul") != nil {
				add(v)
			}
		}
	}
	return m
}

// advance checks a write of a loss scale.
func (g *guard) advance(n *ir.Node, unit ir.Unit, grads []*ir.Value) {
	for _, f := range g.flows {
		found, fwd := f.truth(n.Operand("found_inf"), f.update()), never
		if v := n.Operand("fwd"); v != nil {
			fwd = f.truth(v, f.update())
		}
		text := g.wrongFound(f, found, fwd, unit, grads)
		if text == "" {
			text = g.untold(f, found, fwd, n.Operand("fwd") != nil, unit)
		}
		if text != "" {
			g.p.report(n, "%s%s", text, f.inMicro())
			return
		}
	}
}

// wrongFound says what is wrong with the predicate that lowers a loss scale.
func (g *guard) wrongFound(f *flow, found, fwd pred, unit ir.Unit, grads []*ir.Value) string {
	finite := func(int32) bool { return false }
	switch {
	case found == never:
		return "its found_inf never holds"
	case f.b.at(found, finite):
		return "its found_inf holds where everything is finite"
	case f.b.at(fwd, finite):
		return "its fwd holds where everything is finite"
	}
	for _, i := range append(f.b.support(found), f.b.support(fwd)...) {
		switch a := f.atoms[i]; {
		case a.what == held && noted(a.v), a.what == elsewhere:
		case a.what == held || a.what == opaque:
			return "depends on " + a.v.String() + ", which is not a finiteness check"
		case g.from(a.v) == 0:
			return "looks at " + a.v.String() + ", which no gradient and no loss goes into"
		}
	}
	// the condition if every loss and every gradient with another scale is finite
	own := f.b.without(found, func(i int32) bool {
		a := f.atoms[i]
		return a.what != held && (g.from(a.v) == fromForward || a.v.Unit != "" && a.v.Unit != unit)
	})
	alone := f.b.alone(own)
	if own != f.b.any(alone) {
		return "its found_inf is not the OR of its finiteness checks"
	}
	if v := g.unseen(f, alone, grads); v != nil {
		return "its found_inf does not hold where " + v.String() + " alone is not finite"
	}
	return ""
}

// noted reports whether v is what other steps have recorded for a scale.
func noted(v *ir.Value) bool {
	return v.Kind == ir.State && v.Type == ir.T(ir.Bool) && v.Attr.Get("role") == "scaler"
}

// unseen is a gradient in which, in some micro-batch, an Inf or NaN makes none of the checks true;
// nil if there is none.
func (g *guard) unseen(f *flow, alone []int32, grads []*ir.Value) *ir.Value {
	checks := f.finite(alone)
	shown := make([]int8, g.values) // 0: not known yet, -1: no
	var shows func(v *ir.Value) bool
	shows = func(v *ir.Value) bool {
		if shown[v.ID] == 0 {
			yes := g.showsIn(checks, v, shows)
			shown[v.ID] = -1
			if yes {
				shown[v.ID] = 1
			}
		}
		return shown[v.ID] > 0
	}
	for _, v := range grads {
		if !shows(v) && !g.sumShows(f, v, shows) {
			return v
		}
	}
	if f.micros == 1 && len(g.flows) == 1 {
		return nil
	}
	each := make([]values, f.micros+1) // values that are checked in every micro-batch
	for _, i := range alone {
		if a := f.atoms[i]; a.what == nonfinite && a.at <= f.micros {
			if each[a.at] == nil {
				each[a.at] = make(values, g.values)
			}
			each[a.at][a.v.ID] = true
		}
	}
	for _, v := range grads {
		if w := g.dropped(f, v); w != nil {
			for _, vs := range each[1:] {
				if !vs.has(w) {
					return w
				}
			}
		}
	}
	return nil
}

// sumShows reports whether v, which micro-batches compute and which is not summed for the update,
// is covered by a check of each micro-batch.
func (g *guard) sumShows(f *flow, v *ir.Value, shows func(*ir.Value) bool) bool {
	return v.Def != nil && g.p.sec[v.Def.ID] == ir.Forward && shows(v)
}

// dropped is the gradient that accumulator v sums, if it drops micro-batches: then only a check
// within the micro-batch covers them.
func (g *guard) dropped(f *flow, v *ir.Value) *ir.Value {
	w := g.next[v.ID]
	if v.Def != nil || w == nil || w.Def.Op == ir.OpAccumTree {
		return nil // a tree drops none
	}
	for i, x := range w.Def.In {
		if x == nil || x == v || !x.Type.DType.Float() {
			continue
		}
		for _, takes := range f.passing(w.Def, i) {
			if takes != always {
				return x
			}
		}
	}
	return nil
}

// untold is a loss whose failure reaches the scaler neither as fwd nor, if there is no fwd, as an
// overflow.
func (g *guard) untold(f *flow, found, fwd pred, hasFwd bool, unit ir.Unit) string {
	lowers, tells := f.among(f.b.alone(found)), f.among(f.b.alone(fwd)) // both are false if everything is finite
	for _, t := range g.skipGroups {
		mine := len(t.leaves) > 0
		for _, v := range t.leaves {
			mine = mine && (v.Unit == unit || v.Unit == "" && g.from(v) == fromForward)
		}
		if !mine {
			continue
		}
		for _, i := range f.b.alone(f.truth(t.skip, f.update())) {
			a := f.atoms[i]
			if a.what != nonfinite || g.from(a.v) != fromForward || len(g.flows) > 1 && a.at <= f.micros {
				continue // a micro-batch may be dropped because of its data
			}
			switch {
			case !lowers[i] && !tells[i]:
				return "does not read a check of " + a.v.String() + ", for which the step is skipped where it is not finite"
			case hasFwd && lowers[i] && !tells[i]:
				return "counts " + a.v.String() + ", which does not carry the loss scale, as an overflow"
			}
		}
	}
	return ""
}

// among marks atoms.
func (f *flow) among(atoms []int32) []bool {
	in := make([]bool, len(f.atoms))
	for _, i := range atoms {
		in[i] = true
	}
	return in
}

// note checks a write of what is recorded for a scale: the step that updates the scale by it clears
// it, and otherwise it keeps its value or records an overflow.
func (g *guard) note(n *ir.Node, carried map[ir.Unit][]*ir.Value, advanced map[ir.Unit]bool) {
	v := n.Out[0]
	if !noted(v.Next) {
		return // the rule select reports it
	}
	f := g.last()
	next := f.truth(v, f.update())
	bit := f.atomOf(v.Next, 0, held)
	before := func(i int32) bool { return f.atoms[i].v == v.Next && f.atoms[i].what == held }
	if next == never {
		for _, w := range g.p.g.Body[ir.Update] {
			if found := w.Operand("found_inf"); found != nil && f.b.implies(bit, f.truth(found, f.update())) {
				return
			}
		}
		if len(advanced) > 0 { // otherwise the step has no scale to lower
			g.p.report(n, "clears %s, which no loss scale is lowered by", v.Next)
		}
		return
	}
	if !f.b.at(next, before) {
		g.p.report(n, "does not use the old value of %s", v.Next)
		return
	}
	first := ""
	for _, unit := range sortedUnits(carried) {
		if advanced[unit] {
			continue
		}
		text := g.wrongFound(f, f.b.without(next, before), never, unit, carried[unit])
		if text == "" {
			return
		}
		if first == "" {
			first = text
		}
	}
	if first != "" {
		g.p.report(n, "notes an overflow wrongly: %s", first)
	}
}

func sortedUnits(m map[ir.Unit][]*ir.Value) []ir.Unit { return slices.Sorted(maps.Keys(m)) }

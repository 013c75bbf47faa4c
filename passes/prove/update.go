package prove

import (
	"slices"

	"ampc/ir"
)

// selects requires that every next value is decided by the skip of what it serves.
// On a skipped step these move, and nothing else:
//
//   - the state of a loss scale: what a row with the operand found_inf writes,
//     and a truth value of role scaler, which notes overflows for another step
//     (the rule scaler judges both);
//   - the count of launched steps, of role attempt;
//   - what micro-batches leave for the update, of role acc: the next step
//     overwrites it;
//   - a cache of sequences, by an append to it: it belongs to the call;
//   - a 16-bit copy of a variable, of role copy: it is that of the value kept.
func (p *proof) selects() {
	if p.rules.Unchecked {
		return
	}
	g := p.guards()
	for s, n := range p.g.Nodes {
		for _, v := range n.Out {
			if v.Next == nil || g.moves(s, n, v) {
				continue
			}
			p.judged++
			switch {
			case !n.Def().Is(ir.Writer):
				p.report(n, "%s is written by %s, which cannot keep the old value", v, n.Def().Name)
			case s != ir.Update:
				p.report(n, "%s is written in %s, before it is known whether the step is skipped", v, s)
			case n.Operand("skip") == nil:
				p.report(n, "%s is written whether or not the step is skipped", v)
			case !keepsOld(n, v):
				p.report(n, "%s is written by the next value of another variable", v)
			}
		}
	}
	g.together()
}

// moves reports whether the write may happen in a skipped step.
func (g *guard) moves(s ir.Section, n *ir.Node, v *ir.Value) bool {
	role, _ := v.Next.Attr.Get("role").(string)
	switch {
	case s == ir.Forward || s == ir.Backward:
		return role == "acc" && v.Next.Kind == ir.State || n.Def().Is(ir.Caches) && v.Next.IsCache() && n.In[0] == v.Next
	case s != ir.Update:
		return false
	case n.Operand("found_inf") != nil && n.Def().Is(ir.Writer):
		return keepsOld(n, v)
	case role == "scaler" && v.Next.Type == ir.T(ir.Bool):
		return true
	case role == "attempt":
		return n.Op == ir.OpCount && n.Operand("skip") == nil && n.In[0] == v.Next
	case role == ir.RoleCopy:
		return n.Op == ir.OpCast && n.In[0].Next != nil && g.after[n.In[0].Next.ID] == n.In[0]
	}
	return false
}

// keepsOld reports whether the variable of which a result is the next value is the operand of the
// same name, which the row keeps in a skipped step. A row with one result keeps its first operand.
func keepsOld(n *ir.Node, v *ir.Value) bool {
	outs := n.Def().Out
	if len(outs) == 1 {
		return n.In[0] == v.Next
	}
	return v.Idx < len(outs) && n.Operand(outs[v.Idx].Name) == v.Next
}

// together requires that what a step updates is skipped together: a counter, a correction or an
// average with the weights that read it or that it reads, a counter without readers with some
// weights, and everything else whenever any weight is.
func (g *guard) together() {
	linked := map[*ir.Node]bool{}
	for _, t := range g.skipGroups {
		for _, n := range t.writers {
			for _, v := range n.In {
				g.link(t, n, v, linked)
			}
		}
	}
	for _, t := range g.skipGroups {
		for _, n := range t.writers {
			if linked[n] || n.Operand("g") != nil || counts(n) && g.stepsAlike(t) {
				continue
			}
			for _, other := range g.skipGroups {
				if other.steps && !g.covers(t, other) {
					g.p.report(n, "is not skipped where the step of %s is: its skip is %s, that one's %s", other.writers[0].Name(), t.skip, other.skip)
					break
				}
			}
		}
	}
}

// counts reports whether n counts the steps of all weights, or of those with its predicate.
func counts(n *ir.Node) bool {
	return n.Op == ir.OpCount && n.In[0].Attr.Get("role") == "step"
}

// stepsAlike reports whether a weight is updated under the predicate of t.
func (g *guard) stepsAlike(t *skipGroup) bool {
	for _, other := range g.skipGroups {
		if other.steps && slices.Equal(t.preds, other.preds) {
			return true
		}
	}
	return false
}

// covers reports whether t is skipped whenever other is.
func (g *guard) covers(t, other *skipGroup) bool {
	for k, f := range g.flows {
		if !f.b.implies(other.preds[k], t.preds[k]) {
			return false
		}
	}
	return true
}

// link requires that each guarded write that v depends on, without another write in between, has
// the predicate of n, which reads v.
func (g *guard) link(t *skipGroup, n *ir.Node, v *ir.Value, linked map[*ir.Node]bool) {
	if v == nil {
		return
	}
	w := v
	if v.Def == nil {
		if w = g.after[v.ID]; w == nil || w.Def == n {
			return
		}
	}
	switch {
	case g.p.sec[w.Def.ID] != ir.Update:
	case w.Next == nil:
		if carries(w.Def) || w.Type.Shape.Elements() == 1 && !w.Def.Def().Is(ir.Writer) && w.Type.DType != ir.Bool {
			for _, x := range w.Def.In {
				g.link(t, n, x, linked)
			}
		} else {
			g.linkStates(t, n, w, linked, map[*ir.Value]bool{})
		}
	default:
		other := g.skipGroupOf(w.Def)
		if other == nil || w.Def == n {
			return
		}
		linked[w.Def] = true
		if w.Def.Operand("g") != nil { // an average of a weight
			linked[n] = true
		}
		if other != t && (!g.covers(t, other) || !g.covers(other, t)) {
			g.p.report(n, "reads %s, which is skipped by %s and not by %s as it is", v, other.skip, t.skip)
		}
	}
}

// linkStates is link for the states of optimizers that v is computed from, such as the moments of a
// user's rule. It reports whether there are any. A norm of all gradients, which every update reads,
// is searched once.
func (g *guard) linkStates(t *skipGroup, n *ir.Node, v *ir.Value, linked map[*ir.Node]bool, seen map[*ir.Value]bool) (found bool) {
	if v == nil || g.stateless.has(v) {
		return false
	}
	if seen[v] {
		return true
	}
	seen[v] = true
	variable := v.Next
	if v.Def == nil {
		variable = v
	}
	switch {
	case variable != nil:
		if found = variable.Attr.Get("role") == "optimizer"; found {
			g.link(t, n, v, linked)
		}
	case g.p.sec[v.Def.ID] == ir.Update:
		for _, x := range v.Def.In {
			found = g.linkStates(t, n, x, linked, seen) || found
		}
	}
	if !found {
		g.stateless[v.ID] = true
	}
	return found
}

package prove

import "ampc/ir"

// selects demands that every next value written in update is decided by the
// skip predicate, by a row made for it; counters of launched steps and the
// scaler's own state are the exceptions.
func (p *proof) selects() {
	if p.rules.Unchecked {
		return
	}
	for s, n := range p.g.Nodes {
		for _, v := range n.Out {
			if v.Next == nil || s != ir.Update && !p.written(v) {
				continue
			}
			switch {
			case p.scalerState(n, v), p.lowCopy(n, v):
			case !n.Def().Is(ir.Writer):
				p.report(n, "%s is written by %s, which cannot keep the old value", v, n.Def().Name)
			case n.Operand("skip") == nil:
				p.report(n, "%s is written whether or not the step is skipped", v)
			case !p.guarded(n.Operand("skip")):
				p.report(n, "%s: the skip predicate %s does not come from a finiteness check", v, n.Operand("skip"))
			}
		}
	}
}

// written reports whether a next value outside update outlives a bad step:
// accumulators are overwritten by the next step, all else is not.
func (p *proof) written(v *ir.Value) bool {
	role, _ := v.Next.Attr.Get("role").(string)
	return role != "acc" && role != "pending"
}

// scalerState reports whether v is state that advances on skipped steps too.
func (p *proof) scalerState(n *ir.Node, v *ir.Value) bool {
	role, _ := v.Next.Attr.Get("role").(string)
	return n.Op == ir.OpUpdateScale || role == "attempt"
}

// lowCopy reports whether v is the 16-bit copy of a weight's next value: it is
// skipped when the weight is.
func (p *proof) lowCopy(n *ir.Node, v *ir.Value) bool {
	of, _ := v.Next.Attr.Get("of").(string)
	return n.Op == ir.OpCast && n.In[0].Next != nil && n.In[0].Next.Name == of
}

// guarded reports whether a predicate depends on a finiteness check.
func (p *proof) guarded(skip *ir.Value) bool {
	found := false
	p.cone(skip, func(n *ir.Node) {
		found = found || p.finiteness(n)
	})
	return found
}

// finiteness reports whether n tests for Inf and NaN.
func (p *proof) finiteness(n *ir.Node) bool {
	return n.Op == ir.OpAnyNonfinite || n.Op == ir.OpIsNaN || n.Op == ir.OpIsInf
}

// cone calls f for every node that v depends on, through the next values of
// accumulators written in the micro-batches.
func (p *proof) cone(v *ir.Value, f func(n *ir.Node)) {
	seen := map[*ir.Node]bool{}
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		if v == nil {
			return
		}
		n := v.Def
		if n == nil {
			if next := p.accumulated(v); next != nil {
				walk(next)
			}
			return
		}
		if seen[n] {
			return
		}
		seen[n] = true
		f(n)
		for _, o := range n.In {
			walk(o)
		}
	}
	walk(v)
}

// accumulated is what the micro-batches write to v, nil where they do not.
func (p *proof) accumulated(v *ir.Value) *ir.Value {
	if v.Kind != ir.State {
		return nil
	}
	for _, s := range [...]ir.Section{ir.Forward, ir.Backward} {
		for _, n := range p.g.Body[s] {
			for _, o := range n.Out {
				if o.Next == v {
					return o
				}
			}
		}
	}
	return nil
}

// checked follows the gradient operand of every optimizer back to what the
// micro-batches produced, and demands each of those among the operands of a
// finiteness check in the optimizer's skip predicate.
func (p *proof) checked() {
	if p.rules.Unchecked {
		return
	}
	for _, n := range p.g.Body[ir.Update] {
		g, skip := n.Operand("g"), n.Operand("skip")
		if g == nil || skip == nil || !n.Def().Is(ir.Writer) {
			continue
		}
		ok := p.tested(skip)
		for _, src := range p.sources(g) {
			if !ok[src] {
				p.report(n, "gradient %s is in no finiteness check of %s", src, skip)
			}
		}
	}
}

// tested collects what the finiteness checks behind a predicate look at, and
// the sources of those values.
func (p *proof) tested(skip *ir.Value) map[*ir.Value]bool {
	ok := map[*ir.Value]bool{}
	p.cone(skip, func(n *ir.Node) {
		if !p.finiteness(n) {
			return
		}
		for _, v := range n.In {
			if v == nil {
				continue
			}
			ok[v] = true
			for _, s := range p.sources(v) {
				ok[s] = true
			}
		}
	})
	return ok
}

// sources are the values of earlier sections, or variables, that v is computed
// from inside update; scalars (scales, rates, norms) are not followed.
func (p *proof) sources(v *ir.Value) []*ir.Value {
	var out []*ir.Value
	seen := map[*ir.Value]bool{}
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		if v == nil || seen[v] || !v.Type.DType.Float() {
			return
		}
		seen[v] = true
		n := v.Def
		if n == nil || p.at[n.ID].sec != ir.Update {
			out = append(out, v)
			return
		}
		for i, o := range n.In {
			if o != nil && !n.OperandDef(i).Named && o.Type.Shape.Rank() >= v.Type.Shape.Rank() {
				walk(o)
			}
		}
	}
	walk(v)
	return out
}

// ranks demands that a skip predicate is agreed on where anything crosses ranks.
func (p *proof) ranks() {
	crossing := false
	for _, n := range p.g.Nodes {
		crossing = crossing || n.Def().Is(ir.Collective)
	}
	if !crossing {
		return
	}
	for _, n := range p.g.Body[ir.Update] {
		skip := n.Operand("skip")
		if skip == nil || !n.Def().Is(ir.Writer) {
			continue
		}
		agreed := false
		p.cone(skip, func(m *ir.Node) { agreed = agreed || m.Op == ir.OpAllReduce })
		if !agreed {
			p.report(n, "the skip predicate %s is this rank's own", skip)
		}
	}
}

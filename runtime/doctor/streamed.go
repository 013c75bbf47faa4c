package doctor

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// scanAsMade makes the replay scan values as they are made.
func (r *replay) scanAsMade() {
	r.ranges, r.kept = map[*ir.Value]Range{}, map[*ir.Value][]byte{}
	r.holds, r.views = map[lower.BufferID]*ir.Value{}, map[*ir.Value][]*ir.Value{}
	for _, n := range r.g.Nodes {
		for _, v := range n.Out {
			if id := r.home(v); id != lower.None {
				r.holds[id] = v
			}
		}
		if n.Def().Is(ir.View) {
			r.views[n.In[0]] = append(r.views[n.In[0]], n.Out[0])
		}
	}
}

// scanned scans the results of a step that has just run. If one may be the first flaw, it
// keeps the step's operands.
func (r *replay) scanned(part lower.Part, step int) {
	for _, id := range r.p.Parts[part][step].Out {
		v := r.holds[id]
		if v == nil || !v.Type.DType.Float() {
			continue
		}
		shown := r.exec.Buffer(id)
		r.ranges[v] = r.scan(v.Name, v.Type.DType, shown.Bytes())
		shown.Release()
		r.forgetViews(v)
		if r.begins(v) {
			r.keep(v.Def)
		}
	}
}

// begins reports whether v may be the first flaw: its operands are finite, or they have
// an Inf and v a NaN.
func (r *replay) begins(v *ir.Value) bool {
	s := r.ranges[v]
	switch {
	case s.Finite():
		return false
	case s.NaN > 0:
		return !slices.ContainsFunc(v.Def.In, func(op *ir.Value) bool { return r.flaw(op) == hasNaN })
	}
	return !slices.ContainsFunc(v.Def.In, r.bad)
}

// keep copies the operands of n, which are still in memory.
func (r *replay) keep(n *ir.Node) {
	for _, op := range n.In {
		if op == nil || op.IsVar() || r.kept[op] != nil {
			continue
		}
		if id := r.home(op); id != lower.None {
			shown := r.exec.Buffer(id)
			r.kept[op] = slices.Clone(shown.Bytes())
			shown.Release()
		}
	}
}

// forget drops the operands that were kept, and the ranges of variables, which the next
// part may find changed.
func (r *replay) forget() {
	clear(r.kept)
	for v := range r.ranges {
		if v.IsVar() {
			delete(r.ranges, v)
			r.forgetViews(v)
		}
	}
}

// forgetViews drops the ranges of views of v, whose content changes.
func (r *replay) forgetViews(v *ir.Value) {
	for _, view := range r.views[v] {
		delete(r.ranges, view)
		r.forgetViews(view)
	}
}

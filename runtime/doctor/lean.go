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

// scanned looks at what a step has just made, and keeps what it read where a flaw
// may begin.
func (r *replay) scanned(part lower.Part, step int) {
	for _, id := range r.p.Parts[part][step].Out {
		v := r.holds[id]
		if v == nil || !v.Type.DType.Float() {
			continue
		}
		r.ranges[v] = r.scan(v.Name, v.Type.DType, r.exec.Buffer(id))
		r.forgetViews(v)
		if r.begins(v) {
			r.keep(v.Def)
		}
	}
}

// begins reports whether a flaw may begin at v: its operands are finite, or
// have an Inf of which it made a NaN.
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

// keep copies what n read, which is still there.
func (r *replay) keep(n *ir.Node) {
	for _, op := range n.In {
		if op == nil || op.IsVar() || r.kept[op] != nil {
			continue
		}
		if id := r.home(op); id != lower.None {
			r.kept[op] = slices.Clone(r.exec.Buffer(id))
		}
	}
}

// forget drops what was seen in a part of the variables, which the next one
// finds changed, and of what was kept.
func (r *replay) forget() {
	clear(r.kept)
	for v := range r.ranges {
		if v.IsVar() {
			delete(r.ranges, v)
			r.forgetViews(v)
		}
	}
}

// forgetViews drops what was seen through views of v, which is made anew.
func (r *replay) forgetViews(v *ir.Value) {
	for _, view := range r.views[v] {
		delete(r.ranges, view)
		r.forgetViews(view)
	}
}

package passes

import (
	"slices"

	"ampc/ir"
)

// repeatLate finds the schedule nodes that run forward nodes a second time. Each runs directly
// before its first reader, and the others keep the order that they have without it. Otherwise it
// could run from the beginning of backward on, and its results would take memory for long.
func (o *orderer) repeatLate() {
	for i := range o.schedule {
		u := &o.schedule[i]
		u.late = true
		for _, n := range u.nodes {
			u.late = u.late && n.Why.Marks&ir.MarkRepeated != 0
		}
	}
	for changed := true; changed; { // a step that also runs other nodes is not late, and neither are the readers of its results
		changed = false
		for i := range o.schedule {
			u := &o.schedule[i]
			if u.late && slices.ContainsFunc(u.reads, func(v *ir.Value) bool { return o.here(v, u) && !o.late(v) }) {
				u.late, changed = false, true
			}
		}
	}
}

// late reports whether the schedule node that computes v is late.
func (o *orderer) late(v *ir.Value) bool {
	if !o.repeats || v.Def == nil {
		return false
	}
	i := o.scheduled[v.Def.ID]
	return i >= 0 && o.schedule[i].late
}

// restLate appends the late schedule nodes without readers after all others of section s.
func (o *orderer) restLate(out []*ir.Node, h *readyHeap, s ir.Section) []*ir.Node {
	for i := range o.schedule {
		if u := &o.schedule[i]; u.sec == s && u.late && !u.done {
			out = o.place(out, h, u)
		}
	}
	return out
}

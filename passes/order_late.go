package passes

import (
	"slices"

	"ampc/ir"
)

// repeatLate finds the schedule nodes that run forward nodes a second time. Each will run
// right before its first reader, and the others in the order that they have without it. It
// would take memory long before otherwise: it could run from the beginning of backward on.
func (o *orderer) repeatLate() {
	for i := range o.schedule {
		u := &o.schedule[i]
		u.late = true
		for _, n := range u.nodes {
			u.late = u.late && n.Why.Marks&ir.MarkRepeated != 0
		}
	}
	for changed := true; changed; { // a step that runs other nodes too is not late, nor what reads it
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
	if v.Def == nil {
		return false
	}
	i := o.scheduled[v.Def.ID]
	return i >= 0 && o.schedule[i].late
}

// restLate puts those that nobody has waited for behind all others of section s.
func (o *orderer) restLate(out []*ir.Node, h *readyHeap, s ir.Section) []*ir.Node {
	for i := range o.schedule {
		if u := &o.schedule[i]; u.sec == s && u.late && !u.done {
			out = o.place(out, h, u)
		}
	}
	return out
}

package passes

import (
	"fmt"

	"ampc/ir"
	"ampc/passes/plan"
	"ampc/passes/ranges"
)

// check refuses a low dtype that is none, and a range guard, and rules about free values, where none is free.
func (p Policy) check() error {
	switch {
	case p.Low != ir.Invalid && !p.Low.Low():
		return fmt.Errorf("policy %s: %s is not a 16-bit float: want f16 or bf16", p.Name, p.Low)
	case len(p.Stores) > 0 && p.Algorithm != "mincut":
		return fmt.Errorf("policy %s: store: only algorithm mincut takes it; use keep or lower", p.Name)
	case p.Guard == 0:
		return nil
	case !ir.AnyFinite.Holds(p.Guard) || p.Guard < 1:
		return fmt.Errorf("policy %s: guard %g: want a finite factor, 1 or more", p.Name, p.Guard)
	case p.Eager:
		return fmt.Errorf("policy %s: guard: an eager policy decides op by op and leaves no value free", p.Name)
	case p.Algorithm == "paint":
		return fmt.Errorf("policy %s: guard: paint knows operators only; use mincut or local", p.Name)
	}
	return nil
}

// guarded says, by value ID, which values the policy's range guard keeps f32
// where they are free, and why; "" elsewhere. What only moves or orders elements
// never leaves the range of what it reads, and gradients that carry a loss scale
// are the scaler's to keep in range.
func (a *assigner) guarded() ([]string, error) {
	why := make([]string, len(a.want))
	if a.p.Guard == 0 || a.low == ir.F32 {
		return why, nil
	}
	if err := ir.InferUnits(a.g); err != nil {
		return nil, err
	}
	r := ranges.Static(a.g, a.c.Ranges)
	for _, n := range a.g.Nodes {
		if a.node[n.ID].class == ir.Clear || isView(n) {
			continue
		}
		for _, v := range n.Out {
			if v.Next == nil && v.Unit == "" && a.assignable(v) {
				why[v.ID] = r.Veto(v, a.low, a.p.Guard)
			}
		}
	}
	return why, nil
}

// vetoed reports whether the guard keeps result i of n, which local would store
// low, in f32; it records the cause.
func (a *assigner) vetoed(n *ir.Node, i int) bool {
	t, why := &a.node[n.ID], a.guard[n.Out[i].ID]
	if why == "" || t.pin == ir.PinLow || t.class == ir.Low && (i > 0 || !a.storesF32(n)) {
		return false
	}
	if i == 0 {
		t.cause, t.from, t.rule = ir.ByGuard, nil, why
	}
	return true
}

// veto puts the stored tensors that the guard keeps f32, and that the cut without it
// would store low, on the f32 side of the network. The others stay where they
// are: a forced f32 makes no minimum cut store more low.
func (m *planner) veto(r *plan.Result) {
	for _, n := range m.g.Nodes {
		for _, v := range n.Out {
			if x := m.v[v.ID]; x.Free() && r.Low(x) && m.guard[v.ID] != "" && m.leaves(n, v) {
				m.pin(x, ir.F32, pinned{ir.ByGuard, v, m.guard[v.ID]})
			}
		}
	}
}

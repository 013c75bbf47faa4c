package passes

import (
	"fmt"

	"ampc/ir"
	"ampc/passes/plan"
	"ampc/passes/ranges"
)

// check refuses a low dtype without 16 bits, and a range guard or rules about free values under a
// policy without free values.
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

// guarded returns, by value ID, why the policy's range guard keeps a free value f32; "" for values
// that it does not. It skips values of ops that only move or select elements, which stay in the
// range of their operands, and gradients with a loss scale, which the scaler keeps in range.
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

// vetoed reports whether the guard keeps result i of n f32 where local would store it low. It
// records the cause.
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

// veto puts tensors on the f32 side of the network if the guard keeps them f32 and the cut without
// the guard stores them low. The others stay unconstrained: forcing values to f32 never makes the
// minimum cut store more values low.
func (m *planner) veto(r *plan.Result) {
	for _, n := range m.g.Nodes {
		for _, v := range n.Out {
			if x := m.v[v.ID]; x.Free() && r.Low(x) && m.guard[v.ID] != "" && m.leaves(n, v) {
				m.pin(x, ir.F32, pinned{ir.ByGuard, v, m.guard[v.ID]})
			}
		}
	}
}

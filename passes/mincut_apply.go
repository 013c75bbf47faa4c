package passes

import (
	"ampc/ir"
	"ampc/passes/plan"
)

// apply writes the solution to want and records the causes.
func (m *planner) apply(r *plan.Result) {
	var alone []bool
	m.g.Together(func() { alone = m.plan.LowAlone(r) }, func() { m.decided(r) })
	m.storeLowAlone(r, alone)
}

// decided writes the dtype of each value and its cause.
func (m *planner) decided(r *plan.Result) {
	parts := m.g.Parts()
	m.g.InParts(parts, func(_ int, p *ir.Part) {
		for _, n := range p.Nodes {
			for _, v := range n.Out {
				switch x := m.v[v.ID]; {
				case x == plan.Other:
					m.want[v.ID] = m.src[v.ID]
				case x >= 0 && r.Low(x):
					m.want[v.ID] = m.low
				case x >= 0:
					m.want[v.ID] = ir.F32
				}
			}
		}
	})
	m.g.InParts(parts, func(_ int, p *ir.Part) {
		for _, n := range p.Nodes {
			if len(n.Out) == 0 {
				continue
			}
			v := n.Out[0]
			if x := m.v[v.ID]; x >= 0 {
				m.reason(n, x, r)
				m.readsF32[n.ID] = m.rounds[n] && !r.Low(m.seen[v.ID])
			}
		}
	})
}

// storeLowAlone stores in 16 bits the values that the cut leaves in f32 although no reader reads f32
// (plan.Plan.LowAlone): where the kernel stores each form that is read, or stores f32 first in both cases.
func (m *planner) storeLowAlone(r *plan.Result, alone []bool) {
	for _, n := range m.g.Select(func(_ ir.Section, n *ir.Node) bool {
		if len(n.Out) == 0 || m.sharesTensor(n) {
			return false
		}
		v := n.Out[0]
		x := m.v[v.ID]
		low := m.node[n.ID].class == ir.Low || m.c.Caps.StoresLow(n) && !m.readsAsItStores(n)
		return x >= 0 && !r.Low(x) && m.pins[x] == nil && low && alone[m.tensor[v.ID]]
	}).Nodes {
		v := n.Out[0]
		m.want[v.ID] = m.low
		m.c.Count("read_low_alone", 1)
		if m.roundedByHand(v) {
			n.Why.Marks |= ir.MarkStoresCast
		}
	}
}

// reason records why choice x of n is on its side: a neighbour forces it, or the cut chose it.
// Without a choice of its own, n is stored like the operand that has the same dtype.
func (m *planner) reason(n *ir.Node, x plan.Choice, r *plan.Result) {
	t := &m.node[n.ID]
	by := r.ForcedBy(x)
	switch {
	case m.pins[x] != nil:
		m.pinReason(n, m.pins[x])
	case t.cause == ir.ByForward || t.class == ir.Keep && t.cause != ir.ByClass:
	case t.free() && (!x.Free() || shares(n) || m.inPrologue(n)):
		if v := m.operand(n, func(v *ir.Value) bool { return m.want[v.ID] == m.want[n.Out[0].ID] }); v != nil {
			t.cause, t.from = ir.ByNeighbour, v
		}
	case !x.Free():
	case by == x:
		t.cause, t.from = ir.ByCut, nil
	case t.free():
		t.cause, t.from = ir.ByNeighbour, m.forcer(n, x, r)
	}
}

// forcer is the value that forced x to its side: the first such operand of n, or the result of the
// reader that did.
func (m *planner) forcer(n *ir.Node, x plan.Choice, r *plan.Result) *ir.Value {
	v := m.operand(n, func(v *ir.Value) bool {
		y := m.seen[v.ID]
		return y >= 0 && r.Low(y) == r.Low(x) && (!y.Free() || r.ForcedBy(y) != y)
	})
	if v == nil {
		v = m.ownerOf(r.ForcedBy(x))
	}
	return v
}

// operand is the first operand that counts in n's choice and for which ok is true.
func (m *planner) operand(n *ir.Node, ok func(*ir.Value) bool) *ir.Value {
	for i, v := range n.In {
		if v != nil && m.assignable(v) && !m.weak[v.ID] && n.OperandClass(i) != ir.Fixed && ok(v) {
			return v
		}
	}
	return nil
}

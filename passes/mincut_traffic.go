package passes

import "ampc/ir"

// traffic adds the bytes: for each stored tensor its write, its reads, the casts
// its readers make necessary and what is held of it for backward.
func (m *cutModel) traffic() {
	readers := m.readers()
	m.integers()
	for _, v := range m.g.Vars {
		m.tensor(v, m.v[v.ID], m.times(ir.Forward), readers[v.ID])
	}
	for s, n := range m.g.Nodes {
		for _, v := range n.Out {
			if m.base[v.ID] != v {
				continue
			}
			list := readers[v.ID]
			if m.v[v.ID] < 0 {
				continue
			}
			x := m.v[v.ID]
			if m.leaves(n, v) {
				m.pay(x, m.bytes(v), m.times(s))
			}
			m.tensor(v, x, m.times(s), list)
		}
	}
}

// integers adds what no choice changes: indices, masks, f64.
func (m *cutModel) integers() {
	type read struct {
		unit int64
		arg  int
		v    *ir.Value
	}
	seen := map[read]bool{}
	for s, n := range m.g.Nodes {
		for i, v := range n.In {
			r := read{unitOf(n), argOf(n, i), v}
			if v == nil || m.assignable(v) || seen[r] || sameGroup(v, n) || isView(n) {
				continue
			}
			seen[r] = true
			m.fixed += m.g.Elements(v.Type) * v.Type.DType.Size() * m.times(s)
		}
		for _, v := range n.Out {
			if !m.assignable(v) && !isView(n) && m.leaves(n, v) {
				m.fixed += m.g.Elements(v.Type) * v.Type.DType.Size() * m.times(s)
			}
		}
	}
}

// unitOf identifies the step that n becomes part of.
func unitOf(n *ir.Node) int64 {
	if n.Why.Group > 0 {
		return -int64(n.Why.Group)
	}
	return int64(n.ID)
}

// argOf tells the operands of a kernel apart, not those of elementwise nodes.
func argOf(n *ir.Node, i int) int {
	if n.Def().Elem != nil {
		return 0
	}
	return i + 1
}

// sameGroup reports whether n reads v as a register.
func sameGroup(v *ir.Value, n *ir.Node) bool {
	return v.Def != nil && n.Why.Group > 0 && v.Def.Why.Group == n.Why.Group
}

// times is how often a section runs per step.
func (m *cutModel) times(s ir.Section) int64 {
	if s == ir.Forward || s == ir.Backward {
		return int64(max(m.c.Micro, 1))
	}
	return 1
}

// bytes is the size of v in 16 bits.
func (m *cutModel) bytes(v *ir.Value) int64 { return 2 * m.g.Elements(v.Type) }

// pay adds 4n for f32 and 2n for low, as node x decides.
func (m *cutModel) pay(x int32, low, times int64) {
	switch x {
	case srcNode:
		m.fixed += 2 * low * times
	case sinkNode:
		m.fixed += low * times
	default:
		m.net.arc(x, sinkNode, 2*low*times)
		m.net.arc(srcNode, x, low*times)
	}
}

// reader is one step's reading of a tensor. A group of elementwise nodes loads
// a tensor once, any other kernel once per operand.
type reader struct {
	unit    int64     // group or node
	arg     int       // operand of a kernel, 0 for elementwise nodes
	v       *ir.Value // the view it reads through
	section ir.Section
	x       int32 // node that decides the dtype read; -1: the tensor's own
}

// readers lists who reads each tensor outside its own group, through views.
func (m *cutModel) readers() [][]reader {
	list := make([][]reader, len(m.want))
	for s, n := range m.g.Nodes {
		if isView(n) && m.assignable(n.Out[0]) {
			continue
		}
		for i, v := range n.In {
			if v == nil || !m.assignable(v) || sameGroup(v, n) {
				continue
			}
			b := m.base[v.ID]
			r := reader{unitOf(n), argOf(n, i), v, s, m.reads(n, i, v)}
			if k := len(list[b.ID]); k == 0 || list[b.ID][k-1] != r {
				list[b.ID] = append(list[b.ID], r)
			}
		}
	}
	for i, v := range m.g.Return {
		if m.assignable(v) && m.v[v.ID] != terminal(m.src[v.ID]) {
			b := m.base[v.ID]
			list[b.ID] = append(list[b.ID], reader{-int64(1<<40 + i), 0, v, ir.Update, terminal(m.src[v.ID])})
		}
	}
	return list
}

// reads is the node that decides in which dtype n reads operand i.
func (m *cutModel) reads(n *ir.Node, i int, v *ir.Value) int32 {
	d := m.demand(n, i)
	switch {
	case d != ir.Invalid:
		return terminal(d)
	case m.castVar(v) && m.class(n, i) != ir.Fixed:
		return terminal(m.low)
	case !m.node[n.ID].free() || m.c.Caps.Loads(n, i) || !m.assignable(n.Out[0]):
		return -1
	}
	return m.v[n.Out[0].ID]
}

// tensor adds reads, casts and what is held of v, whose dtype node x decides.
func (m *cutModel) tensor(v *ir.Value, x int32, times int64, list []reader) {
	n := m.bytes(v)
	if x < 0 || len(list) == 0 {
		return
	}
	narrow, widen, held, heldLow := int32(-1), int32(-1), int32(-1), int32(-1)
	counted := map[reader]bool{}
	for _, r := range list {
		if counted[r] {
			continue
		}
		counted[r] = true
		y := r.x
		if y < 0 {
			y = x
		}
		if r.unit > -(1 << 40) {
			m.pay(y, n, m.times(r.section))
		}
		switch {
		case r.x < 0:
		case x != m.seen[v.ID] && v.Def != nil && m.endsProduct(v.Def):
			m.net.arc(y, x, inf) // its kernel stores f32 as well as 16 bits: nobody widens what it rounded
			narrow = m.lowFor(narrow, y, x, m.narrowCost(v, times))
		default:
			narrow = m.lowFor(narrow, y, x, m.narrowCost(v, times))
			widen = m.f32For(widen, y, x, m.widenCost(v, times))
		}
		if r.section == ir.Backward && v.Def != nil && m.sec[v.Def.ID] == ir.Forward && m.p.Hold > 0 {
			h := int64(m.p.Hold * float64(n*times))
			held = m.f32For(held, y, sinkNode, 2*h)
			heldLow = m.lowFor(heldLow, y, srcNode, h)
		}
	}
	m.held = append(m.held, held, heldLow)
}

// lowFor makes node a low as soon as y is low, at the price c of a being low
// while x is f32. It returns a, created at first use.
func (m *cutModel) lowFor(a, y, x int32, c int64) int32 {
	if a < 0 {
		a = m.fresh(nil)
		m.net.arc(x, a, c)
	}
	m.net.arc(a, y, inf)
	return a
}

// f32For makes node b f32 as soon as y is f32, at the price c of b being f32
// while x is low.
func (m *cutModel) f32For(b, y, x int32, c int64) int32 {
	if b < 0 {
		b = m.fresh(nil)
		m.net.arc(b, x, c)
	}
	m.net.arc(y, b, inf)
	return b
}

// narrowCost is what one low copy of an f32 tensor costs per step: read and
// written, once per step where it does not change within it, and only written
// where the kernel that computes it can store twice.
func (m *cutModel) narrowCost(v *ir.Value, times int64) int64 {
	n := m.bytes(v)
	switch {
	case v.IsVar() && v.Kind != ir.Input:
		return 3 * n
	case v.Def != nil && fusible(v.Def) && !m.endsProduct(v.Def):
		return n * times
	}
	return 3 * n * times
}

// widenCost is the same for one f32 copy of a low tensor.
func (m *cutModel) widenCost(v *ir.Value, times int64) int64 {
	if v.Def != nil && fusible(v.Def) && !m.endsProduct(v.Def) {
		return 2 * m.bytes(v) * times
	}
	return 3 * m.bytes(v) * times
}

// endsProduct reports whether n is in the group of a product, whose kernel
// stores once.
func (m *cutModel) endsProduct(n *ir.Node) bool {
	if n.Why.Group == 0 {
		return false
	}
	for _, k := range m.member[n.Why.Group] {
		if k.Def().Elem == nil {
			return true
		}
	}
	return false
}

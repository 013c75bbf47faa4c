package passes

import (
	"cmp"
	"slices"

	"ampc/ir"
)

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
			x := m.v[v.ID]
			if m.base[v.ID] != v || x < 0 {
				continue
			}
			if list := readers[v.ID]; len(list) > 0 && m.storesTwice(n) && v.Next == nil {
				m.step(list, x, m.bytes(v), m.times(s)) // each form that somebody reads
			} else if m.leaves(n, v) && !shares(n) { // a view's parts have been written
				m.pay(x, m.bytes(v), m.times(s))
			}
			m.tensor(v, x, m.times(s), readers[v.ID])
		}
	}
}

// integers adds what no choice changes: indices, masks, f64.
func (m *cutModel) integers() {
	type read struct {
		unit int64
		v    *ir.Value
	}
	seen := map[read]bool{}
	for s, n := range m.g.Nodes {
		for _, v := range n.In {
			if v == nil || m.assignable(v) || sameGroup(v, n) || shares(n) {
				continue
			}
			if r := (read{unitOf(n), m.base[v.ID]}); !seen[r] {
				seen[r] = true
				m.fixed += m.g.Elements(v.Type) * v.Type.DType.Size() * m.times(s)
			}
		}
		for _, v := range n.Out {
			if !m.assignable(v) && !shares(n) && m.leaves(n, v) {
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

// reader is a node's reading of a tensor.
type reader struct {
	unit    int64 // the step it is part of: a group or a node
	section ir.Section
	x       int32 // node that decides the dtype read; -1: the tensor's own
	part    *ir.Value
}

// returned is the unit of what no step reads.
const returned = int64(-1) << 40

// readers lists who reads each tensor outside its own group, through views,
// those of one step side by side.
func (m *cutModel) readers() [][]reader {
	list := make([][]reader, len(m.want))
	add := func(v *ir.Value, r reader) {
		b := m.base[v.ID]
		r.part = m.part[v.ID]
		list[b.ID] = append(list[b.ID], r)
	}
	for s, n := range m.g.Nodes {
		if shares(n) && m.assignable(n.Out[0]) {
			continue
		}
		for i, v := range n.In {
			if v != nil && m.assignable(v) && !sameGroup(v, n) {
				add(v, reader{unit: unitOf(n), section: s, x: m.reads(n, i, v)})
			}
		}
	}
	for _, v := range m.g.Return {
		if m.assignable(v) {
			add(v, reader{unit: returned, section: ir.Update, x: terminal(m.src[v.ID])})
		}
	}
	for i, rs := range list {
		slices.SortFunc(rs, func(a, b reader) int {
			return cmp.Or(cmp.Compare(a.unit, b.unit), cmp.Compare(a.x, b.x), cmp.Compare(a.part.ID, b.part.ID))
		})
		list[i] = slices.Compact(rs)
	}
	return list
}

// reads is the node that decides in which dtype n reads operand i.
func (m *cutModel) reads(n *ir.Node, i int, v *ir.Value) int32 {
	d := m.demand(n, i)
	switch {
	case m.crossed(n):
		return sinkNode
	case d.Low() && m.loaded(n, v):
		return -1
	case d != ir.Invalid:
		return terminal(d)
	case m.castVar(v) && m.class(n, i) != ir.Fixed:
		return terminal(m.low)
	case !m.node[n.ID].free() || m.c.Caps.Loads(n, i) || !m.assignable(n.Out[0]):
		return -1
	}
	return m.v[n.Out[0].ID]
}

// loaded reports whether the cast that n, pinned to 16 bits, reads v through
// becomes a load of n's group, because nobody else reads it (fuse).
func (m *cutModel) loaded(n *ir.Node, v *ir.Value) bool {
	if n.Why.Group == 0 || n.Def().Elem == nil || m.endsProduct(n) || n.Out[0].Type.Shape != v.Type.Shape {
		return false
	}
	if v.Def == nil && v.Kind != ir.Input || v.Def != nil && (m.storesTwice(v.Def) || shares(v.Def) || m.sec[v.Def.ID] != m.sec[n.ID]) {
		return false
	}
	for _, u := range m.uses.Of(v) {
		if u.Node.Why.Group != n.Why.Group && (shares(u.Node) || m.demand(u.Node, u.Arg).Low() || m.movesLow(u.Node)) {
			return false
		}
	}
	return true
}

// tensor adds reads, casts and what is held of v, whose dtype node x decides.
func (m *cutModel) tensor(v *ir.Value, x int32, times int64, list []reader) {
	n := m.bytes(v)
	if x < 0 || len(list) == 0 {
		return
	}
	narrow, widen, held, heldLow := int32(-1), int32(-1), int32(-1), int32(-1)
	for i, r := range list {
		y := r.in(x)
		if i == 0 || list[i-1].unit != r.unit {
			end := i + 1
			for end < len(list) && list[end].unit == r.unit {
				end++
			}
			if r.unit != returned {
				m.step(list[i:end], x, m.touched(list[i:end], n), m.times(r.section))
			}
		}
		switch {
		case r.x >= 0 && x != sinkNode && v.Def != nil && m.c.Caps.Continues(v.Def):
			m.net.arc(y, x, inf) // its kernel stores both forms of what it summed in f32: nobody widens what it rounded
		case r.x < 0 || v.Def != nil && m.storesTwice(v.Def):
		case x != m.seen[v.ID] && v.Def != nil && m.endsProduct(v.Def):
			m.net.arc(y, x, inf) // its kernel stores f32 as well as 16 bits: nobody widens what it rounded
			narrow = m.lowFor(narrow, y, x, m.copyCost(v, times))
		default:
			narrow = m.lowFor(narrow, y, x, m.copyCost(v, times))
			widen = m.f32For(widen, y, x, m.copyCost(v, times))
		}
		if r.section == ir.Backward && v.Def != nil && m.sec[v.Def.ID] == ir.Forward && m.p.Hold > 0 {
			h := int64(m.p.Hold * float64(n*times))
			held = m.f32For(held, y, sinkNode, 2*h)
			heldLow = m.lowFor(heldLow, y, srcNode, h)
		}
	}
	m.held = append(m.held, held, heldLow)
}

// touched is how much of a tensor of low bytes the readers of one step read:
// its parts, each once.
func (m *cutModel) touched(list []reader, low int64) (sum int64) {
	for i, r := range list {
		if !slices.ContainsFunc(list[:i], func(s reader) bool { return s.part == r.part }) {
			sum += m.bytes(r.part)
		}
	}
	return min(sum, low)
}

// in is the node that decides the dtype r reads a tensor in that node x decides.
func (r reader) in(x int32) int32 {
	if r.x < 0 {
		return x
	}
	return r.x
}

// step pays for the forms of a tensor of low bytes, decided by node x, that
// list reads: f32, low, or both, each once.
func (m *cutModel) step(list []reader, x int32, low, times int64) {
	y := list[0].in(x)
	if !slices.ContainsFunc(list, func(r reader) bool { return r.in(x) != y }) {
		m.pay(y, low, times)
		return
	}
	wide, narrow := int32(-1), int32(-1)
	for _, r := range list {
		wide = m.f32For(wide, r.in(x), sinkNode, 2*low*times)
		narrow = m.lowFor(narrow, r.in(x), srcNode, low*times)
	}
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

// copyCost is what one copy of v in the other dtype costs per step: read and
// written, once per step where v does not change within it.
func (m *cutModel) copyCost(v *ir.Value, times int64) int64 {
	if v.IsVar() && v.Kind != ir.Input {
		times = 1
	}
	return 3 * m.bytes(v) * times
}

// storesTwice reports whether n's kernel stores a result in two dtypes as easily
// as in one.
func (m *cutModel) storesTwice(n *ir.Node) bool {
	return fusible(n) && !m.endsProduct(n) || m.c.Caps.Continues(n)
}

// endsProduct reports whether n is in the group of a product, whose kernel
// stores once.
func (m *cutModel) endsProduct(n *ir.Node) bool {
	if n.Why.Group == 0 || !m.c.Caps.OneEnd {
		return false
	}
	for _, k := range m.member[n.Why.Group] {
		if k.Def().Elem == nil {
			return true
		}
	}
	return false
}

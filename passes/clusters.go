package passes

import (
	"slices"

	"ampc/ir"
	"ampc/passes/plan"
)

// clusters states the clusters of the plan and what their kernels take at every
// port.
func (m *planner) clusters() {
	c := &clusterer{planner: m, at: map[int64]int{}, tensor: make([]plan.TensorID, len(m.want))}
	c.order()
	for _, v := range m.g.Vars {
		c.declared(v)
	}
	for s, n := range m.g.Nodes {
		for _, v := range n.Out {
			if m.base[v.ID] == v {
				c.written(s, n, v)
			}
		}
	}
	for _, n := range m.g.Nodes {
		if shares(n) {
			continue
		}
		for i, v := range n.In {
			if v != nil && !sameGroup(v, n) {
				c.read(n, i, v)
			}
		}
	}
	for _, v := range m.g.Return {
		if m.assignable(v) {
			c.port(outside, plan.Port{Tensor: c.tensor[m.base[v.ID].ID], Part: m.part[v.ID].ID, Bytes: m.bytes(m.part[v.ID]), Takes: fixedAs(m.src[v.ID])})
		}
	}
}

// outside is the unit of what the caller takes.
const outside = int64(-1) << 40

// clusterer puts ports to clusters.
type clusterer struct {
	*planner
	at     map[int64]int   // cluster by unit
	tensor []plan.TensorID // by ID of a value that is its own base
}

// order makes the clusters: the caller, groups, single nodes.
func (c *clusterer) order() {
	units := []int64{outside}
	node := map[int64]*ir.Node{}
	for _, n := range c.g.Nodes {
		if u := unitOf(n); node[u] == nil && !shares(n) {
			node[u] = n
			units = append(units, u)
		}
	}
	slices.Sort(units)
	c.plan.Clusters = make([]plan.Cluster, len(units))
	for i, u := range units {
		c.at[u] = i
		if n := node[u]; n != nil {
			c.plan.Clusters[i] = plan.Cluster{Name: n.Name(), Times: c.times(c.sec[n.ID])}
		} else {
			c.plan.Clusters[i] = plan.Cluster{Name: "results", Outside: true}
		}
	}
}

func (c *clusterer) port(unit int64, p plan.Port) {
	k := &c.plan.Clusters[c.at[unit]]
	k.Ports = append(k.Ports, p)
}

// declared is the tensor of a variable.
func (c *clusterer) declared(v *ir.Value) {
	times := int64(1)
	if v.Kind == ir.Input {
		times = c.times(ir.Forward)
	}
	c.tensor[v.ID] = c.plan.Tensor(plan.Tensor{Stored: c.v[v.ID], Bytes: c.size(v), CopyTimes: times})
}

// written is the tensor of result v of n, and the port that writes it. A view's
// parts have been written.
func (c *clusterer) written(s ir.Section, n *ir.Node, v *ir.Value) {
	x := c.v[v.ID]
	id := c.plan.Tensor(plan.Tensor{Stored: x, Bytes: c.size(v), CopyTimes: c.times(s)})
	c.tensor[v.ID] = id
	if shares(n) || !c.leaves(n, v) {
		return
	}
	second := c.storesTwice(n)
	c.port(unitOf(n), plan.Port{Tensor: id, Write: true, Second: second, Always: v.Next != nil,
		// Its kernel stores f32 as well as 16 bits.
		Rounded: x != plan.Low && (c.c.Caps.Continues(n) || second && c.chained(n)) || !second && x != c.seen[v.ID] && c.storesOnce(n)})
}

// read is the port where n reads operand i, which is v.
func (c *clusterer) read(n *ir.Node, i int, v *ir.Value) {
	b, part := c.base[v.ID], c.part[v.ID]
	p := plan.Port{Tensor: c.tensor[b.ID], Part: part.ID, Bytes: c.size(part), Takes: plan.AsStored}
	if c.assignable(v) {
		p.Takes = c.reads(n, i, v)
		p.Held = b.Def != nil && c.sec[n.ID] == ir.Backward && c.sec[b.Def.ID] == ir.Forward
	}
	c.port(unitOf(n), p)
}

// size is what v takes in 16 bits, or in its own dtype where that is no choice.
func (m *planner) size(v *ir.Value) int64 {
	if !m.assignable(v) {
		return m.g.Elements(v.Type) * v.Type.DType.Size()
	}
	return m.bytes(v)
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
func (m *planner) times(s ir.Section) int64 {
	if s == ir.Forward || s == ir.Backward {
		return int64(max(m.c.Micro, 1))
	}
	return 1
}

// bytes is the size of v in 16 bits.
func (m *planner) bytes(v *ir.Value) int64 { return 2 * m.g.Elements(v.Type) }

// reads is the operand requirement of n at operand i, which is v.
func (m *planner) reads(n *ir.Node, i int, v *ir.Value) plan.Choice {
	d := m.demand(n, i)
	switch {
	case m.crossed(n):
		return plan.Low
	case d.Low() && m.loaded(n, v):
		return plan.AsStored
	case d != ir.Invalid:
		return fixedAs(d)
	case m.castVar(v) && m.class(n, i) != ir.Fixed:
		return fixedAs(m.low)
	case !m.node[n.ID].free() || m.c.Caps.Loads(n, i) || !m.assignable(n.Out[0]):
		return plan.AsStored
	}
	return m.v[n.Out[0].ID]
}

// loaded reports whether the cast that n, pinned to 16 bits, reads v through
// becomes a load of n's group, because nobody else reads it (fuse).
func (m *planner) loaded(n *ir.Node, v *ir.Value) bool {
	if n.Why.Group == 0 || n.Def().Elem == nil || m.chained(n) || n.Out[0].Type.Shape != v.Type.Shape {
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

// storesTwice reports whether n's kernel stores a result in two dtypes as easily
// as in one.
func (m *planner) storesTwice(n *ir.Node) bool {
	return fusible(n) && !m.storesOnce(n) || m.c.Caps.Continues(n)
}

// storesOnce reports whether n is in the group of a product whose kernel stores once.
func (m *planner) storesOnce(n *ir.Node) bool {
	return n.Why.Group > 0 && slices.ContainsFunc(m.member[n.Why.Group], m.c.Caps.StoresOnce)
}

// chained reports whether n is in a group whose kernel takes a fixed epilogue or
// prologue alone.
func (m *planner) chained(n *ir.Node) bool {
	return n.Why.Group > 0 && slices.ContainsFunc(m.member[n.Why.Group], m.c.Caps.Chains)
}

package passes

import (
	"slices"

	"ampc/ir"
)

// formClusters marks the fusion clusters: connected elementwise nodes of one section, one
// shape and one override of the precision, that can run as one step. It looks at ops and
// shapes only, so that what is interior is known before dtypes are chosen.
//
// A cluster may not be left and entered again on one path. Levels give that in
// one walk: a cluster's level is fixed by its first node, one above everything
// outside that this node reads; a further node may join when all it reads from
// outside lies strictly below. Whatever depends on a member from outside lies
// strictly above, so no path comes back. The rule looks at operands alone,
// hence the order of nodes does not matter. A product that only one node of its
// section reads waits for what else that reads.
//
// A product makes a cluster with the elementwise nodes over its result that its
// kernel continues with, or with the bias, activation and residual that its kernel
// can do before it stores, where nothing else reads in between (Caps). A norm over
// channels likewise makes one with the sum and ReLU behind it, its gradient with
// the gradient of that ReLU before it.
// An eager policy has no clusters but those of norms with a ReLU or its gradient,
// which no dtype decides about: every other op stores. Dead nodes go first: nobody
// must store a value for them.
func formClusters(g *ir.Graph, c *Context) error {
	c.Count("dead", dropUnreached(g))
	if c.Inherit != nil {
		inheritClusters(g, c.Inherit, c.Caps)
		return nil
	}
	pins, err := pinOverrides(g, c.Policy)
	if err != nil {
		return err
	}
	uses := g.Uses()
	_, nodes := g.Number()
	w := &clusterFinder{g: g, pins: pins, caps: c.Caps, policy: c.Policy, uses: uses, returned: map[*ir.Value]bool{}, of: make([]int32, nodes)}
	for _, v := range g.Return {
		w.returned[v] = true
	}
	for s := range ir.NumSections {
		for _, n := range g.Body[s] {
			w.place(s, n)
		}
	}
	clusters, fused := w.mark()
	c.Count("clusters", clusters)
	c.Count("clustered", fused)
	return nil
}

type clusterFinder struct {
	g        *ir.Graph
	pins     []override // by node ID
	caps     ir.Caps
	policy   Policy
	uses     *ir.Uses
	returned map[*ir.Value]bool
	of       []int32   // cluster by node ID, 0: none
	info     []members // by cluster, index 0 unused
}

type members struct {
	section ir.Section
	level   int32
	shape   ir.Shape
	pin     ir.Pin
	size    int32
	product ir.EpilogueStage // of a product's or norm's cluster: how far its epilogue is
	chain   bool             // its kernel takes a fixed epilogue alone
	tail    *ir.Value        // what the next member of such a cluster must read
}

// fusible reports whether n is elementwise code over one known shape. Rows with
// a contract of their own (casts, the update) are left to fuse.
func fusible(n *ir.Node) bool {
	d := n.Def()
	if d.Elem == nil || d.Class == ir.Fixed || d.Is(ir.Writer) || len(n.Out) == 0 || len(n.Captured) > 0 {
		return false
	}
	s := n.Out[0].Type.Shape
	for _, v := range n.Out {
		if v.Type.Shape != s || v.Type.DType == ir.F64 {
			return false
		}
	}
	return s.Known()
}

func (w *clusterFinder) place(s ir.Section, n *ir.Node) {
	if w.info == nil {
		w.info = make([]members, 1, len(w.of)+1)
	}
	level := int32(0)
	best := int32(0)
	for _, v := range n.In {
		if v == nil || v.Def == nil {
			continue
		}
		p := w.of[v.Def.ID]
		if w.info[p].section != s {
			continue
		}
		level = max(level, w.info[p].level+1)
		if w.joins(n, p) && (best == 0 || w.info[p].level > w.info[best].level) {
			best = p
		}
	}
	if best == 0 || !w.below(s, n, best) {
		best = w.waiting(s, n, level)
	}
	if best > 0 {
		w.of[n.ID] = best
		m := &w.info[best]
		m.size++
		if m.chain {
			m.product, m.tail = w.caps.Extends(m.product, n, m.tail), n.Out[0]
		}
		return
	}
	if w.prologue(s, n, level) {
		return
	}
	m := members{section: s, level: level, pin: w.pins[n.ID].pin, size: 1, product: w.caps.EpilogueOf(n), chain: w.caps.Chains(n)}
	switch {
	case m.product >= ir.AfterNorm && m.pin == ir.PinLow:
	case m.product != ir.NoEpilogue:
		m.shape, m.tail = n.Out[0].Type.Shape, n.Out[0]
	case w.policy.fuses(n) && (s != ir.Prepare || n.Op != ir.OpCast):
		m.shape = n.Out[0].Type.Shape
	}
	w.of[n.ID] = int32(len(w.info))
	w.info = append(w.info, m)
}

// prologue puts n into the cluster of the node that makes an operand of it in its
// kernel, which is the only member and read by n alone, and closes that cluster.
func (w *clusterFinder) prologue(s ir.Section, n *ir.Node, level int32) bool {
	m := w.caps.Prologue(n)
	if m == nil || !fusible(m) || w.pins[n.ID].pin != w.pins[m.ID].pin || w.pins[n.ID].pin == ir.PinLow {
		return false
	}
	p, y := w.of[m.ID], m.Out[0]
	g := &w.info[p]
	if g.section != s || g.size != 1 || len(w.uses.Of(y)) != 1 || w.returned[y] {
		return false
	}
	*g = members{section: s, level: max(g.level, level), size: 2, pin: g.pin}
	w.of[n.ID] = p
	return true
}

// waiting finds a product that n alone reads in its section and may end. Nothing
// but n lies above it there, so it may lie above all else that n reads: of two
// products the last operand's continues, and reads what the other has stored. Its
// level is raised to that of n. Its operands live until it runs, so they must be
// no larger than the result that would wait instead: not those of the gradient of
// tied weights, which are as large as all logits.
func (w *clusterFinder) waiting(s ir.Section, n *ir.Node, level int32) int32 {
	for _, v := range slices.Backward(n.In) {
		if v == nil || v.Def == nil {
			continue
		}
		p := w.of[v.Def.ID]
		if m := &w.info[p]; m.section == s && m.product != ir.NoEpilogue && m.size == 1 && w.readAlone(s, v.Def, n) && w.shrinks(v.Def) && w.joins(n, p) {
			m.level = max(m.level, level)
			return p
		}
	}
	return 0
}

// readAlone reports whether no node of section s but n reads a result of p.
func (w *clusterFinder) readAlone(s ir.Section, p, n *ir.Node) bool {
	for _, v := range p.Out {
		for _, u := range w.uses.Of(v) {
			if u.Section == s && u.Node != n {
				return false
			}
		}
	}
	return true
}

// shrinks reports whether the operands of product p that the step computes have
// no more elements than its result.
func (w *clusterFinder) shrinks(p *ir.Node) bool {
	size := int64(0)
	for _, v := range p.In {
		if v != nil && v.Def != nil {
			size += w.g.Elements(v.Type)
		}
	}
	return size <= w.g.Elements(p.Out[0].Type)
}

// joins reports whether n could be a member of cluster p.
func (w *clusterFinder) joins(n *ir.Node, p int32) bool {
	m := &w.info[p]
	if w.policy.Eager && (m.product != ir.AfterNorm || w.caps.Extends(m.product, n, m.tail) != ir.AfterNormRelu) {
		return false
	}
	if !m.shape.Known() || !w.policy.fuses(n) || n.Out[0].Type.Shape != m.shape || w.pins[n.ID].pin != m.pin {
		return false
	}
	return !m.chain || w.extends(n, m)
}

// extends reports whether n is the only reader of a product so far and its
// kernel can do n too.
func (w *clusterFinder) extends(n *ir.Node, m *members) bool {
	y := m.tail
	if len(w.uses.Of(y)) != 1 || w.uses.Of(y)[0].Node != n || w.returned[y] || y.Next != nil || n.Out[0].Next != nil {
		return false
	}
	next := w.caps.Extends(m.product, n, y)
	planned := w.policy.decided().Algorithm == "mincut"
	if next == ir.AfterNormSum && (w.policy.Narrow && !planned || w.policy.ClassOf(n) == ir.Low) { // the norm may be rounded before the sum
		return false
	}
	return next != ir.NoEpilogue
}

// below reports whether everything n reads from outside cluster p in its section
// lies under p.
func (w *clusterFinder) below(s ir.Section, n *ir.Node, p int32) bool {
	for _, v := range n.In {
		if v == nil || v.Def == nil {
			continue
		}
		q := w.of[v.Def.ID]
		if q != p && w.info[q].section == s && w.info[q].level >= w.info[p].level {
			return false
		}
	}
	return true
}

// mark writes the clusters of two and more nodes to the graph.
func (w *clusterFinder) mark() (clusters, fused int) {
	id := make([]int32, len(w.info))
	for _, n := range w.g.Nodes {
		p := w.of[n.ID]
		n.Why.Cluster = 0
		if w.info[p].size < 2 {
			continue
		}
		if id[p] == 0 {
			clusters++
			id[p] = int32(clusters)
		}
		n.Why.Cluster = id[p]
		fused++
	}
	return clusters, fused
}

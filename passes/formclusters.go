package passes

import (
	"slices"

	"ampc/ir"
)

// formClusters marks the fusion clusters: connected elementwise nodes of one section, one shape and
// one override of the precision that can run as one step. It depends on ops and shapes only, so
// that interior values are known before dtypes are chosen.
//
// No path may leave a cluster and enter it again. Levels ensure that in one walk. A cluster's level
// is fixed by its first node: one above all nodes outside that this node reads. A further node may
// join if all nodes outside that it reads have a strictly smaller level. A node outside that
// depends on a member has a strictly larger level, so no path returns. Clusters of one level become
// one where a node reads results of them, as no path leads from one to another. The rule looks at
// operands only, so the order of nodes does not matter. A product with a single reader in its
// section waits until the other operands of that reader are computed.
//
// A product forms a cluster with elementwise nodes over its result: those that its kernel runs as
// post-ops, or the bias, activation and residual that its kernel applies before it stores. No other
// node may read the values in between (Caps). In the same way a norm over channels forms a cluster
// with the following sum and ReLU, and its gradient with the preceding gradient of that ReLU. A norm
// that runs as its expansion has no such kernel.
//
// An eager policy has only clusters of norms with a ReLU or its gradient, on which no dtype
// depends: every other op stores its result. Dead nodes are removed first, because no kernel must
// store a value for them.
func formClusters(g *ir.Graph, c *Context) error {
	dead := dropUnreached(g, c.uses(g))
	c.Count("dead", dead)
	if dead > 0 {
		c.training.forget(c)
	}
	if c.Inherit != nil {
		inheritClusters(g, c.Inherit, c.Caps)
		return nil
	}
	w := &clusterFinder{g: g, pins: c.overrides(g), caps: c.Caps, policy: c.Policy, uses: c.uses(g), returned: map[*ir.Value]bool{}}
	for _, v := range g.Return {
		w.returned[v] = true
	}
	w.keepCheckpoints(c.Checkpoints)
	var sections [ir.NumSections]sectionClusters
	var find [ir.NumSections]func()
	first := int32(0)
	for s, body := range g.Body {
		sections[s] = sectionClusters{clusterFinder: w, section: ir.Section(s), first: first}
		first += int32(len(body))
		find[s] = sections[s].find
	}
	g.Together(find[:]...)
	clusters, fused := mark(sections[:])
	c.Count("clusters", clusters)
	c.Count("clustered", fused)
	apart, err := countApart(g, c)
	if apart > 0 {
		c.Count("counts_apart", apart)
	} else {
		c.keep()
	}
	return err
}

// keepCheckpoints counts values that backward reads by the user's choice as returned: a kernel with
// a fixed epilogue could not store them.
func (w *clusterFinder) keepCheckpoints(names []string) {
	if len(names) == 0 {
		return
	}
	for _, n := range w.g.Body[ir.Forward] {
		for _, v := range n.Out {
			if slices.Contains(names, v.Name) {
				w.returned[v] = true
			}
		}
	}
}

// clusterFinder is what the sections share while clusters are found.
type clusterFinder struct {
	g        *ir.Graph
	pins     []override // by node ID
	caps     ir.Caps
	policy   Policy
	uses     *ir.Uses
	returned map[*ir.Value]bool // by the graph, or kept as checkpoints
}

// sectionClusters are the clusters of one section.
type sectionClusters struct {
	*clusterFinder
	section ir.Section
	first   int32     // ID of the section's first node
	of      []int32   // by node ID, from first on: its cluster, 0 for none
	info    []members // by cluster; index 0 is unused
}

// find finds the clusters.
func (w *sectionClusters) find() {
	body := w.g.Body[w.section]
	w.of, w.info = make([]int32, len(body)), make([]members, 1, len(body)+1)
	for _, n := range body {
		w.place(n)
	}
}

// clusterOf is the cluster of a node of the section that has been placed; 0 for all other nodes.
func (w *sectionClusters) clusterOf(n *ir.Node) int32 {
	p := int32(0)
	if i := n.ID - w.first; i >= 0 && int(i) < len(w.of) {
		p = w.of[i]
	}
	for w.info[p].into > 0 {
		p = w.info[p].into
	}
	return p
}

type members struct {
	into    int32 // the cluster that has taken this one's nodes, 0: none has
	level   int32
	shape   ir.Shape
	pin     ir.Pin
	size    int32
	reads   int32            // operands that it does not compute, each as often as a member reads it
	product ir.EpilogueStage // last stage of the epilogue of a product or norm
	chain   bool             // its kernel supports only a fixed epilogue
	tail    *ir.Value        // value that the next member of such a cluster must read
}

// fusible reports whether n is elementwise code over a known shape. The pass fuse adds rows with a
// contract of their own (casts, the update).
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

func (w *sectionClusters) place(n *ir.Node) {
	level := int32(0)
	best := int32(0)
	for _, v := range n.In {
		if v == nil || v.Def == nil {
			continue
		}
		p := w.clusterOf(v.Def)
		if p == 0 {
			continue
		}
		level = max(level, w.info[p].level+1)
		if w.joins(n, p) && !addsBlock(n, v) && (best == 0 || w.info[p].level > w.info[best].level) {
			best = p
		}
	}
	if best == 0 || !w.below(n, best) {
		best = w.waiting(n, level)
	}
	if best > 0 {
		w.of[n.ID-w.first] = best
		w.unite(n, best)
		m := &w.info[best]
		m.size++
		m.reads += w.outside(n, best)
		if m.chain {
			m.product, m.tail = w.caps.Extends(m.product, n, m.tail), n.Out[0]
		}
		return
	}
	if w.prologue(n, level) {
		return
	}
	m := members{level: level, pin: w.pins[n.ID].pin, size: 1, product: w.caps.EpilogueOf(n), chain: w.caps.Chains(n)}
	switch {
	case m.product >= ir.AfterNorm && (m.pin == ir.PinLow || asStated{w.caps}.expands(n)):
	case m.product != ir.NoEpilogue:
		m.shape, m.tail = n.Out[0].Type.Shape, n.Out[0]
	case w.policy.fuses(n) && w.section != ir.Prepare: // a store skips nodes of prepare one by one
		m.shape = n.Out[0].Type.Shape
	}
	m.reads = w.outside(n, 0)
	w.of[n.ID-w.first] = int32(len(w.info))
	w.info = append(w.info, m)
}

// outside is the number of operands of n that cluster p does not compute.
func (w *sectionClusters) outside(n *ir.Node, p int32) (count int32) {
	for _, v := range n.In {
		if v != nil && (v.Def == nil || p == 0 || w.clusterOf(v.Def) != p) {
			count++
		}
	}
	return count
}

// unite adds to cluster p, which n joins, the other clusters of its level whose results n reads. None
// depends on another: its level would be larger.
func (w *sectionClusters) unite(n *ir.Node, p int32) {
	m := &w.info[p]
	for _, v := range n.In {
		if v == nil || v.Def == nil {
			continue
		}
		if q := w.clusterOf(v.Def); q > 0 && q != p && w.info[q].level == m.level {
			m.size += w.info[q].size
			m.reads += w.info[q].reads
			w.info[q].into = p
		}
	}
}

// mostRead is the most operands of clusters that become one: a kernel has few registers for addresses.
const mostRead = 8

// unites reports whether clusters p and q, which computes v, may become one when n joins them.
func (w *sectionClusters) unites(n *ir.Node, v *ir.Value, p, q int32) bool {
	a, b := &w.info[p], &w.info[q]
	plain := a.product == ir.NoEpilogue && b.product == ir.NoEpilogue && !a.chain && !b.chain
	return plain && a.level == b.level && w.joins(n, q) && !addsBlock(n, v)
}

// addsBlock reports whether n adds a block's part to the sum v of those before it (pass chunks). In
// one cluster, sums would wait for all parts, which would be in memory at the same time.
func addsBlock(n *ir.Node, v *ir.Value) bool {
	of := n.Out[0].GradOf
	return of != nil && v.GradOf == of && v.Type == n.Out[0].Type
}

// prologue adds n to the cluster of the node that computes an operand of n, if n's kernel can run
// that node, it is the only member, and only n reads it. It closes that cluster.
func (w *sectionClusters) prologue(n *ir.Node, level int32) bool {
	m := w.caps.Prologue(n)
	if m == nil || !fusible(m) || w.pins[n.ID].pin != w.pins[m.ID].pin || w.pins[n.ID].pin == ir.PinLow {
		return false
	}
	p, y := w.clusterOf(m), m.Out[0]
	g := &w.info[p]
	if g.size != 1 || len(w.uses.Of(y)) != 1 || w.returned[y] {
		return false
	}
	*g = members{level: max(g.level, level), size: 2, pin: g.pin}
	w.of[n.ID-w.first] = p
	return true
}

// waiting finds a product that only n reads in its section and whose epilogue n may join. Since no
// other node depends on it there, its level may rise to that of n, above all other nodes that n
// reads. Of two products n joins the last operand's and reads the stored result of the other. The
// product's operands live until it runs, so they must be no larger than the result that would live
// instead. The gradient of tied weights does not qualify: its operand is as large as all logits.
func (w *sectionClusters) waiting(n *ir.Node, level int32) int32 {
	for _, v := range slices.Backward(n.In) {
		if v == nil || v.Def == nil {
			continue
		}
		p := w.clusterOf(v.Def)
		if m := &w.info[p]; p > 0 && m.product != ir.NoEpilogue && m.size == 1 && w.readAlone(v.Def, n) && w.shrinks(v.Def) && w.joins(n, p) {
			m.level = max(m.level, level)
			return p
		}
	}
	return 0
}

// readAlone reports whether only n reads results of p in the section.
func (w *sectionClusters) readAlone(p, n *ir.Node) bool {
	for _, v := range p.Out {
		for _, u := range w.uses.Of(v) {
			if u.Section == w.section && u.Node != n {
				return false
			}
		}
	}
	return true
}

// shrinks reports whether the operands of product p that the step computes have no more elements
// than its result.
func (w *clusterFinder) shrinks(p *ir.Node) bool {
	size := int64(0)
	for _, v := range p.In {
		if v != nil && v.Def != nil {
			size += w.g.Elements(v.Type)
		}
	}
	return size <= w.g.Elements(p.Out[0].Type)
}

// joins reports whether n may become a member of cluster p.
func (w *sectionClusters) joins(n *ir.Node, p int32) bool {
	m := &w.info[p]
	if !m.shape.Known() || !w.policy.fuses(n) || n.Out[0].Type.Shape != m.shape || w.pins[n.ID].pin != m.pin {
		return false
	}
	if w.policy.Eager && (m.product != ir.AfterNorm || w.caps.Extends(m.product, n, m.tail) != ir.AfterNormRelu) {
		return false
	}
	return !m.chain || w.extends(n, m)
}

// extends reports whether n is the only reader of the cluster's product so far and its kernel can
// run n as well.
func (w *clusterFinder) extends(n *ir.Node, m *members) bool {
	y := m.tail
	if len(w.uses.Of(y)) != 1 || w.uses.Of(y)[0].Node != n || w.returned[y] || y.Next != nil || n.Out[0].Next != nil {
		return false
	}
	next := w.caps.Extends(m.product, n, y)
	planned := w.policy.decided().Algorithm == "mincut"
	if next == ir.AfterNormSum && (w.policy.Narrow && !planned || w.policy.classOf(n) == ir.Low) { // the norm may be rounded before the sum
		return false
	}
	return next != ir.NoEpilogue
}

// below reports whether all nodes outside cluster p that n reads in its section have a smaller
// level than p, or are in clusters that unite with it.
func (w *sectionClusters) below(n *ir.Node, p int32) bool {
	reads := w.info[p].reads
	for _, v := range n.In {
		if v == nil || v.Def == nil {
			continue
		}
		q := w.clusterOf(v.Def)
		if q == p || q == 0 || w.info[q].level < w.info[p].level {
			continue
		}
		if reads += w.info[q].reads; reads > mostRead || !w.unites(n, v, p, q) {
			return false
		}
	}
	return true
}

// mark writes the clusters with at least two nodes to the graph.
func mark(sections []sectionClusters) (clusters, fused int) {
	for _, w := range sections {
		id := make([]int32, len(w.info))
		for _, n := range w.g.Body[w.section] {
			p := w.clusterOf(n)
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
	}
	return clusters, fused
}

package passes

import "ampc/ir"

// group marks fusible groups: connected elementwise nodes of one section, one
// shape and one forced precision, that can run as one step. It looks at ops and
// shapes only, so that what is interior is known before dtypes are chosen.
//
// A group may not be left and entered again on one path. Levels give that in
// one walk: a group's level is fixed by its first node, one above everything
// outside that this node reads; a further node may join when all it reads from
// outside lies strictly below. Whatever depends on a member from outside lies
// strictly above, so no path comes back. The rule looks at operands alone,
// hence the order of nodes does not matter.
func group(g *ir.Graph, c *Context) error {
	pins, err := forcedPins(g, c.Policy)
	if err != nil {
		return err
	}
	values, nodes := g.Number()
	w := &grouper{g: g, pins: pins, caps: c.Caps, level: make([]int32, values), of: make([]int32, nodes)}
	for s := range ir.NumSections {
		for _, n := range g.Body[s] {
			w.place(s, n)
		}
	}
	groups, fused := w.mark()
	c.Count("groups", groups)
	c.Count("grouped", fused)
	return nil
}

type grouper struct {
	g     *ir.Graph
	pins  []force // by node ID
	caps  ir.Caps
	level []int32   // of the node that defines a value, by value ID; -1 outside the section
	of    []int32   // group by node ID, 0: none
	info  []members // by group, index 0 unused
}

type members struct {
	section ir.Section
	level   int32
	shape   ir.Shape
	pin     ir.Pin
	size    int32
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

func (w *grouper) place(s ir.Section, n *ir.Node) {
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
	if best > 0 && w.below(s, n, best) {
		w.of[n.ID] = best
		w.info[best].size++
		return
	}
	m := members{section: s, level: level, pin: w.pins[n.ID].pin, size: 1}
	if fusible(n) {
		m.shape = n.Out[0].Type.Shape
	}
	w.of[n.ID] = int32(len(w.info))
	w.info = append(w.info, m)
}

// joins reports whether n could be a member of group p.
func (w *grouper) joins(n *ir.Node, p int32) bool {
	m := &w.info[p]
	return m.shape.Known() && fusible(n) && n.Out[0].Type.Shape == m.shape && w.pins[n.ID].pin == m.pin
}

// below reports whether everything n reads from outside group p in its section
// lies under p.
func (w *grouper) below(s ir.Section, n *ir.Node, p int32) bool {
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

// mark writes the groups of two and more nodes to the graph.
func (w *grouper) mark() (groups, fused int) {
	id := make([]int32, len(w.info))
	for _, n := range w.g.Nodes {
		p := w.of[n.ID]
		n.Why.Group = 0
		if w.info[p].size < 2 {
			continue
		}
		if id[p] == 0 {
			groups++
			id[p] = int32(groups)
		}
		n.Why.Group = id[p]
		fused++
	}
	return groups, fused
}

package passes

import "ampc/ir"

// canonicalCasts brings casts written by hand into the form that the plan expects: no cast that
// changes nothing, no cast of a cast that lost no bits, one for each value and dtype, casts of
// values that do not change within a step in prepare, and other conversions next to the value that
// they convert. Eager policies and manual run casts as they are written.
func canonicalCasts(g *ir.Graph, c *Context) error {
	noteSourceCasts(g)
	if c.Policy.Manual || c.Policy.Eager || !hasCasts(g) {
		c.keep()
		return nil
	}
	if err := newCastEdit(g, c).run(); err != nil {
		return err
	}
	written := writtenInMicro(g)
	_, nodes := g.Number()
	sec := make([]ir.Section, nodes)
	for s, n := range g.Nodes {
		sec[n.ID] = s
	}
	var moved [ir.NumSections][]*ir.Node
	g.Filter(func(s ir.Section, n *ir.Node) bool {
		if n.Op != ir.OpCast || n.Out[0].Next != nil {
			return true
		}
		v, to := n.In[0], s
		switch {
		case hoists(v, s, written) || castIn(v, sec, ir.Prepare):
			to = ir.Prepare
		case v.Def != nil && c.Policy.converts(n):
			to = sec[v.Def.ID]
		}
		if to == s {
			return true
		}
		sec[n.ID], n.Of = to, nil
		moved[to] = append(moved[to], n)
		return false
	})
	for s, casts := range moved {
		g.Body[s] = append(g.Body[s], casts...)
	}
	return nil
}

func hasCasts(g *ir.Graph) bool {
	return g.Select(func(_ ir.Section, n *ir.Node) bool { return n.Op == ir.OpCast }).Len() > 0
}

// hoists reports whether a cast of v in section s belongs in prepare.
func hoists(v *ir.Value, s ir.Section, written map[*ir.Value]bool) bool {
	return v.IsVar() && v.Kind != ir.Input && !written[v] && s != ir.Prepare
}

// castIn reports whether v is a cast in section s.
func castIn(v *ir.Value, sec []ir.Section, s ir.Section) bool {
	return v.Def != nil && v.Def.Op == ir.OpCast && sec[v.Def.ID] == s
}

// converts reports whether n is a cast that stays a node when dtypes are planned: from or to a
// dtype other than floats of 16 and 32 bits, or to 16 bits that are not the policy's. Such a cast
// is elementwise work. The casts between the dtypes of the policy are forms of tensors.
func (p Policy) converts(n *ir.Node) bool {
	if n.Op != ir.OpCast || n.Why.Marks&ir.MarkInserted != 0 || n.Out[0].Next != nil || n.Out[0].Type.DType == ir.F64 || p.Eager || p.Manual {
		return false
	}
	from, to := n.In[0].Type.DType, n.Out[0].Type.DType
	if !formDType(from) || !formDType(to) {
		return true
	}
	return p.Algorithm == "mincut" && to.Low() && to != p.Low
}

// stores reports whether a kernel that stores 16 bits may store d under p. A plan chooses only
// between f32 and the policy's dtype.
func (p Policy) stores(d ir.DType) bool { return p.Algorithm != "mincut" || d == p.Low }

func formDType(d ir.DType) bool { return d == ir.F32 || d.Low() }

// fuses reports whether n may be a member of a fusion cluster.
func (p Policy) fuses(n *ir.Node) bool {
	return fusible(n) || p.converts(n) && n.Out[0].Type.Shape.Known()
}

package passes

import "ampc/ir"

// writeCopies moves the casts of trained weights from prepare into the update. The kernel that
// writes a weight also writes its weight copy, which the next step reads. Casts of weights that no
// step writes stay in prepare. The pass does nothing unless Config.WeightCopies is set.
func writeCopies(g *ir.Graph, c *Context) error {
	if !c.WeightCopies || !c.Train {
		c.keep()
		return nil
	}
	next := map[*ir.Value]*ir.Value{}
	cluster := int32(0)
	for s, n := range g.Nodes {
		cluster = max(cluster, n.Why.Cluster)
		for _, v := range n.Out {
			if s == ir.Update && v.Next != nil && n.Def().Is(ir.Writer) {
				next[v.Next] = v
			}
		}
	}
	var casts []*ir.Node
	g.Filter(func(s ir.Section, n *ir.Node) bool {
		if s != ir.Prepare || n.Op != ir.OpCast || next[n.In[0]] == nil || n.In[0].Kind != ir.Param || !n.Out[0].Type.DType.Low() {
			return true
		}
		casts = append(casts, n)
		return false
	})
	b := ir.Edit(g).In(ir.Update)
	copies := map[*ir.Value]*ir.Value{}
	for _, n := range casts {
		w := next[n.In[0]]
		old := n.Out[0]
		stored := b.Declare(ir.State, private("copy."+old.Type.DType.String(), n.In[0].Name), old.Type, &ir.Init{Func: "zeros"}, ir.A("role", ir.RoleCopy, "of", n.In[0].Name))
		if b.Err() != nil {
			return b.Err()
		}
		copies[old] = stored
		written := b.EmitWrite(ir.OpCast, []*ir.Value{w}, n.Attrs, stored)[0]
		if b.Err() != nil {
			return b.Err()
		}
		if w.Def.Why.Cluster == 0 {
			cluster++
			w.Def.Why.Cluster = cluster
		}
		written.Def.Pos = n.Pos
		written.Def.Why = n.Why
		written.Def.Why.Marks &^= ir.MarkHoisted
		written.Def.Why.Cluster = w.Def.Why.Cluster
		c.Count("casts_in_update", 1)
	}
	g.Replace(copies)
	return nil
}

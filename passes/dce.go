package passes

import "ampc/ir"

// dce drops the nodes that no returned value and no next value depends on.
func dce(g *ir.Graph, c *Context) error {
	c.Count("dead", dropUnreached(g))
	c.keepLinks()
	return nil
}

// dropUnreached drops such nodes and the links to them, and returns their number.
func dropUnreached(g *ir.Graph) int {
	_, nodes := g.Number()
	live := make([]bool, nodes)
	for _, v := range g.Return {
		if v.Def != nil {
			live[v.Def.ID] = true
		}
	}
	for s := int(ir.NumSections) - 1; s >= 0; s-- {
		body := g.Body[s]
		for i := len(body) - 1; i >= 0; i-- {
			n := body[i]
			for _, v := range n.Out {
				live[n.ID] = live[n.ID] || v.Next != nil
			}
			if !live[n.ID] {
				continue
			}
			for _, v := range n.In {
				if v != nil && v.Def != nil {
					live[v.Def.ID] = true
				}
			}
			for _, v := range n.Captured {
				if v.Def != nil {
					live[v.Def.ID] = true
				}
			}
		}
	}
	dead := 0
	g.Filter(func(_ ir.Section, n *ir.Node) bool {
		if !live[n.ID] {
			dead++
		}
		return live[n.ID]
	})
	if dead > 0 {
		dropOrigins(g)
	}
	return dead
}

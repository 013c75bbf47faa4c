package passes

import "ampc/ir"

// dropAppends removes appends to caches that no returned value depends on, and the nodes that read
// them: a model may have a loss, or logits of a window, next to the graph that decodes.
func dropAppends(g *ir.Graph, c *Context) {
	_, nodes := g.Number()
	live := make([]bool, nodes)
	mark := func(v *ir.Value) {
		if v != nil && v.Def != nil {
			live[v.Def.ID] = true
		}
	}
	for _, v := range g.Return {
		mark(v)
	}
	body := g.Body[ir.Forward]
	for i := len(body) - 1; i >= 0; i-- {
		if n := body[i]; live[n.ID] {
			for _, v := range n.In {
				mark(v)
			}
			for _, v := range n.Captured {
				mark(v)
			}
		}
	}
	gone := make([]bool, nodes)
	for _, n := range body {
		gone[n.ID] = !live[n.ID] && n.Def().Is(ir.Caches)
		for _, v := range n.In {
			gone[n.ID] = gone[n.ID] || v != nil && v.Def != nil && gone[v.Def.ID]
		}
	}
	dropped := 0
	g.Filter(func(_ ir.Section, n *ir.Node) bool {
		if gone[n.ID] {
			dropped++
		}
		return !gone[n.ID]
	})
	if dropped > 0 {
		c.Count("cache_nodes_removed", dropped)
	}
}

package passes

import "ampc/ir"

// dce drops the nodes that no returned value and no next value depends on.
func dce(g *ir.Graph, c *Context) error {
	c.Count("dead", dropUnreached(g, c.uses(g)))
	c.keepLinks()
	return nil
}

// dropUnreached drops such nodes and the links to them, and returns their number. The uses are those of
// g.
func dropUnreached(g *ir.Graph, uses *ir.Uses) int {
	reads := make([]int32, g.NumNodes()) // by node ID: how often nodes that are not dead, or the caller, read its results
	for _, v := range g.Return {
		if v.Def != nil {
			reads[v.Def.ID]++
		}
	}
	var dead []*ir.Node
	for _, n := range g.Select(func(_ ir.Section, n *ir.Node) bool {
		for _, v := range n.Out {
			reads[n.ID] += int32(len(uses.Of(v)))
			if v.Next != nil {
				reads[n.ID]++
			}
		}
		return reads[n.ID] == 0
	}).Nodes {
		dead = append(dead, n)
	}
	for i := 0; i < len(dead); i++ {
		for _, v := range operands(dead[i]) {
			if v.Def == nil {
				continue
			}
			if reads[v.Def.ID]--; reads[v.Def.ID] == 0 {
				dead = append(dead, v.Def)
			}
		}
	}
	if len(dead) > 0 {
		g.Filter(func(_ ir.Section, n *ir.Node) bool { return reads[n.ID] > 0 })
		dropOrigins(g)
	}
	return len(dead)
}

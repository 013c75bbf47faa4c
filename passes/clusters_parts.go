package passes

import (
	"maps"
	"slices"

	"ampc/ir"
)

// ports adds the ports of all clusters. Parts of a large graph do so at the same time, each for the
// clusters that have all their nodes in it; the others come last.
func (c *clusterer) ports() error {
	parts, whole := c.g.Parts(), ir.Part(c.g.Body)
	if len(parts) == 1 || c.related() {
		return c.portsOf(&whole, func(*ir.Node) bool { return true })
	}
	divided := c.divided(parts)
	apart := func(n *ir.Node) bool { return c.inParts[n.ID] || divided[n.Why.Cluster] }
	one := make([]*clusterer, len(parts))
	rest := make([]bool, len(parts))
	c.g.InParts(parts, func(k int, p *ir.Part) {
		one[k] = c.alone()
		_ = one[k].portsOf(p, func(n *ir.Node) bool { // an error comes from a node that expands
			rest[k] = rest[k] || apart(n)
			return !apart(n)
		})
	})
	for _, w := range one {
		maps.Copy(c.loads, w.loads)
	}
	if !slices.Contains(rest, true) {
		return nil
	}
	return c.portsOf(&whole, apart)
}

// related reports whether what a node moves may depend on nodes of other clusters, or adds to the plan
// more than ports.
func (c *clusterer) related() bool {
	return len(c.launch) > 1 || len(c.pooled) > 0 || c.c.Caps.Splits != nil || c.c.Caps.SplitsConv != nil
}

// divided is, by fusion cluster, whether it has nodes in several parts, or one that expands. The nodes
// of a cluster are members in the order of the graph.
func (c *clusterer) divided(parts []ir.Part) []bool {
	part := make([]int8, len(c.sec)) // by node ID
	c.g.InParts(parts, func(k int, p *ir.Part) {
		for _, n := range p.Nodes {
			part[n.ID] = int8(k)
		}
	})
	divided := make([]bool, len(c.member))
	for k, nodes := range c.member {
		divided[k] = slices.ContainsFunc(nodes, func(n *ir.Node) bool { return part[n.ID] != part[nodes[0].ID] || c.inParts[n.ID] })
	}
	return divided
}

// alone is c with its own memory of answers, for use beside others.
func (c *clusterer) alone() *clusterer {
	a, m, w := *c.assigner, *c.planner, *c
	a.loads = map[load]bool{}
	m.assigner, m.computes, m.wants = &a, map[*ir.Value]bool{}, map[*ir.Value]bool{}
	w.planner = &m
	return &w
}

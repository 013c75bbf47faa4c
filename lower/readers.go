package lower

import (
	"slices"

	"ampc/ir"
)

// readers knows which nodes read the values of a graph.
type readers struct {
	uses     *ir.Uses
	returned []bool // by Value.ID: the graph returns it, so it is always stored
}

// newReaders numbers g and collects the readers of its values.
func newReaders(g *ir.Graph) *readers {
	r := &readers{uses: g.Uses()}
	values, _ := g.Number()
	r.returned = make([]bool, values)
	for _, v := range g.Return {
		r.returned[v.ID] = true
	}
	return r
}

// stored reports whether v is returned, or read outside of nodes.
func (r *readers) stored(v *ir.Value, nodes []*ir.Node) bool {
	return r.leaves(v, func(n *ir.Node) bool { return contains(nodes, n) })
}

// leaves reports whether v is returned, or read by nodes that are not inside.
func (r *readers) leaves(v *ir.Value, inside func(n *ir.Node) bool) bool {
	return v.Next != nil || r.returned[v.ID] || slices.ContainsFunc(r.uses.Of(v), func(u ir.Use) bool { return !inside(u.Node) })
}

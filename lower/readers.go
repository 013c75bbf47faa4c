package lower

import "ampc/ir"

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
	if v.Next != nil || r.returned[v.ID] {
		return true
	}
	for _, u := range r.uses.Of(v) {
		if !contains(nodes, u.Node) {
			return true
		}
	}
	return false
}

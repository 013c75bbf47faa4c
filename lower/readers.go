package lower

import "ampc/ir"

// readers says who reads the values of a graph.
type readers struct {
	uses     *ir.Uses
	returned []bool // by Value.ID: stored whoever reads it
}

// newReaders numbers g.
func newReaders(g *ir.Graph) *readers {
	r := &readers{uses: g.Uses()}
	values, _ := g.Number()
	r.returned = make([]bool, values)
	for _, v := range g.Return {
		r.returned[v.ID] = true
	}
	return r
}

// stored reports whether anybody but nodes reads v.
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

package ir

import "slices"

// Edit returns a builder that appends to g.
func Edit(g *Graph) *Builder {
	b := &Builder{section: Forward, built: &built{g: g, names: newNameTable(len(g.Vars) + g.NumNodes() + g.NumNodes()/4), suffix: map[string]int{}}}
	for _, v := range g.Vars {
		b.names.set(v.Name, v)
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Next == nil {
				b.names.set(v.Name, v)
			} else {
				b.names.setNext(v.Next, v)
			}
		}
		b.sites = max(b.sites, n.Attrs.site())
	}
	return b
}

// Reserve makes room for that many variables, and nodes with one result each in the section of b.
func (b *Builder) Reserve(vars, nodes int) {
	b.g.Vars = slices.Grow(b.g.Vars, vars)
	b.g.Body[b.section] = slices.Grow(b.g.Body[b.section], nodes)
	b.names.reserve(vars + nodes)
}

// Removed tells b that nodes are not in the graph any more. Their names are free again, and as in a
// new builder the lowest free suffix is the next one.
func (b *Builder) Removed(nodes ...*Node) {
	sites := false
	for _, n := range nodes {
		sites = sites || n.Attrs.site() > 0
		for _, v := range n.Out {
			if v.Next == nil {
				b.names.set(v.Name, nil)
			} else {
				b.names.setNext(v.Next, nil)
			}
		}
	}
	if sites {
		b.sites = 0
		for _, n := range b.g.Nodes {
			b.sites = max(b.sites, n.Attrs.site())
		}
	}
	clear(b.suffix)
}

// Current reports whether b knows of its graph what Edit would find out.
func (b *Builder) Current() bool {
	found := Edit(b.g)
	return b.sites == found.sites && b.names.equal(found.names)
}

func (a Attrs) site() int64 { v, _ := a.Get("rng").(int64); return v }

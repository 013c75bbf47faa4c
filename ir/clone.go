package ir

import "maps"

// Clone copies the graph. Attribute values are shared, because they are never modified in place,
// except nested graphs that read values of this one. A graph whose IDs are current (Graph.Number)
// is copied fastest.
func (g *Graph) Clone() *Graph { return newCopying(g, nil).graph() }

// CloneMap copies the graph and maps each value to its copy.
func (g *Graph) CloneMap() (*Graph, map[*Value]*Value) {
	c := newCopying(g, nil)
	return c.graph(), c.mapping()
}

// copying is a copy of a graph that is not finished. All values, all nodes and all lists of values
// are one block each.
type copying struct {
	g      *Graph
	around map[*Value]*Value // copies of values of enclosing graphs
	values placed[Value]
	nodes  placed[Node]
	lists  []*Value
}

// placed copies things by their index.
type placed[T any] struct {
	from []*T
	to   []T
	at   map[*T]int // nil: the IDs are the indexes
}

// copyOf is the copy of x, whose ID is id.
func (p *placed[T]) copyOf(x *T, id int32) *T {
	i := int(id)
	if p.at != nil {
		var ok bool
		if i, ok = p.at[x]; !ok {
			return nil
		}
	}
	if i >= len(p.from) || p.from[i] != x {
		return nil
	}
	return &p.to[i]
}

// lay allocates the copies.
func (p *placed[T]) lay(numbered bool) {
	p.to = make([]T, len(p.from))
	if numbered {
		return
	}
	p.at = make(map[*T]int, len(p.from))
	for i, x := range p.from {
		p.at[x] = i
	}
}

func newCopying(g *Graph, around map[*Value]*Value) *copying {
	c := &copying{g: g, around: around}
	c.nodes.from = make([]*Node, 0, g.NumNodes())
	c.values.from = append(make([]*Value, 0, len(g.Vars)+2*g.NumNodes()), g.Vars...)
	lists := len(g.Vars) + len(g.Return)
	for _, n := range g.Nodes {
		c.nodes.from = append(c.nodes.from, n)
		c.values.from = append(c.values.from, n.Out...)
		lists += len(n.In) + len(n.Captured) + len(n.Out)
	}
	numbered := true
	for i, v := range c.values.from {
		numbered = numbered && int(v.ID) == i
	}
	for i, n := range c.nodes.from {
		numbered = numbered && int(n.ID) == i
	}
	c.values.lay(numbered)
	c.nodes.lay(numbered)
	c.lists = make([]*Value, 0, lists)
	return c
}

// value is the copy of v, nil if v is not in the copied graphs.
func (c *copying) value(v *Value) *Value {
	if v == nil {
		return nil
	}
	if w := c.values.copyOf(v, v.ID); w != nil {
		return w
	}
	return c.around[v]
}

// list is the copies of values; values from outside stay.
func (c *copying) list(vs []*Value) []*Value {
	if vs == nil {
		return nil
	}
	start := len(c.lists)
	for _, v := range vs {
		w := c.value(v)
		if w == nil {
			w = v // a capture from an enclosing graph
		}
		c.lists = append(c.lists, w)
	}
	return c.lists[start:len(c.lists):len(c.lists)]
}

func (c *copying) graph() *Graph {
	g := c.g
	to := &Graph{Name: g.Name, Syms: append([]Sym(nil), g.Syms...)}
	for i, v := range c.values.from {
		w := &c.values.to[i]
		*w = *v
		w.Next, w.GradOf = c.value(v.Next), c.value(v.GradOf)
	}
	to.Vars = c.list(g.Vars)
	at := 0
	for s, body := range g.Body {
		if len(body) > 0 {
			to.Body[s] = make([]*Node, len(body))
		}
		for i, n := range body {
			to.Body[s][i] = c.copyNode(n, &c.nodes.to[at])
			at++
		}
	}
	to.Return = c.list(g.Return)
	return to
}

func (c *copying) copyNode(n, k *Node) *Node {
	*k = *n
	k.In, k.Out = c.list(n.In), c.list(n.Out)
	for _, v := range k.Out {
		v.Def = k
	}
	if len(n.Captured) > 0 {
		k.Captured = c.list(n.Captured)
		k.Attrs = n.Attrs.recaptured(c.mapping())
	}
	if n.Of != nil {
		k.Of = c.nodes.copyOf(n.Of, n.Of.ID)
	}
	k.Why.From = c.value(n.Why.From)
	return k
}

// mapping maps every value to its copy.
func (c *copying) mapping() map[*Value]*Value {
	m := make(map[*Value]*Value, len(c.around)+len(c.values.from))
	maps.Copy(m, c.around)
	for i, v := range c.values.from {
		m[v] = &c.values.to[i]
	}
	return m
}

// recaptured copies the nested graphs among the attributes. The copies read, for values of
// enclosing graphs, those that m maps them to.
func (a Attrs) recaptured(m map[*Value]*Value) Attrs {
	for _, x := range a {
		if g, ok := x.Value.(*Graph); ok {
			a = a.With(x.Name, newCopying(g, m).graph())
		}
	}
	return a
}

// Recapture makes the node's nested graphs read to(v) for each captured value v. Passes that
// redirect operands also redirect captures with it.
func (n *Node) Recapture(to func(v *Value) *Value) {
	if len(n.Captured) == 0 {
		return
	}
	m := map[*Value]*Value{}
	for i, v := range n.Captured {
		if w := to(v); w != v {
			m[v], n.Captured[i] = w, w
		}
	}
	if len(m) > 0 {
		n.Attrs = n.Attrs.recaptured(m)
	}
}

package ir

import (
	"fmt"
	"maps"
)

// Equal compares two graphs on every field but Why, Pos and scratch, and says
// where they first differ, nil when they do not.
func Equal(a, b *Graph) error {
	if a.Name != b.Name {
		return fmt.Errorf("name %q and %q", a.Name, b.Name)
	}
	if len(a.Syms) != len(b.Syms) {
		return fmt.Errorf("%d and %d symbolic dimensions", len(a.Syms), len(b.Syms))
	}
	for i := range a.Syms {
		if a.Syms[i] != b.Syms[i] {
			return fmt.Errorf("dimension %v and %v", a.Syms[i], b.Syms[i])
		}
	}
	if len(a.Vars) != len(b.Vars) {
		return fmt.Errorf("%d and %d variables", len(a.Vars), len(b.Vars))
	}
	for i, v := range a.Vars {
		if x, y := declText(a, v), declText(b, b.Vars[i]); x != y {
			return fmt.Errorf("%s and %s", x, y)
		}
	}
	for s := range NumSections {
		if len(a.Body[s]) != len(b.Body[s]) {
			return fmt.Errorf("%s has %d and %d nodes", s, len(a.Body[s]), len(b.Body[s]))
		}
		var grads [2]map[string]*Value
		if s == Backward {
			grads = [2]map[string]*Value{gradNames(a), gradNames(b)}
		}
		for i, n := range a.Body[s] {
			if err := equalNodes(a, b, n, b.Body[s][i], grads); err != nil {
				return err
			}
		}
	}
	if x, y := valueList(a.Return), valueList(b.Return); x != y {
		return fmt.Errorf("return %s and %s", x, y)
	}
	return nil
}

// equalNodes compares by text, which names operands, and by the attribute
// values, whose kinds text could hide.
func equalNodes(a, b *Graph, m, n *Node, grads [2]map[string]*Value) error {
	if x, y := nodeText(a, m, grads[0]), nodeText(b, n, grads[1]); x != y {
		return fmt.Errorf("%s\nand %s", x, y)
	}
	if !m.Attrs.Equal(n.Attrs) {
		return fmt.Errorf("%s: attribute values differ in kind", m.Name())
	}
	if len(m.In) != len(n.In) || len(m.Out) != len(n.Out) {
		return fmt.Errorf("%s: operands or results differ in number", m.Name())
	}
	for i := range m.Out {
		if x, y := a.TypeString(m.Out[i].Type), b.TypeString(n.Out[i].Type); x != y {
			return fmt.Errorf("%s: %s and %s", m.Out[i], x, y)
		}
	}
	return nil
}

// equalNested compares graphs within graphs, of which one may leave out
// symbols of the graph around them.
func equalNested(a, b *Graph) bool {
	x, y := *a, *b
	x.Syms, y.Syms = longer(a.Syms, b.Syms), longer(b.Syms, a.Syms)
	return Equal(&x, &y) == nil
}

// Clone copies the graph; attribute values are shared, as they are never
// modified in place, but for nested graphs that read values of this one.
func (g *Graph) Clone() *Graph {
	c, _ := g.CloneMap()
	return c
}

// CloneMap copies the graph and returns where each value went.
func (g *Graph) CloneMap() (*Graph, map[*Value]*Value) {
	m := make(map[*Value]*Value, len(g.Vars)+2*g.NumNodes())
	return g.cloneInto(m), m
}

// cloneInto copies the graph and adds where each value went to m, which says
// already where values of graphs around it went.
func (g *Graph) cloneInto(m map[*Value]*Value) *Graph {
	c := &Graph{Name: g.Name, Syms: append([]Sym(nil), g.Syms...)}
	nodes := make(map[*Node]*Node, g.NumNodes())
	for _, v := range g.Vars {
		w := *v
		m[v] = &w
		c.Vars = append(c.Vars, &w)
	}
	for s, n := range g.Nodes {
		k := *n
		k.In = mapped(m, n.In)
		if len(n.Captured) > 0 {
			k.Captured = mapped(m, n.Captured)
			k.Attrs = n.Attrs.recaptured(m)
		}
		k.Out = make([]*Value, len(n.Out))
		for i, v := range n.Out {
			w := *v
			w.Def = &k
			if v.Next != nil {
				w.Next = m[v.Next]
			}
			m[v] = &w
			k.Out[i] = &w
		}
		nodes[n] = &k
		c.Body[s] = append(c.Body[s], &k)
	}
	for _, n := range c.Nodes {
		if n.Of != nil {
			n.Of = nodes[n.Of]
		}
		if n.Why.From != nil {
			n.Why.From = m[n.Why.From]
		}
		for _, v := range n.Out {
			if v.GradOf != nil {
				v.GradOf = m[v.GradOf]
			}
		}
	}
	c.Return = mapped(m, g.Return)
	return c
}

// recaptured copies the nested graphs among the attributes, which then read
// the values that m has for those of the graphs around them.
func (a Attrs) recaptured(m map[*Value]*Value) Attrs {
	for _, x := range a {
		if g, ok := x.Value.(*Graph); ok {
			a = a.With(x.Name, g.cloneInto(maps.Clone(m)))
		}
	}
	return a
}

// Recapture makes the node's nested graphs read to(v) for each value v they
// capture. Passes that redirect operands redirect captures by it.
func (n *Node) Recapture(to func(v *Value) *Value) {
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

func mapped(m map[*Value]*Value, vs []*Value) []*Value {
	if vs == nil {
		return nil
	}
	out := make([]*Value, len(vs))
	for i, v := range vs {
		if v == nil {
			continue
		}
		if out[i] = m[v]; out[i] == nil {
			out[i] = v // a capture from an enclosing graph
		}
	}
	return out
}

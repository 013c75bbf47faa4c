package onnx

import (
	"fmt"
	"maps"
	"slices"
)

func (im *importer) function(n *Node) *Function {
	for _, f := range im.m.Functions {
		if f.Name == n.Op && f.Domain == n.Domain && f.Overload == n.Overload {
			return f
		}
	}
	return nil
}

// call replaces a node that calls a function by the nodes of the function.
func (im *importer) call(f *Function, c *call) error {
	if im.inline++; im.inline > maxDepth {
		return fmt.Errorf("function calls are nested more than %d deep, which is the limit", maxDepth)
	}
	defer func() { im.inline-- }()
	if len(c.n.In) > len(f.In) || len(c.n.Out) > len(f.Out) {
		return fmt.Errorf("the node has %d operands and %d results, but function %q has %d and %d", len(c.n.In), len(c.n.Out), f.Name, len(f.In), len(f.Out))
	}
	opsets := maps.Clone(c.s.opsets)
	maps.Copy(opsets, f.Opsets)
	s := &scope{vals: map[string]*value{}, opsets: opsets}
	for i, v := range c.in {
		if v != nil {
			s.vals[f.In[i]] = v
		}
	}
	if err := im.nodes(resolved(f.Nodes, c.n.attributes(f)), s); err != nil {
		return fmt.Errorf("function %q: %w", f.Name, err)
	}
	for i, name := range c.n.Out {
		if name == "" {
			continue
		}
		v := s.find(f.Out[i])
		if v == nil {
			return fmt.Errorf("function %q: no node of it computes its output %q", f.Name, f.Out[i])
		}
		c.s.vals[name] = v
	}
	return nil
}

// resolved are the nodes of a function with what a call gives in the place of
// references to its attributes; one that is not given leaves the node's default.
func resolved(nodes []*Node, given map[string]*Attribute) []*Node {
	out := make([]*Node, len(nodes))
	for i, n := range nodes {
		c := *n
		c.Attrs = nil
		for _, a := range n.Attrs {
			if a.Ref != "" {
				g := given[a.Ref]
				if g == nil {
					continue
				}
				x := *g
				x.Name = a.Name
				a = &x
			} else if a.G != nil {
				x, g := *a, *a.G
				g.Nodes = resolved(g.Nodes, given)
				x.G = &g
				a = &x
			}
			c.Attrs = append(c.Attrs, a)
		}
		out[i] = &c
	}
	return out
}

// Inlined is what a node becomes that calls one of the model's functions: its nodes,
// with the call's attributes; nil where the node calls none.
func (m *Model) Inlined(n *Node) (f *Function, nodes []*Node) {
	im := &importer{m: m}
	if f = im.function(n); f == nil {
		return nil, nil
	}
	return f, resolved(f.Nodes, n.attributes(f))
}

// attributes are those of a call of f.
func (n *Node) attributes(f *Function) map[string]*Attribute {
	given := map[string]*Attribute{}
	for _, a := range slices.Concat(f.Defaults, n.Attrs) {
		given[a.Name] = a
	}
	return given
}

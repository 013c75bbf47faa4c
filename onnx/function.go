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
	if err := im.nodes(f.called(c.n), s); err != nil {
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

// called are the nodes of a function as the call n has them: with what it gives in the place of
// references to attributes, and without the operands that it leaves out.
func (f *Function) called(n *Node) []*Node {
	absent := map[string]bool{}
	for i, name := range f.In {
		if i >= len(n.In) || n.In[i] == "" {
			absent[name] = true
		}
	}
	return resolved(f.Nodes, n.attributes(f), absent)
}

// resolved are the nodes of a function with attributes of a call and without its absent operands;
// an attribute that is not given leaves the node's default.
func resolved(nodes []*Node, given map[string]*Attribute, absent map[string]bool) []*Node {
	out := make([]*Node, len(nodes))
	for i, n := range nodes {
		c := *n
		c.Attrs = nil
		if slices.ContainsFunc(n.In, func(name string) bool { return absent[name] }) {
			c.In = slices.Clone(n.In)
			for k, name := range c.In {
				if absent[name] {
					c.In[k] = ""
				}
			}
		}
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
				g.Nodes = resolved(g.Nodes, given, absent)
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
// as the call has them; nil where the node calls none.
func (m *Model) Inlined(n *Node) (f *Function, nodes []*Node) {
	im := &importer{m: m}
	if f = im.function(n); f == nil {
		return nil, nil
	}
	return f, f.called(n)
}

// attributes are those of a call of f.
func (n *Node) attributes(f *Function) map[string]*Attribute {
	given := map[string]*Attribute{}
	for _, a := range slices.Concat(f.Defaults, n.Attrs) {
		given[a.Name] = a
	}
	return given
}

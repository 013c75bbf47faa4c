package onnx

import "fmt"

// Body is the model with another of its graphs as the main one: what Import and Bytes
// read. It may be used as long as m is open, and not be written.
func (m *Model) Body(g *Graph, opsets map[string]int64) *Model {
	b := *m
	b.Graph, b.Opsets = g, opsets
	return &b
}

// Called is a function as a graph, for the call n; its inputs, without those that the call leaves
// out, and its outputs have no types.
func (f *Function) Called(n *Node) *Graph {
	g := &Graph{Name: f.Name, Nodes: f.called(n)}
	for i, x := range f.In {
		if i < len(n.In) && n.In[i] != "" {
			g.Inputs = append(g.Inputs, &Info{Name: x})
		}
	}
	for _, y := range f.Out {
		g.Outputs = append(g.Outputs, &Info{Name: y})
	}
	return g
}

// Function is the function of the model's own that n calls, nil where it calls none.
func (m *Model) Function(n *Node) *Function {
	if table()[rowKey{n.Domain, n.Op}] != nil {
		return nil // the importer has the row come first, too
	}
	return (&importer{m: m}).function(n)
}

// DoubleNote says which nodes compute elements of f64 in f32, "" where none do.
func (x *Imported) DoubleNote() string {
	if len(x.Single) == 0 {
		return ""
	}
	first := x.model.Graph.Nodes[x.Single[0]]
	return DoubleNote(len(x.Single), x.Single[0], opName(first))
}

// DoubleNote says that n nodes compute elements of f64 in f32, of which node first, of an
// operator, is the first.
func DoubleNote(n, first int, op string) string {
	return fmt.Sprintf("%d nodes compute f64 in f32, whose numbers have 24 bits of 53; the first is node %d (%s)", n, first, op)
}

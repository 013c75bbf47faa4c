package onnx

import (
	"fmt"
	"slices"
)

// sorted is an order of nodes in which what they read comes before them: their
// own, where it is one.
func sorted(list []*Node, s *scope) ([]int, error) {
	from := map[string]int{}
	for i, n := range list {
		for _, y := range n.Out {
			if y == "" {
				continue
			}
			if _, twice := from[y]; twice || s.vals[y] != nil {
				return nil, fmt.Errorf("two values have the name %q: rename one", y)
			}
			from[y] = i
		}
	}
	order := make([]int, 0, len(list))
	state := make([]uint8, len(list)) // 1: its operands are being placed, 2: placed
	type frame struct {
		node int
		next []string
	}
	for i := range list {
		if state[i] != 0 {
			continue
		}
		state[i] = 1
		for stack := []frame{{i, reads(list[i])}}; len(stack) > 0; {
			top := &stack[len(stack)-1]
			if len(top.next) == 0 {
				state[top.node] = 2
				order = append(order, top.node)
				stack = stack[:len(stack)-1]
				continue
			}
			name := top.next[0]
			top.next = top.next[1:]
			k, ok := from[name]
			switch {
			case !ok || state[k] == 2:
			case state[k] == 1:
				return nil, fmt.Errorf("value %q depends on itself: the nodes form a cycle", name)
			default:
				state[k] = 1
				stack = append(stack, frame{k, reads(list[k])})
			}
		}
	}
	return order, nil
}

// reads lists what a node reads, its subgraphs included.
func reads(n *Node) []string {
	names := slices.Clone(n.In)
	for _, a := range n.Attrs {
		if a.G != nil {
			for _, x := range a.G.Nodes {
				names = append(names, reads(x)...)
			}
			for _, y := range a.G.Outputs {
				names = append(names, y.Name)
			}
		}
	}
	return names
}

// Sorted is an order of nodes, by their indices, in which what they read comes
// before them.
func Sorted(list []*Node) ([]int, error) { return sorted(list, &scope{}) }

// Reads lists what a node reads from around it: its operands, and what graphs in its
// attributes read and do not define. A name may stand twice.
func (n *Node) Reads() []string {
	var names []string
	for _, name := range n.In {
		if name != "" {
			names = append(names, name)
		}
	}
	for _, a := range n.Attrs {
		if a.G != nil {
			names = append(names, a.G.captures()...)
		}
	}
	return names
}

// captures are the names that a graph reads and does not define.
func (g *Graph) captures() []string {
	own := map[string]bool{"": true}
	for _, x := range g.Inputs {
		own[x.Name] = true
	}
	for _, t := range g.Initializers {
		own[t.Name] = true
	}
	for _, n := range g.Nodes {
		for _, y := range n.Out {
			own[y] = true
		}
	}
	var names []string
	read := func(name string) {
		if !own[name] {
			names = append(names, name)
		}
	}
	for _, n := range g.Nodes {
		for _, name := range n.Reads() {
			read(name)
		}
	}
	for _, y := range g.Outputs {
		read(y.Name)
	}
	return names
}

// Attr is an attribute of the node, nil where it is not set.
func (n *Node) Attr(name string) *Attribute {
	for _, a := range n.Attrs {
		if a.Name == name {
			return a
		}
	}
	return nil
}

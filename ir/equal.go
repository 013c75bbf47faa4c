package ir

import "fmt"

// Equal compares all fields of two graphs except Why, Pos and scratch. It returns where they first
// differ, or nil.
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

// equalNodes compares the text, which names operands, and the attribute values, whose kinds are not
// always visible in text.
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

// equalNested compares nested graphs. One of them may lack symbols of the enclosing graph.
func equalNested(a, b *Graph) bool {
	x, y := *a, *b
	x.Syms, y.Syms = longer(a.Syms, b.Syms), longer(b.Syms, a.Syms)
	return Equal(&x, &y) == nil
}

package bridge

import (
	"fmt"
	"reflect"
	"strings"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// walk is a Gorgonia graph as it is read here: every node with its operands.
type walk struct {
	all []*G.Node
	in  map[*G.Node][]*G.Node
}

// read lists the nodes of g and their operands and refuses a graph without
// nodes or with a cycle.
//
// g.Node and g.From look IDs up in an index that is stale once a node was
// removed, which differentiation and stabilisation do; the look-ups then
// answer for another node. A subgraph starts with a fresh one.
func read(g *G.ExprGraph) (*walk, error) {
	if g == nil || len(g.AllNodes()) == 0 {
		return nil, fmt.Errorf("gorgonia graph: it is empty")
	}
	sub := g.ExactSubgraphRoots(g.AllNodes()...)
	w := &walk{in: map[*G.Node][]*G.Node{}}
	edges := map[*G.Node][]*G.Node{} // operands, and edges that SetEdge added
	for _, n := range sub.AllNodes() {
		if sub.Node(n.ID()) != n {
			return nil, fmt.Errorf("gorgonia graph: two nodes have the ID %d", n.ID())
		}
		w.all = append(w.all, n)
		for it := sub.From(n.ID()); it.Next(); {
			w.in[n] = append(w.in[n], it.Node().(*G.Node))
		}
	}
	for _, n := range w.all {
		edges[n] = append(edges[n], w.in[n]...)
		for it := sub.To(n.ID()); it.Next(); {
			user := it.Node().(*G.Node)
			edges[user] = append(edges[user], n)
		}
	}
	return w, acyclic(w.all, edges)
}

// acyclic reports the first cycle.
func acyclic(all []*G.Node, edges map[*G.Node][]*G.Node) error {
	const open, done = 1, 2
	state := map[*G.Node]int{}
	var visit func(n *G.Node) error
	visit = func(n *G.Node) error {
		switch state[n] {
		case open:
			return fmt.Errorf("gorgonia graph: it has a cycle through %s", describe(n))
		case done:
			return nil
		}
		state[n] = open
		for _, x := range edges[n] {
			if err := visit(x); err != nil {
				return err
			}
		}
		state[n] = done
		return nil
	}
	for _, n := range all {
		if err := visit(n); err != nil {
			return err
		}
	}
	return nil
}

// under is everything the roots depend on, the roots included.
func (w *walk) under(roots ...*G.Node) map[*G.Node]bool {
	seen := map[*G.Node]bool{}
	var visit func(n *G.Node)
	visit = func(n *G.Node) {
		if !seen[n] {
			seen[n] = true
			for _, x := range w.in[n] {
				visit(x)
			}
		}
	}
	for _, r := range roots {
		visit(r)
	}
	return seen
}

// roots are what Grad was called on, and what a machine computes besides.
type roots struct {
	costs []*G.Node
	reads []*G.Node // gorgonia.Read statements, of forward values or parameters' gradients
	sinks []*G.Node // forward values that nothing uses
}

// survey tells the forward graph from the gradients that Grad added: those are
// the Deriv of some node or depend on one. A cost is a differentiated value
// that no other differentiated value uses.
func (w *walk) survey(cost *G.Node) roots {
	var r roots
	used := map[*G.Node]bool{}
	covered := map[*G.Node]bool{}
	for _, n := range w.all {
		for _, x := range w.in[n] {
			used[x] = used[x] || !isRead(n)
			covered[x] = covered[x] || n.Deriv() != nil
		}
	}
	for _, n := range w.all {
		if cost == nil && n.Op() != nil && n.Deriv() != nil && !covered[n] {
			r.costs = append(r.costs, n)
		}
	}
	if cost != nil {
		r.costs = []*G.Node{cost}
	}
	forward, backward := w.under(r.costs...), w.backward()
	for _, n := range w.all {
		x := n
		if isRead(n) {
			x = w.in[n][0]
		}
		switch behind := backward[x] && !forward[x]; {
		case isRead(n):
			r.reads = append(r.reads, n)
		case !behind && !used[n] && !forward[n] && n.Op() != nil && !isConst(n):
			r.sinks = append(r.sinks, n)
		}
	}
	return r
}

// backward are the gradients and what depends on them.
func (w *walk) backward() map[*G.Node]bool {
	memo := map[*G.Node]bool{}
	for _, n := range w.all {
		if d := n.Deriv(); d != nil && !isConst(d) {
			memo[d] = true
		}
	}
	seen := map[*G.Node]bool{}
	var visit func(n *G.Node) bool
	visit = func(n *G.Node) bool {
		if !seen[n] {
			seen[n] = true
			for _, x := range w.in[n] {
				if visit(x) {
					memo[n] = true
				}
			}
		}
		return memo[n]
	}
	for _, n := range w.all {
		visit(n)
	}
	return memo
}

// structOf is an op without pointers around it.
func structOf(op G.Op) reflect.Value {
	v := reflect.ValueOf(op)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return v
}

// opType is the name of the Go type of a node's op where it is Gorgonia's own,
// "" for inputs, and the full name for all others.
func opType(n *G.Node) string {
	if n.Op() == nil {
		return ""
	}
	t := structOf(n.Op()).Type()
	if t.PkgPath() == "gorgonia.org/gorgonia" {
		return t.Name()
	}
	return t.String()
}

func isRead(n *G.Node) bool { return opType(n) == "readOp" }

func isConst(n *G.Node) bool { return strings.HasPrefix(opType(n), "constant") }

// describe names a node in messages.
func describe(n *G.Node) string {
	if n.Op() == nil {
		return fmt.Sprintf("input %q", n.Name())
	}
	return fmt.Sprintf("node %d (gorgonia type %s, shape %v)", n.ID(), structOf(n.Op()).Type(), n.Shape())
}

// elemOf is the element type of a node, ok where it has one.
func elemOf(n *G.Node) (d tensor.Dtype, ok bool) {
	t := n.Type()
	for {
		of, nested := t.(G.TensorType)
		if !nested {
			break
		}
		t = of.Of
	}
	d, ok = t.(tensor.Dtype)
	return d, ok
}

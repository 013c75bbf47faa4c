package ir

import (
	"runtime"
	"slices"
	"testing"
)

// TestSelect compares what parts of a graph find at the same time with a walk.
func TestSelect(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	b := NewBuilder("chain")
	x := b.Declare(Input, "x", T(F32, 2), nil, nil)
	for i := range 2 * smallGraph {
		at := b.In(Section(i * int(NumSections) / (2 * smallGraph)))
		if x = at.Neg(x); i%7 == 0 {
			x = at.Exp(x)
		}
	}
	g := b.Graph()
	if b.Err() != nil || len(g.Parts()) != 6 {
		t.Fatalf("%d parts, error %v", len(g.Parts()), b.Err())
	}
	is := func(s Section, n *Node) bool { return n.Op == OpExp && s != Forward }
	var want Part
	for s, n := range g.Nodes {
		if is(s, n) {
			want[s] = append(want[s], n)
		}
	}
	got := g.Select(is)
	if got.Len() < smallGraph/7 {
		t.Errorf("%d nodes found", got.Len())
	}
	for s := range NumSections {
		if !slices.Equal(got[s], want[s]) {
			t.Errorf("%s: %d nodes, want %d in the graph's order", s, len(got[s]), len(want[s]))
		}
	}
}

// TestShapesAreInterned makes more shapes than the table of recent ones holds, twice.
func TestShapesAreInterned(t *testing.T) {
	made := make([]Shape, 3*len(recentShapes))
	for round := range 2 {
		for i := range made {
			s := MakeShape(Dim(i), 7)
			if round == 1 && s != made[i] {
				t.Fatalf("[%d,7] is another shape than before", i)
			}
			if made[i] = s; !slices.Equal(s.Dims(), []Dim{Dim(i), 7}) {
				t.Fatalf("[%d,7] has the dimensions %v", i, s.Dims())
			}
		}
	}
}

// TestSupply takes lists of numbers for a small and a large graph, and looks for one that overlaps
// another.
func TestSupply(t *testing.T) {
	small, large := &Graph{Body: [NumSections][]*Node{Forward: make([]*Node, 3)}}, &Graph{}
	large.Body[Update] = make([]*Node, smallGraph)
	for _, g := range []*Graph{small, large} {
		var s supply[int]
		var all [][]int
		for i := range 4 * supplied {
			list := s.take(i%7, g)
			if i == 100 {
				list = s.take(supplied+1, g)
			}
			for k, x := range list {
				if x != 0 {
					t.Fatalf("%d nodes: a list starts with %d", g.NumNodes(), x)
				}
				list[k] = i + 1
			}
			_ = append(list, -1)
			all = append(all, list)
		}
		for i, list := range all {
			for _, x := range list {
				if x != i+1 {
					t.Fatalf("%d nodes: list %d has %d, which was written to another one", g.NumNodes(), i, x)
				}
			}
		}
	}
}

package ir

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
)

// Replace makes every reader of a key of m, and the graph's results, use its value instead. Chains
// (a→b→c) are followed.
func (g *Graph) Replace(m map[*Value]*Value) {
	if len(m) == 0 {
		return
	}
	final := func(v *Value) *Value {
		for {
			w, ok := m[v]
			if !ok || v == nil {
				return v
			}
			v = w
		}
	}
	g.InParts(g.Parts(), func(_ int, p *Part) {
		for _, n := range p.Nodes {
			for i, v := range n.In {
				n.In[i] = final(v)
			}
			n.Recapture(final)
		}
	})
	for i, v := range g.Return {
		g.Return[i] = final(v)
	}
}

// Filter keeps the nodes for which keep holds.
func (g *Graph) Filter(keep func(Section, *Node) bool) {
	for s := range NumSections {
		kept := g.Body[s][:0]
		for _, n := range g.Body[s] {
			if keep(s, n) {
				kept = append(kept, n)
			}
		}
		clear(g.Body[s][len(kept):])
		g.Body[s] = kept
	}
}

// DropUnused removes declarations that the compiled graph does not read, so that a step needs no
// feed for them.
func (g *Graph) DropUnused() {
	used := map[*Value]bool{}
	for _, n := range g.Nodes {
		for _, v := range n.In {
			used[v] = true
		}
		for _, v := range n.Out {
			used[v.Next] = true
		}
	}
	for _, v := range g.Return {
		used[v] = true
	}
	g.Vars = slices.DeleteFunc(g.Vars, func(v *Value) bool { return !used[v] })
}

// Undeclare removes a variable that nothing reads.
func (b *Builder) Undeclare(v *Value) {
	b.g.Vars = slices.DeleteFunc(b.g.Vars, func(x *Value) bool { return x == v })
	b.names.set(v.Name, nil)
}

// Sort puts each section into a topological order. Of the nodes whose operands are computed, the
// one with the smallest rank comes first. Ranks are by node ID after Number. It fails on a cycle
// and names a value of it.
func (g *Graph) Sort(rank func(n *Node) int64) error {
	for s := range NumSections {
		sorted, err := sortSection(g.Body[s], rank)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		g.Body[s] = sorted
	}
	return nil
}

func sortSection(nodes []*Node, rank func(*Node) int64) ([]*Node, error) {
	at := make(map[*Node]int32, len(nodes))
	for i, n := range nodes {
		at[n] = int32(i)
	}
	waits := make([]int32, len(nodes))
	readers := make([][]int32, len(nodes))
	for i, n := range nodes {
		for _, v := range append(n.In[:len(n.In):len(n.In)], n.Captured...) {
			if v == nil || v.Def == nil {
				continue
			}
			if d, ok := at[v.Def]; ok {
				waits[i]++
				readers[d] = append(readers[d], int32(i))
			}
		}
	}
	h := &nodeHeap{}
	for i, n := range nodes {
		if waits[i] == 0 {
			h.push(rank(n), int32(i))
		}
	}
	out := make([]*Node, 0, len(nodes))
	for h.len() > 0 {
		i := h.pop()
		out = append(out, nodes[i])
		for _, r := range readers[i] {
			if waits[r]--; waits[r] == 0 {
				h.push(rank(nodes[r]), r)
			}
		}
	}
	if len(out) < len(nodes) {
		for i, n := range nodes {
			if waits[i] > 0 {
				return nil, fmt.Errorf("%s is part of a cycle", n.Name())
			}
		}
	}
	return out, nil
}

// nodeHeap is a binary min-heap of section indices by rank, then index.
type nodeHeap struct {
	rank []int64
	node []int32
}

func (h *nodeHeap) len() int { return len(h.node) }

func (h *nodeHeap) less(i, j int) bool {
	return h.rank[i] < h.rank[j] || h.rank[i] == h.rank[j] && h.node[i] < h.node[j]
}

func (h *nodeHeap) swap(i, j int) {
	h.rank[i], h.rank[j] = h.rank[j], h.rank[i]
	h.node[i], h.node[j] = h.node[j], h.node[i]
}

func (h *nodeHeap) push(r int64, n int32) {
	h.rank, h.node = append(h.rank, r), append(h.node, n)
	for i := len(h.node) - 1; i > 0; {
		p := (i - 1) / 2
		if !h.less(i, p) {
			break
		}
		h.swap(i, p)
		i = p
	}
}

func (h *nodeHeap) pop() int32 {
	top, last := h.node[0], len(h.node)-1
	h.swap(0, last)
	h.rank, h.node = h.rank[:last], h.node[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return top
		}
		if c+1 < last && h.less(c+1, c) {
			c++
		}
		if !h.less(c, i) {
			return top
		}
		h.swap(i, c)
		i = c
	}
}

// Shuffle puts each section into a random topological order, seeded by the graph's name and salt.
// Tests and -check run it before each pass, so that no pass depends on an accidental order.
func (g *Graph) Shuffle(salt uint64) error {
	f := fnv.New64a()
	f.Write([]byte(g.Name))
	r := rand.New(rand.NewPCG(f.Sum64(), salt))
	return g.Sort(func(*Node) int64 { return r.Int64() })
}

// Bind replaces symbolic dimensions by sizes and infers all types again. A size for an unknown
// symbol is an error. Symbols without a size stay.
func (g *Graph) Bind(sizes map[string]int64) error {
	to := map[Dim]Dim{}
	for name, n := range sizes {
		found := false
		for i, s := range g.Syms {
			if s.Name == name {
				to[Dim(-i-1)], found = Dim(n), true
			}
		}
		if !found {
			var names []string
			for _, d := range g.Syms {
				names = append(names, d.Name)
			}
			if len(names) == 0 {
				return fmt.Errorf("no dimension %q in graph @%s, which has no named dimensions", name, g.Name)
			}
			return fmt.Errorf("no dimension %q in graph @%s; there are %s", name, g.Name, strings.Join(names, ", "))
		}
		if n <= 0 {
			return fmt.Errorf("dimension %s = %d: want a size above zero", name, n)
		}
	}
	for _, v := range g.Vars {
		if !v.Type.Shape.Known() {
			continue
		}
		d := v.Type.Shape.Dims()
		for i := range d {
			if n, ok := to[d[i]]; ok {
				d[i] = n
			}
		}
		if err := CheckDims(d); err != nil {
			return fmt.Errorf("%s: %w", v, err)
		}
		v.Type.Shape = MakeShape(d...)
	}
	for _, n := range g.Nodes {
		if n.Op == OpForeign {
			continue
		}
		if err := n.Retype(); err != nil {
			return err
		}
	}
	return nil
}

package plan

import (
	"cmp"
	"slices"
)

// Repeats states what a forward pass computes, to choose the values that are kept for the backward
// pass and the nodes that run a second time there.
//
// A choice is a set of nodes that run again. It determines the kept values: those that the backward
// pass or nodes of the set read, except those that nodes of the set compute.
type Repeats struct {
	Values []RepeatValue
	Nodes  []RepeatNode
}

// RepeatValue is a result of the forward pass.
type RepeatValue struct {
	Bytes int64
	Node  int32 // node that computes it
	Read  bool  // the backward pass reads it
}

// RepeatNode is a node of the forward pass, operands before their readers.
type RepeatNode struct {
	Work  int64   // of running it once more
	Never bool    // it cannot run twice
	In    []int32 // values that it reads, except those that are always kept
}

// RepeatChoice is a set of nodes that run again, with its cost and the kept values.
type RepeatChoice struct {
	Again []bool // by node
	Work  int64
	Bytes int64
	Kept  []bool // by value
}

// Choose removes from again the nodes that are not read or cannot run twice, and sums up the cost
// of the others.
func (r *Repeats) Choose(again []bool) *RepeatChoice {
	c := &RepeatChoice{Again: make([]bool, len(r.Nodes)), Kept: make([]bool, len(r.Values))}
	read := make([]bool, len(r.Values))
	wanted := make([]bool, len(r.Nodes)) // it is in again, and one of its results is read
	for i, v := range r.Values {
		read[i] = v.Read
		wanted[v.Node] = wanted[v.Node] || v.Read
	}
	for n := len(r.Nodes) - 1; n >= 0; n-- {
		x := &r.Nodes[n]
		if !again[n] || x.Never || !wanted[n] {
			continue
		}
		c.Again[n] = true
		c.Work += x.Work
		for _, v := range x.In {
			read[v], wanted[r.Values[v].Node] = true, true
		}
	}
	for i, v := range r.Values {
		if read[i] && !c.Again[v.Node] {
			c.Kept[i] = true
			c.Bytes += v.Bytes
		}
	}
	return c
}

// Key is equal for equal sets.
func (c *RepeatChoice) Key() string {
	key := make([]byte, len(c.Again))
	for i, again := range c.Again {
		if again {
			key[i] = 1
		}
	}
	return string(key)
}

// Frontier is the lower convex hull of all choices, by bytes kept and work: its corners, from the
// choice that repeats nothing to the one that keeps the fewest bytes.
type Frontier struct {
	Corners []*RepeatChoice // by work
	bounds  []bound
}

// bound is a lower bound of a·work + b·bytes over all choices.
type bound struct{ a, b, least float64 }

// Bound is a lower bound of the work of choices that keep at most that many bytes: the optimum of
// the linear program in which a value may be kept in part. By strong duality it is the best of the
// bounds that the cuts have proved.
func (f *Frontier) Bound(bytes int64) (work float64) {
	for _, b := range f.bounds {
		if b.a > 0 {
			work = max(work, (b.least-b.b*float64(bytes))/b.a)
		}
	}
	return work
}

// Frontier finds corners by at most the given number of minimum cuts. Each cut minimizes in the
// direction normal to the edge between two known corners (Eisner and Severance, "Mathematical
// Techniques for Efficient Record Segmentation in Large Shared Databases", 1976), the longest edges
// first. It finds a new corner, or proves that the edge is on the hull.
func (r *Repeats) Frontier(cuts int) *Frontier {
	f := &Frontier{}
	scale := r.scale()
	first := r.Choose(make([]bool, len(r.Nodes)))
	last, b := r.cut(scale, 1, 1<<14)
	f.Corners, f.bounds = []*RepeatChoice{first}, []bound{b}
	if last.Bytes >= first.Bytes {
		return f
	}
	f.Corners = append(f.Corners, last)
	edges := [][2]*RepeatChoice{{first, last}}
	for n := 0; len(edges) > 0 && n < cuts; n++ {
		slices.SortStableFunc(edges, func(x, y [2]*RepeatChoice) int {
			return cmp.Compare(scale.area(y[0], y[1]), scale.area(x[0], x[1]))
		})
		x, y := edges[0][0], edges[0][1]
		edges = edges[1:]
		a, b := scale.normal(x, y)
		z, bound := r.cut(scale, a, b)
		f.bounds = append(f.bounds, bound)
		if z.Bytes <= y.Bytes || z.Bytes >= x.Bytes || z.Work <= x.Work || z.Work >= y.Work || scale.above(z, x, y) {
			continue
		}
		f.Corners = append(f.Corners, z)
		edges = append(edges, [2]*RepeatChoice{x, z}, [2]*RepeatChoice{z, y})
	}
	slices.SortFunc(f.Corners, func(x, y *RepeatChoice) int { return cmp.Compare(x.Work, y.Work) })
	return f
}

// units makes work and bytes comparable: the sum of each is scaled to 1 << 40.
type units struct{ work, bytes float64 }

func (r *Repeats) scale() units {
	work, bytes := 1.0, 1.0
	for _, n := range r.Nodes {
		work += float64(n.Work)
	}
	for _, v := range r.Values {
		bytes += float64(v.Bytes)
	}
	return units{(1 << 40) / work, (1 << 40) / bytes}
}

// normal is the direction in which x and y cost the same.
func (u units) normal(x, y *RepeatChoice) (a, b int64) {
	work, bytes := float64(y.Work-x.Work)*u.work, float64(x.Bytes-y.Bytes)*u.bytes
	most := max(work, bytes)
	return max(1, int64((1<<14)*bytes/most)), max(1, int64((1<<14)*work/most))
}

func (u units) area(x, y *RepeatChoice) float64 {
	return float64(y.Work-x.Work) * u.work * float64(x.Bytes-y.Bytes) * u.bytes
}

// above reports whether z is not clearly below the edge from x to y.
func (u units) above(z, x, y *RepeatChoice) bool {
	share := float64(x.Bytes-z.Bytes) / float64(x.Bytes-y.Bytes)
	return float64(z.Work) >= float64(x.Work)+share*float64(y.Work-x.Work)*(1-1e-3)
}

// cut finds the choice with the least a·work + b·bytes. A node on the sink side runs again. A value
// on the sink side is available to the backward pass: it is kept, unless its node runs again.
func (r *Repeats) cut(u units, a, b int64) (*RepeatChoice, bound) {
	values := int32(len(r.Values))
	w := &network{nodes: 2 + values + int32(len(r.Nodes))}
	value := func(v int32) int32 { return 2 + v }
	node := func(n int32) int32 { return 2 + values + n }
	for i, v := range r.Values {
		w.arc(node(v.Node), value(int32(i)), b*int64(float64(v.Bytes)*u.bytes))
		if v.Read {
			w.arc(value(int32(i)), sinkNode, inf)
		}
	}
	for n, x := range r.Nodes {
		work := inf
		if !x.Never {
			work = a * int64(float64(x.Work)*u.work)
		}
		w.arc(srcNode, node(int32(n)), work)
		for _, v := range x.In {
			w.arc(value(v), node(int32(n)), inf)
		}
	}
	c := w.solve(inTurn)
	again := make([]bool, len(r.Nodes))
	for n := range r.Nodes {
		again[n] = c.sink[node(int32(n))]
	}
	return r.Choose(again), bound{float64(a) * u.work, float64(b) * u.bytes, float64(c.cost)}
}

// Between combines two choices: the first nodes run again if they do in y, the others if they do in
// x.
func (r *Repeats) Between(x, y *RepeatChoice, first int) *RepeatChoice {
	return r.Choose(slices.Concat(y.Again[:first], x.Again[first:]))
}

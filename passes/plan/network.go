package plan

import "slices"

// network is a directed graph with capacities, of which the minimum cut is computed. Node 0 is the
// source, node 1 the sink. A node on the source side costs each of its edges to the sink side.
// Edges of capacity inf must not be cut.
type network struct {
	nodes int32
	edges []arc
}

type arc struct {
	from, to int32
	cap      int64
}

const (
	srcNode  = int32(0)
	sinkNode = int32(1)
	inf      = int64(1) << 60
)

func (w *network) node() int32 { w.nodes++; return w.nodes - 1 }

func (w *network) arc(from, to int32, c int64) {
	if from != to && c > 0 && to != srcNode && from != sinkNode {
		w.edges = append(w.edges, arc{from, to, c})
	}
}

// cut is a minimum cut: the nodes on the sink side, its cost, and for nodes without a choice the
// neighbour that forced them. For other nodes that is the node itself.
type cut struct {
	sink       []bool
	cost       int64
	forcedBy   []int32
	free       int // number of nodes that no terminal forces
	components int
	largest    int
}

// solve finds the minimum cut with the largest source side: a node is on the sink side only if it
// is there in every minimum cut. It first spreads forced sides over inf edges. The remaining nodes
// are divided into components, so that the flow runs on small graphs.
func (w *network) solve(together func(...func())) *cut {
	c := &cut{sink: make([]bool, w.nodes), forcedBy: make([]int32, w.nodes)}
	side := w.force(c, together)
	comps, comp, local := w.split(side)
	c.components, c.free = comps.count(), len(comps.list)
	for i := range int32(c.components) {
		c.largest = max(c.largest, len(comps.of(i)))
	}
	var edges *groups[arc]
	together(func() {
		edges = grouped(w.edges, c.components, func(e arc) (int32, arc, bool) {
			u, v := side[e.from], side[e.to]
			if u == sideNone && v != sideSource {
				return comp[e.from], e, true
			}
			return comp[e.to], e, v == sideNone && u == sideSource
		})
	}, func() { w.forced(c, side) })
	half := int32(c.components / 2)
	var costs [2]int64
	flows := func(k int, first, end int32) {
		f := &flow{}
		for i := first; i < end; i++ {
			costs[k] += f.component(comps.of(i), edges.of(i), local, side, c.sink)
		}
	}
	together(func() { flows(1, half, int32(c.components)) }, func() { flows(0, 0, half) })
	c.cost += costs[0] + costs[1]
	return c
}

// forced adds the forced nodes and the edges between them to the cut.
func (w *network) forced(c *cut, side []cutSide) {
	for _, e := range w.edges {
		if side[e.from] == sideSource && side[e.to] == sideSink {
			c.cost += e.cap
		}
	}
	for v, s := range side {
		c.sink[v] = s == sideSink
	}
}

// groups lists things by the number of their group.
type groups[T any] struct {
	start []int32
	list  []T
}

func (g *groups[T]) count() int     { return len(g.start) - 1 }
func (g *groups[T]) of(i int32) []T { return g.list[g.start[i]:g.start[i+1]] }

// grouped groups what in returns for the entries of list, in their order.
func grouped[E, T any](list []E, count int, in func(E) (group int32, x T, ok bool)) *groups[T] {
	start := make([]int32, count+2)
	next := start[1:] // where the next thing of a group goes; afterwards, where the group after it starts
	for _, e := range list {
		if i, _, ok := in(e); ok {
			next[i+1]++
		}
	}
	for i := range count {
		next[i+1] += next[i]
	}
	g := &groups[T]{start[:count+1], make([]T, next[count])}
	for _, e := range list {
		if i, x, ok := in(e); ok {
			g.list[next[i]] = x
			next[i]++
		}
	}
	return g
}

type cutSide uint8

const (
	sideNone cutSide = iota
	sideSource
	sideSink
)

// force spreads the two terminals over inf edges: an inf edge from the source side forces its
// target to the source side, and one to the sink side forces its origin to the sink side.
func (w *network) force(c *cut, together func(...func())) []cutSide {
	out, in := w.infEdges(together)
	side := make([]cutSide, w.nodes)
	queue := make([]int32, 0, w.nodes)
	spread := func(start int32, mark cutSide, next *groups[int32]) {
		side[start] = mark
		c.forcedBy[start] = start
		queue = append(queue[:0], start)
		for k := 0; k < len(queue); k++ {
			u := queue[k]
			for _, v := range next.of(u) {
				if side[v] == sideNone {
					side[v], c.forcedBy[v] = mark, u
					queue = append(queue, v)
				}
			}
		}
	}
	for i := range c.forcedBy {
		c.forcedBy[i] = int32(i)
	}
	spread(srcNode, sideSource, out)
	spread(sinkNode, sideSink, in)
	return side
}

// infEdges lists, by node, the ends of inf edges that start there, and the starts of those that end
// there.
func (w *network) infEdges(together func(...func())) (out, in *groups[int32]) {
	together(func() {
		out = grouped(w.edges, int(w.nodes), func(e arc) (int32, int32, bool) { return e.from, e.to, e.cap >= inf })
	}, func() {
		in = grouped(w.edges, int(w.nodes), func(e arc) (int32, int32, bool) { return e.to, e.from, e.cap >= inf })
	})
	return out, in
}

// split returns the connected components of the nodes that are not forced, and for each such node its
// component and its number there, from 2 on.
func (w *network) split(side []cutSide) (comps *groups[int32], comp, local []int32) {
	root := make([]int32, w.nodes)
	for i := range root {
		root[i] = int32(i)
	}
	find := func(v int32) int32 {
		for root[v] != v {
			root[v] = root[root[v]]
			v = root[v]
		}
		return v
	}
	for _, e := range w.edges {
		if side[e.from] == sideNone && side[e.to] == sideNone {
			root[find(e.from)] = find(e.to)
		}
	}
	count := 0
	id := make([]int32, w.nodes) // by root: the number of its component, from 1 on
	free := make([]int32, 0, w.nodes)
	for v := int32(2); v < w.nodes; v++ {
		if side[v] != sideNone {
			continue
		}
		free = append(free, v)
		r := find(v)
		if id[r] == 0 {
			count++
			id[r] = int32(count)
		}
		root[v] = r
	}
	comp, local = root, id // in their memory
	for _, v := range free {
		comp[v] = id[root[v]] - 1
	}
	comps = grouped(free, count, func(v int32) (int32, int32, bool) { return comp[v], v, true })
	for i := range int32(count) {
		for k, v := range comps.of(i) {
			local[v] = int32(k) + 2
		}
	}
	return comps, comp, local
}

// component runs the flow on one component and marks its sink side: the nodes from which the sink
// can be reached in the residual graph.
func (f *flow) component(members []int32, edges []arc, local []int32, side []cutSide, sink []bool) int64 {
	f.reset(int32(len(members)) + 2)
	place := func(v int32) int32 {
		switch side[v] {
		case sideSource:
			return srcNode
		case sideSink:
			return sinkNode
		}
		return local[v]
	}
	f.build(edges, place)
	cost := f.run()
	reach := f.reachesSink()
	for _, v := range members {
		sink[v] = reach[local[v]]
	}
	return cost
}

// flow is Dinic's algorithm: blocking flows on level graphs, with current arcs. Its memory serves
// one component after the other.
type flow struct {
	n       int32
	start   []int32 // by node: its half edges
	to      []int32
	left    []int64 // residual capacity
	reverse []int32 // by half edge: the half edge of the opposite direction
	level   []int32
	at      []int32
	queue   []int32
	reach   []bool // reachesSink
}

// reset makes f a flow of n nodes without edges.
func (f *flow) reset(n int32) {
	f.n = n
	f.start = zeros(f.start, n+1)
	f.level, f.at = zeros(f.level, n), zeros(f.at, n)
}

// zeros is n zeros, in the memory of list if they fit.
func zeros[T any](list []T, n int32) []T {
	list = slices.Grow(list[:0], int(n))[:n]
	clear(list)
	return list
}

func (f *flow) build(edges []arc, place func(int32) int32) {
	for _, e := range edges {
		f.start[place(e.from)+1]++
		f.start[place(e.to)+1]++
	}
	for i := range f.n {
		f.start[i+1] += f.start[i]
	}
	m := f.start[f.n]
	f.to, f.left, f.reverse = zeros(f.to, m), zeros(f.left, m), zeros(f.reverse, m)
	at := f.at // run sets it again
	copy(at, f.start)
	for _, e := range edges {
		u, v := place(e.from), place(e.to)
		i, j := at[u], at[v]
		if u == v {
			j++
		}
		at[u]++
		at[v]++
		f.to[i], f.left[i], f.reverse[i] = v, e.cap, j
		f.to[j], f.left[j], f.reverse[j] = u, 0, i
	}
}

func (f *flow) run() int64 {
	total := int64(0)
	for f.layer() {
		copy(f.at, f.start[:f.n])
		for {
			pushed := f.augment()
			if pushed == 0 {
				break
			}
			total += pushed
		}
	}
	return total
}

// layer numbers nodes by distance from the source. It returns false if the sink cannot be reached.
func (f *flow) layer() bool {
	for i := range f.level {
		f.level[i] = -1
	}
	f.level[srcNode] = 0
	f.queue = append(f.queue[:0], srcNode)
	for k := 0; k < len(f.queue); k++ {
		u := f.queue[k]
		for i := f.start[u]; i < f.start[u+1]; i++ {
			if v := f.to[i]; f.left[i] > 0 && f.level[v] < 0 {
				f.level[v] = f.level[u] + 1
				f.queue = append(f.queue, v)
			}
		}
	}
	return f.level[sinkNode] >= 0
}

// augment sends flow along one path of the level graph, found without
// recursion: paths are as long as the network.
func (f *flow) augment() int64 {
	path := f.queue[:0]
	u := srcNode
	for u != sinkNode {
		if i := f.forward(u); i >= 0 {
			path = append(path, i)
			u = f.to[i]
			continue
		}
		if u == srcNode {
			f.queue = path
			return 0
		}
		f.level[u] = -1 // a dead end
		last := path[len(path)-1]
		path = path[:len(path)-1]
		u = f.to[f.reverse[last]]
	}
	least := inf
	for _, i := range path {
		least = min(least, f.left[i])
	}
	for _, i := range path {
		f.left[i] -= least
		f.left[f.reverse[i]] += least
	}
	f.queue = path
	return least
}

// forward is the current arc of u to the next level, -1 if none is left.
func (f *flow) forward(u int32) int32 {
	for ; f.at[u] < f.start[u+1]; f.at[u]++ {
		i := f.at[u]
		if f.left[i] > 0 && f.level[f.to[i]] == f.level[u]+1 {
			return i
		}
	}
	return -1
}

// reachesSink marks the nodes with a residual path to the sink.
func (f *flow) reachesSink() []bool {
	f.reach = zeros(f.reach, f.n)
	reach := f.reach
	reach[sinkNode] = true
	f.queue = append(f.queue[:0], sinkNode)
	for k := 0; k < len(f.queue); k++ {
		v := f.queue[k]
		for i := f.start[v]; i < f.start[v+1]; i++ {
			u := f.to[i]
			if !reach[u] && f.left[f.reverse[i]] > 0 {
				reach[u] = true
				f.queue = append(f.queue, u)
			}
		}
	}
	return reach
}

package ir

import (
	"runtime"
	"sync"
)

// smallGraph is the number of nodes below which goroutines take longer than they save.
const smallGraph = 20_000

// Small reports whether walks of g are too short to be divided between goroutines.
func (g *Graph) Small() bool { return g.NumNodes() < smallGraph }

// Together runs fs, which walk g, at the same time and waits for all of them: the last one here, the
// others in goroutines of their own. What one of them writes, no other one reads or writes. A panic of
// any of them is a panic of the caller. For a small graph they run one after the other.
func (g *Graph) Together(fs ...func()) {
	if g.Small() {
		for _, f := range fs {
			f()
		}
		return
	}
	Together(fs...)
}

// Together is Graph.Together for what is large enough.
func Together(fs ...func()) {
	last := len(fs) - 1
	caught := make([]any, last)
	var others sync.WaitGroup
	for i, f := range fs[:last] {
		others.Go(func() {
			defer func() { caught[i] = recover() }()
			f()
		})
	}
	func() {
		defer others.Wait()
		fs[last]()
	}()
	for _, r := range caught {
		if r != nil {
			panic(r)
		}
	}
}

// Part is some of the nodes of a graph, in its order.
type Part [NumSections][]*Node

// Nodes calls f for every node in section order until it returns false.
func (p *Part) Nodes(yield func(Section, *Node) bool) {
	for s := range NumSections {
		for _, n := range p[s] {
			if !yield(s, n) {
				return
			}
		}
	}
}

// Len is the number of nodes.
func (p *Part) Len() int {
	sum := 0
	for _, nodes := range p {
		sum += len(nodes)
	}
	return sum
}

// Parts divides the nodes, in their order, into two parts for each processor, at most eight: one for a
// small graph, or for one processor. Parts have about as many operands and results. There are two
// because one part may take longer than another; processors then share the rest.
func (g *Graph) Parts() []Part {
	processors := runtime.GOMAXPROCS(0)
	if processors == 1 || g.Small() {
		return []Part{g.Body}
	}
	count := min(2*processors, 8)
	parts := make([]Part, count)
	var weight [NumSections]int
	sum, before := 0, 0
	for s, body := range g.Body {
		weight[s] = meanWeight(body)
		sum += len(body) * weight[s]
	}
	for s, body := range g.Body {
		for k := range parts { // from sum*k/count to sum*(k+1)/count
			from, to := (sum*k/count-before)/weight[s], (sum*(k+1)/count-before)/weight[s]
			parts[k][s] = body[min(max(from, 0), len(body)):min(max(to, 0), len(body))]
		}
		before += len(body) * weight[s]
	}
	return parts
}

// meanWeight estimates from 64 nodes how many values a node of body reads and writes, in 64ths. Updates
// of variables have many.
func meanWeight(body []*Node) int {
	const sample = 64
	sum := 0
	for i := range sample {
		if len(body) > 0 {
			n := body[i*len(body)/sample]
			sum += len(n.In) + len(n.Out)
		}
	}
	return sum + sample
}

// InParts calls f for each of the parts of g, at the same time.
func (g *Graph) InParts(parts []Part, f func(k int, p *Part)) {
	if len(parts) == 1 {
		f(0, &parts[0])
		return
	}
	fs := make([]func(), len(parts))
	for k := range parts {
		fs[k] = func() { f(k, &parts[k]) }
	}
	g.Together(fs...)
}

// Select lists the nodes for which is holds, in their order. It is asked about nodes of each part of g at
// the same time.
func (g *Graph) Select(is func(s Section, n *Node) bool) *Part {
	parts := g.Parts()
	found := make([]Part, len(parts))
	g.InParts(parts, func(k int, p *Part) {
		for s, n := range p.Nodes {
			if is(s, n) {
				found[k][s] = append(found[k][s], n)
			}
		}
	})
	all := &found[0]
	for _, p := range found[1:] {
		for s, nodes := range p {
			all[s] = append(all[s], nodes...)
		}
	}
	return all
}

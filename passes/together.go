package passes

import (
	"sync"

	"ampc/ir"
)

// smallGraph is the number of nodes below which goroutines take longer than they save.
const smallGraph = 20_000

// together runs fs, which walk g, at the same time and waits for all of them: the last one here, the
// others in goroutines of their own. What one of them writes, no other one reads or writes. A panic of
// any of them is a panic of the caller. For a small graph they run one after the other.
func together(g *ir.Graph, fs ...func()) {
	if g.NumNodes() < smallGraph {
		for _, f := range fs {
			f()
		}
		return
	}
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

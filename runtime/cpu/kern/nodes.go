package kern

import (
	"slices"
	"sync"
	"sync/atomic"
)

// divideAmong divides the workers among NUMA nodes, in proportion to the processors of each and in
// order, so that workers with neighbouring shares of a region are on one node. A team whose workers
// would all be on one node has no nodes: nothing then differs from a machine of one.
func (t *team) divideAmong(nodes []Processors) {
	all := 0
	for i := range nodes {
		all += nodes[i].Len()
	}
	if all == 0 {
		return
	}
	var used []Processors
	home := make([]int, len(t.wake))
	node, below, last := 0, 0, -1
	for w := range home {
		for w*all/len(home) >= below+nodes[node].Len() {
			below += nodes[node].Len()
			node++
		}
		if node != last {
			used, last = append(used, nodes[node]), node
		}
		home[w] = len(used) - 1
	}
	if len(used) > 1 {
		t.nodes, t.home = used, home
	}
}

// startPinned starts the workers, each locked to a thread and the thread confined to the worker's
// node until the worker ends. If the system refuses, the team has no nodes.
func (t *team) startPinned() {
	var started sync.WaitGroup
	var refused atomic.Bool
	for w := range t.wake[1:] {
		started.Add(1)
		go func() {
			if was, ok := confine(&t.nodes[t.home[w+1]]); ok {
				defer release(&was)
			} else {
				refused.Store(true)
			}
			started.Done()
			t.worker(w + 1)
		}()
	}
	started.Wait()
	if refused.Load() {
		t.nodes, t.home = nil, nil
	}
}

// hire takes an idle worker for the crew of p: on several nodes the first one on the node of its
// caller, or else the first.
func (t *team) hire(p *Pool) int {
	at := len(t.idle) - 1
	if t.nodes != nil {
		slices.SortFunc(t.idle, func(a, b int) int { return b - a })
		for i, w := range slices.Backward(t.idle) {
			if t.home[w] == p.home {
				at = i
				break
			}
		}
	}
	w := t.idle[at]
	t.idle = slices.Delete(t.idle, at, at+1)
	return w
}

// keepers orders the crew of p before some of it is given back: on several nodes the workers on the
// node of its caller are the last to go.
func (t *team) keepers(p *Pool) []int {
	crew := *p.crew.Load()
	if t.nodes == nil {
		return crew
	}
	here := func(w int) bool { return t.home[w] == p.home }
	crew = slices.Clone(crew)
	slices.SortStableFunc(crew, func(a, b int) int { return flag(here(b)) - flag(here(a)) })
	return crew
}

// Nodes is the number of NUMA nodes that the workers are divided among, each confined to the
// processors of one, and 1 where they run anywhere: on one node, or if the system refuses.
func (p *Pool) Nodes() int { return max(len(p.team.nodes), 1) }

// ArenaUse is an array that lies in a block for some time: its first byte, its bytes, and how often
// steps read or write it.
type ArenaUse struct{ At, Size, Times int64 }

// Place provides the memory of a new block, whose content is not needed, on the NUMA nodes that use
// it: threads of each node touch its huge pages first. A page belongs to the node whose workers
// access it most, where each array is divided among the workers in the order of their numbers, as
// regions divide their indices. Pages that no array uses, and those of a block without uses, which
// all workers read as a whole, go to the nodes in turn. A machine that runs beside others (Fork) has
// workers of its own node most of the time: all pages are there. On one node Place does nothing.
func (m *Machine) Place(b *Block, uses []ArenaUse) {
	t := m.pool.team
	if t.nodes == nil || b.mapped == nil || len(b.mem) < HugePage {
		return
	}
	owners := t.owners(int64(len(b.mem)), toAlign(b.mem, HugePage), uses)
	if uses != nil && m.pool != t.pools[0] {
		for i := range owners {
			owners[i] = m.pool.home
		}
	}
	var threads sync.WaitGroup
	for node := range t.nodes {
		threads.Go(func() {
			if was, ok := confine(&t.nodes[node]); ok {
				defer release(&was)
			}
			for i, owner := range owners {
				if owner == node {
					at, end := hugePage(int64(len(b.mem)), toAlign(b.mem, HugePage), i)
					provide(b.mem[at:end])
				}
			}
		})
	}
	threads.Wait()
}

// hugePage is the bytes of a block of n bytes that lie in its huge page i, where page 0 ends, or page
// 1 begins, at byte first.
func hugePage(n, first int64, i int) (at, end int64) {
	at = first + int64(i-1)*HugePage
	return max(at, 0), min(at+HugePage, n)
}

// owners are the nodes of the huge pages of a block (hugePage). Where several use a page alike, it is
// that whose turn it is, if it is one of them, or else the first.
func (t *team) owners(n, first int64, uses []ArenaUse) []int {
	nodes, workers := len(t.nodes), int64(len(t.home))
	votes := make([]int64, int((n-first+HugePage-1)/HugePage+1)*nodes)
	for _, u := range uses {
		end := u.At
		for node, w := 0, int64(0); node < nodes; node++ {
			for w < workers && t.home[w] == node {
				w++
			}
			from := end
			end = u.At + u.Size*w/workers
			for i := int((from - first + HugePage) / HugePage); from < end; i++ {
				_, to := hugePage(n, first, i)
				to = min(to, end)
				votes[i*nodes+node] += u.Times * (to - from)
				from = to
			}
		}
	}
	owners := make([]int, len(votes)/nodes)
	for i := range owners {
		v := votes[i*nodes:][:nodes]
		owners[i] = i % nodes
		if most := slices.Max(v); v[owners[i]] < most {
			owners[i] = slices.Index(v, most)
		}
	}
	return owners
}

// provide makes the system provide the whole pages of b now.
func provide(b []byte) {
	b = wholePages(b)
	if len(b) == 0 || touch(b) {
		return
	}
	for i := 0; i < len(b); i += systemPage {
		b[i] = 0
	}
}

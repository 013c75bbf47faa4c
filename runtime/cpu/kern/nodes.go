package kern

import (
	"slices"
	"sync"
)

// layout is where workers are, which are divided among NUMA nodes.
type layout struct {
	nodes []*Processors // of the machine, those that have workers
	home  []int         // index of the node, by worker
}

// divideAmong divides workers among NUMA nodes, in proportion to the processors of each and in
// order, so that workers with neighbouring shares of a region are on one node. It is nil where the
// workers would all be on one node: nothing then differs from a machine of one.
func divideAmong(workers int, nodes []Processors) *layout {
	all := 0
	for i := range nodes {
		all += nodes[i].Len()
	}
	if all == 0 {
		return nil
	}
	l := &layout{home: make([]int, workers)}
	node, below, last := 0, 0, -1
	for w := range l.home {
		for w*all/workers >= below+nodes[node].Len() {
			below += nodes[node].Len()
			node++
		}
		if node != last {
			l.nodes, last = append(l.nodes, &nodes[node]), node
		}
		l.home[w] = len(l.nodes) - 1
	}
	if len(l.nodes) < 2 {
		return nil
	}
	return l
}

// node is the node of a worker; nil: it runs anywhere, or not at all.
func (l *layout) node(w int) *Processors {
	if l == nil || w >= len(l.home) {
		return nil
	}
	return l.nodes[l.home[w]]
}

// on reports whether a worker is on a node.
func (l *layout) on(w, node int) bool { return w < len(l.home) && l.home[w] == node }

// assignNodes divides the workers up to the limit among the host's nodes, and the pools in turn.
func (t *team) assignNodes() {
	l := divideAmong(t.limit, t.host.Nodes)
	t.layout.Store(l)
	for i, p := range t.pools {
		p.home = l.inTurn(i)
	}
}

// inTurn is the node of pool i.
func (l *layout) inTurn(i int) int {
	if l == nil {
		return 0
	}
	return i % len(l.nodes)
}

// seat confines a goroutine's thread to a node.
type seat struct {
	node *Processors // nil: to none
	tied bool        // the system has agreed
	was  Processors  // where the thread may run otherwise
}

// take moves to a node, or leaves where that is nil.
func (s *seat) take(node *Processors) {
	if node == s.node {
		return
	}
	s.leave()
	if s.node = node; node != nil {
		s.was, s.tied = confine(node)
	}
}

func (s *seat) leave() {
	if s.tied {
		release(&s.was)
	}
	s.node, s.tied = nil, false
}

// sit moves worker w to its node.
func (t *team) sit(w int) { t.seats[w].take(t.layout.Load().node(w)) }

// hire takes an idle worker below bound for the crew of p: on several nodes the first one on the node
// of its caller, or else the first; -1 if there is none.
func (t *team) hire(p *Pool, bound int) int {
	l, at := t.layout.Load(), -1
	if l != nil {
		slices.SortFunc(t.idle, func(a, b int) int { return b - a })
	}
	for i, w := range slices.Backward(t.idle) {
		if w >= bound {
			continue
		}
		if at < 0 {
			at = i
		}
		if l == nil || l.on(w, p.home) {
			at = i
			break
		}
	}
	if at < 0 {
		return -1
	}
	w := t.idle[at]
	t.idle = slices.Delete(t.idle, at, at+1)
	return w
}

// keepers orders the crew of p before some of it is given back: on several nodes the workers on the
// node of its caller are the last to go.
func (t *team) keepers(p *Pool) []int {
	crew, l := *p.crew.Load(), t.layout.Load()
	if l == nil {
		return crew
	}
	crew = slices.Clone(crew)
	slices.SortStableFunc(crew, func(a, b int) int { return flag(l.on(b, p.home)) - flag(l.on(a, p.home)) })
	return crew
}

// Nodes is the number of NUMA nodes that the workers are divided among, each confined to the
// processors of one, and 1 where they run anywhere: on one node, or if the system refuses.
func (p *Pool) Nodes() int {
	if l := p.team.layout.Load(); l != nil {
		return len(l.nodes)
	}
	return 1
}

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
	l, alone := m.pool.layout()
	if l == nil || b.mapped == nil || len(b.mem) < HugePage {
		return
	}
	owners := l.owners(int64(len(b.mem)), toAlign(b.mem, HugePage), uses)
	if uses != nil && alone >= 0 {
		for i := range owners {
			owners[i] = alone
		}
	}
	var threads sync.WaitGroup
	for node := range l.nodes {
		threads.Go(func() {
			var s seat
			s.take(l.nodes[node])
			defer s.leave()
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

// layout is where the team's workers are, and the node of the pool alone, -1 for the team's first pool.
func (p *Pool) layout() (l *layout, alone int) {
	p.team.mu.Lock()
	defer p.team.mu.Unlock()
	if p == p.team.pools[0] {
		return p.team.layout.Load(), -1
	}
	return p.team.layout.Load(), p.home
}

// hugePage is the bytes of a block of n bytes that lie in its huge page i, where page 0 ends, or page
// 1 begins, at byte first.
func hugePage(n, first int64, i int) (at, end int64) {
	at = first + int64(i-1)*HugePage
	return max(at, 0), min(at+HugePage, n)
}

// owners are the nodes of the huge pages of a block (hugePage). Where several use a page alike, it is
// that whose turn it is, if it is one of them, or else the first.
func (l *layout) owners(n, first int64, uses []ArenaUse) []int {
	nodes, workers := len(l.nodes), int64(len(l.home))
	votes := make([]int64, int((n-first+HugePage-1)/HugePage+1)*nodes)
	for _, u := range uses {
		end := u.At
		for node, w := 0, int64(0); node < nodes; node++ {
			for w < workers && l.home[w] == node {
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

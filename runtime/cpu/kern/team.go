package kern

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// team is the workers that several pools share. A pool in use has its caller and a crew: the
// workers that run its regions besides the caller. Callers and crews together are never more than
// there are workers, except for the moment until a pool notices that another one came into use.
type team struct {
	wake   []chan struct{}        // by worker; 0 stands for callers and is never woken
	owner  []atomic.Pointer[Pool] // the pool whose crew a worker is in; nil: none
	place  []place                // by worker
	over   atomic.Bool
	dry    bool         // regions run their first task alone, on the caller
	eager  bool         // there is a processor for every worker: polling takes none away
	nodes  []Processors // of the machine, those that have workers; nil: workers run anywhere
	home   []int        // index of the node, by worker
	change atomic.Int64 // counts how often pools came into use or went out of use

	mu    sync.Mutex
	procs int   // GOMAXPROCS when the team was made
	limit int   // workers that may run now: all, or GOMAXPROCS if that has become less
	users int   // pools in use
	idle  []int // workers that are in no crew
	pools []*Pool
}

// place is where a worker was when it last woke: one more than the number of the processor; 0 if
// that is not known and while the worker sleeps.
type place struct{ next atomic.Int64 }

func (p *place) cpu() int    { return int(p.next.Load()) - 1 }
func (p *place) set(cpu int) { p.next.Store(int64(cpu) + 1) }

func newTeam(n int, eager bool, nodes []Processors) *team {
	t := newTeamOf(n, eager)
	t.divideAmong(nodes)
	for w := 1; w < n; w++ {
		t.wake[w] = make(chan struct{}, 1)
	}
	if t.nodes != nil {
		t.startPinned()
		return t
	}
	for w := 1; w < n; w++ {
		go t.worker(w)
	}
	return t
}

// newTeamOf is newTeam without the goroutines of workers.
func newTeamOf(n int, eager bool) *team {
	t := &team{wake: make([]chan struct{}, n), owner: make([]atomic.Pointer[Pool], n), place: make([]place, n), eager: eager, procs: runtime.GOMAXPROCS(0), limit: n}
	for w := n - 1; w >= 1; w-- {
		t.idle = append(t.idle, w)
	}
	return t
}

// worker runs the regions of the pool whose crew w is in. A worker that wakes late may find another
// pool's region, or run tasks of a pool that it has just left. It uses index w in each of them, and
// no other worker does.
func (t *team) worker(w int) {
	for {
		slept := !t.await(t.wake[w])
		if slept {
			t.place[w].set(-1)
		}
		if <-t.wake[w]; t.over.Load() {
			return
		}
		if p := t.owner[w].Load(); p != nil {
			if slept {
				p.settle(w)
			}
			p.work(w)
		}
	}
}

// fork returns another pool of the same workers, which is not in use.
func (p *Pool) fork() *Pool {
	p.team.mu.Lock()
	defer p.team.mu.Unlock()
	return newPoolOf(p.team)
}

// Enter takes the pool into use: regions run between Enter and Leave. Pools in use at the same time
// divide the workers evenly; there may be as many pools as workers. If GOMAXPROCS has changed since
// the team was made, it limits the workers from here on. If the machine has several NUMA nodes, the
// goroutine that calls Enter stays on its thread, and the thread on a node, until the same goroutine
// calls Leave.
func (p *Pool) Enter() {
	p.enter()
	if p.team.nodes != nil {
		p.away, p.tied = confine(&p.team.nodes[p.home])
	}
}

func (p *Pool) enter() {
	t := p.team
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit = len(t.wake)
	if now := runtime.GOMAXPROCS(0); now < t.procs {
		t.limit = min(t.limit, now)
	}
	t.users++
	t.change.Add(1)
	p.used = true
	p.recrew()
}

// Leave ends the use of the pool. Its crew stays until another pool wants the workers, so a pool
// that is used again and again keeps the same ones.
func (p *Pool) Leave() {
	if p.tied {
		release(&p.away)
		p.tied = false
	}
	t := p.team
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users--
	t.change.Add(1)
	p.used = false
}

// noCrew is an empty crew.
var noCrew []int

// reclaim takes the crews of pools that are not in use.
func (t *team) reclaim() {
	for _, p := range t.pools {
		if p.used {
			continue
		}
		for _, w := range *p.crew.Load() {
			t.owner[w].Store(nil)
			t.idle = append(t.idle, w)
		}
		p.crew.Store(&noCrew)
	}
}

// share is the number of workers that a region has now, including the caller.
func (p *Pool) share() int {
	if p.seen != p.team.change.Load() {
		p.team.mu.Lock()
		p.recrew()
		p.team.mu.Unlock()
	}
	return 1 + len(*p.crew.Load())
}

// recrew returns workers or takes some, so that the crew is the pool's part of them.
func (p *Pool) recrew() {
	t := p.team
	if p.seen = t.change.Load(); !p.used {
		return
	}
	most := 0
	if spare := t.limit - t.users; spare > 0 {
		most = ceilDiv(spare, t.users)
	}
	if len(*p.crew.Load()) == most {
		return
	}
	have := t.keepers(p)
	t.reclaim()
	crew := make([]int, 0, most)
	for i, w := range have {
		if i < most {
			crew = append(crew, w)
			continue
		}
		t.owner[w].Store(nil)
		t.idle = append(t.idle, w)
	}
	for busy := len(t.wake) - 1 - len(t.idle); len(crew) < most && busy < t.limit-t.users && len(t.idle) > 0; busy++ {
		w := t.hire(p)
		t.owner[w].Store(p)
		crew = append(crew, w)
	}
	if t.nodes != nil { // workers of a node have neighbouring shares
		slices.Sort(crew)
	}
	p.crew.Store(&crew)
}

package kern

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// team is the workers that several pools share. A pool in use has its caller and a crew: the workers that run its regions
// beside the caller. Callers and crews together are never more than there are workers, but for the moment that a pool
// takes to notice that another one came into use.
type team struct {
	wake   []chan struct{}        // by worker; 0 stands for callers and is never woken
	owner  []atomic.Pointer[Pool] // whose crew a worker is in; nil: in none
	place  []place                // by worker
	over   atomic.Bool
	dry    bool         // regions run their first task alone, on the caller
	eager  bool         // a processor for every worker: waiting takes none away
	change atomic.Int64 // counts when pools came into use, or went

	mu    sync.Mutex
	procs int   // GOMAXPROCS when the team was made
	limit int   // workers that may run now: all, or GOMAXPROCS where that has become less since
	users int   // pools in use
	idle  []int // workers that are in no crew
	pools []*Pool
}

// place is where a worker was when it last woke: one more than the number of the processor, 0 where that is not known and while
// the worker sleeps.
type place struct{ next atomic.Int64 }

func (p *place) cpu() int    { return int(p.next.Load()) - 1 }
func (p *place) set(cpu int) { p.next.Store(int64(cpu) + 1) }

func newTeam(n int, eager bool) *team {
	t := newTeamOf(n, eager)
	for w := 1; w < n; w++ {
		t.wake[w] = make(chan struct{}, 1)
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

// worker runs the regions of whose crew w is in. One that wakes late may find another pool's region, or run tasks of a
// region of a pool that it has just left: it is worker w wherever it is, and w is nobody else.
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

// Fork returns another pool of the same workers, out of use.
func (p *Pool) Fork() *Pool {
	p.team.mu.Lock()
	defer p.team.mu.Unlock()
	return newPoolOf(p.team)
}

// Enter takes the pool into use: regions run between it and Leave. Pools that are in use at the same time divide the
// workers evenly; there may be as many of them as there are workers. A GOMAXPROCS that has changed since the team was made
// limits the workers from here on.
func (p *Pool) Enter() {
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

// Leave ends the use of the pool. Its crew stays until another pool wants the workers: a pool that is used again and again
// has the same ones.
func (p *Pool) Leave() {
	t := p.team
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users--
	t.change.Add(1)
	p.used = false
}

// noCrew is a crew of nobody.
var noCrew []int

// reclaim takes the crews of pools that are out of use.
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

// Share is how many workers a region has now, the caller included.
func (p *Pool) Share() int {
	if p.seen != p.team.change.Load() {
		p.team.mu.Lock()
		p.recrew()
		p.team.mu.Unlock()
	}
	return 1 + len(*p.crew.Load())
}

// recrew gives workers back or takes some, so that the crew is the pool's part of them.
func (p *Pool) recrew() {
	t := p.team
	if p.seen = t.change.Load(); !p.used {
		return
	}
	most := 0
	if spare := t.limit - t.users; spare > 0 {
		most = ceilDiv(spare, t.users)
	}
	have := *p.crew.Load()
	if len(have) == most {
		return
	}
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
		w := t.idle[len(t.idle)-1]
		t.idle = t.idle[:len(t.idle)-1]
		t.owner[w].Store(p)
		crew = append(crew, w)
	}
	p.crew.Store(&crew)
}

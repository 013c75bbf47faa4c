package kern

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// team is the workers that several pools share. A pool in use has its caller and a crew: the
// workers that run its regions besides the caller. Callers and crews together are never more than
// the limit, except for the moment until a pool notices that another one came into use.
type team struct {
	host   Host
	wake   []chan struct{}        // by worker; 0 stands for callers and is never woken
	owner  []atomic.Pointer[Pool] // the pool whose crew a worker is in; nil: none
	place  []place                // by worker
	seats  []seat                 // by worker, each used by its goroutine alone; 0: not used, a caller's is its pool's
	over   atomic.Bool
	dry    bool                   // regions run their first task alone, on the caller
	enough int                    // GOMAXPROCS from which on all workers run
	eager  atomic.Bool            // there is a processor for every worker: polling takes none away
	layout atomic.Pointer[layout] // on NUMA nodes; nil: workers run anywhere
	change atomic.Int64           // counts how often pools came into use or went out of use

	mu      sync.Mutex
	procs   int   // GOMAXPROCS that the limit was made for
	limit   int   // workers that may run now, those with the lowest numbers
	started int   // workers that have goroutines, the caller included
	users   int   // pools in use
	idle    []int // workers that are in no crew
	pools   []*Pool
}

// place is where a worker was when it last woke: one more than the number of the processor; 0 if
// that is not known and while the worker sleeps.
type place struct{ next atomic.Int64 }

func (p *place) cpu() int    { return int(p.next.Load()) - 1 }
func (p *place) set(cpu int) { p.next.Store(int64(cpu) + 1) }

// newTeam returns a team of n workers on a host, all of which run from a GOMAXPROCS of enough on.
func newTeam(n, enough int, h Host) *team {
	t := &team{host: h, wake: make([]chan struct{}, n), owner: make([]atomic.Pointer[Pool], n), place: make([]place, n), seats: make([]seat, n), enough: enough, started: 1}
	for w := n - 1; w >= 1; w-- {
		t.idle = append(t.idle, w)
	}
	t.adapt(runtime.GOMAXPROCS(0))
	return t
}

// threads is the number of workers that a GOMAXPROCS allows.
func (t *team) threads(procs int) int {
	if procs >= t.enough {
		return len(t.wake)
	}
	return min(procs, len(t.wake))
}

// adapt sets what depends on GOMAXPROCS.
func (t *team) adapt(procs int) {
	t.procs, t.limit = procs, t.threads(procs)
	t.eager.Store(t.host.has(t.limit, procs))
	t.assignNodes()
}

// start starts the goroutines of the workers up to the limit that have none yet. If the system
// refuses to confine one to its node, the team has no nodes.
func (t *team) start() {
	if t.dry || t.started >= t.limit {
		return
	}
	var ready sync.WaitGroup
	var refused atomic.Bool
	for w := t.started; w < t.limit; w++ {
		t.wake[w] = make(chan struct{}, 1)
		ready.Add(1)
		go t.worker(w, func(s *seat) {
			if s.node != nil && !s.tied {
				refused.Store(true)
			}
			ready.Done()
		})
	}
	t.started = t.limit
	ready.Wait()
	if refused.Load() {
		t.host.Nodes = nil
		t.assignNodes()
	}
}

// worker runs the regions of the pool whose crew w is in. A worker that wakes late may find another
// pool's region, or run tasks of a pool that it has just left. It uses index w in each of them, and
// no other worker does. It calls ready when it is on its node.
func (t *team) worker(w int, ready func(*seat)) {
	defer t.seats[w].leave()
	t.sit(w)
	ready(&t.seats[w])
	for {
		slept := !t.await(t.wake[w])
		if slept {
			t.place[w].set(-1)
		}
		if <-t.wake[w]; t.over.Load() {
			return
		}
		t.sit(w)
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
// divide the workers evenly; there may be as many pools as workers. If GOMAXPROCS has changed, there
// are more or fewer workers from here on. If the machine has several NUMA nodes, the goroutine that
// calls Enter stays on its thread, and the thread on a node, until the same goroutine calls Leave.
func (p *Pool) Enter() { p.seat.take(p.enter()) }

// enter is Enter without confining the caller. It returns its node; nil: it may run anywhere.
func (p *Pool) enter() *Processors {
	t := p.team
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := runtime.GOMAXPROCS(0); now != t.procs {
		t.adapt(now)
	}
	t.start()
	p.slots.Store(max(p.slots.Load(), int64(t.limit)))
	t.users++
	t.change.Add(1)
	p.used = true
	p.recrew()
	if l := t.layout.Load(); l != nil {
		return l.nodes[p.home]
	}
	return nil
}

// Threads is the number of workers that a pool has that is taken into use now, alone.
func (p *Pool) Threads() int { return p.team.threads(runtime.GOMAXPROCS(0)) }

// Leave ends the use of the pool. Its crew stays until another pool wants the workers, so a pool
// that is used again and again keeps the same ones.
func (p *Pool) Leave() {
	p.seat.leave()
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
	most, bound := 0, min(t.limit, p.Workers())
	if spare := t.limit - t.users; spare > 0 {
		most = min(ceilDiv(spare, t.users), bound-1)
	}
	beyond := func(w int) bool { return w >= bound }
	if now := *p.crew.Load(); len(now) == most && !slices.ContainsFunc(now, beyond) {
		return
	}
	have := t.keepers(p)
	t.reclaim()
	crew := make([]int, 0, most)
	for _, w := range have {
		if len(crew) < most && !beyond(w) {
			crew = append(crew, w)
			continue
		}
		t.owner[w].Store(nil)
		t.idle = append(t.idle, w)
	}
	for busy := len(t.wake) - 1 - len(t.idle); len(crew) < most && busy < t.limit-t.users; busy++ {
		w := t.hire(p, bound)
		if w < 0 {
			break
		}
		t.owner[w].Store(p)
		crew = append(crew, w)
	}
	if t.layout.Load() != nil { // workers of a node have neighbouring shares
		slices.Sort(crew)
	}
	p.crew.Store(&crew)
}

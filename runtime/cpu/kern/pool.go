package kern

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
)

// Task is the body of a parallel region. Run is called once for every i; calls with equal worker run on one goroutine,
// one after the other.
type Task interface{ Run(worker, i int) }

// Pool is a set of persistent workers, of which the caller of Run is one. It runs one region at a time; regions do not
// nest. Several pools may share their workers (Fork) and run regions at the same time.
//
// Each worker of a region begins with its own share of the indices. Regions with the same number of indices have the
// same shares, so that a worker finds in its caches what it wrote in the region before. A worker that is done takes
// indices from the ends of other shares.
type Pool struct {
	team   *team
	used   bool                  // between Enter and Leave
	crew   atomic.Pointer[[]int] // workers of the pool's regions beside the caller
	seen   int64                 // the team's change after which crew was assigned
	slots  atomic.Int64          // see Workers
	place  place                 // of the caller
	home   int                   // the node of the caller, if the team has nodes
	seat   seat                  // of the caller
	done   chan struct{}
	shares []share
	active atomic.Int64 // workers wanted by the running region
	left   atomic.Int64 // indices not yet finished
	task   Task
	fn     funcTask
	broken atomic.Pointer[taskPanic]
	meter  atomic.Pointer[meter]
}

// share is the indices [lo,hi) that no worker has taken yet, as lo<<32 | hi. It is alone on its
// cache lines.
type share struct {
	span atomic.Uint64
	_    [120]byte
}

func (s *share) set(lo, hi int) { s.span.Store(uint64(lo)<<32 | uint64(hi)) }

// bounds splits a span.
func bounds(span uint64) (lo, hi int) { return int(span >> 32), int(span & (1<<32 - 1)) }

// take removes and returns the first index, or the last one; -1 if there is none.
func (s *share) take(first bool) int {
	for {
		old := s.span.Load()
		lo, hi := bounds(old)
		if lo >= hi {
			return -1
		}
		i, rest := lo, old+1<<32
		if !first {
			i, rest = hi-1, old-1
		}
		if s.span.CompareAndSwap(old, rest) {
			return i
		}
	}
}

// drop removes all remaining indices and returns their number.
func (s *share) drop() int64 {
	lo, hi := bounds(s.span.Swap(0))
	return int64(max(0, hi-lo))
}

// startPool makes a pool of n workers, in use. If n <= 0, each use of the pool has as many workers as
// GOMAXPROCS then says, which follows a container's quota, and at most one for each processor. If n is
// given, a GOMAXPROCS less than now limits them. Close stops the workers. If the quota is less than
// all workers' time, waiting workers sleep at once, because polling would take time from the others.
// (GOMAXPROCS is at least 2 under any quota.)
func startPool(n int, h Host) *Pool {
	enough := runtime.GOMAXPROCS(0)
	if n <= 0 {
		n = h.processors()
		enough = n
	}
	p := newPoolOf(newTeam(n, enough, h))
	p.enter()
	return p
}

func newPoolOf(t *team) *Pool {
	p := &Pool{team: t, shares: make([]share, len(t.wake)), done: make(chan struct{}, 1), home: t.layout.Load().inTurn(len(t.pools))}
	p.crew.Store(&noCrew)
	t.pools = append(t.pools, p)
	return p
}

// Workers is the number of workers that tasks may run on, including the caller; they are numbered
// from 0. It is the most that a use of the pool has had so far, because a worker that wakes late may
// run tasks when there are fewer. Share is the number that a region has now.
func (p *Pool) Workers() int { return int(p.slots.Load()) }

// Most is the number of workers that a use of the pool may have one day.
func (p *Pool) Most() int { return len(p.team.wake) }

// Close ends the workers. All pools that share them must be idle and must not be used afterwards.
func (p *Pool) Close() {
	p.team.over.Store(true)
	p.team.mu.Lock()
	defer p.team.mu.Unlock()
	for _, c := range p.team.wake[1:] { // nil: not started; not closed: a worker that woke late may still pass its wake-up on
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// work is worker w's part of a region.
func (p *Pool) work(w int) {
	p.rouse(w)
	if n := p.drainMetered(w); n > 0 && p.left.Add(-n) == 0 {
		p.done <- struct{}{}
	}
}

// patience is how long a goroutine of the pool polls for a message before it sleeps. Waking a sleeping thread takes
// tens of microseconds, as long as many regions, and within a step regions follow each other closely.
const patience = 100 * time.Microsecond

// await returns true when c has a message, or false after patience.
func (t *team) await(c chan struct{}) bool {
	if !t.eager.Load() {
		return false
	}
	for start := time.Now(); time.Since(start) < patience; {
		for range 64 {
			if len(c) > 0 {
				return true
			}
		}
	}
	return false
}

// rouse wakes the members of the crew that w is responsible for: the caller wakes up to 16 itself;
// a larger crew is woken as a tree.
func (p *Pool) rouse(w int) {
	k, crew, at := int(p.active.Load()), *p.crew.Load(), 0
	fan := 4
	if k <= 16 {
		fan = 16
	}
	if w > 0 {
		if at = slices.Index(crew, w) + 1; at == 0 {
			return
		}
	}
	for c, asked := fan*at+1, false; c <= fan*at+fan && c < k && c <= len(crew); c++ {
		if w == 0 && !asked && p.team.eager.Load() && p.team.place[crew[c-1]].cpu() < 0 { // record where sleeping workers run when they wake
			p.place.set(processor())
			asked = true
		}
		select {
		case p.team.wake[crew[c-1]] <- struct{}{}:
		default: // still has an unread wake-up
		}
	}
}

// taskPanic is the value that Run panics with if a task panicked: the task's value and the place.
type taskPanic struct {
	Value any
	Stack []byte
}

func (t *taskPanic) Error() string {
	return fmt.Sprintf("%v, in a task of a parallel region:\n%s", t.Value, t.Stack)
}

// drain runs indices until none is left and returns how many are done. A panic ends the region:
// indices that no worker has taken count as done.
func (p *Pool) drain(w int) (ran int64) {
	defer func() {
		if v := recover(); v != nil {
			p.broken.CompareAndSwap(nil, &taskPanic{v, debug.Stack()})
			ran++
			for s := range p.shares {
				ran += p.shares[s].drop()
			}
		}
	}()
	for i := p.next(w); i >= 0; i = p.next(w) {
		if w > 0 { // it may have woken for an earlier region, when workers were on other nodes
			p.team.sit(w)
		}
		p.task.Run(w, i)
		ran++
	}
	return ran
}

// next takes an index for worker w: the first of its own share, otherwise the last of the next
// share that has any; -1 if none is left.
func (p *Pool) next(w int) int {
	i := p.shares[w].take(true)
	n := p.Workers()
	for v := w + 1; i < 0 && v <= w+n; v++ {
		i = p.shares[v%n].take(false)
	}
	return i
}

// Run calls t.Run for every i in [0,n) and returns when all calls have returned. If a call panics,
// Run starts no more calls, waits for those in progress, and panics with a *taskPanic. The pool
// remains usable.
func (p *Pool) Run(n int, t Task) {
	p.runBy(len(p.team.wake), n, t)
}

// runBy is Run with at most the given number of workers: waking one costs about as much as a
// microsecond of work.
func (p *Pool) runBy(workers, n int, t Task) {
	if p.team.dry {
		if n > 0 {
			t.Run(0, 0)
		}
		return
	}
	k := min(workers, n)
	if k > 1 {
		k = min(k, p.share())
	}
	if k <= 1 {
		for i := range n {
			t.Run(0, i)
		}
		return
	}
	// A worker that wakes late finds no index, or one of the next region: the task is written before there are any, and
	// read only by holders of one.
	if m := p.meter.Load(); m != nil {
		defer m.region(time.Now())
	}
	p.task = t
	p.active.Store(int64(k))
	p.left.Store(int64(n))
	crew := *p.crew.Load()
	for i := range k {
		w := 0
		if i > 0 {
			w = crew[i-1]
		}
		p.shares[w].set(i*n/k, (i+1)*n/k)
	}
	p.rouse(0)
	if ran := p.drainMetered(0); ran == 0 || p.left.Add(-ran) != 0 {
		slept := !p.team.await(p.done)
		if <-p.done; slept {
			p.settle(0)
		}
	}
	p.task = nil
	if b := p.broken.Swap(nil); b != nil {
		panic(b)
	}
}

type funcTask struct{ f func(worker, i int) }

func (t *funcTask) Run(worker, i int) { t.f(worker, i) }

// For is Run for a function. A function that captures variables costs its caller an allocation.
func (p *Pool) For(n int, f func(worker, i int)) {
	p.fn.f = f
	p.Run(n, &p.fn)
	p.fn.f = nil
}

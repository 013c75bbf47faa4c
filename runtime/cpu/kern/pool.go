package kern

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Task is the body of a parallel region. Run is called once for every i; calls with equal worker run on one goroutine,
// one after the other.
type Task interface{ Run(worker, i int) }

// Pool is a set of persistent workers, of which the caller of Run is one. It runs one region at a time; regions do not
// nest.
//
// Each worker of a region begins with its own share of the indices. Regions with the same number of indices have the
// same shares, so that a worker finds in its caches what it wrote in the region before. A worker that is done takes
// indices from the ends of other shares.
type Pool struct {
	wake   []chan struct{} // wake[w] for worker w >= 1
	done   chan struct{}
	shares []share
	active atomic.Int64 // workers wanted by the running region
	left   atomic.Int64 // indices not yet finished
	task   Task
	fn     funcTask
	broken atomic.Pointer[TaskPanic]
	over   atomic.Bool
	eager  bool // a processor for every worker: waiting takes none away
	meter  atomic.Pointer[meter]
}

// share is the indices [lo,hi) that nothing has taken yet, as lo<<32 | hi. It is alone on its cache lines.
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

// drop removes all indices that are left and returns their number.
func (s *share) drop() int64 {
	lo, hi := bounds(s.span.Swap(0))
	return int64(max(0, hi-lo))
}

// NewPool makes a pool of n workers; n <= 0 means GOMAXPROCS, which follows a container's quota. Close stops them.
func NewPool(n int) *Pool {
	most := runtime.GOMAXPROCS(0)
	if n <= 0 {
		n = most
	}
	return newPool(n, n <= min(most, runtime.NumCPU()))
}

func newPool(n int, eager bool) *Pool {
	p := &Pool{wake: make([]chan struct{}, n), shares: make([]share, n), done: make(chan struct{}, 1), eager: eager}
	for w := 1; w < n; w++ {
		p.wake[w] = make(chan struct{}, 1)
		go p.worker(w)
	}
	return p
}

// Workers is the number of workers, the caller included.
func (p *Pool) Workers() int { return len(p.wake) }

// Close ends the workers. The pool must be idle and is not used afterwards.
func (p *Pool) Close() {
	p.over.Store(true)
	for _, c := range p.wake[1:] { // not closed: a worker that woke late may still pass its wake-up on
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (p *Pool) worker(w int) {
	for {
		p.await(p.wake[w])
		if <-p.wake[w]; p.over.Load() {
			return
		}
		p.rouse(w)
		if n := p.drainMetered(w); n > 0 && p.left.Add(-n) == 0 {
			p.done <- struct{}{}
		}
	}
}

// patience is how long a goroutine of the pool polls for a message before it sleeps. Waking a sleeping thread takes
// tens of microseconds, as long as many regions, and within a step regions follow each other closely.
const patience = 100 * time.Microsecond

// await returns when c has something, or after patience.
func (p *Pool) await(c chan struct{}) {
	if !p.eager {
		return
	}
	for start := time.Now(); time.Since(start) < patience; {
		for range 64 {
			if len(c) > 0 {
				return
			}
		}
	}
}

// rouse wakes the workers below w: the caller wakes up to 16 itself; a larger team is woken as a tree.
func (p *Pool) rouse(w int) {
	k := int(p.active.Load())
	fan := 4
	if k <= 16 {
		fan = 16
	}
	for c := fan*w + 1; c <= fan*w+fan && c < k; c++ {
		select {
		case p.wake[c] <- struct{}{}:
		default: // still has an unread wake-up
		}
	}
}

// TaskPanic is the value that Run panics with if a task panicked: the task's value and the place.
type TaskPanic struct {
	Value any
	Stack []byte
}

func (t *TaskPanic) Error() string {
	return fmt.Sprintf("%v, in a task of a parallel region:\n%s", t.Value, t.Stack)
}

// drain runs indices until none is left and returns how many are done. One that panics ends the region: those that
// nothing has taken count as done.
func (p *Pool) drain(w int) (ran int64) {
	defer func() {
		if v := recover(); v != nil {
			p.broken.CompareAndSwap(nil, &TaskPanic{v, debug.Stack()})
			ran++
			for s := range p.shares {
				ran += p.shares[s].drop()
			}
		}
	}()
	for i := p.next(w); i >= 0; i = p.next(w) {
		p.task.Run(w, i)
		ran++
	}
	return ran
}

// next takes an index for worker w: the first of its share, else the last of the next worker's that has any; -1 if none
// is left.
func (p *Pool) next(w int) int {
	i := p.shares[w].take(true)
	for v := w + 1; i < 0 && v < w+len(p.shares); v++ {
		i = p.shares[v%len(p.shares)].take(false)
	}
	return i
}

// Run calls t.Run for every i in [0,n) and returns when all calls have returned. If a call panics, Run starts no more
// calls, waits for those in progress, and panics with a *TaskPanic; the pool can still be used.
func (p *Pool) Run(n int, t Task) {
	p.RunBy(len(p.wake), n, t)
}

// RunBy is Run with at most so many workers: waking one costs about as much as a microsecond of work.
func (p *Pool) RunBy(workers, n int, t Task) {
	k := min(len(p.wake), workers, n)
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
	for w := range k {
		p.shares[w].set(w*n/k, (w+1)*n/k)
	}
	p.rouse(0)
	if ran := p.drainMetered(0); ran == 0 || p.left.Add(-ran) != 0 {
		p.await(p.done)
		<-p.done
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

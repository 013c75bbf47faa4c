package kern

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Task is the body of a parallel region: Run is called once for every i, worker tells the calls of one
// goroutine from those of another.
type Task interface{ Run(worker, i int) }

// Pool is a set of persistent workers. The caller of Run works too. One region at a time; regions do not nest.
type Pool struct {
	wake   []chan struct{} // wake[w] for worker w >= 1
	done   chan struct{}
	active atomic.Int64 // workers wanted by the running region
	claim  atomic.Int64 // indices not yet taken
	left   atomic.Int64 // indices not yet finished
	n      int          // indices of the region; read only by who holds one
	task   Task
	fn     funcTask
	broken atomic.Pointer[TaskPanic]
	over   atomic.Bool
	eager  bool // a processor for every worker: waiting takes none away
	meter  atomic.Pointer[meter]
}

// NewPool makes a pool of n workers; n <= 0 means GOMAXPROCS. Close stops them.
func NewPool(n int) *Pool {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	p := &Pool{wake: make([]chan struct{}, n), done: make(chan struct{}, 1), eager: n <= runtime.GOMAXPROCS(0)}
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

// patience is how long a goroutine of the pool looks for a message before it
// sleeps: waking a sleeping thread takes tens of microseconds, as long as many
// a region, and regions follow each other closely within a step.
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

// TaskPanic is what Run panics with where a task has: its value, and where that was.
type TaskPanic struct {
	Value any
	Stack []byte
}

func (t *TaskPanic) Error() string {
	return fmt.Sprintf("%v, in a task of a parallel region:\n%s", t.Value, t.Stack)
}

// drain runs indices until none is left and returns how many are done. One that panics ends the region: those that
// nobody has taken count as done.
func (p *Pool) drain(w int) (ran int64) {
	defer func() {
		if v := recover(); v != nil {
			p.broken.CompareAndSwap(nil, &TaskPanic{v, debug.Stack()})
			ran += 1 + max(p.claim.Swap(0), 0)
		}
	}()
	for {
		c := p.claim.Add(-1)
		if c < 0 {
			return ran
		}
		p.task.Run(w, p.n-1-int(c))
		ran++
	}
}

// Run calls t.Run for every i in [0,n) and returns when all calls have returned. Where one panics, others that have not
// begun are left out, and Run panics with a *TaskPanic when those that have are over; the pool is as good as before.
func (p *Pool) Run(n int, t Task) {
	k := min(len(p.wake), n)
	if k <= 1 {
		for i := range n {
			t.Run(0, i)
		}
		return
	}
	// A worker that wakes late finds claim below zero, or the next region complete: n and task are written
	// before claim is set, and read only by holders of an index.
	if m := p.meter.Load(); m != nil {
		defer m.region(time.Now())
	}
	p.n, p.task = n, t
	p.active.Store(int64(k))
	p.left.Store(int64(n))
	p.claim.Store(int64(n))
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

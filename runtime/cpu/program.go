package cpu

import (
	"context"
	"fmt"
	"sync"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
	"ampc/world"
)

// program is a loaded Program. A step runs in one of the backend's execution contexts, on the
// instance that is bound to it. Steps of a program that writes no variable may run concurrently, in
// as many contexts as there are workers when they begin.
type program struct {
	b          *Backend
	p          *lower.Program
	store      *store
	exclusive  bool        // no other step may run at the same time
	ownResults bool        // of each step: no later one overwrites them
	world      world.World // of a Program with several ranks

	mu       sync.Mutex
	bound    map[*execContext]*exec
	consts   map[lower.BufferID]*kern.Block // shared by all instances
	spare    [][][]byte                     // memory of results that were released
	count    runtime.Counters
	composed map[string]*kern.Fused // of the backend's kernels, those of this program
	closed   bool
	attached observers
	pause    *pause // nil: steps do not pause before their update
}

// observers are called while a step runs.
type observers struct {
	profile func(part lower.Part, step int, timing runtime.Timing)
	tracer  runtime.Tracer
}

func (o observers) any() bool {
	return o.profile != nil || o.tracer.Step != nil || o.tracer.Part != nil
}

// execContext is what one running step has for itself: the state of kernels, and work arenas.
type execContext struct {
	m *kern.Machine
	i int

	beside []*execContext // of the micro-batches that run together with the last one
}

// ofMicro returns the context of micro-batch i of those that run together. It has the kernels of c, and
// work arenas of its own.
func (c *execContext) ofMicro(i int) *execContext {
	for len(c.beside) <= i {
		c.beside = append(c.beside, &execContext{m: c.m, i: c.i})
	}
	return c.beside[i]
}

func load(b *Backend, p *lower.Program, s *store) (*program, error) {
	if err := b.roomFor(p, s); err != nil {
		return nil, fmt.Errorf("cpu: %s: %w", p.Name, err)
	}
	x := &program{b: b, p: p, store: s, bound: map[*execContext]*exec{}, consts: map[lower.BufferID]*kern.Block{}, composed: map[string]*kern.Fused{}}
	x.ownResults = len(p.Written)+len(p.WrittenEarly()) == 0 && s.spares == nil
	x.exclusive = !x.ownResults || runsUserCode(p)
	c, err := b.acquire(neverDone, x.exclusive) // binding some kernels computes tables, which needs the pool
	if err != nil {
		return nil, fmt.Errorf("%s: the backend is %w", p.Name, err)
	}
	defer b.release(c, x.exclusive)
	if _, err = x.instance(c); err != nil {
		x.putKernels()
	}
	return x, err
}

// runsUserCode reports whether p has custom kernels, which may not be safe to run concurrently.
func runsUserCode(p *lower.Program) bool {
	for part := range lower.NumParts {
		for i := range p.Parts[part] {
			if s := &p.Parts[part][i]; s.Kind == lower.KindKernel && s.Kernel.Node.Op == ir.OpCustom {
				return true
			}
		}
	}
	return false
}

// instance finds or makes the instance for an execution context.
func (x *program) instance(c *execContext) (*exec, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, fmt.Errorf("%s: %w", x.p.Name, runtime.ErrClosed)
	}
	e := x.bound[c]
	if e != nil {
		return e, e.prepareWorkers()
	}
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	e, err := bindTogether(x, c)
	if err != nil {
		return nil, err
	}
	x.bound[c] = e
	return e, nil
}

// compose returns a kernel of f, or nil. One that the program does not have yet is composed, or shared with other
// programs, if it pays off. The caller holds x.mu.
func (x *program) compose(p *kern.Path, f *kern.Formula, pays bool) *kern.Fused {
	text := f.String()
	k, known := x.composed[text]
	if !known && pays {
		k = x.b.kernels.get(p, f, text)
		x.composed[text] = k
	}
	return k
}

// putKernels gives the program's kernels back, which must not run any more.
func (x *program) putKernels() {
	for text := range x.composed {
		x.b.kernels.put(text)
	}
	x.composed = nil
}

// Join implements runtime.Distributed.
func (x *program) Join(w world.World) error { x.world = w; return nil }

// Concurrent implements runtime.Concurrent.
func (x *program) Concurrent() bool { return !x.exclusive }

// Step implements runtime.Exec. It returns when the step is done. It checks ctx between the steps
// of the Program, so the longest kernel bounds the wait. Bad data that only a kernel detects (such
// as an id outside its table) ends the step before anything is updated, as the end of ctx does.
func (x *program) Step(ctx context.Context, feeds []runtime.Feed) (runtime.Future, error) {
	if err := runtime.CheckFeeds(x.p, feeds); err != nil {
		return nil, err
	}
	seen := x.observers()
	exclusive := x.exclusive || seen.any()
	c, err := x.b.acquire(ctx, exclusive)
	if err == runtime.ErrClosed {
		return nil, fmt.Errorf("%s: the backend is %w", x.p.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: interrupted before the update: %w", x.p.Name, err)
	}
	defer x.b.release(c, exclusive)
	e, err := x.instance(c)
	if err != nil {
		return nil, err
	}
	e.observers, e.pause = seen, x.pause
	before := e.count
	t, err := e.step(ctx, feeds)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.count.Steps += e.count.Steps - before.Steps
	x.count.CastBytes += e.count.CastBytes - before.CastBytes
	x.count.CastsMade += e.count.CastsMade - before.CastsMade
	x.count.CastsSaved += e.count.CastsSaved - before.CastsSaved
	x.count.Messages += e.count.Messages - before.Messages
	x.count.Awaited += e.count.Awaited - before.Awaited
	return t, err
}

// observers returns the observers of a step that begins now.
func (x *program) observers() observers {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.attached
}

// Close implements runtime.Exec. It waits for running steps. The memory that the program alone has
// goes back to the system after the last Shown that reads it.
func (x *program) Close() error {
	if err := x.b.semaphore.acquire(neverDone, allPermits); err != nil {
		return err
	}
	defer x.b.semaphore.release(allPermits)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	for _, e := range x.bound {
		if x.store.showing[e.context] == e {
			delete(x.store.showing, e.context)
		}
		e.close()
	}
	x.b.shrink()
	for _, b := range x.consts {
		b.Release()
	}
	x.putKernels()
	x.closed, x.bound, x.consts, x.spare = true, nil, nil, nil
	return nil
}

func (x *program) isClosed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.closed
}

// Prompt implements runtime.Prompt.
func (x *program) Prompt() {}

// Counters implements runtime.Counted.
func (x *program) Counters() runtime.Counters {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.count
}

// Profile implements runtime.Profiled. Steps then run one at a time.
func (x *program) Profile(f func(part lower.Part, step int, timing runtime.Timing)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.attached.profile = f
}

// Trace implements runtime.Traceable. Steps then run one at a time.
func (x *program) Trace(t runtime.Tracer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.attached.tracer = t
}

// Buffer implements runtime.Traceable. It shows nil if the memory is not available.
func (x *program) Buffer(id lower.BufferID) runtime.Shown {
	e := x.exclusiveInstance()
	if e == nil {
		return runtime.Shown{}
	}
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	for i := range x.p.Vars {
		v := &x.p.Vars[i]
		if stored := x.store.vars[v.Name]; stored != nil && v.Buffer == x.p.Buffers[id].Root && stored.keep() != nil {
			return runtime.Shown{}
		}
	}
	e.holders.Add(1)
	return runtime.NewShown(e.mem[id], e.release)
}

// exclusiveInstance returns the instance on which exclusive steps run, such as traced ones. A
// program that runs concurrently may not have it yet. It is nil if it cannot be made.
func (x *program) exclusiveInstance() *exec {
	x.mu.Lock()
	e := x.bound[x.b.first]
	x.mu.Unlock()
	if e == nil {
		x.b.Hold(func() { e, _ = x.instance(x.b.first) })
	}
	return e
}

var (
	_ runtime.Traceable   = (*program)(nil)
	_ runtime.Pauser      = (*program)(nil)
	_ runtime.Counted     = (*program)(nil)
	_ runtime.Prompt      = (*program)(nil)
	_ runtime.Profiled    = (*program)(nil)
	_ runtime.Concurrent  = (*program)(nil)
	_ runtime.Distributed = (*program)(nil)
)

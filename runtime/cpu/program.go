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

// program is a loaded Program. A step runs on one of the backend's lanes, on an instance that is bound to it: one that
// writes no variable may run beside others, on as many lanes as there are workers.
type program struct {
	b     *Backend
	p     *lower.Program
	store *store
	alone bool        // no other step runs meanwhile
	world world.World // of a Program of several ranks

	mu     sync.Mutex
	bound  map[*lane]*exec
	consts map[lower.BufferID][]byte // of all instances
	spare  [][][]byte                // memory of results that were released
	count  runtime.Counters
	closed bool
	seen   observers
	pause  *pause // nil: steps do not wait before their update
}

// observers are who looks on while a step runs.
type observers struct {
	profile func(part lower.Part, step int, timing runtime.Timing)
	tracer  runtime.Tracer
}

func (o observers) any() bool {
	return o.profile != nil || o.tracer.Step != nil || o.tracer.Part != nil
}

// lane is what one step in flight has for itself: the state of kernels, and work arenas.
type lane struct {
	m *kern.Machine
	i int
}

func load(b *Backend, p *lower.Program, s *store) (*program, error) {
	need := -s.held(p)
	for _, n := range p.Arenas {
		need += n
	}
	if err := fits(need); err != nil {
		return nil, fmt.Errorf("cpu: %s: %w", p.Name, err)
	}
	x := &program{b: b, p: p, store: s, bound: map[*lane]*exec{}, consts: map[lower.BufferID][]byte{}}
	x.alone = len(p.Written)+len(p.WrittenEarly()) > 0 || s.spares != nil || runsUserCode(p)
	l, err := b.enter(noEnd, x.alone) // some kernels compute tables while they are bound
	if err != nil {
		return nil, err
	}
	defer b.leave(l, x.alone)
	_, err = x.instance(l)
	return x, err
}

// runsUserCode reports whether p has kernels of the user, which may not be ready to run twice at a time.
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

// instance finds or makes the instance of a lane.
func (x *program) instance(l *lane) (*exec, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, fmt.Errorf("%s: %w", x.p.Name, runtime.ErrClosed)
	}
	e := x.bound[l]
	if e == nil {
		x.store.mu.Lock()
		defer x.store.mu.Unlock()
		var err error
		if e, err = bind(x, l); err != nil {
			return nil, err
		}
		x.bound[l] = e
	}
	return e, nil
}

// Join implements runtime.Distributed.
func (x *program) Join(w world.World) { x.world = w }

// Concurrent implements runtime.Concurrent.
func (x *program) Concurrent() bool { return !x.alone }

// Step implements runtime.Exec. It returns when the step is done. ctx is looked
// at between the steps of the Program, so the longest kernel bounds the wait.
// Bad data that only a kernel notices (an id outside its table) ends the step
// before anything is updated, as the end of ctx does.
func (x *program) Step(ctx context.Context, feeds []runtime.Feed) (runtime.Future, error) {
	if err := runtime.CheckFeeds(x.p, feeds); err != nil {
		return nil, err
	}
	seen := x.observers()
	alone := x.alone || seen.any()
	l, err := x.b.enter(ctx, alone)
	if err != nil {
		return nil, fmt.Errorf("%s: interrupted before the update: %w", x.p.Name, err)
	}
	defer x.b.leave(l, alone)
	e, err := x.instance(l)
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

// observers are those of a step that begins now.
func (x *program) observers() observers {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen
}

// Close implements runtime.Exec; it waits for running steps. The memory goes with the last reference.
func (x *program) Close() error {
	if err := x.b.gate.enter(noEnd, x.b.gate.all); err != nil {
		return err
	}
	defer x.b.gate.leave(x.b.gate.all)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	for _, e := range x.bound {
		e.close()
	}
	x.closed, x.bound, x.consts, x.spare = true, nil, nil, nil
	return nil
}

// Prompt implements runtime.Prompt.
func (x *program) Prompt() {}

// Counters implements runtime.Counted.
func (x *program) Counters() runtime.Counters {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.count
}

// Profile implements runtime.Profiled. Steps run one at a time meanwhile.
func (x *program) Profile(f func(part lower.Part, step int, timing runtime.Timing)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen.profile = f
}

// Trace implements runtime.Traceable. Steps run one at a time meanwhile.
func (x *program) Trace(t runtime.Tracer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen.tracer = t
}

// Buffer implements runtime.Traceable; nil where the memory cannot be had.
func (x *program) Buffer(id lower.BufferID) []byte {
	e := x.first()
	if e == nil {
		return nil
	}
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	for i := range x.p.Vars {
		v := &x.p.Vars[i]
		if stored := x.store.vars[v.Name]; stored != nil && v.Buffer == x.p.Buffers[id].Root && stored.keep() != nil {
			return nil
		}
	}
	return e.mem[id]
}

// first is the instance on which a step runs that is alone, as one that is traced. A
// program that runs beside others may not have it yet. It is nil where it cannot be made.
func (x *program) first() *exec {
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

// Package cpu is the built-in backend. It runs Programs on the host's processor.
// The steps of a part run in order. A pool of workers shares the work of each
// step. The pieces of that work do not depend on the number of workers, so results
// do not depend on it either.
package cpu

import (
	"context"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"sync"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// Backend is the CPU with its worker pool.
type Backend struct {
	m      *kern.Machine // of the first lane
	gate   *gate         // a place for each step in flight
	inside bool          // a step of another Backend runs meanwhile

	mu    sync.Mutex
	first *lane // what is alone runs on it
	made  int   // lanes: at most one for each worker
	idle  []*lane
}

// noEnd is the context of what waits without an end.
var noEnd = context.Background()

// enter waits for a lane, or, alone, until no step runs; leave follows.
func (b *Backend) enter(ctx context.Context, alone bool) (*lane, error) {
	if err := b.gate.enter(ctx, b.places(alone)); err != nil {
		return nil, err
	}
	l := b.take()
	if !b.inside {
		l.m.Pool().Enter()
	}
	return l, nil
}

// leave gives a lane back.
func (b *Backend) leave(l *lane, alone bool) {
	if !b.inside {
		l.m.Pool().Leave()
	}
	b.mu.Lock()
	b.idle = append(b.idle, l)
	b.mu.Unlock()
	b.gate.leave(b.places(alone))
}

// places is how many of the gate's a step takes.
func (b *Backend) places(alone bool) int {
	if alone {
		return b.gate.all
	}
	return 1
}

// take takes the first lane that is idle, or makes one: a step that is alone has the first of all.
func (b *Backend) take() *lane {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.idle) == 0 {
		l := &lane{b.m.Fork(), b.made}
		b.made++
		return l
	}
	at := 0
	for i, l := range b.idle {
		if l.i < b.idle[at].i {
			at = i
		}
	}
	l := b.idle[at]
	b.idle = slices.Delete(b.idle, at, at+1)
	return l
}

// newBackend is a Backend of one lane, so far, and so many places.
func newBackend(m *kern.Machine, places int) *Backend {
	first := &lane{m: m}
	return &Backend{m: m, gate: newGate(places), first: first, made: 1, idle: []*lane{first}}
}

func (b *Backend) newStore() *store {
	return &store{b: b, vars: map[string]*variable{}, work: map[*lane][]byte{}}
}

// Open starts a backend with the given number of threads, 0 for one per
// processor. The environment variable AMPC_CPU names the set of kernels; the
// best one this processor runs is the default. AMPC_WINOGRAD=off computes convolutions by their definition alone.
func Open(threads int) (*Backend, error) {
	if threads < 0 || threads > 4096 {
		return nil, fmt.Errorf("cpu: %d threads, want 0 (one per processor) to 4096", threads)
	}
	path, err := kern.Detect(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	return OpenPath(path, threads), nil
}

// OpenPath is Open with a given set of kernels.
func OpenPath(p *kern.Path, threads int) *Backend {
	m := kern.New(p, threads)
	m.Pool().Leave() // until a step runs
	b := newBackend(m, m.Pool().Workers())
	goruntime.AddCleanup(b, (*kern.Pool).Close, b.m.Pool()) // workers of a backend that nothing closed
	return b
}

// Name is "cpu" with the set of kernels: "cpu/avx2".
func (b *Backend) Name() string { return "cpu/" + b.m.Name() }

// KernelSets names the sets of kernels that run here, as AMPC_CPU takes them, the default first. refused says
// which one the operating system keeps from this process, and why; it is empty where there is none.
func KernelSets() (names []string, refused string) {
	for _, p := range kern.Paths() {
		names = append(names, p.Name())
	}
	if t := kern.TileRegisters(); t.Present && !t.Usable {
		refused = "amx: the operating system refuses the tile registers to this process (Linux 5.16 or newer gives them)"
	}
	return names, refused
}

// Target is lower.CPU.
func (b *Backend) Target() lower.Target { return lower.CPU }

// Threads is the number of workers.
func (b *Backend) Threads() int { return b.m.Pool().Workers() }

// Hold calls f while no step runs.
func (b *Backend) Hold(f func()) {
	if l, err := b.enter(noEnd, true); err == nil { // which only an end brings
		defer b.leave(l, true)
		f()
	}
}

// Inside is b for a function of a Tracer, or of Hold, which is called while no
// other step runs: what it loads runs between two steps of the Program that is traced. It must
// not be closed.
func (b *Backend) Inside() *Backend {
	in := newBackend(b.m, 1)
	in.inside = true
	return in
}

// Close stops the workers. No step may be running.
func (b *Backend) Close() error {
	b.m.Close()
	return nil
}

// NewStore allocates the params and states among vars.
func (b *Backend) NewStore(vars []lower.Var) (runtime.Store, error) {
	s := b.newStore()
	if err := s.Declare(vars); err != nil {
		return nil, err
	}
	return s, nil
}

// Load implements runtime.Backend.
func (b *Backend) Load(p *lower.Program, s runtime.Store) (runtime.Exec, error) {
	st, ok := s.(*store)
	if !ok {
		return nil, fmt.Errorf("cpu: the store is a %T, made by another backend", s)
	}
	if p.Target != lower.CPU {
		return nil, fmt.Errorf("cpu: %s is lowered for %s", p.Name, p.Target)
	}
	x, err := load(b, p, st)
	if err != nil {
		return nil, err
	}
	return x, nil
}

var _ runtime.Backend = (*Backend)(nil)

// Supports says whether every kernel that p names exists here; the error names
// the first that does not.
func Supports(p *lower.Program) error {
	for part := range lower.NumParts {
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			if s.Kind == lower.KindKernel && s.Kernel.Node.Op != ir.OpCustom && kernels[s.Kernel.Name] == nil {
				return fmt.Errorf("cpu: no kernel %s (%s)", s.Kernel.Name, s.Node.Name)
			}
		}
	}
	return nil
}

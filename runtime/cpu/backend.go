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
	"sync/atomic"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// Backend is the CPU with its worker pool.
type Backend struct {
	m         *kern.Machine // of the first context
	semaphore *semaphore    // one permit for each concurrent step; as many as workers
	inside    bool          // a step of another Backend is running
	dry       bool          // memory is planned, not used: it need not fit
	fed       atomic.Int64  // micro-batches whose inputs the caller holds, at least one
	kernels   sharedKernels
	closed    bool // guarded by the permits: Close has all

	mu    sync.Mutex
	first *execContext // exclusive steps run on it
	made  int          // contexts made so far
	idle  []*execContext
}

// neverDone is the context of waits that cannot be cancelled.
var neverDone = context.Background()

// acquire waits for an execution context; an exclusive caller waits until no other step runs. The
// caller must release the context. Of a closed backend it is runtime.ErrClosed.
func (b *Backend) acquire(ctx context.Context, exclusive bool) (*execContext, error) {
	if err := b.semaphore.acquire(ctx, b.permits(exclusive)); err != nil {
		return nil, err
	}
	if b.closed {
		b.semaphore.release(b.permits(exclusive))
		return nil, runtime.ErrClosed
	}
	c := b.take()
	if !b.inside {
		c.m.Enter()
	}
	return c, nil
}

// release returns an execution context.
func (b *Backend) release(c *execContext, exclusive bool) {
	if !b.inside {
		c.m.Leave()
	}
	b.mu.Lock()
	b.idle = append(b.idle, c)
	b.mu.Unlock()
	b.semaphore.release(b.permits(exclusive))
}

// permits is the number of permits that a step acquires.
func (b *Backend) permits(exclusive bool) int {
	if exclusive {
		return allPermits
	}
	return 1
}

// take returns the idle context with the lowest number, or a new one. An exclusive step always gets
// the first context.
func (b *Backend) take() *execContext {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.idle) == 0 {
		c := &execContext{m: b.m.Fork(), i: b.made}
		b.made++
		return c
	}
	at := 0
	for i, c := range b.idle {
		if c.i < b.idle[at].i {
			at = i
		}
	}
	c := b.idle[at]
	b.idle = slices.Delete(b.idle, at, at+1)
	return c
}

// newBackend returns a Backend with one context, whose steps run at the same time up to a limit.
func newBackend(m *kern.Machine, limit func() int) *Backend {
	first := &execContext{m: m}
	return &Backend{m: m, semaphore: newSemaphore(limit), first: first, made: 1, idle: []*execContext{first}, kernels: sharedKernels{byText: map[string]*sharedKernel{}}}
}

func (b *Backend) newStore() *store {
	return &store{b: b, vars: map[string]*variable{}, work: map[*execContext]*kern.Block{}}
}

// Open starts a backend with the given number of threads. 0 means as many as
// GOMAXPROCS says when a step begins, and at most one for each processor. The environment variable AMPC_CPU names the set of kernels; the
// best one this processor runs is the default. AMPC_WINOGRAD=off computes convolutions by their definition alone,
// and AMPC_COMPOSE=off composes no kernels at load.
func Open(threads int) (*Backend, error) {
	if threads < 0 || threads > 4096 {
		return nil, fmt.Errorf("cpu: %d threads, want 0 (as GOMAXPROCS says) to 4096", threads)
	}
	path, err := kern.Detect(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	return OpenPath(path, threads), nil
}

// OpenPath is Open with a given set of kernels.
func OpenPath(p *kern.Path, threads int) *Backend { return openOn(p, threads, thisHost()) }

func openOn(p *kern.Path, threads int, h kern.Host) *Backend {
	m := kern.NewOn(p, threads, h)
	m.Leave() // workers sleep until a step runs
	b := newBackend(m, m.Pool().Threads)
	goruntime.AddCleanup(b, (*kern.Pool).Close, b.m.Pool()) // stops the workers of a backend that was not closed
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

// ComposesKernels reports whether b composes kernels when it loads a program, and if not, what refuses
// it; refused is empty where the set of kernels, the build or AMPC_COMPOSE has no composed kernels.
func (b *Backend) ComposesKernels() (ok bool, refused string) { return b.m.Composes() }

// Target is lower.CPU.
func (b *Backend) Target() lower.Target { return lower.CPU }

// Threads is the number of workers of a step that begins now.
func (b *Backend) Threads() int { return b.m.Pool().Threads() }

// Nodes is the number of NUMA nodes that the workers are divided among. Where it is more than 1, each
// worker's thread is confined to the processors of one node, and the thread that runs a step as long
// as it does. Where it is 1, threads run anywhere.
func (b *Backend) Nodes() int { return b.m.Pool().Nodes() }

// Caches is what a processor has of its caches, in bytes. Blocks of kernels have sizes that fit them.
func (b *Backend) Caches() kern.Caches { return b.m.Caches() }

// Hold calls f while no step runs. It does nothing after Close.
func (b *Backend) Hold(f func()) {
	if c, err := b.acquire(neverDone, true); err == nil {
		defer b.release(c, true)
		f()
	}
}

// Inside is b for a function of a Tracer, or of Hold, which is called while no
// other step runs: what it loads runs between two steps of the Program that is traced. It must
// not be closed.
func (b *Backend) Inside() *Backend {
	in := newBackend(b.m, func() int { return 1 })
	in.inside = true
	return in
}

// Close waits for the steps that have begun and stops the workers. Steps and loads that begin later
// return runtime.ErrClosed; variables and results can still be read, programs and stores closed.
func (b *Backend) Close() error {
	if err := b.semaphore.acquire(neverDone, allPermits); err != nil {
		return err
	}
	defer b.semaphore.release(allPermits)
	b.closed = true
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
			if s.Kind == lower.KindKernel && s.Kernel.Node.Op != ir.OpCustom && kernels[s.Kernel.Node.Op] == nil {
				return fmt.Errorf("cpu: no kernel %s (%s)", s.Kernel.Name, s.Node.Name)
			}
		}
	}
	return nil
}

// Package cpu is the built-in backend. It runs Programs on the host's processor.
// The steps of a part run in order. A pool of workers shares the work of each
// step. The pieces of that work do not depend on the number of workers, so results
// do not depend on it either.
package cpu

import (
	"fmt"
	"os"
	goruntime "runtime"
	"sync"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// Backend is the CPU with its worker pool.
type Backend struct {
	m  *kern.Machine
	mu sync.Mutex // one step at a time: steps share the pool and its scratch memory
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
	b := &Backend{m: kern.New(p, threads)}
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

// Hold calls f while b is locked: no step runs.
func (b *Backend) Hold(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// Inside is b for a function of a Watch, or of Hold, which is called while b is
// locked: what it loads runs between two steps of the Program that is watched. It must
// not be closed.
func (b *Backend) Inside() *Backend { return &Backend{m: b.m} }

// Close stops the workers. No step may be running.
func (b *Backend) Close() error {
	b.m.Close()
	return nil
}

// NewStore allocates the params and states among vars.
func (b *Backend) NewStore(vars []lower.Var) (runtime.Store, error) {
	s := &store{vars: map[string]*variable{}, mu: &b.mu}
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
	b.mu.Lock()
	defer b.mu.Unlock()
	return load(b, p, st)
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

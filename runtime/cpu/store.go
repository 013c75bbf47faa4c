package cpu

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// store holds variables and the 16-bit copies that programs keep of them.
type store struct {
	b    *Backend
	mu   sync.Mutex // guards the maps below, but not the content of variables
	vars map[string]*variable
	made map[string]*derived          // values that programs derive from variables, by how they do
	work map[*execContext]*kern.Block // the largest work arena so far, by context

	showing map[*execContext]*exec // the program whose results are in the work arena

	casting  sync.Mutex // held while 16-bit copies are made
	deriving sync.Mutex // held while derived values are computed

	spares  *Spares       // source of memory; nil: newly allocated
	used    []*kern.Block // taken from spares
	aliased []string      // variables of a replay that use the caller's memory
	copied  []string      // variables of a replay that have memory of their own
}

// held is how much of a program's arenas the store has already allocated.
func (s *store) held(p *lower.Program) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(0)
	if w := s.work[s.b.first]; w != nil {
		n = min(int64(len(w.Bytes())), p.Arenas[lower.WorkArena])
	}
	if s.spares != nil {
		n += s.spares.Bytes()
	}
	for i := range p.Vars {
		if v := s.vars[p.Vars[i].Name]; v != nil {
			n += int64(len(v.mem))
		}
	}
	for _, c := range p.WeightCopies {
		if v := s.vars[c.Var]; v != nil && v.low[c.DType] != nil {
			n += int64(len(v.low[c.DType].mem))
		}
	}
	for i := range p.Derived {
		if d := s.made[derivedKey(&p.Derived[i])]; d != nil {
			n += int64(len(d.mem))
		}
	}
	return n
}

// workArena returns temporary memory for p in an execution context, as much as p needs or more. The
// context runs one program at a time, and a program keeps nothing in the arena from step to step, so
// programs share it. Load has checked that there is room for the first context's; for steps that run
// at the same time there may be none.
func (s *store) workArena(c *execContext, p *lower.Program) (*kern.Block, error) {
	old, n := s.work[c], p.Arenas[lower.WorkArena]
	if old != nil && int64(len(old.Bytes())) >= n {
		return old, nil
	}
	if err := s.b.fits(n); err != nil && c != s.b.first {
		if room, ok := errors.AsType[*runtime.RoomError](err); ok {
			room.Advice = "run fewer steps, or micro-batches, at the same time"
		}
		return nil, fmt.Errorf("memory of one more step at the same time: %w", err)
	}
	if old != nil {
		old.Release() // programs that are bound to it hold it
	}
	s.work[c] = s.alloc(n)
	s.place(c.m, s.work[c], p)
	return s.work[c], nil
}

// place provides the memory of a new block on the NUMA nodes that use it: that of a work arena by the
// arrays of p, which is nil for a block that all workers read as a whole. Memory from spares is where
// it is.
func (s *store) place(m *kern.Machine, b *kern.Block, p *lower.Program) {
	if m.Pool().Nodes() == 1 || s.spares != nil {
		return
	}
	var uses []kern.ArenaUse
	if p != nil {
		uses = arenaUses(p)
	}
	m.Place(b, uses)
}

// arenaUses are the arrays in the work arena of p.
func arenaUses(p *lower.Program) []kern.ArenaUse {
	times := make([]int64, len(p.Buffers)) // that steps read or write each
	for part := range lower.NumParts {
		for i := range p.Parts[part] {
			for _, list := range [][]lower.BufferID{p.Parts[part][i].In, p.Parts[part][i].Out} {
				for _, id := range list {
					if id != lower.None {
						times[p.Buffers[id].Root]++
					}
				}
			}
		}
	}
	var uses []kern.ArenaUse
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Arena == lower.WorkArena && b.Root == lower.BufferID(i) {
			uses = append(uses, kern.ArenaUse{At: b.Offset, Size: b.Size, Times: times[i]})
		}
	}
	return uses
}

// show records that the work arena holds results of e.
func (s *store) show(e *exec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.showing == nil {
		s.showing = map[*execContext]*exec{}
	}
	s.showing[e.context] = e
}

type variable struct {
	t       ir.Type
	mem     []byte
	block   *kern.Block // that mem lies in; nil: mem is the caller's (ReplayStore)
	version int64       // counts writes: calls of Write, and steps of programs that write it
	low     map[ir.DType]*weightCopy
	synced  int64 // of a copy that programs write: the version of its variable when the copy was written
	weights weights
}

// weightCopy is a 16-bit copy. It is current if version is that of its variable.
type weightCopy struct {
	mem     []byte
	block   *kern.Block // that mem lies in
	version int64
	weights weights
}

// allocate gives the variable memory of n bytes.
func (v *variable) allocate(s *store, n int64) {
	v.block = s.alloc(n)
	v.mem = v.block.Bytes()[:n:n]
}

// release ends the store's hold on the variable's memory and that of its copies.
func (v *variable) release() {
	if v.block != nil {
		v.block.Release()
	}
	for _, c := range v.low {
		c.block.Release()
	}
}

// wrote records that the variable has a new version.
func (v *variable) wrote() {
	v.version++
	v.weights.changed()
}

// keep loads the variable's content, which then stays in memory.
func (v *variable) keep() error {
	if v.weights.source == nil {
		return nil
	}
	return v.weights.source.Keep()
}

// Declare implements runtime.Store.
func (s *store) Declare(vars []lower.Var) (err error) {
	defer noMemory(&err)
	s.mu.Lock()
	defer s.mu.Unlock()
	need := int64(0)
	for _, v := range vars {
		if s.vars[v.Name] == nil && (v.Kind == ir.Param || v.Kind == ir.State) && !v.PerCall() {
			need += v.Type.Bytes()
		}
	}
	if err := s.b.fits(need); err != nil {
		return fmt.Errorf("cpu: variables: %w", err)
	}
	for i := range vars {
		v := &vars[i]
		if v.Kind != ir.Param && v.Kind != ir.State || v.PerCall() {
			continue
		}
		if old := s.vars[v.Name]; old != nil {
			if old.t != v.Type {
				return fmt.Errorf("variable %q is %s in the store, declared again as %s", v.Name, old.t, v.Type)
			}
			continue
		}
		x := &variable{t: v.Type, version: 1, low: map[ir.DType]*weightCopy{}}
		x.allocate(s, v.Type.Bytes())
		s.vars[v.Name] = x
	}
	return nil
}

func (s *store) find(name string, bytes int) (*variable, error) {
	v := s.vars[name]
	switch {
	case v == nil:
		return nil, fmt.Errorf("the store has no variable %q", name)
	case len(v.mem) != bytes:
		return nil, fmt.Errorf("variable %q is %s, %d bytes, not %d", name, v.t, len(v.mem), bytes)
	}
	return v, nil
}

// Write implements runtime.Store. 16-bit copies of the variable become stale.
func (s *store) Write(name string, src []byte) error {
	if err := s.b.semaphore.acquire(neverDone, allPermits); err != nil {
		return err
	}
	defer s.b.semaphore.release(allPermits)
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.find(name, len(src))
	if err != nil {
		return err
	}
	if v.version == 1 && v.block != nil { // never written
		s.place(s.b.m, v.block, nil)
	}
	copy(v.mem, src)
	if v.weights.source != nil {
		v.weights.source.Written()
	}
	v.wrote()
	return nil
}

// Fill implements runtime.Filler.
func (s *store) Fill(name string, fill func(dst []byte) error) error {
	if err := s.b.semaphore.acquire(neverDone, allPermits); err != nil {
		return err
	}
	defer s.b.semaphore.release(allPermits)
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.vars[name]
	switch {
	case v == nil:
		return fmt.Errorf("the store has no variable %q", name)
	case v.weights.packed != nil || len(v.low) > 0:
		return fmt.Errorf("programs read variable %q already", name)
	}
	v.weights.source = kern.NewSource(v.mem, fill)
	v.wrote()
	return nil
}

// Read implements runtime.Store.
func (s *store) Read(name string, dst []byte) error {
	if err := s.b.semaphore.acquire(neverDone, 1); err != nil {
		return err
	}
	defer s.b.semaphore.release(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.find(name, len(dst))
	if err != nil {
		return err
	}
	if v.weights.source != nil {
		end, err := v.weights.source.Use()
		if err != nil {
			return err
		}
		defer end()
	}
	copy(dst, v.mem)
	return nil
}

// View implements runtime.Viewer.
func (s *store) View(name string) (runtime.Shown, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.vars[name]
	if v == nil {
		return runtime.Shown{}, fmt.Errorf("the store has no variable %q", name)
	}
	if err := v.keep(); err != nil {
		return runtime.Shown{}, err
	}
	if v.block == nil {
		return runtime.NewShown(v.mem, nil), nil
	}
	v.block.Hold()
	return runtime.NewShown(v.mem, v.block.Release), nil
}

// Drop implements runtime.Store. The memory goes back to the system when the last program or View
// that reads it has ended.
func (s *store) Drop(names ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if v := s.vars[name]; v != nil {
			v.release()
			delete(s.vars, name)
		}
	}
	for key, d := range s.made {
		if slices.ContainsFunc(names, d.reads) {
			d.block.Release()
			delete(s.made, key)
		}
	}
	return nil
}

// Close implements runtime.Store.
func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.vars {
		v.release()
	}
	for _, d := range s.made {
		d.block.Release()
	}
	for _, b := range s.work {
		b.Release()
	}
	for _, b := range s.used {
		s.spares.give(b)
	}
	s.vars, s.made, s.work, s.used = map[string]*variable{}, nil, nil, nil
	return nil
}

// copyOf finds or adds the 16-bit copy of v; a new one is stale.
func (s *store) copyOf(v *variable, d ir.DType) *weightCopy {
	c := v.low[d]
	if c == nil {
		n := v.t.With(d).Bytes()
		c = &weightCopy{block: s.alloc(n)}
		c.mem = c.block.Bytes()[:n:n]
		s.place(s.b.m, c.block, nil)
		v.low[d] = c
	}
	return c
}

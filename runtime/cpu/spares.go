package cpu

import (
	"fmt"
	"syscall"
	"unsafe"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// Spares is memory that short-lived stores use one after the other. The system
// maps it once, and nothing zeroes it between two uses. The zero value is empty.
// Only one goroutine may use it at a time.
type Spares struct {
	// Touch asks the system for all pages of new memory at once, so that who uses it first does not wait for them.
	Touch bool

	free []*kern.Block
}

// maxOutside bounds a spare outside the Go heap. A spare goes back to the system when nothing refers
// to it any more. The collector, which finds that out, does not run for what lies outside: larger
// ones could stay for minutes.
const maxOutside = 32 << 20

// newSpare returns a block of n bytes or more: in whole huge pages where to clear one costs less than
// to map a quarter of it in small ones.
func newSpare(n int64) *kern.Block {
	if n > maxOutside {
		return kern.HeapBlock(kern.AllocAny(n))
	}
	if n >= kern.HugePage/4 {
		n = (n + kern.HugePage - 1) &^ (kern.HugePage - 1)
	}
	return kern.NewBlock(n)
}

// minSpare is the smallest block that is kept, in bytes.
const minSpare = 64 << 10

// take returns n bytes or more of undefined content, aligned to 64: the smallest
// free block that is large enough, or new memory.
func (s *Spares) take(n int64) *kern.Block {
	best := -1
	for i, b := range s.free {
		if int64(len(b.Bytes())) >= n && (best < 0 || len(b.Bytes()) < len(s.free[best].Bytes())) {
			best = i
		}
	}
	if best < 0 {
		s.Reserve(n)
		best = len(s.free) - 1
	}
	b := s.free[best]
	last := len(s.free) - 1
	s.free[best], s.free[last] = s.free[last], nil
	s.free = s.free[:last]
	return b
}

// Reserve adds a free block of n bytes or more.
func (s *Spares) Reserve(n int64) {
	b := newSpare(n)
	if s.Touch {
		b.Touch()
	}
	s.give(b)
}

// give returns a block to the free list.
func (s *Spares) give(b *kern.Block) { s.free = append(s.free, b) }

// Bytes is the size of all free blocks together.
func (s *Spares) Bytes() int64 {
	n := int64(0)
	for _, b := range s.free {
		n += int64(len(b.Bytes()))
	}
	return n
}

// Replayed is a store of ReplayStore.
type Replayed interface {
	runtime.Store
	// Rewind prepares the store for another step, on the given state. It returns false if a
	// variable that is read in place has moved. The store is then unusable.
	Rewind(state map[string][]byte) bool
}

// minAliased is the smallest variable, in bytes, that is read in place. Callers may allocate
// smaller ones anew for every step.
const minAliased = 256

// ReplayStore makes a store for one program that is to run on the given
// variables. A variable that the program does not write is read where state has
// it, unless it is tiny; state must not change until the store is closed. All other memory comes
// from spares, and goes back there when the store is closed, which must be after
// the program. The program can run one step, and another after each Rewind.
func (b *Backend) ReplayStore(p *lower.Program, state map[string][]byte, spares *Spares) (Replayed, error) {
	s := b.newStore()
	s.spares = spares
	written := map[string]bool{}
	for _, name := range p.Written {
		written[name] = true
	}
	for i := range p.Vars {
		v := &p.Vars[i]
		if v.Kind != ir.Param && v.Kind != ir.State {
			continue
		}
		data := state[v.Name]
		if int64(len(data)) != v.Type.Bytes() {
			return nil, fmt.Errorf("cpu: variable %q is %s, %d bytes, not %d", v.Name, v.Type, v.Type.Bytes(), len(data))
		}
		x := &variable{t: v.Type, mem: data, low: map[ir.DType]*weightCopy{}}
		switch {
		case v.Role() == ir.RoleCopy: // cast when the step begins
			x.allocate(s, int64(len(data)))
		case written[v.Name] || len(data) < minAliased || uintptr(unsafe.Pointer(unsafe.SliceData(data)))%8 != 0:
			x.allocate(s, int64(len(data)))
			s.copied = append(s.copied, v.Name)
		default:
			s.aliased = append(s.aliased, v.Name)
		}
		s.vars[v.Name] = x
	}
	s.Rewind(state)
	return s, nil
}

// Rewind implements Replayed.
func (s *store) Rewind(state map[string][]byte) bool {
	for _, name := range s.aliased {
		if is, was := state[name], s.vars[name].mem; len(is) != len(was) || unsafe.SliceData(is) != unsafe.SliceData(was) {
			return false
		}
	}
	for _, name := range s.copied {
		copy(s.vars[name].mem, state[name])
	}
	for _, v := range s.vars { // 16-bit copies belong to an earlier step
		v.version++
	}
	return true
}

// alloc returns a block of n bytes or more, which the caller holds. They are zero, or undefined if
// the store uses spares.
func (s *store) alloc(n int64) *kern.Block {
	if s.spares == nil || n < minSpare {
		return s.b.newBlock(n)
	}
	b := s.spares.take(n)
	b.Hold() // the store itself holds it, for the next one
	s.used = append(s.used, b)
	return b
}

// newBlock returns a block of n zero bytes. Small ones lie in the Go heap.
func (b *Backend) newBlock(n int64) *kern.Block {
	switch {
	case n < minSpare:
		return kern.HeapBlock(kern.Alloc(n))
	case b.dry: // kernels run a part of their work
		if n >= little && !leavesSpace(n) {
			panic(kern.NoMemory{Bytes: n, Err: syscall.ENOMEM})
		}
		return kern.NewSparseBlock(n)
	}
	return kern.NewBlock(n)
}

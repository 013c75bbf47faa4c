package cpu

import (
	"fmt"
	goruntime "runtime"
	"sync/atomic"
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

	free []*spare
}

// spare is a block of memory. Where the system allows it, a block of up to maxOutside bytes lies
// outside the Go heap: to allocate it starts no garbage collection. It goes back to the system after
// the last reference to the spare, so whoever uses mem keeps the spare as well.
type spare struct{ mem []byte }

// maxOutside bounds a block outside the Go heap. The collector, which frees blocks, does not run
// for what lies outside: larger ones could stay for minutes.
const maxOutside = 32 << 20

func newSpare(n int64) *spare {
	var b []byte
	if n <= maxOutside {
		b = kern.Map(n)
	}
	if b == nil {
		return &spare{kern.AllocAny(n)}
	}
	s := &spare{b}
	outside.Add(int64(len(b)))
	goruntime.AddCleanup(s, func(b []byte) {
		kern.Unmap(b)
		outside.Add(-int64(len(b)))
	}, b)
	return s
}

// outside is how many bytes of spares lie outside the Go heap.
var outside atomic.Int64

// minSpare is the smallest block that is kept, in bytes.
const minSpare = 64 << 10

// take returns n bytes or more of undefined content, aligned to 64: the smallest
// free block that is large enough, or new memory.
func (s *Spares) take(n int64) *spare {
	best := -1
	for i, b := range s.free {
		if int64(len(b.mem)) >= n && (best < 0 || len(b.mem) < len(s.free[best].mem)) {
			best = i
		}
	}
	if best < 0 {
		b := newSpare(n)
		if s.Touch {
			kern.Touch(b.mem)
		}
		return b
	}
	b := s.free[best]
	last := len(s.free) - 1
	s.free[best], s.free[last] = s.free[last], nil
	s.free = s.free[:last]
	return b
}

// give returns a block to the free list.
func (s *Spares) give(b *spare) { s.free = append(s.free, b) }

// Bytes is the size of all free blocks together.
func (s *Spares) Bytes() int64 {
	n := int64(0)
	for _, b := range s.free {
		n += int64(len(b.mem))
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
			x.mem = s.alloc(int64(len(data)))
		case written[v.Name] || len(data) < minAliased || uintptr(unsafe.Pointer(unsafe.SliceData(data)))%8 != 0:
			x.mem = s.alloc(int64(len(data)))
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

// alloc returns n bytes. They are zero, or undefined if the store uses spares.
func (s *store) alloc(n int64) []byte {
	if s.spares == nil || n < minSpare {
		return kern.Alloc(n)
	}
	b := s.spares.take(n)
	s.used = append(s.used, b)
	return b.mem[:n:n]
}

package kern

import (
	"sync"
	"unsafe"
)

// Source is an array whose elements can be read again, for example from a file. While kernels read
// only packed forms of it, its memory returns to the system; its address stays the same.
type Source struct {
	mem  []byte
	fill func(dst []byte) error

	mu      sync.Mutex
	there   bool // mem holds the elements
	stays   bool // a kernel reads mem directly
	packing int  // number of kernels that are packing from mem
}

// NewSource makes the source of mem. fill fills it whenever its elements are needed.
func NewSource(mem []byte, fill func(dst []byte) error) *Source {
	s := &Source{mem: mem, fill: fill, stays: !givesBack || len(mem) < leastSource}
	s.giveBack()
	return s
}

// leastSource is the smallest array, in bytes, whose memory is worth giving back.
const leastSource = 64 << 10

// FillError is the panic value of a kernel that needs the elements of a source and cannot get them.
type FillError struct{ Err error }

// Keep loads the elements and keeps them in memory from now on.
func (s *Source) Keep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stays = true
	return s.load()
}

// Written states that the memory was written: it holds the elements from now on.
func (s *Source) Written() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.there, s.stays = true, true
}

// load reads the elements if they are not in memory.
func (s *Source) load() error {
	if s.there {
		return nil
	}
	if err := s.fill(s.mem); err != nil {
		return err
	}
	s.there = true
	return nil
}

// Use keeps the elements in memory until the function that it returns is called.
func (s *Source) Use() (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return nil, err
	}
	s.packing++
	return s.end, nil
}

// end gives the memory back if nothing reads it.
func (s *Source) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.packing--; s.packing == 0 && !s.stays {
		s.giveBack()
	}
}

// giveBack gives the whole pages of the memory to the system: they read as zeros.
func (s *Source) giveBack() {
	if s.stays {
		return
	}
	page := int64(systemPage)
	from := toAlign(s.mem, page)
	if n := (int64(len(s.mem)) - from) &^ (page - 1); n > 0 && from < int64(len(s.mem)) {
		adviseUnused(unsafe.Slice(&s.mem[from], n))
	}
	s.there = false
}

// loadUnpacked loads the elements of the array, for a kernel that reads them unpacked.
func (w *Weights) loadUnpacked() {
	if w == nil || w.source == nil {
		return
	}
	if err := w.source.Keep(); err != nil {
		panic(FillError{err})
	}
}

// toPack keeps the elements in memory until the function that it returns is called.
func (w *Weights) toPack() (end func()) {
	if w.source == nil {
		return func() {}
	}
	end, err := w.source.Use()
	if err != nil {
		panic(FillError{err})
	}
	return end
}

package cpu

import (
	"math"
	"unsafe"
)

// scratch is temporary memory of steps: one arena per worker, as large as the largest demand of a
// step, and arrays that the workers share. The steps of a program run one at a time, so they share
// it.
type scratch struct {
	alloc      func(bytes int64) []byte
	workers    int      // as many as there may be one day
	ready      int      // those that have what they need
	arrays     [][]byte // arrays for the workers together; the first taken belong to the step being bound
	taken      int
	used, most int                                 // floats used by the step being bound, and by the largest step
	each       []func(worker int, arena []float32) // gives a worker what it needs
	constants  map[constant]unsafe.Pointer
}

// constant identifies a block of equal numbers.
type constant struct {
	kind class
	bits uint64
}

// begin starts the next step.
func (s *scratch) begin() { s.used, s.taken = 0, 0 }

// take reserves n floats for the step. give passes every worker's part once the arenas exist.
func (s *scratch) take(n int, give func(worker int, mem []float32)) {
	at := s.used
	s.used += (n + 15) &^ 15
	s.most = max(s.most, s.used)
	s.each = append(s.each, func(w int, arena []float32) { give(w, arena[at:at+n:at+n]) })
}

// perWorker returns what one returns for each worker, once there is the worker.
func perWorker[T any](s *scratch, one func() T) []T {
	all := make([]T, s.workers)
	s.each = append(s.each, func(w int, _ []float32) { all[w] = one() })
	return all
}

// whole reserves n floats that all workers of the step see. Their content is undefined.
func (s *scratch) whole(n int) []float32 { return slice[float32](s.bytes(int64(4 * n))) }

// bytes reserves n bytes that all workers of the step see: the smallest array of earlier steps that
// is large enough, or a new one.
func (s *scratch) bytes(n int64) []byte {
	best := -1
	for i, a := range s.arrays[s.taken:] {
		if int64(len(a)) >= n && (best < 0 || len(a) < len(s.arrays[best])) {
			best = s.taken + i
		}
	}
	if best < 0 {
		best = len(s.arrays)
		s.arrays = append(s.arrays, s.alloc(n))
	}
	s.arrays[s.taken], s.arrays[best] = s.arrays[best], s.arrays[s.taken]
	s.taken++
	return s.arrays[s.taken-1][:n:n]
}

// missing is the number of bytes that allot takes.
func (s *scratch) missing(workers int) int64 { return int64(workers-s.ready) * int64(4*s.most) }

// allot gives the workers below a number what they need, those that do not have it. All steps are
// bound.
func (s *scratch) allot(workers int) {
	for ; s.ready < workers; s.ready++ {
		arena := slice[float32](s.alloc(int64(4 * s.most)))
		for _, give := range s.each {
			give(s.ready, arena)
		}
	}
	s.arrays = nil
	if s.ready == s.workers { // there will be no others
		s.each, s.alloc = nil, nil
	}
}

// block returns blockLen times x; equal constants share one block.
func block[T float32 | int64 | float64](s *scratch, kind class, x T) []T {
	if s.constants == nil {
		s.constants = map[constant]unsafe.Pointer{}
	}
	key := constant{kind, math.Float64bits(float64(x))}
	if kind == ints {
		key.bits = uint64(x)
	}
	p, ok := s.constants[key]
	if !ok {
		b := make([]T, blockLen)
		fill(b, x)
		p = unsafe.Pointer(&b[0])
		s.constants[key] = p
	}
	return unsafe.Slice((*T)(p), blockLen)
}

// cast views floats as wider elements.
func cast[T int64 | float64](mem []float32) []T {
	if len(mem) < 2 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[0])), len(mem)/2)
}

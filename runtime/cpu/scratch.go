package cpu

import (
	"math"
	"unsafe"
)

// scratch is temporary memory of steps: one arena per worker, as large as the largest demand of a
// step. The steps of a program run one at a time, so they share it.
type scratch struct {
	used, most int // floats used by the step being bound, and by the largest step
	later      []func(arenas [][]float32)
	constants  map[constant]unsafe.Pointer
}

// constant identifies a block of equal numbers.
type constant struct {
	kind class
	bits uint64
}

// begin starts the next step.
func (s *scratch) begin() { s.used = 0 }

// take reserves n floats for the step. give passes every worker's part once the arenas exist.
func (s *scratch) take(n int, give func(worker int, mem []float32)) {
	at := s.used
	s.used += (n + 15) &^ 15
	s.most = max(s.most, s.used)
	s.later = append(s.later, func(arenas [][]float32) {
		for w, a := range arenas {
			give(w, a[at:at+n:at+n])
		}
	})
}

// allot allocates the arenas.
func (s *scratch) allot(workers int, alloc func(int64) []byte) {
	arenas := make([][]float32, workers)
	for w := range arenas {
		arenas[w] = slice[float32](alloc(int64(4 * s.most)))
	}
	for _, f := range s.later {
		f(arenas)
	}
	s.later = nil
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

package doctor

import (
	"encoding/binary"
	"math"
	"slices"

	"ampc/ir"
)

// Exponents counts the finite elements of a tensor that are not 0 by their binary
// exponent: Counts[i] of them have magnitudes from 2^(Least+i) up to 2^(Least+i+1).
type Exponents struct {
	Least  int   `json:"least"`
	Counts []int `json:"counts"`
}

// withExponents adds the exponents of v to its range s, where the replay still holds
// what s was scanned from, if they are asked for.
func (r *replay) withExponents(s Range, v *ir.Value) Range {
	if !r.counts {
		return s
	}
	data := r.data(v)
	if data == nil || r.strided(v) || v.Type.DType != ir.F32 && !v.Type.DType.Low() {
		return s
	}
	if again := r.scan(s.Name, v.Type.DType, data); again != s {
		return s // the memory holds something else by now
	}
	s.Exponents = exponentsOf(r.widened(v.Type.DType, data))
	return s
}

// exponentsOf counts the elements of f32 data.
func exponentsOf(data []byte) *Exponents {
	const least, most = -149, 127
	counts := make([]int, most-least+1)
	for ; len(data) >= 4; data = data[4:] {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
		if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
			continue
		}
		counts[math.Ilogb(x)-least]++
	}
	first := slices.IndexFunc(counts, func(n int) bool { return n > 0 })
	if first < 0 {
		return &Exponents{Counts: []int{}}
	}
	last := len(counts)
	for counts[last-1] == 0 {
		last--
	}
	return &Exponents{Least: least + first, Counts: counts[first:last]}
}

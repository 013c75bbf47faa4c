package sim

import "ampc/internal/fp"

// sums adds products in f32, in an order as the libraries have it: each sum in parts, to which terms
// go in turn, added up at the end.
type sums struct {
	parts, n int
	v        []float32
	short    bool // each partial sum is rounded to f16
}

func newSums(n, parts int) *sums { return &sums{parts: parts, n: n, v: make([]float32, n*parts)} }

// orders is what multiplies the number of parts of each sum.
func (d *Device) orders() int { return max(d.opt.Parts, 1) }

// add adds term number k, a·b, to sum i.
func (s *sums) add(i, k int, a, b float64) {
	if s.parts > 1 {
		i += k % s.parts * s.n
	}
	at := &s.v[i]
	*at = float32(float64(*at) + float64(a*b))
	if s.short {
		*at = fp.F16ToF32(fp.F16(*at))
	}
}

// total is sum i.
func (s *sums) total(i int) float32 {
	t := s.v[i]
	for p := 1; p < s.parts; p++ {
		t += s.v[p*s.n+i]
	}
	return t
}

// totals are all sums.
func (s *sums) totals() []float64 {
	out := make([]float64, s.n)
	for i := range out {
		out[i] = float64(s.total(i))
	}
	return out
}

// columnParts is the number of parts in which long columns are added.
const columnParts = 32

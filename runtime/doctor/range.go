package doctor

import (
	"fmt"
	"math"

	"ampc/ir"
	"ampc/runtime/cpu"
)

// Range sums up the elements of a tensor. Min, Max and AbsMax are over its finite elements, 0 if
// there is none.
type Range struct {
	Name     string   `json:"name"`
	DType    ir.DType `json:"-"`
	Stored   string   `json:"dtype"`
	Min      float64  `json:"min"`
	Max      float64  `json:"max"`
	AbsMax   float64  `json:"absmax"`
	NaN      int      `json:"nan"`
	Inf      int      `json:"inf"` // of either sign
	NegInf   int      `json:"neg_inf"`
	Zeros    int      `json:"zeros"`
	Elements int      `json:"elements"`
	// Exponents is set in the ranges of a Diagnosis if Case.Exponents is and a replay held the tensor.
	Exponents *Exponents `json:"-"`
}

// Finite reports whether every element is finite.
func (r Range) Finite() bool { return r.NaN == 0 && r.Inf == 0 }

// masked reports whether −Inf, as masks have it, is the only value that is not finite.
func (r Range) masked() bool { return r.NaN == 0 && r.Inf > 0 && r.Inf == r.NegInf }

func (r Range) String() string {
	s := fmt.Sprintf("%s %s [%.5g, %.5g]", r.Name, r.Stored, r.Min, r.Max)
	if r.NaN+r.Inf == r.Elements {
		s = fmt.Sprintf("%s %s", r.Name, r.Stored)
	}
	for _, c := range []struct {
		n    int
		what string
	}{{r.NaN, "NaN"}, {r.Inf - r.NegInf, "Inf"}, {r.NegInf, "-Inf"}, {r.Zeros, "zero"}} {
		if c.n > 0 {
			s += fmt.Sprintf(", %d of %d %s", c.n, r.Elements, c.what)
		}
	}
	return s
}

// workers scan values on the threads of the backend, which is locked while a replay runs.
type workers struct {
	b      *cpu.Backend
	inside *cpu.Backend // b.Inside()
	busy   bool         // a replay is running
}

func newWorkers(b *cpu.Backend) *workers { return &workers{b: b, inside: b.Inside()} }

// chunk is how many bytes one worker scans at a time.
const chunk = 1 << 16

func chunks(data []byte) int { return (len(data) + chunk - 1) / chunk }

// inChunks calls look for every chunk of data, at the same time.
func (h *workers) inChunks(data []byte, look func(i int, chunk []byte)) {
	h.each(chunks(data), func(i int) { look(i, data[i*chunk:min((i+1)*chunk, len(data))]) })
}

// each calls look for 0 to n-1, at the same time.
func (h *workers) each(n int, look func(i int)) {
	b := h.b
	if h.busy {
		b = h.inside
	}
	b.Each(n, look)
}

// scan looks at every element once.
func (h *workers) scan(name string, d ir.DType, data []byte) Range {
	r := Range{Name: name, DType: d, Stored: d.String()}
	if len(data) == 0 || d != ir.F32 && !d.Low() {
		return r
	}
	parts := make([]cpu.Counts, chunks(data))
	h.inChunks(data, func(i int, chunk []byte) { parts[i] = h.b.Count(d, chunk) })
	c := parts[0]
	for _, p := range parts[1:] {
		c.Join(p)
	}
	r.NaN, r.Inf, r.NegInf, r.Zeros = c.NaN, c.Inf, c.NegInf, c.Zeros
	r.Elements = int(int64(len(data)) / d.Size())
	if !math.IsInf(float64(c.Lo), 1) {
		r.Min, r.Max = float64(c.Lo)+0, float64(c.Hi)+0 // no -0
	}
	r.AbsMax = max(-r.Min, r.Max)
	return r
}

// widened is data of a 16-bit dtype as f32; other data is returned as it is.
func (h *workers) widened(d ir.DType, data []byte) []byte {
	if !d.Low() {
		return data
	}
	out := make([]byte, 2*len(data))
	h.inChunks(data, func(i int, part []byte) { h.b.Widen(out[2*i*chunk:2*i*chunk+2*len(part)], d, part) })
	return out
}

// convert returns 16-bit float data as f32 or bf16, in the memory of into if that has the right size.
func (h *workers) convert(from, to ir.DType, data, into []byte) []byte {
	n := len(data)
	if to == ir.F32 {
		n *= 2
	}
	if len(into) != n {
		into = make([]byte, n)
	}
	wide := h.widened(from, data)
	if to == ir.F32 {
		copy(into, wide)
		return into
	}
	h.inChunks(wide, func(i int, part []byte) { h.b.Narrow(into[i*chunk/2:i*chunk/2+len(part)/2], to, part) })
	return into
}

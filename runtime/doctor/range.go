package doctor

import (
	"fmt"

	"ampc/ir"
	"ampc/runtime/cpu"
)

// Range is what a tensor holds. Min, Max and AbsMax are over its finite
// elements, 0 where there is none.
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
	// Exponents are there in the ranges of a Diagnosis, where the case asks for them and a replay held the tensor.
	Exponents *Exponents `json:"-"`
}

// Finite reports whether every element is.
func (r Range) Finite() bool { return r.NaN == 0 && r.Inf == 0 }

// masked reports whether all that is not finite is −Inf, as masks have it.
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

// workers are the backend's as they scan values. The backend is locked
// while a replay runs.
type workers struct {
	b      *cpu.Backend
	inside *cpu.Backend // b.Inside()
	busy   bool         // a replay is running
}

func newWorkers(b *cpu.Backend) *workers { return &workers{b: b, inside: b.Inside()} }

// chunk is how many bytes one worker looks at.
const chunk = 1 << 16

func chunks(data []byte) int { return (len(data) + chunk - 1) / chunk }

// inChunks calls look for every chunk of data, at the same time.
func (h *workers) inChunks(data []byte, look func(i int, chunk []byte)) {
	b := h.b
	if h.busy {
		b = h.inside
	}
	b.Each(chunks(data), func(i int) { look(i, data[i*chunk:min((i+1)*chunk, len(data))]) })
}

// scan looks at every element once.
func (h *workers) scan(name string, d ir.DType, data []byte) Range {
	parts := make([]Range, chunks(data))
	h.inChunks(data, func(i int, chunk []byte) {
		var p Range // of its own: neighbours in parts share cache lines
		p.scan(h.b, d, chunk)
		parts[i] = p
	})
	r := Range{Name: name, DType: d, Stored: d.String()}
	for _, p := range parts {
		r.join(p)
	}
	r.AbsMax = max(-r.Min, r.Max)
	return r
}

// join adds what was seen of another part of the tensor.
func (r *Range) join(p Range) {
	switch seen, more := r.Elements-r.NaN-r.Inf, p.Elements-p.NaN-p.Inf; {
	case seen == 0:
		r.Min, r.Max = p.Min, p.Max
	case more > 0:
		r.Min, r.Max = min(r.Min, p.Min), max(r.Max, p.Max)
	}
	r.NaN, r.Inf, r.NegInf = r.NaN+p.NaN, r.Inf+p.Inf, r.NegInf+p.NegInf
	r.Zeros, r.Elements = r.Zeros+p.Zeros, r.Elements+p.Elements
}

// scan looks at a chunk piece by piece.
func (r *Range) scan(b *cpu.Backend, d ir.DType, data []byte) {
	if d != ir.F32 && !d.Low() {
		return
	}
	for size := int(d.Size()) * cpu.ScanBlock; len(data) > 0; data = data[min(size, len(data)):] {
		head := data[:min(size, len(data))]
		c := b.Count(d, head)
		p := Range{NaN: c.NaN, Inf: c.Inf, NegInf: c.NegInf, Zeros: c.Zeros, Elements: len(head) / int(d.Size())}
		if c.Lo <= c.Hi {
			p.Min, p.Max = float64(c.Lo), float64(c.Hi)
		}
		r.join(p)
	}
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

// convert returns 16-bit float data as f32 or bf16, in the memory of into where
// that has the size.
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

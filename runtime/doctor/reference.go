package doctor

import (
	"math"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu"
)

// reference is a replay of a variant: it has the values and results of the step in that precision.
type reference struct {
	*replay
	to      map[*ir.Value]*ir.Value // where each value of the step went
	results []*ir.Value             // of the step, as compared; their places are those of the program's outputs
	peaks   map[*ir.Value]float64   // largest magnitude of a value of the step over all micro-batches, as far as one was asked for
}

// build prepares the replay with d in place of every 16-bit dtype. If lossesOnly, it computes the
// losses and no other results. In f32 it also shows the surveyed values.
func (x *analysis) build(d ir.DType, v *ir.Value, how form, lossesOnly bool) (*reference, error) {
	t, err := x.variantOf(kind{dtype: d, how: how, update: x.actual.part == lower.Update, lossesOnly: lossesOnly}, v)
	if err != nil {
		return nil, err
	}
	r := &reference{to: t.to, results: t.results, peaks: map[*ir.Value]float64{}}
	r.replay, err = x.prepare(t.compiled, t.feeds(x.workers, x.c.Feeds), func(converted map[string][]byte) map[string][]byte {
		return t.state(x.workers, x.actual.state, converted, nil)
	})
	if err != nil {
		return nil, err
	}
	if how == traced {
		var others []*ir.Value
		if d == ir.F32 {
			others = mapped(x.surveyed(), t.to)
		}
		r.traceFor(t.to[v], others)
	}
	x.replays++
	return r, nil
}

// variantOf is the variant that shows v. In bf16 the variant for results alone shows most values.
func (x *analysis) variantOf(k kind, v *ir.Value) (*variant, error) {
	if k.dtype != ir.F32 && !k.update {
		if t, err := x.variant(k, nil, x.c.memory()); err != nil || t.shows(t.to[v]) {
			return t, err
		}
	}
	return x.variant(k, v, x.c.memory())
}

// results are the values by which two replays of a step are compared: what it
// returns, its losses, and the gradients that its update reads.
func (s *subject) results() []*ir.Value {
	vs := s.toUpdate()
	for _, v := range s.g.Return {
		if v.Def != nil && s.section[v.Def] != ir.Update && v.Type.DType.Float() && !slices.Contains(vs, v) {
			vs = append(vs, v)
		}
	}
	return vs
}

// toUpdate are the losses and gradients that update reads: values of forward and backward, and
// sums over micro-batches.
func (s *subject) toUpdate() []*ir.Value {
	var vs []*ir.Value
	for _, n := range s.g.Body[ir.Update] {
		for _, v := range n.In {
			if v == nil || !v.Type.DType.Float() || slices.Contains(vs, v) {
				continue
			}
			before := v.Def != nil && v.Next == nil && (s.section[v.Def] == ir.Forward || s.section[v.Def] == ir.Backward)
			if before || v.Def == nil && v.Attr.Get("role") == "acc" {
				vs = append(vs, v)
			}
		}
	}
	return vs
}

// isLoss reports whether a result is one number.
func isLoss(v *ir.Value) bool { return v.Type.Shape.Elements() == 1 && v.Unit == "" }

// compare runs the reference, looks at each part, and returns the results as
// f32. They are valid until the reference is closed.
func (r *reference) compare(x *analysis, look func()) ([][]byte, error) {
	out := make([][]byte, len(r.results))
	err := r.run(x.ctx, func() bool {
		if look != nil {
			look()
		}
		if r.part < lower.Update {
			return true
		}
		for i, o := range r.p.Outputs[:len(out)] {
			out[i] = x.widened(o.Type.DType, r.memory(o.Buffer))
		}
		return false // no step needs a copy of the results
	})
	return out, err
}

// notFiniteInF32 is the first loss or gradient that is not finite in f32, nil if the replay has
// shown none.
func (x *analysis) notFiniteInF32() *ir.Value {
	read := x.toUpdate()
	var first *ir.Value
	add := func(v *ir.Value) {
		if first == nil || first.IsVar() || !v.IsVar() && x.order[v] < x.order[first] { // sums over micro-batches last
			first = v
		}
	}
	for v, peak := range x.reference.peaks {
		if v.Unit != "" && math.IsInf(peak, 1) {
			add(v)
		}
	}
	for i, v := range x.reference.results {
		if slices.Contains(read, v) && x.flawOf(ir.F32, x.losses[i]) != fine {
			add(v)
		}
	}
	return first
}

// survey notes the largest magnitudes in f32 of values that the step stores in 16 bits and
// that may be too large for them.
func (x *analysis) survey() {
	for _, v := range x.surveyed() {
		x.reference.peaks[v] = max(x.reference.peaks[v], x.reference.peak(x.reference.to[v]))
	}
}

// surveyed are the values that the step stores in 16 bits, or would store if the product that
// computes them were not fused with its readers. Values that are finite in the replay under
// the policy are left out.
func (x *analysis) surveyed() []*ir.Value {
	several := len(x.c.Feeds) > 1
	if x.actual.part != lower.Micro && !several {
		return nil
	}
	if x.suspects == nil {
		for _, n := range x.g.Nodes {
			for _, v := range n.Out {
				if joined(v) || v.Type.DType.Low() && (several || !x.actual.made(v) || !x.actual.visible(v) || x.actual.flaw(v) != fine) {
					x.suspects = append(x.suspects, v)
				}
			}
		}
	}
	return x.suspects
}

// tolerance is the largest distance between the results of two precisions that counts as
// agreement, relative to their norm.
const tolerance = 1.0 / 16

// agree reports whether two runs have the same losses and, taken together, the
// same gradients.
func (h *workers) agree(results []*ir.Value, a, b [][]byte) bool {
	var off, all float64
	for i := range results {
		d, n := h.distance(a[i], b[i])
		if len(b[i]) == 4 && !(d <= tolerance*tolerance*max(n, 1e-12)) {
			return false
		}
		off, all = off+d, all+n
	}
	return off <= tolerance*tolerance*all
}

// distance is the squared norm of a−b, and that of b.
func (h *workers) distance(a, b []byte) (off, norm float64) {
	offs, norms := make([]float64, chunks(b)), make([]float64, chunks(b))
	h.inChunks(b, func(i int, part []byte) {
		const size = 4 * cpu.ScanBlock
		for at := 0; at < len(part); at += size {
			end := min(at+size, len(part))
			off, norm := h.b.Squares(a[i*chunk+at:i*chunk+end], part[at:end])
			offs[i], norms[i] = offs[i]+off, norms[i]+norm
		}
	})
	for i := range offs {
		off, norm = off+offs[i], norm+norms[i]
	}
	return off, norm
}

package doctor

import (
	"encoding/binary"
	"math"
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// reference is the step in another precision, all of it up to the part that
// went wrong: what the values of that part would be, and its results.
type reference struct {
	*replay
	to      map[*ir.Value]*ir.Value // where each value of the step went
	results []*ir.Value             // of the step, as compared; their places are those of the program's outputs
	peaks   map[*ir.Value]float64   // largest magnitude of a value over all micro-batches, as far as one was asked for
}

// build makes the step with d in place of every 16-bit dtype. Node by node is how
// its values can be looked at; together is how it is fastest.
func (x *analysis) build(d ir.DType, also *ir.Value, together bool) (*reference, error) {
	t, err := newVariant(d, x.actual.g, x.actual.state, x.actual.feeds)
	if err != nil {
		return nil, err
	}
	r := &reference{to: t.to, results: x.results(), peaks: map[*ir.Value]float64{}}
	if also != nil && !slices.Contains(r.results, also) && !also.IsVar() {
		r.results = append(r.results, also)
	}
	t.g.Return = make([]*ir.Value, len(r.results))
	for i, v := range r.results {
		t.g.Return[i] = t.to[v]
	}
	if x.actual.part != lower.Update {
		t.g.Body[ir.Update] = nil
	}
	live(t.g)
	lowered := lower.LowerNodes
	if together {
		lowered = lower.LowerOnce
	}
	if r.replay, err = x.prepare(t.g, t.state, t.feeds, lowered); err != nil {
		return nil, err
	}
	x.replays++
	return r, nil
}

// results are the values by which two replays of a step are compared: what it
// returns, its losses, and the gradients that its update reads.
func (x *analysis) results() []*ir.Value {
	var vs []*ir.Value
	add := func(v *ir.Value) {
		if v != nil && v.Type.DType.Float() && !slices.Contains(vs, v) {
			vs = append(vs, v)
		}
	}
	for _, n := range x.actual.g.Body[ir.Update] {
		for _, v := range n.In {
			switch {
			case v == nil:
			case v.Def == nil && v.Attr.Get("role") == "acc":
				add(v)
			case v.Def != nil && v.Next == nil && (x.section[v.Def] == ir.Forward || x.section[v.Def] == ir.Backward):
				add(v)
			}
		}
	}
	for _, v := range x.actual.g.Return {
		if v.Def != nil && x.section[v.Def] != ir.Update {
			add(v)
		}
	}
	return vs
}

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
			out[i] = widened(o.Type.DType, r.watch.Buffer(o.Buffer))
		}
		return false // nobody needs a copy of the results
	})
	return out, err
}

// survey notes the largest magnitudes of what the step stores in 16 bits and
// may not hold there.
func (x *analysis) survey() {
	several := len(x.c.Feeds) > 1
	for _, n := range x.actual.g.Nodes {
		for _, v := range n.Out {
			if !v.Type.DType.Low() || !several && x.actual.flaw(v) == fine {
				continue
			}
			w := x.reference.to[v]
			x.reference.peaks[v] = max(x.reference.peaks[v], x.reference.peak(w))
		}
	}
}

// peak is the largest magnitude of v, Inf where it is not finite.
func (r *replay) peak(v *ir.Value) float64 {
	if v.IsVar() || r.lean || v.Type.DType != ir.F32 {
		s := r.rangeOf(v)
		if !s.Finite() {
			return math.Inf(1)
		}
		return s.AbsMax
	}
	data := r.data(v)
	parts := make([]float64, chunks(data))
	inChunks(data, func(i int, chunk []byte) { parts[i] = r.b.AbsMax(chunk) })
	return slices.Max(parts)
}

// tolerance is how far the results of two precisions may lie apart, as a share
// of their norm, to count as the same.
const tolerance = 1.0 / 16

// agree reports whether two runs have the same losses and, taken together, the
// same gradients.
func agree(results []*ir.Value, a, b [][]byte) bool {
	var off, all float64
	for i := range results {
		d, n := distance(a[i], b[i])
		if len(b[i]) == 4 && !(d <= tolerance*tolerance*max(n, 1e-12)) {
			return false
		}
		off, all = off+d, all+n
	}
	return off <= tolerance*tolerance*all
}

// distance is the squared norm of a−b, and that of b.
func distance(a, b []byte) (off, norm float64) {
	offs, norms := make([]float64, chunks(b)), make([]float64, chunks(b))
	inChunks(b, func(i int, part []byte) {
		other := a[i*chunk:]
		var off, norm [4]float64 // four chains of sums
		for k := 0; k+3 < len(part); k += 4 {
			x := float64(math.Float32frombits(binary.LittleEndian.Uint32(other[k:])))
			y := float64(math.Float32frombits(binary.LittleEndian.Uint32(part[k:])))
			at := k / 4 % 4
			off[at], norm[at] = off[at]+(x-y)*(x-y), norm[at]+y*y
		}
		offs[i], norms[i] = off[0]+off[1]+off[2]+off[3], norm[0]+norm[1]+norm[2]+norm[3]
	})
	for i := range offs {
		off, norm = off+offs[i], norm+norms[i]
	}
	return off, norm
}

// live drops what neither a result nor a variable comes from.
func live(g *ir.Graph) {
	results := slices.Clone(g.Return)
	for _, n := range g.Nodes {
		for _, o := range n.Out {
			if o.Next != nil {
				results = append(results, o)
			}
		}
	}
	back := g.Return
	ancestry(g, results...)
	g.Return = back
}

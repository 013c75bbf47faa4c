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

// build makes the step with d in place of every 16-bit dtype, as far as v, which
// went wrong, and its results need it. Values that are to be looked at are stored.
func (x *analysis) build(d ir.DType, v *ir.Value, look bool) (*reference, error) {
	t, err := newVariant(d, x.actual.g, x.actual.state, x.actual.feeds)
	if err != nil {
		return nil, err
	}
	r := &reference{to: t.to, results: x.results(), peaks: map[*ir.Value]float64{}}
	if !look && !slices.Contains(r.results, v) {
		r.results = append(r.results, v)
	}
	t.g.Return = make([]*ir.Value, len(r.results))
	for i, v := range r.results {
		t.g.Return[i] = t.to[v]
	}
	if x.actual.part != lower.Update {
		t.g.Body[ir.Update] = nil
	}
	results := t.g.Return
	ancestry(t.g, append(slices.Clone(results), t.to[v])...)
	t.g.Return = results
	lowered := lower.LowerOnce
	if look {
		lowered = lower.LowerTraced
		t.show(slices.Concat(x.surveyed(), x.joined(), []*ir.Value{v}))
	}
	if r.replay, err = x.prepare(t.g, t.state, t.feeds, lowered); err != nil {
		return nil, err
	}
	x.replays++
	return r, nil
}

// joined are the products that are computed together with what reads them.
func (x *analysis) joined() []*ir.Value {
	var vs []*ir.Value
	for _, n := range x.actual.g.Nodes {
		for _, v := range n.Out {
			if joined(v) {
				vs = append(vs, v)
			}
		}
	}
	return vs
}

// show has values stored, as far as they are computed.
func (t *variant) show(vs []*ir.Value) {
	there := map[*ir.Value]bool{}
	for _, v := range t.g.Return {
		there[v] = true
	}
	computed := map[*ir.Value]bool{}
	for _, n := range t.g.Nodes {
		for _, v := range n.Out {
			computed[v] = v.Next == nil
		}
	}
	for _, v := range vs {
		if w := t.to[v]; computed[w] && !there[w] {
			t.g.Return = append(t.g.Return, w)
		}
	}
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
	for _, v := range x.returned {
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
	for _, v := range x.surveyed() {
		x.reference.peaks[v] = max(x.reference.peaks[v], x.reference.peak(x.reference.to[v]))
	}
}

// surveyed are the values that the step stores in 16 bits, without those that
// are seen to be finite there.
func (x *analysis) surveyed() []*ir.Value {
	if x.actual.part != lower.Micro && len(x.c.Feeds) == 1 {
		return nil
	}
	if x.suspects == nil {
		for _, n := range x.actual.g.Nodes {
			for _, v := range n.Out {
				if v.Type.DType.Low() && (len(x.c.Feeds) > 1 || !x.actual.made(v) || !x.actual.visible(v) || x.actual.flaw(v) != fine) {
					x.suspects = append(x.suspects, v)
				}
			}
		}
	}
	return x.suspects
}

// peak is the largest magnitude of v, Inf where it is not finite.
func (r *replay) peak(v *ir.Value) float64 {
	if r.strided(v) && !r.lean && v.Type.DType == ir.F32 {
		top := 0.0
		r.runs(v, func(part []byte) { top = max(top, r.b.AbsMax(part)) })
		return top
	}
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

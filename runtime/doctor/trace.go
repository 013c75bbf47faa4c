package doctor

import (
	"math"
	"slices"

	"ampc/ir"
)

// traceFor makes the replay traced: v and values known at compile time are scanned, of
// others the largest magnitude is taken. This happens right after their steps, while they
// are in the cache; their memory can be used again afterwards.
func (r *replay) traceFor(v *ir.Value, others []*ir.Value) {
	r.traced, r.ranged, r.peaks = map[moment][]*ir.Value{}, map[*ir.Value]bool{}, map[*ir.Value]float64{}
	add := func(v *ir.Value) {
		if id, filled := r.sourceOf(r.home(v)); filled && r.visible(v) {
			r.traced[id] = append(r.traced[id], v)
		}
	}
	for _, o := range append(constants(r.g), v) {
		r.ranged[o] = true
		add(o)
	}
	for _, o := range others {
		if !r.ranged[o] {
			add(o)
		}
	}
}

// constants are the floats that nodes make without operands that change.
func constants(g *ir.Graph) []*ir.Value {
	var vs []*ir.Value
	for _, n := range g.Nodes {
		for _, o := range n.Out {
			if o.Type.DType.Float() && constant(o) {
				vs = append(vs, o)
			}
		}
	}
	return vs
}

// measured scans the results of a step.
func (r *replay) measured(at moment) {
	for _, v := range r.traced[at] {
		if r.ranged[v] {
			r.ranges[v] = r.scan(v.Name, v.Type.DType, r.data(v))
			continue
		}
		r.peaks[v] = max(r.peaks[v], r.top(v))
	}
}

// peak is the largest magnitude of v: Inf if it is not finite, 0 if v is not traced.
func (r *replay) peak(v *ir.Value) float64 {
	if r.traced == nil || v.IsVar() {
		return r.top(v)
	}
	if s, ok := r.ranges[v]; ok {
		return s.peak()
	}
	return r.peaks[v]
}

func (r Range) peak() float64 {
	if !r.Finite() {
		return math.Inf(1)
	}
	return r.AbsMax
}

// top is peak of a value in memory.
func (r *replay) top(v *ir.Value) float64 {
	switch {
	case v.IsVar() || r.streamed || v.Type.DType != ir.F32:
		return r.rangeOf(v).peak()
	case r.strided(v):
		return worst(r, v, r.b.AbsMax)
	}
	data := r.data(v)
	if len(data) == 0 {
		return 0
	}
	parts := make([]float64, chunks(data))
	r.inChunks(data, func(i int, chunk []byte) { parts[i] = r.b.AbsMax(chunk) })
	return slices.Max(parts)
}

package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// stored reports whether the program has dense memory for v that its steps write. A value
// that a step keeps in registers, or that lies inside another value's memory, has none.
func (c *compiled) stored(v *ir.Value) bool {
	id := c.home(v)
	if id == lower.None {
		return v.IsVar()
	}
	b := &c.p.Buffers[id]
	if b.Arena != lower.WorkArena {
		return true
	}
	_, filled := c.sourceOf(id)
	return filled && b.Strides == nil
}

// strided reports whether v lies inside another value's memory, which a step writes.
func (c *compiled) strided(v *ir.Value) bool {
	id := c.home(v)
	if id == lower.None || c.p.Buffers[id].Strides == nil {
		return false
	}
	_, filled := c.sourceOf(id)
	return filled
}

// visible reports whether v can be scanned without computing it again.
func (r *replay) visible(v *ir.Value) bool { return r.streamed || r.shows(v) }

// shows reports whether v can be read from memory once its step has run.
func (c *compiled) shows(v *ir.Value) bool { return c.stored(v) || c.strided(v) }

// runs are the contiguous runs of a strided value's memory, in the value's order, or if sorted in
// that of memory, where they are longer.
func (r *replay) runs(v *ir.Value, sorted bool) [][]byte {
	b := &r.p.Buffers[r.home(v)]
	mem, width := r.memory(r.home(v)), b.Type.DType.Size()
	type axis struct{ size, stride int64 }
	var axes []axis
	for i, n := range ir.Sizes(b.Type.Shape) {
		if !sorted || n > 1 && b.Strides[i] != 0 {
			axes = append(axes, axis{n, b.Strides[i]})
		}
	}
	if sorted {
		slices.SortStableFunc(axes, func(a, b axis) int { return cmp.Compare(b.stride, a.stride) })
	}
	dense := int64(1)
	for len(axes) > 0 && axes[len(axes)-1].stride == dense {
		dense *= axes[len(axes)-1].size
		axes = axes[:len(axes)-1]
	}
	var runs [][]byte
	var walk func(axes []axis, at int64)
	walk = func(axes []axis, at int64) {
		if len(axes) == 0 {
			runs = append(runs, mem[at*width:(at+dense)*width])
			return
		}
		for i := range axes[0].size {
			walk(axes[1:], at+i*axes[0].stride)
		}
	}
	walk(axes, 0)
	return runs
}

// someRuns is how many runs one worker scans at a time.
const someRuns = 128

// worst is the largest of what look finds in the runs of a strided value.
func worst[T cmp.Ordered](r *replay, v *ir.Value, look func(run []byte) T) T {
	some := slices.Collect(slices.Chunk(r.runs(v, true), someRuns))
	found := make([]T, len(some))
	r.each(len(some), func(i int) {
		for _, run := range some[i] {
			found[i] = max(found[i], look(run))
		}
	})
	return slices.Max(found)
}

// unstored computes v from the stored values nearest to it, by a program of its own.
// Fusing steps changes no bit, so the result is what the step had in its registers.
func (r *replay) unstored(v *ir.Value) []byte {
	if data := r.inner[v]; data != nil {
		return data
	}
	if r.strided(v) {
		data := slices.Concat(r.runs(v, false)...)
		r.inner[v] = data
		return data
	}
	var nodes []*ir.Node
	seen := map[*ir.Node]bool{}
	var walk func(n *ir.Node)
	walk = func(n *ir.Node) {
		if seen[n] {
			return
		}
		seen[n] = true
		for _, op := range n.In {
			if op != nil && op.Def != nil && !r.known(op) {
				walk(op.Def)
			}
		}
		nodes = append(nodes, n)
	}
	walk(v.Def)
	if err := r.compute(nodes); err != nil {
		r.failed = fmt.Errorf("%s: %w", v, err)
		return nil
	}
	return r.inner[v]
}

// known reports whether v is stored or has been computed already.
func (r *replay) known(v *ir.Value) bool {
	return r.inner[v] != nil || r.stored(v)
}

package doctor

import (
	"fmt"

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

// runs calls with for each contiguous run of a strided value's memory.
func (r *replay) runs(v *ir.Value, with func(part []byte)) {
	b := &r.p.Buffers[r.home(v)]
	mem, width := r.memory(r.home(v)), b.Type.DType.Size()
	shape := ir.Sizes(b.Type.Shape)
	dense, inner := int64(1), len(shape)
	for inner > 0 && b.Strides[inner-1] == dense {
		inner--
		dense *= shape[inner]
	}
	var walk func(axis int, at int64)
	walk = func(axis int, at int64) {
		if axis == inner {
			with(mem[at*width : (at+dense)*width])
			return
		}
		for i := range shape[axis] {
			walk(axis+1, at+i*b.Strides[axis])
		}
	}
	walk(0, 0)
}

// unstored computes v from the stored values nearest to it, by a program of its own.
// Fusing steps changes no bit, so the result is what the step had in its registers.
func (r *replay) unstored(v *ir.Value) []byte {
	if data := r.inner[v]; data != nil {
		return data
	}
	if r.strided(v) {
		data := make([]byte, 0, v.Type.Bytes())
		r.runs(v, func(part []byte) { data = append(data, part...) })
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

package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// The weights of an embedding that are also those of the head have two gradients. That of the head
// is a product, to which the kernel of the embedding's gradient adds the rows of its ids, as the plan
// says (ir.Caps.PostOps). If nothing else reads the product, it is computed where the sum will be, and
// rows without an id are not moved. This chooses memory only: no cluster reads or writes another
// tensor.

// tie gives gradients of embeddings the memory of the tensors that they are added to.
func (c *cudaLowerer) tie() {
	for part := range lower.NumParts {
		for i := range c.p.Parts[part] {
			x := c.added(&c.p.Parts[part][i])
			if x == lower.None {
				continue
			}
			from, to := c.p.Buffers[x].Root, c.p.Buffers[c.p.Parts[part][i].Out[0]].Root
			if !c.replaces(part, i, from, to) {
				continue
			}
			c.p.ShareMemory(from, to)
		}
	}
}

// added is the tensor that the gradient of an embedding is added to, if nothing else is done with
// it: f32 of the table's shape. Otherwise it is None.
func (c *cudaLowerer) added(s *lower.Step) lower.BufferID {
	g := s.Epilogue
	if s.Kernel == nil || s.Kernel.Node.Op != ir.OpEmbeddingGrad || g == nil || len(g.Loads) != 2 || len(g.Code) != 3 || len(g.Stores) != 1 || len(s.Out) != 1 {
		return lower.None
	}
	if g.Code[0].Op != ir.PIn || g.Code[1].Op != ir.PIn || g.Code[0].Int == g.Code[1].Int || g.Code[2].Op != ir.PAdd || g.Code[2].Type != ir.F32 || g.Stores[0].Reg != 2 {
		return lower.None
	}
	x := slices.IndexFunc(g.Loads, func(a lower.Access) bool { return a.Buffer != lower.None })
	if x < 0 || !c.whole(&g.Loads[x], g.Shape) || !c.whole(&g.Stores[0], g.Shape) {
		return lower.None
	}
	return g.Loads[x].Buffer
}

// whole reports whether an access walks all of a buffer of f32 in its order.
func (c *cudaLowerer) whole(a *lower.Access, shape []int64) bool {
	b := &c.p.Buffers[a.Buffer]
	return a.DType == ir.F32 && b.Type.DType == ir.F32 && a.Offset == 0 && !a.Bits && a.Spread == nil && slices.Equal(a.Strides, ir.RowMajor(shape)) &&
		b.At == 0 && b.Strides == nil && b.Size == c.p.Buffers[b.Root].Size && b.Size == b.Type.DType.Size()*lower.Count(shape)
}

// replaces reports whether the root to can take the place of from, which step i of a part reads:
// the part writes from before, only this step reads it, and to has no value before this step.
func (c *cudaLowerer) replaces(part lower.Part, i int, from, to lower.BufferID) bool {
	if from == to || c.p.Buffers[from].Arena != lower.WorkArena || c.p.Buffers[to].Arena != lower.WorkArena {
		return false
	}
	for _, o := range c.p.Outputs {
		if c.p.Buffers[o.Buffer].Root == from {
			return false
		}
	}
	written := false
	for at := range lower.NumParts {
		for k := range c.p.Parts[at] {
			s, before := &c.p.Parts[at][k], at < part || at == part && k < i
			in, out := c.roots(s.In), c.roots(s.Out)
			switch {
			case at == part && k == i:
			case in[from], before && (in[to] || out[to]), out[from] && (at != part || !before):
				return false
			}
			written = written || out[from]
		}
	}
	return written
}

// addsInPlace reports whether what the gradient of an embedding is added to is where the sum will
// be.
func (c *cudaLowerer) addsInPlace(s *lower.Step) bool {
	x := c.added(s)
	return x != lower.None && c.p.Buffers[x].Root == c.p.Buffers[s.Out[0]].Root
}

// roots are the roots of buffers.
func (c *cudaLowerer) roots(ids []lower.BufferID) map[lower.BufferID]bool {
	list := map[lower.BufferID]bool{}
	for _, id := range ids {
		if id != lower.None {
			list[c.p.Buffers[id].Root] = true
		}
	}
	return list
}

// meets reports whether one of the buffers is in roots.
func (c *cudaLowerer) meets(ids []lower.BufferID, roots map[lower.BufferID]bool) bool {
	return slices.ContainsFunc(ids, func(id lower.BufferID) bool { return id != lower.None && roots[c.p.Buffers[id].Root] })
}

package lower

import "ampc/ir"

// Strided views are values without their own memory, which the pass views has marked, operands of
// concatenations among them. Lowering checks the marks again: later passes insert casts, a target
// may run attention in parts, and a dumped graph may be edited.

// findViews finds the strided views that steps of the target read and write.
func (l *Lowerer) findViews() {
	if !l.joins { // every node stores its value
		return
	}
	inPlace := l.p.Target.Caps().JoinsInPlace && len(l.g.Body[ir.Backward])+len(l.g.Body[ir.Update]) == 0
	l.views = ir.FindViews(l.g, l.uses, ir.StridedKernels{
		Reads: func(n *ir.Node, i int, p ir.StridedView) bool {
			return casts(n) && p.Rows() || i < len(n.Def().In) && n.Def().In[i].Strided && l.p.Target.ReadsStrided(n.In[i].Type.DType, p)
		},
		Writes: func(n *ir.Node, k int, p ir.StridedView) bool {
			return casts(n) && p.Rows() || k < len(n.Def().Out) && n.Def().Out[k].Strided && l.p.Target.ReadsStrided(n.Out[k].Type.DType, p) ||
				inPlace && p.Contiguous() && len(n.Out) == 1 && !n.Def().Is(ir.View) && !n.Def().Is(ir.Moves)
		},
		Moves: func(n *ir.Node) bool {
			return n.Shares() || inPlace && n.InPlace()
		},
	})
}

// casts reports whether n is a cast between floats that attention can include: amp puts it between
// attention and a move, and a cluster computes it row by row.
func casts(n *ir.Node) bool {
	if n.Op != ir.OpCast {
		return false
	}
	from, to := n.In[0].Type.DType, n.Out[0].Type.DType
	return (from == ir.F32 || from.Low()) && (to == ir.F32 || to.Low())
}

// vanishes reports whether n needs no step, because its operand or its result is a strided view.
func (l *Lowerer) vanishes(n *ir.Node) bool {
	if !n.Def().Is(ir.View) {
		return l.views.Shared[n]
	}
	_, placed := l.views.At[n.Out[0]]
	return placed
}

// base is the buffer that view p is part of. The first of its parts that is written creates it.
func (l *Lowerer) base(p ir.StridedView) BufferID {
	if l.buf[p.Of.ID] == None {
		l.buf[p.Of.ID] = l.p.NewBuffer(p.Of.Name, p.Of.Type, WorkArena)
	}
	return l.buf[p.Of.ID]
}

// strided is the buffer with the strided view of v.
func (l *Lowerer) strided(v *ir.Value, p ir.StridedView) BufferID {
	if id := l.buf[v.ID]; id != None {
		return id
	}
	id := l.view(v.Name, v.Type, l.base(p))
	b := &l.p.Buffers[id]
	b.Strides, b.At = p.Strides, p.Offset*v.Type.DType.Size()
	l.buf[v.ID] = id
	return id
}

// access is how a cluster over shape reads v.
func (l *Lowerer) access(v *ir.Value, shape []int64) Access {
	a := Access{DType: v.Type.DType}
	p, placed := l.views.At[v]
	if !placed {
		a.Buffer, a.Strides = l.in(v), broadcastStrides(v.Type.Shape, shape)
		return a
	}
	a.Buffer, a.Offset, a.Strides = l.base(p), p.Offset, make([]int64, len(shape))
	off := len(shape) - len(p.Shape)
	for i, n := range p.Shape {
		if n != 1 || shape[off+i] == 1 {
			a.Strides[off+i] = p.Strides[i]
		}
	}
	return a
}

// storesTo is how a cluster over shape writes v.
func (l *Lowerer) storesTo(v *ir.Value, shape []int64) Access {
	p, placed := l.views.At[v]
	if !placed || p.Contiguous() {
		return Access{Buffer: l.result(v), DType: v.Type.DType, Strides: ir.RowMajor(shape)}
	}
	return Access{Buffer: l.base(p), DType: v.Type.DType, Offset: p.Offset, Strides: p.Strides}
}

// dense reports whether b's elements are contiguous.
func (b *Buffer) dense() bool { return b.Strides == nil }

// Reach is the number of bytes from the start of b's first element to the end of its last: Size if
// b is dense.
func (b *Buffer) Reach() int64 {
	if b.dense() || b.Size == 0 {
		return b.Size
	}
	last := int64(0)
	for i, n := range ir.Sizes(b.Type.Shape) {
		last += (n - 1) * b.Strides[i]
	}
	return (last + 1) * b.Type.DType.Size()
}

// view is the strided view of b in its root.
func (b *Buffer) view() ir.StridedView {
	p := ir.StridedView{Offset: b.At / max(b.Type.DType.Size(), 1), Shape: ir.Sizes(b.Type.Shape), Strides: b.Strides}
	if b.dense() {
		p.Strides = ir.RowMajor(p.Shape)
	}
	return p
}

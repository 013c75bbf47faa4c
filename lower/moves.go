package lower

import (
	"slices"

	"ampc/ir"
)

// Rows that only move elements become copies between two strided views. The destination is the
// result in row-major order; each rule below gives the strides of its source.

// dense accesses all elements of a tensor in row-major order.
func dense(d ir.DType, shape []int64) Access { return Access{DType: d, Strides: ir.RowMajor(shape)} }

// move emits the copy that fills n's result from its operand, read with offset and strides.
func (l *Lowerer) move(n *ir.Node, offset int64, strides []int64) error {
	t := n.Out[0].Type
	shape := ir.Sizes(t.Shape)
	l.emitMoves(n, &Moves{List: []Move{{Shape: shape, Src: Access{DType: t.DType, Offset: offset, Strides: strides}, Dst: dense(t.DType, shape)}}})
	return nil
}

func lowerTranspose(l *Lowerer, n *ir.Node) error {
	from := ir.RowMajor(ir.Sizes(n.In[0].Type.Shape))
	strides := make([]int64, len(from))
	for i, p := range n.Ints("perm") {
		strides[i] = from[p]
	}
	return l.move(n, 0, strides)
}

func lowerBroadcast(l *Lowerer, n *ir.Node) error {
	return l.move(n, 0, broadcastStrides(n.In[0].Type.Shape, ir.Sizes(n.Out[0].Type.Shape)))
}

func lowerSlice(l *Lowerer, n *ir.Node) error {
	x := ir.Sizes(n.In[0].Type.Shape)
	strides := ir.RowMajor(x)
	offset := int64(0)
	for a, span := range n.Spans() {
		offset += span.Start * strides[a]
		strides[a] *= span.Step
	}
	return l.move(n, offset, strides)
}

func lowerFlip(l *Lowerer, n *ir.Node) error {
	x := ir.Sizes(n.In[0].Type.Shape)
	strides := ir.RowMajor(x)
	offset := int64(0)
	for _, a := range n.Axes() {
		offset += (x[a] - 1) * strides[a]
		strides[a] = -strides[a]
	}
	return l.move(n, offset, strides)
}

// lowerTile gives every axis two dimensions: its repetitions, with stride 0, and its elements.
func lowerTile(l *Lowerer, n *ir.Node) error {
	x, t := ir.Sizes(n.In[0].Type.Shape), n.Out[0].Type
	from, to := ir.RowMajor(x), ir.RowMajor(ir.Sizes(t.Shape))
	m := Move{Src: Access{DType: t.DType}, Dst: Access{DType: t.DType}}
	for i, reps := range n.Ints("reps") {
		m.Shape = append(m.Shape, reps, x[i])
		m.Src.Strides = append(m.Src.Strides, 0, from[i])
		m.Dst.Strides = append(m.Dst.Strides, to[i]*x[i], to[i])
	}
	l.emitMoves(n, &Moves{List: []Move{m}})
	return nil
}

// lowerConcat copies each operand into its part of the result. Operands of
// another dtype than the result need a kernel that converts.
func lowerConcat(l *Lowerer, n *ir.Node) error {
	t := n.Out[0].Type
	to := ir.RowMajor(ir.Sizes(t.Shape))
	axis := n.Axis()
	m := &Moves{}
	at := int64(0)
	for i, v := range n.In {
		if v.Type.DType != t.DType {
			return KernelRule(l, n)
		}
		x := ir.Sizes(v.Type.Shape)
		m.List = append(m.List, Move{Shape: x, From: i, Src: dense(t.DType, x), Dst: Access{DType: t.DType, Offset: at, Strides: to}})
		at += x[axis] * to[axis]
	}
	l.emitMoves(n, m)
	return nil
}

func lowerSplit(l *Lowerer, n *ir.Node) error {
	t := n.In[0].Type
	from := ir.RowMajor(ir.Sizes(t.Shape))
	axis := n.Axis()
	m := &Moves{}
	at := int64(0)
	for i, v := range n.Out {
		y := ir.Sizes(v.Type.Shape)
		m.List = append(m.List, Move{Shape: y, To: i, Src: Access{DType: t.DType, Offset: at, Strides: from}, Dst: dense(t.DType, y)})
		at += y[axis] * from[axis]
	}
	l.emitMoves(n, m)
	return nil
}

// lowerPad fills the result with the constant and copies the remaining part of the operand. Edges
// and reflections have a kernel.
func lowerPad(l *Lowerer, n *ir.Node) error {
	if n.Str("mode") != "constant" {
		return KernelRule(l, n)
	}
	x, t := ir.Sizes(n.In[0].Type.Shape), n.Out[0].Type
	y := ir.Sizes(t.Shape)
	m := Move{Src: dense(t.DType, x), Dst: dense(t.DType, y)}
	lo := n.Ints("lo")
	for i := range x {
		step := 1 + n.Inner(i)
		first := max(0, (-lo[i]+step-1)/step) // first operand index that is inside the result
		last := (y[i] - 1 - lo[i]) / step
		if y[i]-1 < lo[i] {
			last = -1
		}
		last = min(last, x[i]-1)
		m.Shape = append(m.Shape, max(0, last-first+1))
		m.Src.Offset += first * m.Src.Strides[i]
		m.Dst.Offset += (lo[i] + first*step) * m.Dst.Strides[i]
		m.Dst.Strides[i] *= step
	}
	moves := &Moves{Filled: true, Value: n.Float("value"), List: []Move{m}}
	if slices.Contains(m.Shape, 0) {
		moves.List = nil
	}
	l.emitMoves(n, moves)
	return nil
}

// blockPerm is the order of the factors of the channel axis in n's mode: sides are the positions of
// the block's two sides, channel that of the remaining channels (last in mode DCR, first in CRD).
func blockPerm(n *ir.Node) (sides [2]int, channel int) {
	if n.Str("mode") == "crd" {
		return [2]int{1, 2}, 0
	}
	return [2]int{0, 1}, 2
}

// lowerDepthToSpace lowers depth_to_space and its inverse: a copy between [N, channel factors, H,
// W] and [N, C, H, b, W, b].
func lowerDepthToSpace(l *Lowerer, n *ir.Node) error {
	y := ir.Sizes(n.Out[0].Type.Shape)
	return l.blocks(n, y, ir.Sizes(n.In[0].Type.Shape), false)
}

func lowerSpaceToDepth(l *Lowerer, n *ir.Node) error {
	x := ir.Sizes(n.In[0].Type.Shape)
	return l.blocks(n, x, ir.Sizes(n.Out[0].Type.Shape), true)
}

func (l *Lowerer) blocks(n *ir.Node, space, depth []int64, toDepth bool) error {
	b, d := n.Int("block"), n.Out[0].Type.DType
	c, h, w := space[1], depth[2], depth[3]
	sides, channel := blockPerm(n)
	factors := []int64{b, b, b}
	factors[channel] = c
	fs := ir.RowMajor(factors)
	plane := h * w
	shape := []int64{space[0], c, h, b, w, b}
	inSpace := Access{DType: d, Strides: ir.RowMajor(shape)}
	inDepth := Access{DType: d, Strides: []int64{c * b * b * plane, fs[channel] * plane, w, fs[sides[0]] * plane, 1, fs[sides[1]] * plane}}
	m := Move{Shape: shape, Src: inDepth, Dst: inSpace}
	if toDepth {
		m.Src, m.Dst = inSpace, inDepth
	}
	l.emitMoves(n, &Moves{List: []Move{m}})
	return nil
}

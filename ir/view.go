package ir

import (
	"cmp"
	"fmt"
	"slices"
)

// StridedView describes a value whose elements are stored in the memory of
// another value: element i is at Offset + the sum of i's coordinates times
// Strides, in elements of Of, which is dense.
type StridedView struct {
	Of             *Value
	Offset         int64
	Shape, Strides []int64
}

// Whole is the view of a dense value of static shape: all of it.
func Whole(v *Value) StridedView {
	p := StridedView{Of: v, Shape: Sizes(v.Type.Shape)}
	p.Strides = RowMajor(p.Shape)
	return p
}

// Sizes lists the dimensions of a static shape.
func Sizes(s Shape) []int64 {
	d := make([]int64, 0, s.Rank())
	for _, x := range s.Dims() {
		d = append(d, int64(x))
	}
	return d
}

// RowMajor gives the strides, in elements, of a dense tensor of these sizes.
func RowMajor(shape []int64) []int64 {
	st := make([]int64, len(shape))
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		st[i] = n
		n *= shape[i]
	}
	return st
}

// Rows reports whether the last dimension is contiguous.
func (p StridedView) Rows() bool {
	last := len(p.Shape) - 1
	return last >= 0 && (p.Strides[last] == 1 || p.Shape[last] == 1)
}

// Contiguous reports whether the elements follow each other in row-major order.
func (p StridedView) Contiguous() bool {
	dense := RowMajor(p.Shape)
	for i, n := range p.Shape {
		if n != 1 && p.Strides[i] != dense[i] {
			return false
		}
	}
	return true
}

// Through is the view of result k of n if operand 0 is the view p. It is false if
// n does not only select and reorder, or if strides cannot express the result.
func (p StridedView) Through(n *Node, k int) (StridedView, bool) {
	if len(n.In) == 0 || n.In[0] == nil || !n.In[0].Type.Shape.Static() || !n.Out[k].Type.Shape.Static() {
		return p, false
	}
	switch d := n.Def(); {
	case d.Is(View):
		return p.reshaped(Sizes(n.Out[k].Type.Shape))
	case d.Part != nil && d.Part.Through != nil:
		return d.Part.Through(n, k, p), true
	}
	return p, false
}

// back is the view of operand i of n if the result is view p. ok is false if the result does not
// contain all of the operand, or if strides cannot express the view.
func (p StridedView) back(n *Node, i int) (StridedView, bool) {
	if n.In[i] == nil || !n.In[i].Type.Shape.Static() {
		return p, false
	}
	switch d := n.Def(); {
	case d.Is(View) && i == 0:
		return p.reshaped(Sizes(n.In[0].Type.Shape))
	case d.Part != nil && d.Part.Back != nil && n.In[i].Type.DType == n.Out[0].Type.DType:
		return d.Part.Back(n, i, p), true
	}
	return p, false
}

// PartRow is how a row selects or reorders elements.
type PartRow struct {
	Through func(n *Node, k int, p StridedView) StridedView // view of result k in operand 0, which is view p; nil: operands are parts of the result
	Back    func(n *Node, i int, p StridedView) StridedView // view of operand i in the result, which is view p; nil: the result does not contain all of it
}

// Joins reports whether n's operands are parts of its result.
func (n *Node) Joins() bool { r := n.Def().Part; return r != nil && r.Through == nil }

// Reorders reports whether n's result is operand 0 with its axes in another order.
func (n *Node) Reorders() bool {
	r := n.Def().Part
	return r != nil && r.Through != nil && r.Back != nil
}

func transposed(n *Node, _ int, p StridedView) StridedView { return p.permuted(n.Ints("perm")) }

func transposedBack(n *Node, _ int, p StridedView) StridedView {
	return p.permuted(inversePerm(n.Ints("perm")))
}

// permuted is the view whose axis i is axis perm[i] of p.
func (p StridedView) permuted(perm []int64) StridedView {
	q := StridedView{p.Of, p.Offset, make([]int64, len(perm)), make([]int64, len(perm))}
	for i, from := range perm {
		q.Shape[i], q.Strides[i] = p.Shape[from], p.Strides[from]
	}
	return q
}

// inversePerm gives the permutation of axes that undoes perm.
func inversePerm(perm []int64) []int64 {
	back := make([]int64, len(perm))
	for i, p := range perm {
		back[p] = int64(i)
	}
	return back
}

func slicedPart(n *Node, _ int, p StridedView) StridedView {
	q := StridedView{p.Of, p.Offset, slices.Clone(p.Shape), slices.Clone(p.Strides)}
	for i, s := range n.Spans() {
		q.Offset += s.Start * p.Strides[i]
		q.Shape[i], q.Strides[i] = s.Count, s.Step*p.Strides[i]
	}
	return q
}

func splitPart(n *Node, k int, p StridedView) StridedView  { return p.part(n.Axis(), n.Out, k) }
func joinedPart(n *Node, i int, p StridedView) StridedView { return p.part(n.Axis(), n.In, i) }

// part is the k-th of parts that are concatenated along an axis.
func (p StridedView) part(axis int, parts []*Value, k int) StridedView {
	q := StridedView{p.Of, p.Offset, slices.Clone(p.Shape), slices.Clone(p.Strides)}
	for _, v := range parts[:k] {
		q.Offset += int64(v.Type.Shape.Dim(axis)) * p.Strides[axis]
	}
	q.Shape[axis] = int64(parts[k].Type.Shape.Dim(axis))
	return q
}

// reshaped gives the elements, in their order, other dimensions. It matches groups of old and new
// dimensions of equal size. The old dimensions of a group must be walkable as one.
func (p StridedView) reshaped(shape []int64) (StridedView, bool) {
	q := StridedView{p.Of, p.Offset, shape, make([]int64, len(shape))}
	if slices.Contains(shape, 0) || slices.Contains(p.Shape, 0) {
		return q, false
	}
	var old, step []int64 // without dimensions of size one
	for i, n := range p.Shape {
		if n != 1 {
			old, step = append(old, n), append(step, p.Strides[i])
		}
	}
	i, j := 0, 0
	for i < len(old) && j < len(shape) {
		from, to := i, j
		a, b := old[i], shape[j]
		for i, j = i+1, j+1; a != b; {
			if a < b {
				a *= old[i]
				i++
			} else {
				b *= shape[j]
				j++
			}
		}
		for k := from; k < i-1; k++ {
			if step[k] != step[k+1]*old[k+1] {
				return q, false
			}
		}
		st := step[i-1]
		for k := j - 1; k >= to; k-- {
			q.Strides[k] = st
			st *= shape[k]
		}
	}
	for ; j < len(shape); j++ { // trailing dimensions of size one
		q.Strides[j] = 1
	}
	return q, true
}

// Key is equal for views of the same elements, in any order.
func (p StridedView) Key() string {
	type dim struct{ n, step int64 }
	var dims []dim
	for i, n := range p.Shape {
		if n != 1 {
			dims = append(dims, dim{n, p.Strides[i]})
		}
	}
	slices.SortFunc(dims, func(a, b dim) int { return cmp.Or(cmp.Compare(b.step, a.step), cmp.Compare(a.n, b.n)) })
	joined := dims[:0]
	for _, d := range dims {
		if k := len(joined) - 1; k >= 0 && joined[k].step == d.step*d.n {
			joined[k] = dim{joined[k].n * d.n, d.step}
			continue
		}
		joined = append(joined, d)
	}
	return fmt.Sprint(p.Offset, joined)
}

// Meets reports whether p and q, views of the same memory, have an element in common.
func (p StridedView) Meets(q StridedView) bool {
	if slices.Contains(p.Shape, 0) || slices.Contains(q.Shape, 0) {
		return false
	}
	var dims []digit
	for i, n := range p.Shape {
		if n > 1 {
			dims = append(dims, digit{p.Strides[i], 0, n - 1})
		}
	}
	for i, n := range q.Shape {
		if n > 1 {
			dims = append(dims, digit{q.Strides[i], 1 - n, 0})
		}
	}
	slices.SortFunc(dims, func(a, b digit) int { return cmp.Compare(b.step, a.step) })
	joined := dims[:0]
	for _, d := range dims {
		if k := len(joined) - 1; k >= 0 && joined[k].step == d.step {
			joined[k].lo, joined[k].hi = joined[k].lo+d.lo, joined[k].hi+d.hi
			continue
		}
		joined = append(joined, d)
	}
	return reaches(joined, q.Offset-p.Offset)
}

// digit is a number of steps from lo to hi.
type digit struct{ step, lo, hi int64 }

// reaches reports whether steps of some digits add up to x. Steps are positive and in decreasing
// order.
func reaches(dims []digit, x int64) bool {
	if len(dims) == 0 {
		return x == 0
	}
	lo, hi := int64(0), int64(0) // least and largest sum of the other digits
	for _, d := range dims[1:] {
		lo, hi = lo+d.lo*d.step, hi+d.hi*d.step
	}
	d := dims[0]
	for c := max(d.lo, ceilDiv(x-hi, d.step)); c <= d.hi && x-c*d.step >= lo; c++ {
		if reaches(dims[1:], x-c*d.step) {
			return true
		}
	}
	return false
}

func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

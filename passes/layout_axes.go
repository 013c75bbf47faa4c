package passes

import (
	"slices"

	"ampc/ir"
)

// last is the permutation that moves the channels of images behind the positions; first is its
// inverse.
func last(rank int) []int64 {
	p := []int64{0}
	for i := 2; i < rank; i++ {
		p = append(p, int64(i))
	}
	return append(p, 1)
}

func first(rank int) []int64 {
	p := []int64{0, int64(rank - 1)}
	for i := 1; i < rank-1; i++ {
		p = append(p, int64(i))
	}
	return p
}

// permuted are the dimensions of s, permuted by perm.
func permuted(s ir.Shape, perm []int64) []int64 {
	d := make([]int64, len(perm))
	for i, p := range perm {
		d[i] = int64(s.Dim(int(p)))
	}
	return d
}

// viewed reports whether a permutation does not move elements of s: dimensions whose order changes
// have size 1.
func viewed(s ir.Shape, perm []int64) bool {
	at := int64(-1)
	for _, p := range perm {
		if s.Dim(int(p)) == 1 {
			continue
		}
		if p < at {
			return false
		}
		at = p
	}
	return true
}

// turns reports whether a node computes the same after its axes are renamed: it concatenates
// images, takes parts of them, or reduces them such that the remaining elements keep their order.
func (l *layouter) turns(n *ir.Node, rank int) bool {
	if !n.Def().Is(ir.Equivariant) {
		return false
	}
	if !n.HasAttr("keep") { // not a reduction: no axis is dropped; a slice without axes slices the first ones
		return n.HasAttr("axis") || len(n.Ints("axes")) > 0
	}
	gone := n.Axes()
	channels := slices.Contains(gone, 1)
	positions := len(gone)
	for _, a := range gone {
		if a < 2 {
			positions--
		}
	}
	return n.Flag("keep") || channels || positions == rank-2
}

// turnAxes renames the axes of a node, from channels first to channels last.
func turnAxes(n *ir.Node, rank int) {
	to := first(rank) // axis i of the source becomes axis to[i]
	renamed := func(a int64) int64 { return to[(a+int64(rank))%int64(rank)] }
	if n.HasAttr("axis") {
		n.Attrs = n.Attrs.With("axis", renamed(n.Int("axis")))
		return
	}
	var axes []int64
	for _, a := range n.Ints("axes") {
		axes = append(axes, renamed(a))
	}
	if n.HasAttr("keep") {
		slices.Sort(axes)
	}
	n.Attrs = n.Attrs.With("axes", axes)
}

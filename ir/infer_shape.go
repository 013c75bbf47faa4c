package ir

import (
	"fmt"
	"math"
	"slices"
)

// Helpers of the rows that move or reduce elements.

var (
	shapeAttr = AttrDef{Name: "shape", Kind: AttrInts, Doc: "result's shape; like= takes it from a value instead"}
	likeIn    = Operand{Name: "like", Kinds: KAny, Class: Fixed, Optional: true, Named: true, Unread: true}
	axesAttr  = AttrDef{Name: "axes", Kind: AttrInts, Doc: "axes, counted from the end where negative; none: all"}
)

// moving completes a row whose result elements are elements of its first
// operand (or a constant), bit for bit.
func moving(d Def) Def {
	d.Flags |= Moves
	d.Class, d.Why = Clear, "moves bits"
	if d.In == nil {
		d.In = in(Operand{Name: "x", Kinds: KAny})
	}
	if d.Out == nil {
		d.Out = out(Result{Name: "y"})
	}
	if d.Unit == nil {
		d.Unit = unitFirst
	}
	if d.Range == nil {
		d.Range = within(0)
	}
	return d
}

// unitFirst is the unit rule of rows whose other operands only have a shape.
func unitFirst(n *Node) (Unit, error) { return n.In[0].Unit, nil }

// bare fails if out= is given to a row that stores the dtype of its operand.
func (n *Node) bare() error {
	if n.Has("out") {
		return fmt.Errorf("stores its operand's dtype, out does not apply")
	}
	return nil
}

// dimsOf converts an attribute to dimensions.
func dimsOf(a []int64) []Dim {
	d := make([]Dim, len(a))
	for i, x := range a {
		d[i] = Dim(x)
	}
	return d
}

// shapeOf expresses "the shape of v" for a node: by the attribute shape if all sizes are known and
// not zero, for which the attribute would be ambiguous, otherwise by the operand like.
func shapeOf(v *Value) (Attrs, *Value) {
	d := v.Type.Shape.Dims()
	ints := make([]int64, len(d))
	for i, x := range d {
		if x <= 0 {
			return nil, v
		}
		ints[i] = int64(x)
	}
	if !v.Type.Shape.Known() {
		return nil, v
	}
	return A("shape", ints), nil
}

// like returns the operand like, which is the last one.
func (n *Node) like() *Value { return n.operand(len(n.Def().In) - 1) }

// checkShapeAttr requires exactly one of shape and like, and no size below least.
func (n *Node) checkShapeAttr(least int64) error {
	if (n.like() != nil) == n.Has("shape") {
		return fmt.Errorf("want either a shape or a value like=")
	}
	for _, x := range n.Ints("shape") {
		if x < least {
			return fmt.Errorf("shape %s has the size %d", literal(n.Ints("shape")), x)
		}
	}
	return nil
}

// axesOf normalizes a list of axes for rank r: sorted, without duplicates. An empty list stays
// empty.
func axesOf(list []int64, r int) ([]int, error) {
	out := make([]int, 0, len(list))
	for _, a := range list {
		k, err := axisOf(a, r)
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, k) {
			return nil, fmt.Errorf("axes %s name axis %d twice", literal(list), k)
		}
		out = append(out, k)
	}
	slices.Sort(out)
	return out, nil
}

// Axes returns the node's axes, normalized for operand 0: sorted, counted from 0, and all axes if
// the list is empty. It is valid after inference.
func (n *Node) Axes() []int {
	r := n.In[0].Type.Shape.Rank()
	axes, _ := axesOf(n.Ints("axes"), r)
	if len(axes) == 0 {
		for i := range r {
			axes = append(axes, i)
		}
	}
	return axes
}

// Axis returns the node's axis attribute normalized for operand 0. Valid after inference.
func (n *Node) Axis() int {
	a, _ := axisOf(n.Int("axis"), max(n.In[0].Type.Shape.Rank(), 1))
	return a
}

// mulDims multiplies two dimensions; an unknown or symbolic product is unknown.
func mulDims(a, b Dim) Dim {
	switch {
	case a == 1:
		return b
	case b == 1:
		return a
	case a < 0 || b < 0 || a != 0 && b > math.MaxInt64/a:
		return UnknownDim
	}
	return a * b
}

func ints64(list []int) []int64 {
	out := make([]int64, len(list))
	for i, x := range list {
		out[i] = int64(x)
	}
	return out
}

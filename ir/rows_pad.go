package ir

import (
	"fmt"
	"slices"
)

// Inner returns the number of elements that a pad node inserts between adjacent elements of axis i.
func (n *Node) Inner(i int) int64 {
	if inner := n.Ints("inner"); len(inner) > 0 {
		return inner[i]
	}
	return 0
}

func inferPad(n *Node) ([]Type, error) {
	x, lo, hi, inner, mode := n.In[0], n.Ints("lo"), n.Ints("hi"), n.Ints("inner"), n.Str("mode")
	if mode != "constant" && mode != "edge" && mode != "reflect" {
		return nil, fmt.Errorf("mode is %q, want constant, edge or reflect", mode)
	}
	if len(lo) != len(hi) || len(inner) > 0 && len(inner) != len(lo) {
		return nil, fmt.Errorf("lo, hi and inner differ in length: %d, %d, %d", len(lo), len(hi), len(inner))
	}
	if mode != "constant" && (len(inner) > 0 || slices.Min(slices.Concat([]int64{0}, lo, hi)) < 0) {
		return nil, fmt.Errorf("mode %s takes no inner and no negative padding", mode)
	}
	if !x.Type.Shape.Known() {
		return []Type{{DType: x.Type.DType}}, n.bare()
	}
	d := x.Type.Shape.Dims()
	if len(lo) != len(d) {
		return nil, fmt.Errorf("pads %d axes of %s %s", len(lo), x, x.Type)
	}
	for i := range d {
		size, err := n.padded(i, d[i])
		if err != nil {
			return nil, err
		}
		d[i] = size
	}
	return []Type{{x.Type.DType, MakeShape(d...)}}, n.bare()
}

// padded is the size of axis i of a pad's result.
func (n *Node) padded(i int, size Dim) (Dim, error) {
	lo, hi, inner := n.Ints("lo")[i], n.Ints("hi")[i], n.Inner(i)
	const most = 1 << 44
	if inner < 0 || max(lo, hi, inner, -lo, -hi) > most {
		return 0, fmt.Errorf("axis %d cannot be padded by %d, %d, %d", i, lo, inner, hi)
	}
	if size < 0 {
		if lo == 0 && hi == 0 && inner == 0 {
			return size, nil
		}
		return UnknownDim, nil
	}
	if n.Str("mode") == "reflect" && max(lo, hi) >= int64(max(size, 1)) || n.Str("mode") == "edge" && size == 0 && lo+hi > 0 {
		return 0, fmt.Errorf("%s padding of %d and %d needs more than the %d elements of axis %d", n.Str("mode"), lo, hi, size, i)
	}
	if size > 0 && inner > 0 {
		if int64(size) > most/(inner+1) {
			return 0, fmt.Errorf("axis %d cannot be padded by %d, %d, %d", i, lo, inner, hi)
		}
		size = (size-1)*Dim(inner+1) + 1
	}
	if size += Dim(lo + hi); size < 0 {
		return 0, fmt.Errorf("padding of %d and %d leaves nothing of axis %d", lo, hi, i)
	}
	return size, nil
}

// unitPad allows padding of a scaled value only with zeros or its own elements.
func unitPad(n *Node) (Unit, error) {
	if n.Float("value") != 0 && n.Str("mode") == "constant" {
		return UnitOne(n)
	}
	return unitFirst(n)
}

func gradPad(b *Builder, n *Node, d []*Value) []*Value {
	if !b.staticFor(n, n.In[0]) {
		return []*Value{nil}
	}
	if n.Str("mode") == "constant" {
		return []*Value{b.unpad(n, d[0])}
	}
	g := d[0]
	for i := range n.Ints("lo") {
		g = b.foldAxis(n, g, int64(i))
	}
	return []*Value{g}
}

// unpad takes back what was padded: zeros where padding was negative, then
// the elements at their places.
func (b *Builder) unpad(n *Node, g *Value) *Value {
	r := n.In[0].Type.Shape.Rank()
	lo, hi := make([]int64, r), make([]int64, r)
	axes, starts, ends, steps := make([]int64, r), make([]int64, r), make([]int64, r), make([]int64, r)
	cropped := false
	for i := range r {
		lo[i], hi[i] = max(-n.Ints("lo")[i], 0), max(-n.Ints("hi")[i], 0)
		cropped = cropped || lo[i]+hi[i] > 0
		axes[i], starts[i], steps[i] = int64(i), max(n.Ints("lo")[i], 0), n.Inner(i)+1
		ends[i] = starts[i] + (int64(n.In[0].Type.Shape.Dim(i))-1)*steps[i] + 1
	}
	if cropped {
		g = b.Pad(g, lo, hi, 0)
	}
	return b.one(OpSlice, []*Value{g}, A("axes", axes, "starts", starts, "ends", ends, "steps", steps))
}

// foldAxis adds what was read more than once along one axis of an edge or
// reflect padding to where it was read from.
func (b *Builder) foldAxis(n *Node, g *Value, axis int64) *Value {
	lo, hi := n.Ints("lo")[axis], n.Ints("hi")[axis]
	if lo == 0 && hi == 0 {
		return g
	}
	size := int64(n.In[0].Type.Shape.Dim(int(axis)))
	part := func(from, to int64) *Value { return b.Slice(g, []int64{axis}, []int64{from}, []int64{to}) }
	terms := []*Value{part(lo, lo+size)}
	put := func(v *Value, at, count int64) {
		before, after := make([]int64, g.Type.Shape.Rank()), make([]int64, g.Type.Shape.Rank())
		before[axis], after[axis] = at, size-at-count
		terms = append(terms, b.Pad(v, before, after, 0))
	}
	if n.Str("mode") == "edge" {
		if lo > 0 {
			put(b.ReduceSum(part(0, lo), true, axis), 0, 1)
		}
		if hi > 0 {
			put(b.ReduceSum(part(lo+size, lo+size+hi), true, axis), size-1, 1)
		}
	} else {
		if lo > 0 {
			put(b.Flip(part(0, lo), axis), 1, lo)
		}
		if hi > 0 {
			put(b.Flip(part(lo+size, lo+size+hi), axis), size-1-hi, hi)
		}
	}
	return b.AddN(terms...)
}

// Pad adds value before (lo) and after (hi) each axis; negative numbers crop.
func (b *Builder) Pad(x *Value, lo, hi []int64, value float64) *Value {
	return b.one(OpPad, []*Value{x}, A("lo", lo, "hi", hi, "value", value))
}

// PadMode pads by "edge" or "reflect".
func (b *Builder) PadMode(x *Value, lo, hi []int64, mode string) *Value {
	return b.one(OpPad, []*Value{x}, A("lo", lo, "hi", hi, "mode", mode))
}

// padInner also puts inner zeros between neighbours.
func (b *Builder) padInner(x *Value, lo, hi, inner []int64) *Value {
	a := A("lo", lo, "hi", hi)
	if len(inner) > 0 && slices.Max(inner) > 0 {
		a = a.With("inner", inner)
	}
	return b.one(OpPad, []*Value{x}, a)
}

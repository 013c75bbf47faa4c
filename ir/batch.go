package ir

import (
	"fmt"
	"slices"
)

// Batch is the size of the batch, as a number: the first size of all inputs of g that have axes. An
// input of a recurrence whose steps come first has the batch second. Where the sizes differ, it is the
// one number that all inputs have as their first or second size. It is 0 where there is none, and
// where it is not a number.
func (g *Graph) Batch() int64 {
	_, size := g.batchAxes()
	return int64(size)
}

// BatchDim is the named dimension that is the batch of all inputs that have one there, "" if there is none.
func (g *Graph) BatchDim() string {
	name := ""
	for v, axis := range g.leading() {
		d := v.Type.Shape.Dim(axis)
		if d >= 0 || int(-d) > len(g.Syms) {
			continue
		}
		n := g.Syms[-d-1].Name
		if name != "" && name != n {
			return ""
		}
		name = n
	}
	return name
}

// batchAxes are the axes of the batch of all inputs that have axes, and its size, or nil and 0.
func (g *Graph) batchAxes() (map[*Value]int, Dim) {
	axes, size := g.leading(), Dim(0)
	common := map[Dim]int{} // how many inputs have the size
	for v, axis := range axes {
		shape := v.Type.Shape
		if d := shape.Dim(axis); size == 0 || d == size {
			size = d
		} else {
			size = -1
		}
		from := axis // 1 where steps come first
		for k := from; k < min(2, shape.Rank()); k++ {
			if d := shape.Dim(k); k == from || d != shape.Dim(from) {
				common[d]++
			}
		}
	}
	if size > 0 {
		return axes, size
	}
	size = 0
	for d, n := range common {
		if n < len(axes) || d <= 0 {
			continue
		}
		if size != 0 {
			return nil, 0
		}
		size = d
	}
	if size == 0 {
		return nil, 0
	}
	for v, axis := range axes {
		if v.Type.Shape.Dim(axis) != size {
			axes[v] = 1
		}
	}
	return axes, size
}

// leading are the axes of inputs that have axes, where the batch is if they all have it: the first, and
// the second where the first is the steps of a recurrence.
func (g *Graph) leading() map[*Value]int {
	axes := map[*Value]int{}
	for _, v := range g.Vars {
		if v.Kind == Input && v.Type.Shape.Rank() > 0 {
			axes[v] = 0
		}
	}
	first := map[*Value]firstAxis{}
	for v := range axes {
		first[v] = firstAxis{v, 0}
	}
	steps := map[Dim]bool{}
	for _, n := range g.Nodes {
		for _, x := range n.In {
			f, ok := first[x]
			if !ok {
				continue
			}
			if n.Def().Steps && x == n.In[0] && f.axis == 0 {
				steps[f.input.Type.Shape.Dim(0)] = true
				if f.input.Type.Shape.Rank() > 1 {
					axes[f.input] = 1
				}
			}
			for _, y := range n.Out {
				if axis := n.follows(x, y, f.axis); axis >= 0 {
					first[y] = firstAxis{f.input, axis}
				}
			}
		}
	}
	for v := range axes {
		if shape := v.Type.Shape; shape.Rank() > 1 && steps[shape.Dim(0)] {
			axes[v] = 1
		}
	}
	return axes
}

// firstAxis is where the first axis of an input is in a value that is computed from it.
type firstAxis struct {
	input *Value
	axis  int
}

// follows is the axis of result y of n that is an axis of operand x, -1 if that is not known: n permutes
// axes, or x and y agree in the sizes up to it.
func (n *Node) follows(x, y *Value, axis int) int {
	if perm := n.Ints("perm"); len(perm) > 0 {
		return slices.Index(perm, int64(axis))
	}
	for k := range axis + 1 {
		if k >= y.Type.Shape.Rank() || y.Type.Shape.Dim(k) != x.Type.Shape.Dim(k) {
			return -1
		}
	}
	return axis
}

// batchPlace is where the batch is in a value: on an axis, alone or with others, with so many elements
// of the axes before it, and of what comes before it on its own.
type batchPlace struct {
	axis   int
	before int64
}

// Rebatch gives a source graph a batch of n instead of Batch, and infers all types again. The size of
// an attribute shape that has the batch grows with it. A value that is computed from the inputs and
// keeps the old number where its operand has the batch is an error: the model may have been written
// for that number. It is none where a weight has that size, as the scale of a norm over so many
// channels has.
func (g *Graph) Rebatch(n int64) error {
	axes, old := g.batchAxes()
	if old <= 0 {
		return fmt.Errorf("graph @%s: the inputs have no common first size", g.Name)
	}
	places := map[*Value]batchPlace{} // of values whose shape depends on the batch
	for _, v := range g.Vars {
		axis, ok := axes[v]
		if !ok {
			continue
		}
		d := v.Type.Shape.Dims()
		d[axis] = Dim(n)
		if err := CheckDims(d); err != nil {
			return fmt.Errorf("%s: %w", v, err)
		}
		v.Type.Shape, places[v] = MakeShape(d...), batchPlace{axis, elementsOf(d[:axis])}
	}
	for _, node := range g.Nodes {
		if x := node.readsAny(places); x != nil {
			if err := node.rebatch(x, int64(old), n, places); err != nil {
				return err
			}
		}
	}
	return nil
}

// elementsOf is the number of elements of some axes.
func elementsOf(dims []Dim) int64 {
	p := int64(1)
	for _, d := range dims {
		p *= int64(d)
	}
	return p
}

// readsAny returns the first value that n reads and that has a place, or nil.
func (n *Node) readsAny(places map[*Value]batchPlace) *Value {
	for _, list := range [...][]*Value{n.In, n.Captured} {
		for _, v := range list {
			if _, ok := places[v]; ok {
				return v
			}
		}
	}
	return nil
}

// rebatch infers the types of n, which reads x, for another batch, and adds the places of its results.
func (n *Node) rebatch(x *Value, old, batch int64, places map[*Value]batchPlace) error {
	if n.Op == OpForeign || len(n.Captured) > 0 {
		return &Error{Pos: n.Pos, Msg: fmt.Sprintf("%s = %s: its sizes are not known for another batch", n.Name(), n.Def().Name)}
	}
	before := make([]Shape, len(n.Out))
	for i, v := range n.Out {
		before[i] = v.Type.Shape
	}
	at := places[x]
	reshapes := n.growShape(x, at, old, batch)
	if err := n.Retype(); err != nil {
		return err
	}
	inside := at.before / elementsOf(x.Type.Shape.Dims()[:at.axis]) // on the axis itself
	for i, v := range n.Out {
		was, is := before[i].Dims(), v.Type.Shape.Dims()
		k := 0
		for k < min(len(is), len(was)) && is[k] == was[k] {
			k++
		}
		switch {
		case v.Type.Shape != before[i] && reshapes:
			places[v] = batchPlace{k, at.before}
		case v.Type.Shape != before[i]:
			places[v] = batchPlace{k, elementsOf(is[:k]) * inside}
		case len(was) > at.axis && was[at.axis] == Dim(old) && !n.constantRows(places, at.axis, Dim(old)):
			return &Error{Pos: n.Pos, Msg: fmt.Sprintf("%s is computed from the inputs and has %d rows, whatever their number", v, old)}
		}
	}
	return nil
}

// growShape gives an attribute shape of n the new batch, and reports whether it lists the elements of x
// in the same order. Such a one has the batch on the axis before which there are as many elements as
// in x; another one where x has it, counted from the last axis, or first.
func (n *Node) growShape(x *Value, at batchPlace, old, batch int64) (reshapes bool) {
	shape := slices.Clone(n.Ints("shape"))
	if len(shape) == 0 {
		return false
	}
	grow := func(k int, size int64) bool {
		ok := k >= 0 && k < len(shape) && shape[k] > 0 && size > 0 && shape[k]%size == 0
		if ok {
			shape[k] = shape[k] / old * batch
			n.Attrs = n.Attrs.With("shape", shape)
		}
		return ok
	}
	elements := int64(1)
	for _, d := range shape {
		elements *= d
	}
	if elements != elementsOf(x.Type.Shape.Dims())/batch*old {
		_ = grow(at.axis+len(shape)-x.Type.Shape.Rank(), old) || grow(0, old)
		return false
	}
	left := at.before // elements of the axes before the batch that are not on axes of shape yet
	for k, d := range shape {
		if grow(k, left*old) || d <= 0 || left%d != 0 {
			break
		}
		left /= d
	}
	return true
}

// constantRows reports whether an operand of n that no input determines has so many rows on an axis.
func (n *Node) constantRows(places map[*Value]batchPlace, axis int, count Dim) bool {
	return slices.ContainsFunc(n.In, func(v *Value) bool {
		if v == nil {
			return false
		}
		_, ok := places[v]
		return !ok && v.Type.Shape.Rank() > 0 && v.Type.Shape.Dim(min(axis, v.Type.Shape.Rank()-1)) == count
	})
}

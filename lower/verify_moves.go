package lower

import (
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
)

// source returns the operand and the coordinates there from which an element of a result is copied.
// ok is false for the padding of a pad.
type source func(at []int64) (operand int, from []int64, ok bool)

// moved checks that a copy reads each element from the place that its node specifies.
func (b *body) moved(s *Step) error {
	n := b.head
	if n == nil {
		return errors.New("its cluster moves nothing")
	}
	if err := b.results(s); err != nil {
		return err
	}
	filled := int64(0)
	for i := range s.Moves.List {
		if m := &s.Moves.List[i]; m.From >= len(n.In) || m.To >= len(n.Out) || !b.shows(s.Out[m.To], n.Out[m.To]) || !b.shows(s.In[m.From], n.In[m.From]) {
			return fmt.Errorf("move %d is not between an operand and a result of its node", i)
		}
	}
	for k, v := range n.Out {
		from := sourceOf(n, k)
		if from == nil {
			return fmt.Errorf("%s moves no elements", n.Def().Name)
		}
		points := int64(0)
		for i := range s.Moves.List {
			if m := &s.Moves.List[i]; m.To == k {
				points += Count(m.Shape)
				if err := m.follows(from, n, k); err != nil {
					return fmt.Errorf("move %d: %w", i, err)
				}
			}
		}
		filled += v.Type.Shape.Elements() - points
	}
	want := int64(0)
	pad := n.Op == ir.OpPad
	if pad {
		want = n.Out[0].Type.Shape.Elements() - inside(n)
	}
	if filled != want || s.Moves.Filled != pad || s.Moves.Filled && s.Moves.Value != n.Float("value") {
		return fmt.Errorf("%d elements of its results come from no operand: want %d", filled, want)
	}
	return nil
}

// follows compares the move with its node at its corners and at points along each dimension. That
// is enough, because both are affine.
func (m *Move) follows(from source, n *ir.Node, k int) error {
	if Count(m.Shape) == 0 {
		return nil
	}
	points := [][]int64{make([]int64, len(m.Shape)), make([]int64, len(m.Shape))}
	for d, size := range m.Shape {
		points[1][d] = size - 1
		for _, x := range []int64{1, size / 2, size - 1} {
			if x > 0 && x < size {
				p := make([]int64, len(m.Shape))
				p[d] = x
				points = append(points, p)
			}
		}
	}
	for _, p := range points {
		operand, coords, ok := from(coordinates(m.Dst.at(p), ir.Sizes(n.Out[k].Type.Shape)))
		if !ok || operand != m.From || m.Src.at(p) != index(coords, ir.Sizes(n.In[operand].Type.Shape)) {
			return fmt.Errorf("point %v comes from elsewhere", p)
		}
	}
	return nil
}

// at is the offset, in elements, that a accesses at point p.
func (a *Access) at(p []int64) int64 {
	e := a.Offset
	for i, x := range p {
		e += x * a.Strides[i]
	}
	return e
}

func coordinates(element int64, shape []int64) []int64 {
	at := make([]int64, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		at[i] = element % shape[i]
		element /= shape[i]
	}
	return at
}

func index(at, shape []int64) (element int64) {
	for i, x := range at {
		element = element*shape[i] + x
	}
	return element
}

// inside is the number of elements of a pad's operand that are in the result.
func inside(n *ir.Node) int64 {
	from, count := sourceOf(n, 0), int64(1)
	y := ir.Sizes(n.Out[0].Type.Shape)
	for i, size := range y {
		here := int64(0)
		at := make([]int64, len(y))
		for at[i] = range size {
			if _, coords, _ := from(at); coords[i] >= 0 {
				here++
			}
		}
		count *= here
	}
	return count
}

// sourceOf returns the source of result k of n; nil for a node that moves no elements.
func sourceOf(n *ir.Node, k int) source {
	x := ir.Sizes(n.In[0].Type.Shape)
	each := func(f func(i int, at int64) int64) source {
		return func(at []int64) (int, []int64, bool) {
			from := make([]int64, len(at))
			for i := range at {
				from[i] = f(i, at[i])
			}
			return 0, from, true
		}
	}
	switch n.Op {
	case ir.OpTranspose:
		return func(at []int64) (int, []int64, bool) {
			from := make([]int64, len(at))
			for i, p := range n.Ints("perm") {
				from[p] = at[i]
			}
			return 0, from, true
		}
	case ir.OpBroadcast:
		return func(at []int64) (int, []int64, bool) {
			from := slices.Clone(at[len(at)-len(x):])
			for i := range from {
				from[i] %= x[i]
			}
			return 0, from, true
		}
	case ir.OpSlice:
		spans := n.Spans()
		return each(func(i int, at int64) int64 { return spans[i].Start + at*spans[i].Step })
	case ir.OpFlip:
		axes := n.Axes()
		return each(func(i int, at int64) int64 {
			if slices.Contains(axes, i) {
				return x[i] - 1 - at
			}
			return at
		})
	case ir.OpTile:
		return each(func(i int, at int64) int64 { return at % x[i] })
	case ir.OpConcat, ir.OpSplit:
		return joinedSource(n, k)
	case ir.OpPad:
		return paddedSource(n)
	case ir.OpDepthToSpace, ir.OpSpaceToDepth:
		return blockSource(n)
	}
	if n.Def().Is(ir.View) {
		y := ir.Sizes(n.Out[k].Type.Shape)
		return func(at []int64) (int, []int64, bool) { return 0, coordinates(index(at, y), x), true }
	}
	return nil
}

func joinedSource(n *ir.Node, k int) source {
	axis := n.Axis()
	if n.Op == ir.OpSplit {
		start := int64(0)
		for _, v := range n.Out[:k] {
			start += ir.Sizes(v.Type.Shape)[axis]
		}
		return func(at []int64) (int, []int64, bool) {
			from := slices.Clone(at)
			from[axis] += start
			return 0, from, true
		}
	}
	return func(at []int64) (int, []int64, bool) {
		from := slices.Clone(at)
		for i, v := range n.In {
			size := ir.Sizes(v.Type.Shape)[axis]
			if from[axis] < size {
				return i, from, true
			}
			from[axis] -= size
		}
		return 0, nil, false
	}
}

// paddedSource returns coordinates of -1 for padding.
func paddedSource(n *ir.Node) source {
	x, lo := ir.Sizes(n.In[0].Type.Shape), n.Ints("lo")
	return func(at []int64) (int, []int64, bool) {
		from, ok := make([]int64, len(at)), true
		for i := range at {
			step, p := 1+n.Inner(i), at[i]-lo[i]
			if from[i] = p / step; p < 0 || p%step != 0 || from[i] >= x[i] {
				from[i], ok = -1, false
			}
		}
		return 0, from, ok
	}
}

// blockSource follows the definition of ONNX: in mode DCR the block's sides come before the
// channel, in CRD after it.
func blockSource(n *ir.Node) source {
	b, toDepth := n.Int("block"), n.Op == ir.OpSpaceToDepth
	space := ir.Sizes(n.Out[0].Type.Shape)
	if toDepth {
		space = ir.Sizes(n.In[0].Type.Shape)
	}
	c, crd := space[1], n.Str("mode") == "crd"
	return func(at []int64) (int, []int64, bool) {
		if toDepth { // at is batch, channel of the depth form, row, column
			channel, i, j := at[1]%c, at[1]/c/b, at[1]/c%b
			if crd {
				channel, i, j = at[1]/(b*b), at[1]/b%b, at[1]%b
			}
			return 0, []int64{at[0], channel, at[2]*b + i, at[3]*b + j}, true
		}
		i, j := at[2]%b, at[3]%b
		depth := (i*b+j)*c + at[1]
		if crd {
			depth = (at[1]*b+i)*b + j
		}
		return 0, []int64{at[0], depth, at[2] / b, at[3] / b}, true
	}
}

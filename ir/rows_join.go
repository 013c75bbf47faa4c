package ir

import (
	"fmt"
	"slices"
)

// The inference and the gradients of concat, split and tile.

func inferConcat(n *Node) ([]Type, error) {
	d, err := n.joined()
	if err != nil {
		return nil, err
	}
	dt := n.elemDType()
	s := Shape{}
	if d != nil {
		s = MakeShape(d...)
	}
	return []Type{{dt, s}}, n.checkElemOut(dt)
}

// joined is the shape of a concat; nil if no operand's rank is known.
func (n *Node) joined() ([]Dim, error) {
	var first *Value
	var d []Dim
	axis, open := 0, false
	for _, v := range n.In {
		if (v.Type.DType == Bool) != (n.In[0].Type.DType == Bool) {
			return nil, fmt.Errorf("cannot join %s %s and %s %s", n.In[0], n.In[0].Type, v, v.Type)
		}
		switch {
		case !v.Type.Shape.Known():
			open = true
			continue
		case first == nil:
			first, d = v, v.Type.Shape.Dims()
			var err error
			if axis, err = axisOf(n.Int("axis"), len(d)); err != nil {
				return nil, err
			}
			continue
		}
		e := v.Type.Shape.Dims()
		for i := range d {
			if len(e) != len(d) || i != axis && !fits(d[i], e[i]) {
				return nil, fmt.Errorf("shapes differ beside axis %d: %s %s, %s %s", axis, first, first.Type, v, v.Type)
			}
			if i != axis {
				d[i] = narrow(d[i], e[i])
			}
		}
		if d[axis] < 0 || e[axis] < 0 {
			d[axis] = UnknownDim
		} else {
			d[axis] += e[axis]
		}
	}
	if d != nil && open {
		d[axis] = UnknownDim
	}
	return d, nil
}

func gradConcat(b *Builder, n *Node, d []*Value) []*Value {
	axis, at := n.Int("axis"), int64(0)
	g := make([]*Value, len(n.In))
	for i, v := range n.In {
		if !b.staticAxis(n, v) {
			return g
		}
		size := int64(v.Type.Shape.Dim(int(axis)))
		g[i] = b.Slice(d[0], []int64{axis}, []int64{at}, []int64{at + size})
		at += size
	}
	return g
}

// staticAxis fails the builder unless v's size along n's axis is known.
func (b *Builder) staticAxis(n *Node, v *Value) bool {
	if !v.Type.Shape.Known() || v.Type.Shape.Dim(int(n.Int("axis"))) < 0 {
		b.needsSizes(v.Type, "%s: the gradient needs the size of %s along axis %d", n.Def().Name, v, n.Int("axis"))
	}
	return b.err == nil
}

func inferSplit(n *Node) ([]Type, error) {
	x, sizes := n.In[0], n.Ints("sizes")
	if len(sizes) == 0 {
		return nil, fmt.Errorf("sizes are empty")
	}
	sum := Dim(0)
	for _, s := range sizes {
		if s < 0 {
			return nil, fmt.Errorf("sizes %s hold the size %d", literal(sizes), s)
		}
		sum += Dim(s)
	}
	types := make([]Type, len(sizes))
	for i := range types {
		types[i].DType = x.Type.DType
	}
	if !x.Type.Shape.Known() {
		return types, n.bare()
	}
	d := x.Type.Shape.Dims()
	axis, err := axisOf(n.Int("axis"), len(d))
	if err != nil {
		return nil, err
	}
	if d[axis] >= 0 && d[axis] != sum {
		return nil, fmt.Errorf("sizes %s add up to %d, axis %d of %s %s is %d", literal(sizes), sum, axis, x, x.Type, d[axis])
	}
	for i, s := range sizes {
		d[axis] = Dim(s)
		types[i].Shape = MakeShape(d...)
	}
	return types, n.bare()
}

func inferTile(n *Node) ([]Type, error) {
	x, reps := n.In[0], n.Ints("reps")
	for _, r := range reps {
		if r < 1 {
			return nil, fmt.Errorf("reps %s: want numbers above zero", literal(reps))
		}
	}
	if !x.Type.Shape.Known() {
		return []Type{{DType: x.Type.DType}}, n.bare()
	}
	d := x.Type.Shape.Dims()
	if len(reps) != len(d) {
		return nil, fmt.Errorf("reps %s do not fit %s %s", literal(reps), x, x.Type)
	}
	for i := range d {
		d[i] = mulDims(d[i], Dim(reps[i]))
	}
	return []Type{{x.Type.DType, MakeShape(d...)}}, n.bare()
}

// gradTile sums the copies, one axis at a time.
func gradTile(b *Builder, n *Node, d []*Value) []*Value {
	g := d[0]
	for i, r := range n.Ints("reps") {
		if r == 1 {
			continue
		}
		if !b.staticFor(n, n.In[0]) {
			return []*Value{nil}
		}
		rows := g.Type.Shape.Dims()[:i]
		rest := g.Type.Shape.Dims()[i+1:]
		size := n.In[0].Type.Shape.Dim(i)
		outer, inner := MakeShape(rows...).Elements(), MakeShape(rest...).Elements()
		g = b.ReduceSum(b.Reshape(g, outer, r, int64(size)*inner), false, 1)
		g = b.reshapeTo(g, append(append(slices.Clone(rows), size), rest...))
	}
	return []*Value{g}
}

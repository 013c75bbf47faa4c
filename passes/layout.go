package passes

import (
	"slices"

	"ampc/ir"
)

// layout gives the regions of a graph that slide windows over images the layout that the target's
// kernels want (Caps.Layout; empty: that of the source). Transposes are only at the edges of a
// region. Elementwise nodes join a region if their images are in it, or can be had with channels
// last without traffic. Nodes that only name axes join, too. Random nodes do not, because their
// numbers depend on the position of an element in memory.
func layout(g *ir.Graph, c *Context) error {
	if c.Caps.Layout != "NHWC" {
		c.keep()
		return nil
	}
	l := &layouter{b: ir.Edit(g), c: c, last: map[*ir.Value]*ir.Value{}, first: map[*ir.Value]*ir.Value{}}
	for s := range ir.NumSections {
		body := g.Body[s]
		g.Body[s] = make([]*ir.Node, 0, len(body)+len(body)/4)
		l.b = l.b.In(s)
		for _, n := range body {
			c.At(n)
			if err := l.place(g, s, n); err != nil {
				return err
			}
		}
	}
	for i, v := range g.Return {
		if w := l.first[v]; w != nil {
			g.Return[i] = w
		}
	}
	return l.b.Err()
}

type layouter struct {
	b     *ir.Builder
	c     *Context
	last  map[*ir.Value]*ir.Value // by image: the same with channels last
	first map[*ir.Value]*ir.Value // by image of a converted node: the same in the source's layout
}

// place appends n, converted if it slides windows or computes inside a region.
func (l *layouter) place(g *ir.Graph, s ir.Section, n *ir.Node) error {
	rank := l.rank(n)
	if rank == 0 {
		l.outside(n)
		g.Body[s] = append(g.Body[s], n)
		return nil
	}
	for i, v := range n.In {
		if v != nil && v.Type.Shape.Rank() == rank {
			n.In[i] = l.channelsLast(v)
		}
	}
	switch {
	case n.HasAttr("layout"):
		n.Attrs = n.Attrs.With("layout", "NHWC")
	case n.Def().Elem == nil:
		turnAxes(n, rank)
	}
	l.c.Count("nodes_converted", 1)
	g.Body[s] = append(g.Body[s], n)
	if err := n.Retype(); err != nil {
		return err
	}
	for _, v := range n.Out {
		if v.Type.Shape.Rank() == rank {
			l.leave(v)
		}
	}
	return l.b.Err()
}

// rank is the rank of the images that n is to process with channels last, 0 if n stays as it is.
func (l *layouter) rank(n *ir.Node) int {
	if len(n.In) == 0 || n.In[0] == nil || n.In[0].Type.Shape.Rank() < 3 || slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return v.Next != nil }) {
		return 0
	}
	rank := n.In[0].Type.Shape.Rank()
	if n.HasAttr("layout") {
		if n.Str("layout") == "NHWC" || n.Op == ir.OpResize || n.Op == ir.OpResizeGrad {
			return 0
		}
		return rank
	}
	if n.Def().Is(ir.Random) || n.Def().Is(ir.Writer) || n.Def().Elem == nil && !l.turns(n, rank) {
		return 0
	}
	inside := false
	for _, v := range n.In {
		switch {
		case v == nil || v.Type.Shape.Rank() == 0:
		case l.first[v] != nil:
			inside = true
		case !l.free(v, rank):
			return 0
		}
	}
	if !inside {
		return 0
	}
	return rank
}

// free reports whether v can be had with channels last without traffic: it repeats one element for
// each image and channel, or is computed element by element from such values and from images of the
// region.
func (l *layouter) free(v *ir.Value, rank int) bool {
	n := v.Def
	switch {
	case n == nil || v.Type.Shape.Rank() != rank || len(n.Out) != 1 || v.Next != nil:
		return false
	case n.Op == ir.OpBroadcast:
		u := n.In[0]
		return v.Type.Shape.Static() && u.Type.Shape.Rank() == rank && viewed(u.Type.Shape, last(rank))
	case n.Def().Elem == nil || n.Def().Is(ir.Random) || n.Def().Is(ir.Writer):
		return false
	}
	return !slices.ContainsFunc(n.In, func(x *ir.Value) bool {
		return x != nil && x.Type.Shape.Rank() > 0 && l.first[x] == nil && !l.free(x, rank)
	})
}

// copied computes the free value v a second time, with channels last.
func (l *layouter) copied(v *ir.Value) *ir.Value {
	n := v.Def
	b := l.b.Deriving(n.Of, "").Pinned(n.Pin).Named(v.Name + ".nhwc")
	if n.Op == ir.OpBroadcast {
		return b.Broadcast(l.channelsLast(n.In[0]), permuted(v.Type.Shape, last(v.Type.Shape.Rank()))...)
	}
	in := slices.Clone(n.In)
	for i, x := range in {
		if x != nil && x.Type.Shape.Rank() > 0 {
			in[i] = l.channelsLast(x)
		}
	}
	return b.Emit(n.Op, in, n.Attrs)[0]
}

// outside makes a node that stays as it is read images in the source's layout.
func (l *layouter) outside(n *ir.Node) {
	for i, v := range n.In {
		if w := l.first[v]; v != nil && w != nil {
			n.In[i] = w
		}
	}
}

// channelsLast is v for a converted node.
func (l *layouter) channelsLast(v *ir.Value) *ir.Value {
	if l.first[v] != nil { // computed inside the region
		return v
	}
	if l.last[v] == nil {
		if rank := v.Type.Shape.Rank(); l.free(v, rank) {
			l.last[v] = l.copied(v)
		} else {
			l.last[v] = l.transposed(v, v.Name+".nhwc", last(rank))
		}
	}
	return l.last[v]
}

// leave adds the transpose of v for readers outside of the region. dce drops it if there are none.
func (l *layouter) leave(v *ir.Value) {
	l.first[v] = l.transposed(v, v.Name+".nchw", first(v.Type.Shape.Rank()))
}

// transposed is v under a permutation, as a view if no elements move.
func (l *layouter) transposed(v *ir.Value, name string, perm []int64) *ir.Value {
	if s := v.Type.Shape; s.Static() && viewed(s, perm) {
		return l.b.Named(name).Reshape(v, permuted(s, perm)...)
	}
	l.c.Count("transposes", 1)
	return l.b.Named(name).Transpose(v, perm...)
}

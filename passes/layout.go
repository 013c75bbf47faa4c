package passes

import (
	"slices"

	"ampc/ir"
)

// layout puts the regions of a graph that slide windows over images into the
// layout the target's kernels want (Caps.Layout; empty: as the source has it).
// Transposes stand at the edges of a region only: elementwise nodes whose
// images are all inside join it. Random nodes stay outside, as their draws
// depend on where an element lies.
func layout(g *ir.Graph, c *Context) error {
	if c.Caps.Layout != "NHWC" {
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
	last  map[*ir.Value]*ir.Value // an image to itself with channels last
	first map[*ir.Value]*ir.Value // an image that a converted node made, to itself as the source had it
}

// place appends n, converted where it slides windows or computes inside a region.
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
	if n.Def().Elem == nil {
		n.Attrs = n.Attrs.With("layout", "NHWC")
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

// rank is the rank of the images that n is to handle with channels last, 0
// where n stays as it is.
func (l *layouter) rank(n *ir.Node) int {
	if len(n.In) == 0 || n.In[0] == nil || n.In[0].Type.Shape.Rank() < 3 || slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return v.Next != nil }) {
		return 0
	}
	rank := n.In[0].Type.Shape.Rank()
	if slices.ContainsFunc(n.Def().Attrs, func(a ir.AttrDef) bool { return a.Name == "layout" }) {
		if n.Str("layout") == "NHWC" || n.Op == ir.OpResize || n.Op == ir.OpResizeGrad {
			return 0
		}
		return rank
	}
	if n.Def().Elem == nil || n.Def().Is(ir.Random) || n.Def().Is(ir.Writer) {
		return 0
	}
	for _, v := range n.In {
		if v != nil && v.Type.Shape.Rank() > 0 && l.first[v] == nil {
			return 0
		}
	}
	return rank
}

// outside gives a node that stays as it is the images in the source's layout.
func (l *layouter) outside(n *ir.Node) {
	for i, v := range n.In {
		if w := l.first[v]; v != nil && w != nil {
			n.In[i] = w
		}
	}
}

// channelsLast is v as a converted node reads it.
func (l *layouter) channelsLast(v *ir.Value) *ir.Value {
	if l.first[v] != nil { // made inside the region
		return v
	}
	if l.last[v] == nil {
		l.last[v] = l.transposed(v, v.Name+".nhwc", func(r int) []int64 {
			p := []int64{0}
			for i := 2; i < r; i++ {
				p = append(p, int64(i))
			}
			return append(p, 1)
		})
	}
	return l.last[v]
}

// leave adds the transpose through which v leaves the region; dce drops it
// where nobody outside reads v.
func (l *layouter) leave(v *ir.Value) {
	l.first[v] = l.transposed(v, v.Name+".nchw", func(r int) []int64 {
		p := []int64{0, int64(r - 1)}
		for i := 1; i < r-1; i++ {
			p = append(p, int64(i))
		}
		return p
	})
}

func (l *layouter) transposed(v *ir.Value, name string, perm func(rank int) []int64) *ir.Value {
	l.c.Count("transposes", 1)
	return l.b.Named(name).Transpose(v, perm(v.Type.Shape.Rank())...)
}

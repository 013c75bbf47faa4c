package passes

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
)

// padding pads the operands of products and convolutions with zeros up to the multiples that tensor
// cores want (ir.DType.Multiple), and slices the results, if Config.Pad is set. Zeros add nothing
// to a sum, so no result changes. Gradients are sliced as results are, so the zeros are not
// trained. The pass runs before autodiff, so that backward is padded like forward, and before amp,
// which prices the copies. It does not pad rows of operands with more than two dimensions, grouped
// and transposed convolutions, and unknown sizes.
func padding(g *ir.Graph, c *Context) error {
	if !c.Pad {
		return nil
	}
	p := &padder{g: g, c: c, done: map[padKey]*ir.Value{}}
	body := g.Body[ir.Forward]
	g.Body[ir.Forward] = make([]*ir.Node, 0, len(body))
	to := map[*ir.Value]*ir.Value{}
	for _, n := range body {
		c.At(n)
		for i, v := range n.In {
			if w := to[v]; w != nil {
				n.In[i] = w
			}
		}
		cut, err := p.place(n)
		if err != nil {
			return err
		}
		if cut != nil {
			to[n.Out[0]] = cut
		}
	}
	g.Replace(to) // for returned and captured values
	for v, cut := range to {
		cut.Def.In[0] = v
	}
	return nil
}

type padder struct {
	g    *ir.Graph
	c    *Context
	done map[padKey]*ir.Value // padded operands, which all readers share
}

type padKey struct {
	v  *ir.Value
	hi string
}

// place appends n, padded if necessary. For a padded node it returns the sliced result.
func (p *padder) place(n *ir.Node) (cut *ir.Value, err error) {
	body := &p.g.Body[ir.Forward]
	more := p.more(n)
	if more == nil {
		*body = append(*body, n)
		return nil, nil
	}
	b := ir.Edit(p.g).In(ir.Forward).Deriving(n, "").Pinned(ir.Unpinned)
	for i, v := range n.In {
		if v != nil && i < len(more) {
			n.In[i] = p.padded(b, v, more[i])
		}
	}
	*body = append(*body, n)
	name, old := n.Out[0].Name, n.Out[0].Type.Shape.Dims()
	n.Out[0].Name = name + ".padded"
	if err := n.Retype(); err != nil {
		return nil, err
	}
	var axes, starts, ends []int64
	var said []string
	for i, d := range n.Out[0].Type.Shape.Dims() {
		if d != old[i] {
			axes, starts, ends = append(axes, int64(i)), append(starts, 0), append(ends, int64(old[i]))
			said = append(said, fmt.Sprintf("%d to %d", old[i], d))
		}
	}
	p.c.Count("padded", 1)
	if len(axes) == 0 { // only dimensions that are summed over were padded
		n.Out[0].Name = name
		p.c.note("%%%s: its products are padded with zeros", name)
		return nil, b.Err()
	}
	p.c.note("%%%s: its products are padded with zeros, results from %s", name, strings.Join(said, ", "))
	if cut = b.Slice(n.Out[0], axes, starts, ends); b.Err() != nil {
		return nil, b.Err()
	}
	cut.Name, cut.Def.Of = name, nil
	return cut, nil
}

// padded is v with hi[i] zeros appended along dimension i.
func (p *padder) padded(b *ir.Builder, v *ir.Value, hi []int64) *ir.Value {
	if !slices.ContainsFunc(hi, func(n int64) bool { return n > 0 }) {
		return v
	}
	k := padKey{v, fmt.Sprint(hi)}
	if p.done[k] == nil {
		w := b.Named(v.Name+".zeros").Pad(v, make([]int64, len(hi)), hi, 0)
		if w == nil {
			return v
		}
		w.Def.Of = nil
		p.done[k] = w
	}
	return p.done[k]
}

// more is how many zeros to append along each dimension of each operand of n; nil if n needs none.
func (p *padder) more(n *ir.Node) [][]int64 {
	var aligned [][]int
	if f := n.Def().Aligned; f != nil {
		aligned = f(n)
	}
	want := p.want(n)
	if aligned == nil || want == 1 || slices.ContainsFunc(n.In, func(v *ir.Value) bool { return v != nil && v.Type.Shape.Elements() < 0 }) {
		return nil
	}
	round := func(d ir.Dim) int64 { return (want - int64(d)%want) % want }
	more := make([][]int64, len(n.In))
	for i, v := range n.In {
		if v != nil {
			more[i] = make([]int64, v.Type.Shape.Rank())
		}
	}
	for i, dims := range aligned {
		if i >= len(n.In) || n.In[i] == nil {
			continue
		}
		for _, d := range dims {
			shape := n.In[i].Type.Shape
			more[i][(d+shape.Rank())%shape.Rank()] = round(shape.Dim(d))
		}
	}
	if !slices.ContainsFunc(more, func(hi []int64) bool { return slices.ContainsFunc(hi, func(k int64) bool { return k > 0 }) }) {
		return nil
	}
	return more
}

// want is the multiple for the dtype in which n will read its operands.
func (p *padder) want(n *ir.Node) int64 {
	var f override
	if p.c.Policy.classOf(n) != ir.Low {
		f.pin = ir.PinF32
	}
	p.c.Policy.override(n, &f)
	switch {
	case f.pin == ir.PinTF32, p.c.Policy.TF32 && f.pin == ir.Unpinned:
		return ir.F32.Multiple(true)
	case f.pin == ir.PinF32 || !p.c.Policy.Mixed():
		return ir.F32.Multiple(false)
	}
	return p.c.Policy.Low.Multiple(false)
}

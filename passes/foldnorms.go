package passes

import (
	"slices"

	"ampc/ir"
)

// foldNorms makes a convolution and the batch norm by running statistics that alone reads it one
// convolution: of the weights W·g and the bias (b−mean)·g + beta, where g is gamma/√(var+eps). Both
// are computed in prepare, from variables that no node writes; the target's store keeps them until
// one of these changes (Caps.Keeps). An evaluation that repeats a training step (Config.Inherit),
// and policies that run what is written or that name values, leave norms as they are.
func foldNorms(g *ir.Graph, c *Context) error {
	if c.Train || c.Inherit != nil || !c.Caps.Keeps || c.Policy.Manual || c.Policy.Eager || len(c.Policy.Rules)+len(c.Policy.Stores) > 0 || !slices.ContainsFunc(g.Body[ir.Forward], normalizes) {
		c.keep()
		return nil
	}
	f := &normFolder{b: ir.Edit(g), uses: g.Uses(), kept: map[*ir.Value]bool{}, gone: map[*ir.Node]bool{}}
	for _, v := range g.Return {
		f.kept[v] = true
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			f.kept[v.Next] = true
		}
	}
	for _, n := range g.Body[ir.Forward] {
		if conv := f.behind(n); conv != nil {
			f.fold(conv, n)
			c.Count("batch_norms_folded", 1)
		}
	}
	if f.b.Err() != nil {
		return f.b.Err()
	}
	g.Filter(func(_ ir.Section, n *ir.Node) bool { return !f.gone[n] })
	return nil
}

// normFolder folds the batch norms of a graph.
type normFolder struct {
	b    *ir.Builder
	uses *ir.Uses
	kept map[*ir.Value]bool // results of the graph and variables with a next value
	gone map[*ir.Node]bool
}

// normalizes reports whether n is a batch norm by running statistics.
func normalizes(n *ir.Node) bool {
	rows := n.Def().Batch
	return rows != nil && n.Op == rows.Infer
}

// behind is the convolution that norm n folds into, nil where there is none.
func (f *normFolder) behind(n *ir.Node) *ir.Node {
	if !normalizes(n) {
		return nil
	}
	x := n.In[0]
	conv := x.Def
	if conv == nil || !convolves(conv) || len(f.uses.Of(x)) != 1 || f.kept[x] || conv.Pin != n.Pin || conv.Str("layout") != n.Str("layout") {
		return nil
	}
	for _, v := range append(conv.In[1:len(conv.In):len(conv.In)], n.In[1:]...) {
		if v != nil && !f.stays(v) {
			return nil
		}
	}
	return conv
}

// convolves reports whether n is a convolution that slides its second operand over the first.
func convolves(n *ir.Node) bool {
	w := n.Def().Window
	return n.Def().Is(ir.Convolves) && w != nil && w.Image == ir.In0 && w.Filter == ir.In1 && w.Places == ir.Out0
}

// stays reports whether v is an f32 variable of a store that no node writes.
func (f *normFolder) stays(v *ir.Value) bool {
	return v.IsVar() && (v.Kind == ir.Param || v.Kind == ir.State) && v.Type.DType == ir.F32 && !v.IsCache() && !f.kept[v]
}

// fold puts a convolution in the place of norm n.
func (f *normFolder) fold(conv, n *ir.Node) {
	gamma, beta, mean, variance := n.In[1], n.In[2], n.In[3], n.In[4]
	b := f.b.Deriving(nil, "").In(ir.Prepare)
	name := n.Out[0].Name
	scale := b.Named(name+".folded.g").Mul(gamma, b.Rsqrt(b.Affine(variance, 1, n.Float("eps"))))
	shift := mean
	if len(conv.In) > 2 && conv.In[2] != nil {
		shift = b.Sub(mean, conv.In[2])
	}
	w := conv.In[1]
	per := make([]int64, w.Type.Shape.Rank())
	for i := range per {
		per[i] = 1
	}
	per[0] = int64(w.Type.Shape.Dim(0))
	weight := b.Named(name+".folded.w").Mul(w, b.Reshape(scale, per...))
	bias := b.Named(name+".folded.b").Sub(beta, b.Mul(shift, scale))
	if f.b.Err() != nil {
		return
	}
	n.Op, n.Attrs, n.In = conv.Op, conv.Attrs, []*ir.Value{conv.In[0], weight, bias}
	f.gone[conv] = true
	if err := n.Retype(); err != nil {
		f.b.Fail("%v", err)
	}
}

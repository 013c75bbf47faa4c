package lower

import (
	"slices"

	"ampc/ir"
)

// ownKernels gives what a product or convolution of g needs beside its own kernel on t nodes and a
// cluster of their own: f32 copies of operands that the device does not multiply (ir.Caps.Widens),
// the epilogue after f32 sums (ir.Caps.Splits), and the bias of a convolution (ir.Caps.SplitsConv).
// It changes g in place.
func ownKernels(g *ir.Graph, t Target) error {
	k := &kernelMaker{readers: newReaders(g), caps: t.Caps(), b: ir.Edit(g), members: map[int32][]*ir.Node{}, instead: map[*ir.Value]*ir.Value{}}
	for _, n := range g.Nodes {
		if n.Why.Cluster > 0 {
			k.members[n.Why.Cluster] = append(k.members[n.Why.Cluster], n)
		}
	}
	for s := range ir.NumSections {
		nodes := g.Body[s]
		g.Body[s] = make([]*ir.Node, 0, len(nodes))
		for _, n := range nodes {
			if !isProduct(n) {
				g.Body[s] = append(g.Body[s], n)
			} else if err := k.place(s, n); err != nil {
				return err
			}
		}
	}
	g.Replace(k.instead)
	return nil
}

// needsKernels reports whether t may run a product or convolution as several kernels.
func needsKernels(t Target) bool {
	caps := t.Caps()
	return caps.Splits != nil || caps.SplitsConv != nil || caps.Widens != nil
}

// kernelMaker gives kernels nodes of their own.
type kernelMaker struct {
	*readers
	caps    ir.Caps
	b       *ir.Builder
	members map[int32][]*ir.Node // by cluster
	instead map[*ir.Value]*ir.Value
}

// place appends product or convolution n to section s, with the nodes of its other kernels.
func (k *kernelMaker) place(s ir.Section, n *ir.Node) error {
	b, splits := k.b.In(s).Deriving(n, ""), k.splits(n)
	y := n.Out[0]
	sum := y.Type.DType
	if n.Def().Is(ir.MatrixProduct) {
		sum = ir.F32
	}
	k.widen(b, n)
	g := b.Graph()
	if splits && (n.Bias() != nil || y.Type.DType != sum) {
		last := k.sum(b, n, sum)
		last.Name, last.Next = y.Name, y.Next
		k.instead[y] = last
	} else {
		if splits {
			n.Why.Cluster, n.Why.Launch = 0, 0
		}
		g.Body[s] = append(g.Body[s], n)
	}
	return b.Err()
}

// splits reports whether n and the epilogue in its cluster run as two kernels.
func (k *kernelMaker) splits(n *ir.Node) bool {
	if n.Def().Is(ir.Convolves) {
		return k.caps.SplitsConv != nil && k.caps.SplitsConv(n)
	}
	if k.caps.Splits == nil || ProductOf(n).K == 0 {
		return false
	}
	var own []link
	if rest := slices.DeleteFunc(slices.Clone(k.members[n.Why.Cluster]), func(m *ir.Node) bool { return m == n }); len(rest) > 0 {
		var ok bool
		if own, rest, ok = k.epilogue(k.caps, n, rest); !ok || len(rest) > 0 {
			return false
		}
	}
	p, at := ir.Product{A: n.In[0].Type.DType, B: n.In[1].Type.DType}, n.Out[0]
	if v := n.Bias(); v != nil {
		p.Bias = v.Type.DType
	}
	for _, e := range own {
		p.Take(e.stage, e.node)
		if e.stage == ir.AfterBias {
			p.Bias = e.other().Type.DType
		}
		at = e.node.Out[0]
	}
	p.Out = at.Type.DType
	return k.caps.Splits(p)
}

// widen makes n read f32 copies of the operands that the device does not multiply.
func (k *kernelMaker) widen(b *ir.Builder, n *ir.Node) {
	if k.caps.Widens == nil {
		return
	}
	rounds := roundsTF32(n)
	copies := map[*ir.Value]*ir.Value{}
	in := slices.Clone(n.In)
	for i, v := range n.In[:2] {
		if !k.caps.Widens(n, i, v.Type.DType) {
			continue
		}
		if copies[v] == nil {
			copies[v] = b.Named(n.Out[0].Name+".wide").Emit(ir.OpCast, []*ir.Value{v}, ir.A("to", ir.F32))[0]
		}
		in[i] = copies[v]
	}
	n.In = in
	if !rounds {
		n.Attrs = n.Attrs.Without("math")
	}
}

// sum appends n without its bias and with a result of dtype d, and the node of the second kernel,
// which adds the bias and stores the result of n. That node takes the place of n in its cluster.
func (k *kernelMaker) sum(b *ir.Builder, n *ir.Node, d ir.DType) *ir.Value {
	y, bias := n.Out[0], n.Bias()
	attrs := n.Attrs
	if d != y.Type.DType {
		attrs = attrs.With("out", d)
	}
	x := b.Named(y.Name+".sum").Emit(n.Op, n.In[:2:2], attrs)[0]
	switch {
	case bias == nil:
		y = b.Emit(ir.OpCast, []*ir.Value{x}, ir.A("to", y.Type.DType))[0]
	default:
		if n.Def().Is(ir.Convolves) && !n.Window().Last {
			dims := []int64{int64(bias.Type.Shape.Dim(0))}
			for range y.Type.Shape.Rank() - 2 {
				dims = append(dims, 1)
			}
			bias = b.Emit(ir.OpReshape, []*ir.Value{bias}, ir.A("shape", dims))[0]
		}
		y = b.Emit(ir.OpAdd, []*ir.Value{x, bias}, ir.A("out", y.Type.DType))[0]
	}
	if b.Err() == nil {
		y.Def.Why.Cluster, y.Def.Why.Launch = n.Why.Cluster, n.Why.Launch
	}
	return y
}

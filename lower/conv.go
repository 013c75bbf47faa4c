package lower

import "ampc/ir"

// convDir is the tensor that the convolution of n computes: results, gradients of images or of
// filters.
func convDir(n *ir.Node) ConvDir {
	switch w := n.Def().Window; ir.Out0 {
	case w.Filter:
		return ConvGradW
	case w.Image:
		return ConvGradX
	}
	return ConvForward
}

// lowerConv lowers convolutions, their gradients, and transposed convolutions. A transposed
// convolution is the gradient, with respect to x, of the convolution that it transposes.
func lowerConv(l *Lowerer, n *ir.Node) error {
	l.now = []*ir.Node{n}
	s := l.step(KindConv, n)
	s.Conv = convOf(n)
	if len(s.In) > 2 {
		if s.In[2] == None {
			s.In = s.In[:2]
		} else {
			s.Conv.Epilogue.Bias = 2
		}
	}
	if splits := l.p.Target.Caps().SplitsConv; splits != nil && splits(n) {
		l.emitBiasApart(s, n)
		return nil
	}
	l.emit(s)
	return nil
}

// emitBiasApart emits convolution n, which s describes, as two steps: the convolution in the dtype
// of its result, and a cluster that adds the bias.
func (l *Lowerer) emitBiasApart(s Step, n *ir.Node) {
	y, bias := s.Out[0], s.In[s.Conv.Epilogue.Bias]
	shape, channel := ir.Sizes(n.Out[0].Type.Shape), 1
	if s.Conv.Window.Last {
		channel = len(shape) - 1
	}
	strides, d := make([]int64, len(shape)), l.p.dtype(y)
	strides[channel] = 1
	sum := l.between(s.Node.Name, "sum", n.Out[0].Type)
	conv := *s.Conv
	conv.Epilogue = Epilogue{}
	l.emit(Step{Kind: KindConv, In: s.In[:2:2], Out: []BufferID{sum}, Node: s.Node, Conv: &conv})
	code := ir.NewCode(nil)
	added := code.Add(code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32}), code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32, Int: 1}))
	l.emit(Step{Kind: KindCluster, In: []BufferID{sum, bias}, Out: s.Out, Node: s.Node, Cluster: &Cluster{Shape: shape, Code: code.Ins,
		Loads:  []Access{{Buffer: sum, DType: d, Strides: ir.RowMajor(shape)}, {Buffer: bias, DType: l.p.dtype(bias), Strides: strides}},
		Stores: []Access{{Buffer: y, DType: d, Strides: ir.RowMajor(shape), Reg: added}}}})
}

// convOf describes the convolution of a node, without its epilogue.
func convOf(n *ir.Node) *Conv {
	return &Conv{Dir: convDir(n), Window: n.Window(), TF32: roundsTF32(n), Direct: n.Str("math") == "direct"}
}

// lowerAttention lowers attention and its gradient. Their rows list the operands.
func lowerAttention(l *Lowerer, n *ir.Node) error {
	l.now = []*ir.Node{n}
	s := l.step(KindAttention, n)
	s.Attn = AttentionOf(n)
	l.emit(s)
	return nil
}

// AttentionOf describes the attention of a node.
func AttentionOf(n *ir.Node) *Attention {
	q, k, v := ir.Sizes(n.In[0].Type.Shape), ir.Sizes(n.In[1].Type.Shape), ir.Sizes(n.In[2].Type.Shape)
	a := &Attention{Backward: n.Def().GradOf != ir.OpInvalid, Batch: q[0], Heads: q[1], KVHeads: k[1], Queries: q[2], Keys: k[2],
		Width: q[3], VWidth: v[3], Scale: n.AttentionScale(), Causal: n.Flag("causal"), TF32: roundsTF32(n)}
	for i := range n.In {
		if n.In[i] != nil && n.OperandDef(i).Name == "mask" {
			a.Mask = i
			a.MaskStrides = broadcastStrides(n.In[i].Type.Shape, []int64{q[0], q[1], q[2], k[2]})
		}
	}
	return a
}

package lower

import "ampc/ir"

// Copies reports whether convolution n, computed as a product, copies operand i first: the image
// that it unfolds, and the gradient of its result where channels are not last.
func Copies(n *ir.Node, i int) bool {
	switch dir := convDir(n); {
	case dir == ConvGradX && i == 0, dir == ConvGradW && i == 1:
		return !n.Window().Last
	default:
		return i == 0
	}
}

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
	if l.spreadOf(n) != nil {
		s.Conv.Window = s.Conv.Window.WithoutStrides()
	}
	if len(s.In) > 2 {
		if s.In[2] == None {
			s.In = s.In[:2]
		} else {
			s.Conv.Epilogue.Bias = 2
		}
	}
	l.emit(s)
	return nil
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

package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// graphs reports whether cuDNN runs all of node n on t, as a graph of operations built from the
// step's description.
func (t Target) graphs(n *ir.Node) bool {
	if t.Lacks(NoDnn) {
		return false
	}
	switch n.Op {
	case ir.OpConv, ir.OpConvGradX, ir.OpConvGradW:
		return !t.Lacks(NoConv) && len(n.Window().Kernel) <= 3
	case ir.OpAttention, ir.OpAttentionGrad:
		d, a := n.In[0].Type.DType, lower.AttentionOf(n)
		return !t.Lacks(NoAttn) && dnnDType(d, t.fl) && flash(a, n, t.fl) && !t.Refuses(attentionProblem(d, a))
	}
	return false
}

// dnnDType reports whether cuDNN computes with elements of d on a device.
func dnnDType(d ir.DType, fl ptx.Flavour) bool {
	return d == ir.F32 || d == ir.F16 || d == ir.BF16 && fl.SM >= 80
}

// inGraph reports whether cuDNN runs the convolution of a step: operands and
// result of one dtype, and the same padding at both ends. The gradient of a filter,
// a sum over all positions, may be f32, except that of a pointwise convolution, which
// is a product: the one engine that cuDNN 9.19 has for it reads 0.13 TB/s on an H200
// where filters are small. A 16-bit result is rounded once, after its bias was added.
func (c *cudaLowerer) inGraph(s *lower.Step) bool {
	t := c.target
	typed := func(id lower.BufferID) ir.DType { return c.typeOf(id).DType }
	a, b, out := typed(s.In[0]), typed(s.In[1]), typed(s.Out[0])
	w := &s.Conv.Window
	switch {
	case t.Lacks(NoDnn) || t.Lacks(NoConv) || !dnnDType(a, c.fl) || a != b || !slices.Equal(w.Begin, w.End):
		return false
	case t.Refuses(ProblemOf(c.p, s)):
		return false
	case wideGrad(s, typed):
		return !w.Pointwise() && !t.Lacks(NoWide) && c.compiled(s)
	case s.Conv.Epilogue.Bias != 0 && a.Low() && !c.joinsBias(s): // cuDNN would add the bias after rounding
		return false
	}
	return out == a
}

// lowFilterGrad reports whether n, the gradient of a filter, is of 16 bits: where cuDNN has none in f32, or
// only one that measurements found slow. Those of pointwise convolutions are products, which cuBLASLt stores
// in f32.
func (t Target) lowFilterGrad(n *ir.Node) bool {
	w := n.Window()
	return !w.Pointwise() && (t.Lacks(NoWide) || t.Refuses(wideProblem(w)))
}

// channelStep is the number that channels must be multiples of in engines that
// cuDNN compiles for a graph: 16 bytes of 16-bit elements.
const channelStep = 8

// fuses reports whether cuDNN compiles an engine for a convolution with fused
// operations: 16-bit operands with channels last, on sm_80 or later. Its
// precompiled engines fuse less.
func (c *cudaLowerer) fuses(s *lower.Step) bool {
	return c.compiled(s) && s.Conv.Window.Tiled(channelStep)
}

// compiled is fuses for any number of channels. An f32 gradient of a filter is also
// tried with three channels; if cuDNN refuses it, the Program is lowered again.
func (c *cudaLowerer) compiled(s *lower.Step) bool {
	w := &s.Conv.Window
	return c.fl.SM >= 80 && w.Last && w.Groups == 1 && c.typeOf(s.In[0]).DType.Low()
}

// joinsBias reports whether cuDNN adds the bias of a convolution before it rounds the result.
func (c *cudaLowerer) joinsBias(s *lower.Step) bool { return c.fuses(s) && !c.target.Lacks(NoBias) }

// addsBiasApart reports whether cuDNN runs convolution n, which is all in f32, and does not add its bias.
func (t Target) addsBiasApart(n *ir.Node) bool {
	if n.Op != ir.OpConv || n.Bias() == nil || t.Lacks(NoDnn) || t.Lacks(NoConv) {
		return false
	}
	for _, v := range []*ir.Value{n.In[0], n.In[1], n.Out[0]} {
		if s := v.Type.Shape; v.Type.DType != ir.F32 || !s.Static() || s.Elements() == 0 {
			return false
		}
	}
	w := n.Window()
	return slices.Equal(w.Begin, w.End)
}

// Limits of the flash-attention engines.
const (
	headStep    = 8   // divides head sizes
	headMost    = 128 // largest head size before sm_90
	headMost90  = 256
	keysPerTile = 128 // up to cuDNN 9.15 the backward engines require a multiple of it
)

// flash reports whether cuDNN supports the attention of n: 16-bit operands of one dtype, as many
// heads of k as of q, and no mask other than the causal one for equal lengths.
func flash(a *lower.Attention, n *ir.Node, fl ptx.Flavour) bool {
	low := n.In[0].Type.DType
	for _, v := range append(n.In[:3:3], n.Out...) {
		if v.Type.DType != low && v.Def != n || v.Def == n && v.Type.DType != low && v.Type.Shape.Rank() == 4 {
			return false
		}
	}
	most := int64(headMost)
	if fl.SM >= 90 {
		most = headMost90
	}
	switch {
	case !low.Low() || fl.SM < 80 || a.Mask != 0 || a.Heads != a.KVHeads || a.Width != a.VWidth:
		return false
	case a.Width%headStep != 0 || a.Width > most || a.Width == 0 || a.Batch*a.Heads*a.Queries*a.Keys == 0 || a.Keys == 1:
		return false
	case a.Backward && a.Keys%keysPerTile != 0:
		return false
	}
	return !a.Causal || a.Queries == a.Keys
}

// dnn keeps a step that cuDNN runs, and adds the buffers that its graph needs besides operands and
// results: attention's backward graph stores the row sums of dy·y and the f32 sums of dq.
func (c *cudaLowerer) dnn() error {
	s := *c.from
	if a := s.Attn; a != nil && a.Backward {
		sums := c.temp("sums", ir.F32, a.Batch, a.Heads, a.Queries)
		wide := c.temp("wide", ir.F32, a.Batch, a.Heads, a.Queries, a.Width)
		s.Out = append(s.Out[:len(s.Out):len(s.Out)], sums, wide)
		s.Bytes = c.p.Traffic(&s)
	}
	c.out = append(c.out, s)
	return nil
}

package lower

import (
	"slices"

	"ampc/ir"
	"ampc/ptx"
)

// Norms over the last dimensions: one launch reads each row once, for its
// statistics and its result. The gradient is one more, and one for each sum
// over the rows that it leaves in parts.

// rowNorm takes norms with an f32 scale, and gradients in the dtype of what
// was normalised of rows whose sums fit into registers. Others are computed in parts.
func rowNorm(n *ir.Node) bool {
	x := n.In[0].Type
	scale := n.Operand("scale")
	if scale == nil || scale.Type.DType != ir.F32 || !x.Shape.Static() || x.Shape.Elements() == 0 || !floatsOnly(n) {
		return false
	}
	if bias := n.Operand("bias"); bias != nil && bias.Type.DType != ir.F32 {
		return false
	}
	if slices.ContainsFunc(n.Out[1:], func(v *ir.Value) bool { return v.Type.DType != ir.F32 }) {
		return false
	}
	rows, cols := normRows(n)
	return !isNormGrad(n) || n.Out[0].Type.DType == x.DType && ptx.Norm{Rows: rows, Cols: cols}.Partials() > 0
}

func isNormGrad(n *ir.Node) bool { return n.Op == ir.OpLayerNormGrad || n.Op == ir.OpRMSNormGrad }

// normRows are the rows that a norm works on, and their length.
func normRows(n *ir.Node) (rows, cols int) {
	d := sizes(n.In[0].Type.Shape)
	at := len(d) - int(n.Int("dims"))
	return int(count(d[:at])), int(count(d[at:]))
}

// normKernel describes the launches of a norm.
func (c *cudaCall) normKernel(y BufferID) ptx.Norm {
	rows, cols := normRows(c.n)
	return ptx.Norm{Name: "k", Rows: rows, Cols: cols, In: c.elem(c.s.In[0]), Out: c.elem(y),
		RMS: c.n.Op == ir.OpRMSNorm || c.n.Op == ir.OpRMSNormGrad, Eps: float32(c.n.Float("eps"))}
}

// norm launches layer_norm and rms_norm.
func (c *cudaCall) norm() error {
	k := c.normKernel(c.s.Out[0])
	args := slices.Clone(c.s.In)
	k.Bias = len(args) > 2 && args[2] != None
	if !k.Bias {
		args = args[:2]
	}
	return c.launch(c.s.Kernel.Name, k.Forward, append(args, c.s.Out...)...)
}

// normGrad launches their gradients.
func (c *cudaCall) normGrad() error {
	in := c.s.In
	x, dy, stats, scale := in[0], in[1], in[2:len(in)-1], in[len(in)-1]
	k := c.normKernel(dy)
	k.Bias = !k.RMS
	parts := k.Partials()
	args := append([]BufferID{dy, x, scale}, stats...)
	args = append(args, c.s.Out[0])
	var partial []BufferID
	for range c.s.Out[1:] {
		partial = append(partial, c.temp("parts", ir.F32, int64(parts), int64(k.Cols)))
	}
	if err := c.launch(c.s.Kernel.Name, k.Backward, append(args, partial...)...); err != nil {
		return err
	}
	for i, p := range partial {
		sum := ptx.ColReduce{Op: "sum", Outer: 1, N: parts, Inner: k.Cols, Out: ptx.Float32, Scale: 1}
		if err := c.colReduce(sum, p, c.s.Out[1+i]); err != nil {
			return err
		}
	}
	return nil
}

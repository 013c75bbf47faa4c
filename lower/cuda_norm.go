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
func (c *cudaCall) normKernel() ptx.Norm {
	rows, cols := normRows(c.n)
	out := c.n.Out[0]
	if isNormGrad(c.n) {
		out = c.n.In[1]
	}
	return ptx.Norm{Name: "k", Rows: rows, Cols: cols, In: ptx.DType(c.n.In[0].Type.DType.String()), Out: ptx.DType(out.Type.DType.String()),
		RMS: c.n.Op == ir.OpRMSNorm || c.n.Op == ir.OpRMSNormGrad, Eps: float32(c.n.Float("eps"))}
}

// norm launches layer_norm and rms_norm.
func (c *cudaCall) norm() error {
	in, out := c.s.In, c.s.Out
	k := c.normKernel()
	loads, more, stores, err := c.ends(&k, in[0], out[0])
	if err != nil {
		return err
	}
	args := append(loads, in[1])
	if k.Bias = len(in) > 2 && in[2] != None; k.Bias {
		args = append(args, in[2])
	}
	args = slices.Concat(args, more, stores, c.others())
	return c.ended(c.launch(c.s.Kernel.Name, k.Forward, args...))
}

// others are the results of a norm's row but its first: statistics, or gradients of scale and bias.
func (c *cudaCall) others() []BufferID {
	from := 1
	if c.s.Kernel.End.After != nil {
		from = 0
	}
	return c.s.Out[from : from+len(c.n.Out)-1]
}

// ended shows in the launch just emitted what it does beside its row.
func (c *cudaCall) ended(err error) error {
	if err == nil {
		c.out[len(c.out)-1].Kernel.End = c.s.Kernel.End
	}
	return err
}

// normGrad launches their gradients.
func (c *cudaCall) normGrad() error {
	in := c.s.In[:len(c.n.Def().In)]
	stats, scale := in[2:len(in)-1], in[len(in)-1]
	k := c.normKernel()
	k.Bias = !k.RMS
	loads, more, stores, err := c.ends(&k, in[1], c.s.Out[0])
	if err != nil {
		return err
	}
	parts := k.Partials()
	var partial []BufferID
	for range c.others() {
		partial = append(partial, c.temp("parts", ir.F32, int64(parts), int64(k.Cols)))
	}
	args := slices.Concat(loads, []BufferID{in[0], scale}, stats, more, stores, partial)
	if err := c.ended(c.launch(c.s.Kernel.Name, k.Backward, args...)); err != nil {
		return err
	}
	for i, p := range partial {
		sum := ptx.ColReduce{Op: "sum", Outer: 1, N: parts, Inner: k.Cols, Out: ptx.Float32, Scale: 1}
		if err := c.colReduce(sum, p, c.others()[i]); err != nil {
			return err
		}
	}
	return nil
}

package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

var normKernels = map[ir.Op]cudaKernel{
	ir.OpLayerNorm:     {(*cudaCall).norm, rowNorm, 0},
	ir.OpLayerNormGrad: {(*cudaCall).normGrad, rowNorm, 0},
	ir.OpRMSNorm:       {(*cudaCall).norm, rowNorm, 0},
	ir.OpRMSNormGrad:   {(*cudaCall).normGrad, rowNorm, 0},
}

// Norms over the last dimensions. One launch reads each row once, for its statistics and its
// result. The gradient is one launch, and one more for each sum over the rows, of which it leaves
// parts. If rows are too long for that, a second pass over x and dy computes the sums.

// rowNorm reports whether the node is a norm with f32 scale, bias and statistics.
// Others are computed in parts.
func rowNorm(n *ir.Node) bool {
	x, wide := n.In[0].Type, n.In[n.NormOperand()+1:]
	return x.Shape.Static() && x.Shape.Elements() > 0 && floatsOnly(n) && allF32(wide) && allF32(n.Out[1:])
}

// normRows returns the number of rows of a norm and their length.
func normRows(n *ir.Node) (rows, cols int) {
	d := ir.Sizes(n.In[0].Type.Shape)
	at := len(d) - int(n.Int("dims"))
	return int(lower.Count(d[:at])), int(lower.Count(d[at:]))
}

// normKernel describes the launches of a norm.
func normKernel(n *ir.Node) ptx.Norm {
	rows, cols := normRows(n)
	out, dx := n.Out[0], ptx.DType("")
	if n.Def().GradOf != ir.OpInvalid {
		out, dx = n.In[1], ptx.DType(n.Out[0].Type.DType.String())
	}
	return ptx.Norm{Name: "k", Rows: rows, Cols: cols, In: ptx.DType(n.In[0].Type.DType.String()), Out: ptx.DType(out.Type.DType.String()), DX: dx,
		RMS: n.Def().Norm.RMS, NoScale: n.Operand("scale") == nil, Eps: float32(n.Float("eps"))}
}

// norm launches layer_norm and rms_norm.
func (c *cudaCall) norm() error {
	in, out := c.s.In, c.s.Out
	k := normKernel(c.n)
	loads, more, stores, err := c.surround(&k, in[0], out[0])
	if err != nil {
		return err
	}
	var affine []lower.BufferID
	for i := range c.n.Def().In[1:] {
		if i+1 < len(c.n.In) && c.n.In[i+1] != nil {
			affine = append(affine, in[i+1])
		}
	}
	k.Bias = c.n.Operand("bias") != nil
	args := slices.Concat(loads, affine, more, stores, c.others())
	return c.shown(c.launch(c.s.Kernel.Name, k.Forward, args...))
}

// others are the results of a norm after the first: statistics, or gradients of scale and bias.
func (c *cudaCall) others() []lower.BufferID {
	from := 1
	if c.s.Kernel.Fusion.Epilogue != nil {
		from = 0
	}
	return c.s.Out[from : from+len(c.n.Out)-1]
}

// shown adds the norm's fusion to the printed form of the launch that was just emitted.
func (c *cudaCall) shown(err error) error {
	if err == nil {
		c.out[len(c.out)-1].Kernel.Fusion = c.s.Kernel.Fusion
	}
	return err
}

// normGrad launches the gradients of layer_norm and rms_norm.
func (c *cudaCall) normGrad() error {
	operands := len(c.n.Def().In)
	in := append(slices.Clone(c.s.In), lower.None)[:operands] // one operand less without a scale
	stats, scale := in[2:operands-1], in[operands-1]
	k := normKernel(c.n)
	k.Bias = !k.RMS
	loads, more, stores, err := c.surround(&k, in[1], c.s.Out[0])
	if err != nil {
		return err
	}
	parts := k.Partials()
	var partial, sums []lower.BufferID
	if parts > 0 {
		sums = c.others()
	}
	if t := c.s.Kernel.Fusion.Total; t != nil {
		sums = append(slices.Clone(sums), c.s.Out[t.Out])
	}
	for range sums {
		partial = append(partial, c.temp("parts", ir.F32, int64(parts), int64(k.Cols)))
	}
	args := slices.Concat(loads, present(in[0], scale), stats, more, stores, partial)
	if err := c.shown(c.launch(c.s.Kernel.Name, k.Backward, args...)); err != nil {
		return err
	}
	if parts == 0 && scale != lower.None {
		return c.columnSums(k, in[0], in[1], stats)
	}
	for i, p := range partial {
		sum := ptx.ColReduce{Op: "sum", Outer: 1, N: parts, Inner: k.Cols, Out: c.elem(sums[i]), Scale: 1}
		if err := c.joinParts(sum, p, sums[i]); err != nil {
			return err
		}
	}
	return nil
}

// columnSums launches the gradients of scale and bias, Σ dy·x̂ and Σ dy of every column, for rows
// that are too long for the norm's launch to leave parts.
func (c *cudaCall) columnSums(k ptx.Norm, x, dy lower.BufferID, stats []lower.BufferID) error {
	p := &channelPass{ir.NewCode(nil), &lower.Cluster{Shape: []int64{int64(k.Rows), int64(k.Cols), 1}}, c}
	hat := p.each(x)
	if !k.RMS {
		hat = p.Sub(hat, p.read(stats[0], 1, 0, 0))
	}
	d := p.each(dy)
	values := []int{int(p.Mul(d, p.Mul(hat, p.read(stats[len(stats)-1], 1, 0, 0)))), int(d)}
	parts, total, err := c.channelSums(p.cluster(), values[:len(c.others())], k.Cols, k.Rows)
	if err != nil {
		return err
	}
	for i, from := range parts {
		if err := c.joinParts(total, from, c.others()[i]); err != nil {
			return err
		}
	}
	return nil
}

package cpu

import (
	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// normKernels normalize: over the last dimensions by kern's row kernels, over channels by its
// channel norm.
var normKernels = map[ir.Op]binder{
	ir.OpLayerNorm:      bindRowNorm,
	ir.OpRMSNorm:        bindRowNorm,
	ir.OpLayerNormGrad:  bindRowNormGrad,
	ir.OpRMSNormGrad:    bindRowNormGrad,
	ir.OpBatchNorm:      bindChannelNorm,
	ir.OpGroupNorm:      bindChannelNorm,
	ir.OpInstanceNorm:   bindChannelNorm,
	ir.OpBatchNormGrad:  bindChannelNormGrad,
	ir.OpGroupNormGrad:  bindChannelNormGrad,
	ir.OpBatchNormInfer: bindBatchNormInfer,
}

// lastDims splits x into rows of the last dims dimensions.
func (c *call) lastDims(x view) (rows, cols int) {
	rows, cols = 1, 1
	d := x.dims()
	for i, n := range d {
		if i < len(d)-int(c.Int("dims")) {
			rows *= n
		} else {
			cols *= n
		}
	}
	return rows, cols
}

// named returns the operand with the row's name, absent if the node omits it.
func (c *call) named(name string) view {
	for i, o := range c.Def().In {
		if o.Name == name {
			return c.arg(i)
		}
	}
	return view{}
}

// namedOut returns the result with the row's name.
func (c *call) namedOut(name string) view {
	for i, o := range c.Def().Out {
		if o.Name == name {
			return c.res(i)
		}
	}
	return view{}
}

func bindRowNorm(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	n := &kern.Norm{RMS: c.Def().Norm.RMS, Eps: float32(c.Float("eps")), X: c.in[0].buf(), Y: c.out[0].buf(),
		Gamma: c.named("scale").buf(), Beta: c.named("bias").buf(), Mean: c.namedOut("mean").f32(), Rstd: c.namedOut("rstd").f32()}
	n.Rows, n.Cols = c.lastDims(c.in[0])
	return func() { c.m.Norm(n) }, nil
}

func bindRowNormGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	n := &kern.Norm{RMS: c.Def().Norm.RMS, X: c.in[0].buf(), DY: c.in[1].buf(), DX: c.out[0].buf(),
		Gamma: c.named("scale").buf(), Mean: c.named("mean").f32(), Rstd: c.named("rstd").f32(),
		DGamma: c.namedOut("dscale").buf(), DBeta: c.namedOut("dbias").buf()}
	if n.Rows, n.Cols = c.lastDims(c.in[0]); n.Rows*n.Cols == 0 {
		return func() {
			for _, v := range c.out {
				clear(v.mem)
			}
		}, nil
	}
	return func() { c.m.NormGrad(n) }, nil
}

// channelNorm describes a norm over channels. The row of the op says which operands it has.
func (c *call) channelNorm() *kern.ChannelNorm {
	d := c.in[0].dims()
	n := &kern.ChannelNorm{Images: d[0], ChannelsLast: c.Str("layout") == "NHWC", Space: 1, X: c.in[0].buf(), Gamma: c.named("scale").buf()}
	if n.ChannelsLast {
		n.Channels, d = d[len(d)-1], d[1:len(d)-1]
	} else {
		n.Channels, d = d[1], d[2:]
	}
	for _, k := range d {
		n.Space *= k
	}
	if c.Def().Norm.Over == ir.OverGroups {
		n.Groups = int(c.GroupCount())
	}
	return n
}

// normEpilogue describes the epilogue of a channel norm.
func (c *call) normEpilogue(n *kern.ChannelNorm) {
	n.Beta, n.Y, n.Eps = c.named("bias").buf(), c.out[0].buf(), c.Float("eps")
	if n.Relu = c.end.Relu; c.end.Residual > 0 {
		n.Residual = c.in[c.end.Residual].buf()
	}
	if !c.copy.absent() {
		n.Copy = c.copy.buf()
	}
}

func bindChannelNorm(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	n := c.channelNorm()
	c.normEpilogue(n)
	n.Mean, n.Rstd, n.Var = c.namedOut("mean").f32(), c.namedOut("rstd").f32(), make([]float32, n.Stats())
	newMean, newVar := c.namedOut("new_mean"), c.namedOut("new_var")
	if newMean.absent() {
		return func() { c.m.ChannelNorm(n) }, nil
	}
	oldMean, oldVar, momentum := c.named("running_mean"), c.named("running_var"), float32(c.Float("momentum"))
	size := float64(n.Images * n.Space)
	return func() {
		c.m.ChannelNorm(n)
		for ch := range n.Channels {
			unbiased := n.Var[ch] * float32(size/max(size-1, 1))
			newMean.set(ch, oldMean.float(ch)+float32(momentum*(n.Mean[ch]-oldMean.float(ch))))
			newVar.set(ch, oldVar.float(ch)+float32(momentum*(unbiased-oldVar.float(ch))))
		}
	}, nil
}

func bindChannelNormGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	n := c.channelNorm()
	n.Mean, n.Rstd = c.named("mean").f32(), c.named("rstd").f32()
	if c.end.Sign > 0 {
		n.Sign = c.in[c.end.Sign].buf()
	}
	n.DY, n.DX, n.DGamma, n.DBeta = c.in[1].buf(), c.out[0].buf(), c.namedOut("dscale").buf(), c.namedOut("dbias").buf()
	return func() { c.m.ChannelNormGrad(n) }, nil
}

func bindBatchNormInfer(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	n := c.channelNorm()
	c.normEpilogue(n)
	mean, variance := c.named("mean"), c.named("var")
	n.Mean, n.Var, n.Rstd = make([]float32, n.Channels), make([]float32, n.Channels), make([]float32, n.Channels)
	return func() {
		c.m.Load(n.Mean, mean.buf())
		c.m.Load(n.Var, variance.buf())
		c.m.ChannelNormGiven(n)
	}, nil
}

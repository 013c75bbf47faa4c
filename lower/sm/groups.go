package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

var groupsKernels = map[ir.Op]cudaKernel{
	ir.OpGroupNorm:     {(*cudaCall).groupNorm, groupedNorm, 0},
	ir.OpGroupNormGrad: {(*cudaCall).groupNormGrad, groupedNorm, 0},
	ir.OpInstanceNorm:  {(*cudaCall).groupNorm, groupedNorm, 0},
}

// A norm over groups of channels is a norm over rows. One launch computes its result with the
// following sum and ReLU, one its gradient. The gradients of scale and bias are a separate pass
// over x and dy.

// groupedNorm reports whether the node is a norm, or its gradient, of f32 or 16-bit
// images whose other operands are f32.
func groupedNorm(n *ir.Node) bool {
	return channelSizes(n) && allF32(n.In[n.NormOperand()+1:]) && allF32(n.Out[1:])
}

// grouped is the layout of the groups of a norm in its images.
type grouped struct {
	n, groups, per, positions int64 // images, groups of an image, channels of a group
	last                      bool  // channels are the last dimension
}

func (c *cudaCall) grouped() grouped {
	d := ir.Sizes(c.n.In[0].Type.Shape)
	g := grouped{n: d[0], last: c.n.Str("layout") == "NHWC"}
	channels := d[1]
	if g.positions = lower.Count(d[2:]); g.last {
		channels, g.positions = d[len(d)-1], lower.Count(d[1:len(d)-1])
	}
	g.groups = int64(c.n.GroupCount())
	g.per = channels / g.groups
	return g
}

// norm is the kernel of a norm over rows; each group is a row.
func (g grouped) norm(c *cudaCall) ptx.Norm {
	k := ptx.Norm{Name: "k", Rows: int(g.n * g.groups), Cols: int(g.per * g.positions), Eps: float32(c.n.Float("eps")),
		In: ptx.DType(c.n.In[0].Type.DType.String()), NoScale: c.n.Operand("scale") == nil, Bias: c.n.Operand("bias") != nil}
	k.Shape, k.PerRow = []int64{g.n, g.groups, g.per, g.positions}, []int64{0, g.per, 1, 0}
	if g.last {
		k.Shape, k.PerRow = []int64{g.n, g.groups, g.positions, g.per}, []int64{0, g.per, 0, 1}
		k.Stride = []int64{g.positions * g.groups * g.per, g.per, g.groups * g.per, 1}
	} else {
		k.Stride = ir.RowMajor(k.Shape)
	}
	return k
}

// after is the epilogue of a norm, and its arguments.
func (g grouped) after(c *cudaCall, k *ptx.Norm) (loads, stores []lower.BufferID, err error) {
	fusion, out := c.s.Kernel.Fusion, c.s.Out
	p := &lower.Cluster{Shape: k.Shape, Loads: []lower.Access{{DType: ir.F32, Strides: k.Stride}}}
	code := ir.NewCode(nil)
	y := load(code, 0, ir.F32)
	if fusion.Residual > 0 {
		p.Loads = append(p.Loads, c.walk(c.s.In[fusion.Residual], 0, k.Stride...))
		y = code.Add(y, load(code, 1, p.Loads[1].DType))
	}
	if fusion.Relu {
		y = code.Max(y, code.F(0))
	}
	stores = []lower.BufferID{out[0]}
	if fusion.Copy > 0 {
		stores = append(stores, out[fusion.Copy])
	}
	for _, id := range stores {
		a := c.walk(id, 0, k.Stride...)
		a.Reg = y
		p.Stores = append(p.Stores, a)
	}
	p.Code = code.Ins
	pg, err := c.ptxElementwise(p)
	if err != nil {
		return nil, nil, err
	}
	for i := range pg.Loads {
		pg.Loads[i].Name = "m" + pg.Loads[i].Name
	}
	k.After, k.Out = &pg, ptx.Float32
	return buffersOf(p.Loads[1:]), stores, nil
}

func present(ids ...lower.BufferID) []lower.BufferID {
	return slices.DeleteFunc(ids, func(id lower.BufferID) bool { return id == lower.None })
}

// groupNorm launches group_norm and instance_norm.
func (c *cudaCall) groupNorm() error {
	g := c.grouped()
	k := g.norm(c)
	more, stores, err := g.after(c, &k)
	if err != nil {
		return err
	}
	in := append(slices.Clone(c.s.In), lower.None, lower.None)
	args := slices.Concat(present(in[0], in[1], in[2]), more, stores, c.s.Out[1:3])
	return c.launch(c.s.Kernel.Name, k.Forward, args...)
}

// groupNormGrad launches dx, and a pass for the gradients of scale and bias.
func (c *cudaCall) groupNormGrad() error {
	g, in, out := c.grouped(), append(slices.Clone(c.s.In), lower.None), c.s.Out
	k := g.norm(c)
	more, stores, err := g.after(c, &k)
	if err != nil {
		return err
	}
	k.Out = c.elem(in[1])
	args := slices.Concat([]lower.BufferID{in[1], in[0]}, present(in[4]), in[2:4], more, stores)
	if err := c.launch(c.s.Kernel.Name, k.Backward, args...); err != nil || len(out) < 2 {
		return err
	}
	return c.groupSums(g, in, out[1:])
}

// groupSums launches Σ dy·x̂ and, where it is asked for, Σ dy of every channel.
func (c *cudaCall) groupSums(g grouped, in, out []lower.BufferID) error {
	channels := g.groups * g.per
	shape, of := []int64{g.n, channels, g.positions}, []int64{channels, 1, 0} // of: strides of what each channel of an image has
	if g.last {
		shape, of = []int64{g.n, g.positions, channels, 1}, []int64{channels, 0, 1, 0}
	}
	p := &channelPass{ir.NewCode(nil), &lower.Cluster{Shape: shape}, c}
	var stats [2]ir.Reg
	for i, id := range in[2:4] {
		each, err := c.eachChannel(g, id)
		if err != nil {
			return err
		}
		stats[i] = p.read(each, of...)
	}
	dy := p.each(in[1])
	values := []int{int(p.Mul(dy, p.Mul(p.Sub(p.each(in[0]), stats[0]), stats[1])))}
	if len(out) > 1 {
		values = append(values, int(dy))
	}
	parts, total, err := c.channelSums(p.cluster(), values, int(channels), int(g.n*g.positions))
	if err != nil {
		return err
	}
	for i, from := range parts {
		if err := c.joinParts(total, from, out[i]); err != nil {
			return err
		}
	}
	return nil
}

// eachChannel writes a statistic of groups out for every channel of every image.
func (c *cudaCall) eachChannel(g grouped, stat lower.BufferID) (lower.BufferID, error) {
	if g.per == 1 {
		return stat, nil
	}
	shape := []int64{g.n, g.groups, g.per}
	each := c.temp("channels", ir.F32, shape...)
	return each, c.copyBetween(c.walk(stat, 0, g.groups, 1, 0), c.walk(each, 0, ir.RowMajor(shape)...), shape)
}

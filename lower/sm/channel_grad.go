package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

var channelGradKernels = map[ir.Op]cudaKernel{
	ir.OpBatchNormGrad: {(*cudaCall).batchNormGrad, channelGrad, 0},
}

// The gradient of a batch norm takes three launches. The first reads x and dy and sums parts of
// every channel, the second adds up these parts, the third is an elementwise pass. Each operand and
// result has its own dtype. The elementwise nodes that compute dy, and a second norm with the same
// dy, run in the same launches (ir.NormFusion).

// channelGrad reports whether the node is a gradient with a scale and f32
// statistics.
func channelGrad(n *ir.Node) bool {
	return channelSizes(n) && len(n.In) == 5 && n.In[4] != nil && len(n.Out) == len(n.Def().Out) && allF32(n.In[2:]) && allF32(n.Out[1:])
}

// normsWithRelu finds the batch norms of micro whose epilogue is a ReLU without a sum. Their results
// can be computed again from x.
func normsWithRelu(p *lower.Program) map[lower.BufferID]*lower.Step {
	list := map[lower.BufferID]*lower.Step{}
	for i := range p.Parts[lower.Micro] {
		s := &p.Parts[lower.Micro][i]
		if s.Kind != lower.KindKernel || s.Kernel.Node.Op != ir.OpBatchNorm {
			continue
		}
		f := s.Kernel.Fusion
		if !f.Relu || f.Residual > 0 || f.Beside != nil {
			continue
		}
		list[p.Buffers[s.Out[0]].Root] = s
		if f.Copy > 0 {
			list[p.Buffers[s.Out[f.Copy]].Root] = s
		}
	}
	return list
}

// channelGrads are the launches for the gradients with a common dy.
type channelGrads struct {
	*cudaCall
	norms  []*lower.Step
	before *lower.Cluster // computes dy; nil: dy is in memory
	kept   lower.BufferID // where the second pass reads dy; None: it computes dy again
	stores bool           // the first pass stores dy in kept, which only the second one reads
	k      ptx.Channels
}

// batchNormGrad launches the sums of every channel, the sum of their parts, and dx.
func (c *cudaCall) batchNormGrad() error {
	f := c.s.Kernel.Fusion
	g := &channelGrads{cudaCall: c, norms: []*lower.Step{c.s}, before: f.Prologue, kept: c.s.In[1], k: c.images()}
	if f.Beside != nil {
		g.norms = append(g.norms, f.Beside.Step(c.s))
	}
	if g.before != nil {
		g.keep(f.Made)
	}
	if err := g.sums(); err != nil {
		return err
	}
	return c.cluster(g.results())
}

// keep decides where the second pass reads dy, register made of the prologue. If other steps read
// dy, it is in memory already. Otherwise the first pass stores it in a buffer of its own if writing
// and reading dy moves fewer bytes than reading the prologue's operands. If not, the second pass
// computes dy again.
func (g *channelGrads) keep(made ir.Reg) {
	b := g.before
	if i := slices.IndexFunc(b.Stores, func(a lower.Access) bool { return a.Reg == made && a.DType == g.dtype() }); i >= 0 {
		g.kept = b.Stores[i].Buffer
		return
	}
	n := g.elements(g.s.In[0])
	cost := -2 * n * g.dtype().Size()
	for k, a := range b.Loads {
		switch {
		case a.Spread != nil:
			cost += g.p.Buffers[a.Buffer].Size
		case a.Buffer != g.s.In[0] && !a.Again && g.signsFor(k) == lower.None:
			cost += n * a.DType.Size()
		}
	}
	if g.kept = lower.None; cost > 0 {
		g.kept, g.stores = g.temp("dy", g.dtype(), g.dims(g.s.In[0])...), true
	}
}

// dtype is the dtype of dy.
func (g *channelGrads) dtype() ir.DType { return g.n.In[1].Type.DType }

// dy is the gradient that all norms read.
func (g *channelGrads) dy(p *channelPass, first bool) ir.Reg {
	b := g.before
	if b == nil || !first && g.kept != lower.None {
		return p.each(g.kept)
	}
	regs := make([]ir.Reg, len(b.Code))
	for i, in := range b.Code {
		if k := comparesSign(b, in); k >= 0 && g.signsFor(k) != lower.None {
			regs[i] = p.bits(g.signsFor(k))
			continue
		}
		if in.Op == ir.PIn {
			if g.signsFor(int(in.Int)) == lower.None {
				regs[i] = g.loaded(p, int(in.Int))
			}
			continue
		}
		in.A, in.B, in.C = regs[in.A], regs[in.B], regs[in.C]
		if in.Op == ir.PRound && p.holds(in.A, in.To) {
			regs[i] = in.A
			continue
		}
		regs[i] = p.Emit(in)
	}
	made := regs[g.s.Kernel.Fusion.Made]
	if first {
		for _, a := range b.Stores {
			p.store(regs[a.Reg], a.Buffer)
		}
		if g.stores {
			p.store(made, g.kept)
		}
	}
	return made
}

// loaded is load k of the code that computes dy: of images in memory, of images that are sums of
// outputs of windows, or the result of a norm and its ReLU, computed again from x, which the pass reads
// in any case.
func (g *channelGrads) loaded(p *channelPass, k int) ir.Reg {
	a := &g.before.Loads[k]
	if a.Spread != nil {
		return p.rounded(p.spread(g.before, k), a.DType)
	}
	if f := g.relu[g.p.Buffers[a.Buffer].Root]; f != nil && a.Again {
		return p.rounded(p.Max(p.norm(channelStats{f, f.Out[1], f.Out[2]}), p.F(0)), a.DType)
	}
	return p.each(a.Buffer)
}

// sums launches the first pass and the sum of its parts: Σ dy, and Σ dy·x̂ for every norm.
func (g *channelGrads) sums() error {
	p := g.channelPass(g.k)
	dy := g.dy(p, true)
	values := []int{int(dy)}
	for _, s := range g.norms {
		values = append(values, int(p.Mul(dy, p.hat(s.In[0], s.In[2], s.In[3]))))
	}
	parts, total, err := g.channelSums(p.cluster(), values, g.k.C, g.k.Outer*g.k.Inner)
	if err != nil {
		return err
	}
	for i, s := range g.norms {
		for k, from := range []lower.BufferID{parts[1+i], parts[0]} {
			if err := g.joinParts(total, from, s.Out[1+k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// channelSums launches the sums of values of a cluster over the elements of every
// channel, in parts that total adds up.
func (c *cudaCall) channelSums(g *lower.Cluster, values []int, channels, each int) (parts []lower.BufferID, total ptx.ColReduce, err error) {
	pg, err := c.ptxElementwise(g)
	if err != nil {
		return nil, total, err
	}
	kernel := ptx.ChannelSum{Elementwise: pg, Sums: values, Split: 1}
	blocks, err := kernel.Blocks(c.fl)
	if err != nil {
		return nil, total, err
	}
	kernel.Split = c.channelParts(blocks, each)
	args := append(buffersOf(g.Loads), buffersOf(g.Stores)...)
	for range values {
		parts = append(parts, c.temp("parts", ir.F32, int64(kernel.Split), int64(channels)))
	}
	total = ptx.ColReduce{Op: "sum", Outer: 1, N: kernel.Split, Inner: channels, Out: ptx.Float32, Scale: 1}
	if err := c.launch("channel_sums", kernel.Build, append(args, parts...)...); err != nil {
		return nil, total, err
	}
	k := c.out[len(c.out)-1].Kernel
	k.Fusion.Prologue = g
	for _, r := range values {
		k.Sums = append(k.Sums, ir.Reg(r))
	}
	return parts, total, nil
}

func ceil(a, b int) int { return (a + b - 1) / b }

// results is dx = rstd·scale·(dy − dbias/n − x̂·dscale/n) for every norm.
func (g *channelGrads) results() *lower.Cluster {
	p := g.channelPass(g.k)
	share := p.F(1 / float64(g.k.Outer*g.k.Inner)) // weight of an element in its channel's mean
	dy := g.dy(p, false)
	for _, s := range g.norms {
		hat := p.hat(s.In[0], s.In[2], s.In[3])
		inner := p.Sub(dy, p.Mul(p.channel(s.Out[2]), share))
		inner = p.Sub(inner, p.Mul(hat, p.Mul(p.channel(s.Out[1]), share)))
		p.store(p.Mul(p.Mul(p.channel(s.In[3]), p.channel(s.In[4])), inner), s.Out[0])
	}
	return p.cluster()
}

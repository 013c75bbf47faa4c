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

// The gradient of a batch norm is a pass over x and dy for the sums of every
// channel, in parts that a launch for each adds up, and one elementwise pass.
// Each operand and result has a dtype of its own. The elementwise step that
// makes dy is done on the way, and a second norm of the same dy in the same passes.

// channelGrad reports whether the node is a gradient with a scale and f32
// statistics.
func channelGrad(n *ir.Node) bool {
	return channelSizes(n) && len(n.In) == 5 && n.In[4] != nil && len(n.Out) == len(n.Def().Out) && allF32(n.In[2:]) && allF32(n.Out[1:])
}

// channelJoin is the work that is joined with the gradient of a batch norm.
type channelJoin struct {
	sibling *lower.Step    // another norm's gradient of the same dy
	before  *lower.Cluster // makes dy
	kept    []int          // its stores that others read, or the second pass does
}

// channelJoins are the joins of the part micro.
type channelJoins struct {
	*stepJoins
	joins  map[*lower.Step]*channelJoin
	done   map[*lower.Step]bool           // steps that others do
	inline map[lower.BufferID]*lower.Step // by result: batch norms that the norm they are added to computes
	relu   map[lower.BufferID]*lower.Step // by result: batch norms that end in a ReLU and no sum
	rstd   map[*lower.Step]lower.BufferID // of norms with given statistics, as they are launched
}

// joinChannels finds the steps that the passes of batch norms include.
func joinChannels(p *lower.Program) *channelJoins {
	e := &channelJoins{joinsOf(p), map[*lower.Step]*channelJoin{}, map[*lower.Step]bool{}, map[lower.BufferID]*lower.Step{}, map[lower.BufferID]*lower.Step{}, map[*lower.Step]lower.BufferID{}}
	for i := range e.steps {
		s := &e.steps[i]
		if s.Kind != lower.KindKernel || s.Out[0] == lower.None || e.done[s] {
			continue
		}
		switch s.Kernel.Node.Op {
		case ir.OpBatchNorm, ir.OpBatchNormInfer:
			e.forward(i)
		case ir.OpBatchNormGrad:
			j := &channelJoin{sibling: e.sibling(i)}
			e.joins[s] = j
			e.before(i, j)
		}
	}
	return e
}

// forward notes a norm whose result can be computed again from its operand.
func (e *channelJoins) forward(i int) {
	s := &e.steps[i]
	end := s.Kernel.Fusion
	switch {
	case end.Residual > 0:
	case end.Relu && s.Kernel.Node.Op == ir.OpBatchNorm:
		e.relu[e.root(s.Out[0])] = s
		if end.Copy > 0 {
			e.relu[e.root(s.Out[end.Copy])] = s
		}
	case end == lower.NormFusion{}:
		j := e.reader(s.Out[0])
		if j == elsewhere || !e.untouched(i, j) || e.steps[j].Kind != lower.KindKernel || e.steps[j].Kernel.Node.Op != s.Kernel.Node.Op {
			return
		}
		if r := e.steps[j].Kernel.Fusion.Residual; r > 0 && e.steps[j].In[r] == s.Out[0] && e.steps[j].In[0] != s.In[0] {
			e.inline[s.Out[0]] = s
		}
	}
}

// sibling is the gradient of another norm with the dy of step i, if it can run as
// early.
func (e *channelJoins) sibling(i int) *lower.Step {
	dy := e.steps[i].In[1]
	for _, j := range e.read[e.root(dy)] {
		if j <= i {
			continue
		}
		s := &e.steps[j]
		if s.Kind == lower.KindKernel && s.Kernel.Node.Op == ir.OpBatchNormGrad && s.In[1] == dy && s.In[0] != e.steps[i].In[0] && !slices.Contains(s.In, e.steps[i].Out[0]) &&
			s.Kernel.Node.Str("layout") == e.steps[i].Kernel.Node.Str("layout") && e.movable(j, i+1, j) {
			e.done[s] = true
			return s
		}
	}
	return nil
}

// before finds the elementwise step that computes the dy of step j. The first pass
// includes it, and the second pass, too, if its operands are no larger than dy.
func (e *channelJoins) before(j int, join *channelJoin) {
	s := &e.steps[j]
	dy := s.In[1]
	i := slices.IndexFunc(e.steps[:j], func(t lower.Step) bool { return slices.Contains(t.Out, dy) })
	if i < 0 || e.done[&e.steps[i]] || e.steps[i].Kind != lower.KindCluster || len(e.steps[i].More) > 0 || !e.dense(e.steps[i].Cluster, s) || !e.untouched(i, j) {
		return
	}
	g := e.steps[i].Cluster
	cost := -2 * e.p.Buffers[dy].Type.DType.Size()
	for _, a := range g.Loads {
		if slices.Contains(e.steps[i].Out, a.Buffer) {
			return // in place
		}
		if !e.known(a.Buffer, s) {
			cost += a.DType.Size()
		}
	}
	for k, a := range g.Stores {
		if others := e.others(a.Buffer, s, join.sibling); others || a.Buffer == dy && cost > 0 {
			join.kept = append(join.kept, k)
		}
	}
	join.before = g
	e.done[&e.steps[i]] = true
}

// known reports whether the images in a buffer can be computed from operands that
// the gradient s reads anyway.
func (e *channelJoins) known(id lower.BufferID, s *lower.Step) bool {
	f := e.relu[e.root(id)]
	return id == s.In[0] || f != nil && f.In[0] == s.In[0] && f.Out[1] == s.In[2] && f.Out[2] == s.In[3]
}

// isRead reports whether any step or the caller reads a buffer.
func (e *channelJoins) isRead(id lower.BufferID) bool { return len(e.read[e.root(id)]) > 0 }

// others reports whether anything but the gradients a and b reads a buffer.
func (e *channelJoins) others(id lower.BufferID, a, b *lower.Step) bool {
	return slices.ContainsFunc(e.read[e.root(id)], func(i int) bool { return i == elsewhere || &e.steps[i] != a && &e.steps[i] != b })
}

// channelGrads is one emission: the gradients of one dy.
type channelGrads struct {
	*cudaCall
	join  *channelJoin
	norms []*lower.Step
	k     ptx.Channels
}

// batchNormGrad launches the sums of every channel, the sum of their parts, and dx.
func (c *cudaCall) batchNormGrad() error {
	g := &channelGrads{c, c.channels.joins[c.s], []*lower.Step{c.s}, c.images()}
	if g.join == nil { // not of micro
		g.join = &channelJoin{}
	}
	if g.join.sibling != nil {
		g.norms = append(g.norms, g.join.sibling)
	}
	if err := g.sums(); err != nil {
		return err
	}
	return c.cluster(g.results())
}

// dy is the gradient that all norms read.
func (g *channelGrads) dy(p *channelPass, first bool) ir.Reg {
	id, b := g.s.In[1], g.join.before
	if b == nil {
		return p.each(id)
	}
	own := slices.IndexFunc(b.Stores, func(a lower.Access) bool { return a.Buffer == id })
	if !first && slices.Contains(g.join.kept, own) {
		return p.each(id)
	}
	regs := make([]ir.Reg, len(b.Code))
	for i, in := range b.Code {
		if in.Op == ir.PIn {
			regs[i] = g.operand(p, b.Loads[in.Int].Buffer)
			continue
		}
		in.A, in.B, in.C = regs[in.A], regs[in.B], regs[in.C]
		regs[i] = p.Emit(in)
	}
	if first {
		for _, k := range g.join.kept {
			p.store(regs[b.Stores[k].Reg], b.Stores[k].Buffer)
		}
	}
	return p.rounded(regs[b.Stores[own].Reg], g.typeOf(id).DType)
}

// operand is an operand of the code that computes dy: images in memory, or the
// result of a norm and its ReLU, computed again from the x that is read anyway.
func (g *channelGrads) operand(p *channelPass, id lower.BufferID) ir.Reg {
	e := g.channels
	if f := e.relu[e.root(id)]; f != nil && e.known(id, g.s) {
		return p.rounded(p.Max(p.norm(f), p.F(0)), g.typeOf(id).DType)
	}
	return p.each(id)
}

// sums launches the first pass and the sum of its parts: Σ dy, and Σ dy·x̂ of every
// norm.
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
			if err := g.colReduce(total, from, s.Out[1+k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// channelRounds is the least number of iterations of a block of the first pass.
const channelRounds = 16

// channelSums launches the sums of values of a cluster over the elements of every
// channel, in parts that total adds up.
func (c *cudaCall) channelSums(g *lower.Cluster, values []int, channels, each int) (parts []lower.BufferID, total ptx.ColReduce, err error) {
	pg, err := c.ptxElementwise(g)
	if err != nil {
		return nil, total, err
	}
	kernel := ptx.ChannelSum{Elementwise: pg, Sums: values, Split: 1}
	across, step, err := kernel.Blocks(c.fl)
	if err != nil {
		return nil, total, err
	}
	part := ceil(each, max(1, min(channelBlocks/across, each/(channelRounds*step)))) // as many as fill the device, none of little work
	kernel.Split = ceil(each, part)                                                  // none is empty
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

// results is dx = rstd·scale·(dy − dbias/n − x̂·dscale/n) of every norm.
func (g *channelGrads) results() *lower.Cluster {
	p := g.channelPass(g.k)
	share := p.F(1 / float64(g.k.Outer*g.k.Inner)) // of an element in its channel
	dy := g.dy(p, false)
	for _, s := range g.norms {
		hat := p.hat(s.In[0], s.In[2], s.In[3])
		inner := p.Sub(dy, p.Mul(p.channel(s.Out[2]), share))
		inner = p.Sub(inner, p.Mul(hat, p.Mul(p.channel(s.Out[1]), share)))
		p.store(p.Mul(p.Mul(p.channel(s.In[3]), p.channel(s.In[4])), inner), s.Out[0])
	}
	return p.cluster()
}

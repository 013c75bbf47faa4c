package sm

import (
	"math"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

var channelsKernels = map[ir.Op]cudaKernel{
	ir.OpBatchNorm:      {(*cudaCall).batchNorm, channelNorm, 0},
	ir.OpBatchNormInfer: {(*cudaCall).batchNormInfer, channelNorm, 0},
}

// A batch norm takes three launches. The first computes moments of parts of every channel, the
// second combines them and updates the running statistics, the third is an elementwise pass.

// channelNorm reports whether the node is a norm of f32 or 16-bit images whose
// other operands are f32.
func channelNorm(n *ir.Node) bool {
	return channelSizes(n) && allF32(n.In[1:]) && allF32(n.Out[1:])
}

func channelSizes(n *ir.Node) bool {
	x := n.In[0].Type
	return x.Shape.Static() && x.Shape.Elements() > 0 && x.Shape.Elements() <= math.MaxInt32 && floatsOnly(n)
}

// allF32 reports whether all values that are not absent are f32.
func allF32(list []*ir.Value) bool {
	return !slices.ContainsFunc(list, func(v *ir.Value) bool { return v != nil && v.Type.DType != ir.F32 })
}

// channelRounds is the least number of iterations of a block in a pass over channels.
const channelRounds = 8

// channelParts divides each elements of a channel into parts: enough for one wave on a large GPU, none
// with little work, and none empty.
func (c *cudaCall) channelParts(k ptx.Channeled, each int) int {
	part := ceil(each, max(1, min(k.Resident*c.fl.Multiprocessors()/k.Across, each/(channelRounds*k.Step))))
	return ceil(each, part)
}

// images views the images of a batch norm, divided into parts by the amount of
// work.
func (c *cudaCall) images() ptx.Channels {
	d := c.dims(c.s.In[0])
	k := ptx.Channels{Name: "k", Outer: int(d[0]), C: int(d[1]), Inner: int(lower.Count(d[2:])), In: c.elem(c.s.In[0])}
	if c.n.Str("layout") == "NHWC" {
		last := len(d) - 1
		k.Outer, k.C, k.Inner = int(lower.Count(d[:last])), int(d[last]), 1
	}
	each := k.Outer * k.Inner
	k.Split = c.channelParts(k.Blocks(), each)
	k.Split = ceil(each, k.Part())
	return k
}

// channelStats is a norm over channels with the buffers of its statistics.
type channelStats struct {
	s          *lower.Step
	mean, rstd lower.BufferID
}

// withAdded calls launch for the norm, then for the one whose result its epilogue adds.
func (c *cudaCall) withAdded(launch func(c *cudaCall) (channelStats, error)) (own channelStats, added *channelStats, err error) {
	if own, err = launch(c); err != nil || c.s.Kernel.Fusion.Beside == nil {
		return own, nil, err
	}
	s := c.s.Kernel.Fusion.Beside.Step(c.s)
	other, err := launch(&cudaCall{c.cudaLowerer, s, s.Kernel.Node})
	return own, &other, err
}

// batchNorm launches the moments of every channel and the pass that uses them.
func (c *cudaCall) batchNorm() error {
	own, added, err := c.withAdded((*cudaCall).moments)
	if err != nil || c.s.Kernel.Fusion.Unstored {
		return err
	}
	return c.cluster(c.normalized(own, added))
}

// moments launches the moments of every channel.
func (c *cudaCall) moments() (channelStats, error) {
	k, in, stats := c.images(), c.s.In, c.s.Out[1:]
	switch fusion := c.s.Kernel.Fusion; {
	case fusion.Copy > 0:
		stats = stats[:fusion.Copy-1]
	case fusion.Beside != nil:
		stats = stats[:fusion.Beside.Out[1]-1]
	case fusion.Signs > 0:
		stats = stats[:fusion.Signs-1]
	}
	mean := c.temp("means", ir.F32, int64(k.Split), int64(k.C))
	squares := c.temp("squares", ir.F32, int64(k.Split), int64(k.C))
	if err := c.launch("channel_moments", k.Moments, in[0], mean, squares); err != nil {
		return channelStats{}, err
	}
	merge := ptx.Merge{Channels: k, Eps: float32(c.n.Float("eps")), Momentum: float32(c.n.Float("momentum")), Running: len(stats) > 2}
	args := []lower.BufferID{mean, squares}
	if merge.Running {
		args = append(args, in[3:5]...)
	}
	return channelStats{c.s, stats[0], stats[1]}, c.launch("channel_stats", merge.Build, append(args, stats...)...)
}

// batchNormInfer launches the reciprocal deviations of every channel and the pass
// that uses them.
func (c *cudaCall) batchNormInfer() error {
	own, added, err := c.withAdded((*cudaCall).deviations)
	if err != nil {
		return err
	}
	return c.cluster(c.normalized(own, added))
}

// deviations launches the reciprocal deviations of every channel.
func (c *cudaCall) deviations() (channelStats, error) {
	variance := c.s.In[4]
	rstd := c.temp("rstd", ir.F32, c.dims(variance)...)
	code := ir.NewCode(nil)
	v := load(code, 0, ir.F32)
	r := code.Div(code.F(1), code.Sqrt(code.Add(v, code.F(c.n.Float("eps")))))
	store := c.walk(rstd, 0, 1)
	store.Reg = r
	g := &lower.Cluster{Shape: c.dims(variance), Code: code.Ins, Loads: []lower.Access{c.walk(variance, 0, 1)}, Stores: []lower.Access{store}}
	return channelStats{c.s, c.s.In[3], rstd}, c.cluster(g)
}

// normalized is y = (x − mean)·rstd·scale + bias, with the epilogue of the norm.
func (c *cudaCall) normalized(own channelStats, added *channelStats) *lower.Cluster {
	p, in, out := c.channelPass(c.images()), c.s.In, c.s.Out
	y := p.norm(own)
	fusion := c.s.Kernel.Fusion
	switch {
	case added != nil:
		y = p.Add(y, p.rounded(p.norm(*added), fusion.Beside.Node.Out[0].Type.DType))
	case fusion.Residual > 0:
		y = p.Add(y, p.each(in[fusion.Residual]))
	}
	if fusion.Relu {
		y = p.Max(y, p.F(0))
	}
	stored := []int{0}
	if fusion.Copy > 0 {
		stored = append(stored, fusion.Copy)
	}
	for _, i := range stored {
		p.store(y, out[i])
		if fusion.Signs > 0 && fusion.SignsOf == i {
			c.storeSigns(p, y, out[i], out[fusion.Signs])
		}
	}
	return p.cluster()
}

// channelPass is the code of an elementwise pass over images that also reads values
// of each channel.
type channelPass struct {
	*ir.Code
	*lower.Cluster
	c *cudaCall
}

func (c *cudaCall) channelPass(k ptx.Channels) *channelPass {
	return &channelPass{ir.NewCode(nil), &lower.Cluster{Shape: []int64{int64(k.Outer), int64(k.C), int64(k.Inner)}}, c}
}

// read loads a buffer once for all its uses.
func (p *channelPass) read(id lower.BufferID, strides ...int64) ir.Reg {
	at := slices.IndexFunc(p.Loads, func(a lower.Access) bool { return a.Buffer == id })
	if at < 0 {
		at = len(p.Loads)
		p.Loads = append(p.Loads, p.c.walk(id, 0, strides...))
	}
	return load(p.Code, at, p.c.typeOf(id).DType)
}

// each loads an element of images, channel the number of its channel.
func (p *channelPass) each(id lower.BufferID) ir.Reg    { return p.read(id, ir.RowMajor(p.Shape)...) }
func (p *channelPass) channel(id lower.BufferID) ir.Reg { return p.read(id, 0, 1, 0) }

// hat is (x − mean)·rstd.
func (p *channelPass) hat(x, mean, rstd lower.BufferID) ir.Reg {
	return p.Mul(p.Sub(p.each(x), p.channel(mean)), p.channel(rstd))
}

// norm is the result of batch_norm or batch_norm_infer.
func (p *channelPass) norm(n channelStats) ir.Reg {
	s := n.s
	y := p.hat(s.In[0], n.mean, n.rstd)
	if len(s.In) > 1 && s.In[1] != lower.None {
		y = p.Mul(y, p.channel(s.In[1]))
	}
	if len(s.In) > 2 && s.In[2] != lower.None {
		y = p.Add(y, p.channel(s.In[2]))
	}
	return y
}

// rounded is r rounded to d, as if it were stored and read again.
func (p *channelPass) rounded(r ir.Reg, d ir.DType) ir.Reg {
	if d == ir.F32 || p.holds(r, d) {
		return r
	}
	return p.Round(r, d)
}

// holds reports whether all values of a register are representable in d: it is an element of dtype
// d, or a choice between such registers.
func (p *channelPass) holds(r ir.Reg, d ir.DType) bool {
	switch i := &p.Code.Ins[r]; i.Op {
	case ir.PIn:
		return p.Loads[i.Int].DType == d
	case ir.PConst:
		return i.Imm == 0
	case ir.PSelect:
		return p.holds(i.B, d) && p.holds(i.C, d)
	}
	return false
}

// store adds a store of r to a buffer of images.
func (p *channelPass) store(r ir.Reg, id lower.BufferID) {
	store := p.c.walk(id, 0, ir.RowMajor(p.Shape)...)
	store.Reg = r
	p.Stores = append(p.Stores, store)
}

// cluster is the pass as a cluster.
func (p *channelPass) cluster() *lower.Cluster {
	p.Cluster.Code = p.Ins
	return p.Cluster
}

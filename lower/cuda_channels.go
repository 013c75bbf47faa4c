package lower

import (
	"math"
	"slices"

	"ampc/ir"
	"ampc/ptx"
)

// A batch norm is a pass over x for the moments of every channel, in parts, a
// launch that joins those and moves the running statistics, and one elementwise
// pass. Its gradient is a pass over x and dy for the sums of every channel, in
// parts that a launch for each adds up, and one elementwise pass.

// channelNorm takes norms of what is f32 or lower, the rest f32.
func channelNorm(n *ir.Node) bool {
	return channelSizes(n) && allF32(n.In[1:]) && allF32(n.Out[1:])
}

// channelGrad takes gradients with a scale, x and dy of one dtype and the rest f32.
func channelGrad(n *ir.Node) bool {
	return channelSizes(n) && len(n.In) == 5 && n.In[4] != nil && len(n.Out) == len(n.Def().Out) &&
		n.In[1].Type.DType == n.In[0].Type.DType && allF32(n.In[2:]) && allF32(n.Out[1:])
}

func channelSizes(n *ir.Node) bool {
	x := n.In[0].Type
	return x.Shape.Static() && x.Shape.Elements() > 0 && x.Shape.Elements() <= math.MaxInt32 && floatsOnly(n)
}

// allF32 reports whether all values that are there are f32.
func allF32(list []*ir.Value) bool {
	return !slices.ContainsFunc(list, func(v *ir.Value) bool { return v != nil && v.Type.DType != ir.F32 })
}

// Blocks that a pass over channels wants, and the elements that are worth one.
const (
	channelBlocks = 4 * 132
	channelWork   = 512
	channelGroup  = 32 // channels of a block where they lie last
)

// channels views the images of a batch norm, divided into as many parts as
// there is work for.
func (c *cudaCall) channels() ptx.Channels {
	d := c.dims(c.s.In[0])
	k := ptx.Channels{Name: "k", Outer: int(d[0]), C: int(d[1]), Inner: int(count(d[2:])), In: c.elem(c.s.In[0])}
	if c.n.Str("layout") == "NHWC" {
		last := len(d) - 1
		k.Outer, k.C, k.Inner = int(count(d[:last])), int(d[last]), 1
	}
	blocks := k.C
	if k.Inner == 1 {
		blocks = (k.C + channelGroup - 1) / channelGroup
	}
	each := k.Outer * k.Inner
	k.Split = max(1, min(channelBlocks/blocks, each/channelWork))
	part := (each + k.Split - 1) / k.Split
	k.Split = (each + part - 1) / part // none is empty
	return k
}

// batchNorm launches the moments of every channel and what they are for.
func (c *cudaCall) batchNorm() error {
	k, in, out := c.channels(), c.s.In, c.s.Out
	mean := c.temp("means", ir.F32, int64(k.Split), int64(k.C))
	squares := c.temp("squares", ir.F32, int64(k.Split), int64(k.C))
	if err := c.launch("channel_moments", k.Moments, in[0], mean, squares); err != nil {
		return err
	}
	stats := out[1:]
	if end := c.s.Kernel.End; end.Copy > 0 {
		stats = out[1:end.Copy]
	}
	merge := ptx.Merge{Channels: k, Eps: float32(c.n.Float("eps")), Momentum: float32(c.n.Float("momentum")), Running: len(stats) > 2}
	args := []BufferID{mean, squares}
	if merge.Running {
		args = append(args, in[3:5]...)
	}
	if err := c.launch("channel_stats", merge.Build, append(args, stats...)...); err != nil {
		return err
	}
	return c.group(c.normalised(k))
}

// normalised is y = (x − mean)·rstd·scale + bias, and what the norm ends in.
func (c *cudaCall) normalised(k ptx.Channels) *Group {
	p, in, out := c.channelPass(k), c.s.In, c.s.Out
	y := p.Mul(p.Sub(p.each(in[0]), p.channel(out[1])), p.channel(out[2]))
	if len(in) > 1 && in[1] != None {
		y = p.Mul(y, p.channel(in[1]))
	}
	if len(in) > 2 && in[2] != None {
		y = p.Add(y, p.channel(in[2]))
	}
	end := c.s.Kernel.End
	if end.Residual > 0 {
		y = p.Add(y, p.each(in[end.Residual]))
	}
	if end.Relu {
		y = p.Max(y, p.F(0))
	}
	if end.Copy > 0 {
		return p.stored(y, out[0], out[end.Copy])
	}
	return p.stored(y, out[0])
}

// batchNormGrad launches the two sums of every channel, what joins their parts, and dx.
func (c *cudaCall) batchNormGrad() error {
	k, in, out := c.channels(), c.s.In, c.s.Out
	x, dy, mean, rstd := in[0], in[1], in[2], in[3]
	dbias := c.temp("dbias", ir.F32, int64(k.Split), int64(k.C))
	dscale := c.temp("dscale", ir.F32, int64(k.Split), int64(k.C))
	if err := c.launch("channel_sums", k.Sums, dy, x, mean, rstd, dbias, dscale); err != nil {
		return err
	}
	for i, parts := range []BufferID{dscale, dbias} {
		sum := ptx.ColReduce{Name: "k", Op: "sum", Outer: 1, N: k.Split, Inner: k.C, In: ptx.Float32, Out: ptx.Float32, Scale: 1}
		if err := c.launch("col_sum", sum.Build, parts, out[1+i]); err != nil {
			return err
		}
	}
	return c.group(c.gradient(k))
}

// gradient is dx = rstd·scale·(dy − dbias/n − x̂·dscale/n).
func (c *cudaCall) gradient(k ptx.Channels) *Group {
	p, in, out := c.channelPass(k), c.s.In, c.s.Out
	share := p.F(1 / float64(k.Outer*k.Inner)) // of an element in its channel
	x, dy := p.each(in[0]), p.each(in[1])
	mean, rstd, scale, dscale, dbias := p.channel(in[2]), p.channel(in[3]), p.channel(in[4]), p.channel(out[1]), p.channel(out[2])
	hat := p.Mul(p.Sub(x, mean), rstd)
	inner := p.Sub(dy, p.Mul(dbias, share))
	inner = p.Sub(inner, p.Mul(hat, p.Mul(dscale, share)))
	return p.stored(p.Mul(p.Mul(rstd, scale), inner), out[0])
}

// channelPass is the code of an elementwise pass over images that reads what channels have.
type channelPass struct {
	*ir.Code
	*Group
	c *cudaCall
}

func (c *cudaCall) channelPass(k ptx.Channels) *channelPass {
	return &channelPass{ir.NewCode(nil), &Group{Shape: []int64{int64(k.Outer), int64(k.C), int64(k.Inner)}}, c}
}

func (p *channelPass) read(id BufferID, strides ...int64) ir.Reg {
	p.Loads = append(p.Loads, p.c.walk(id, 0, strides...))
	return load(p.Code, len(p.Loads)-1, p.c.typeOf(id).DType)
}

// each reads images, channel what is one number for each.
func (p *channelPass) each(id BufferID) ir.Reg    { return p.read(id, rowMajor(p.Shape)...) }
func (p *channelPass) channel(id BufferID) ir.Reg { return p.read(id, 0, 1, 0) }

// stored is the group with the pass's code, which stores r in each of ids.
func (p *channelPass) stored(r ir.Reg, ids ...BufferID) *Group {
	for _, id := range ids {
		store := p.c.walk(id, 0, rowMajor(p.Shape)...)
		store.Reg = r
		p.Stores = append(p.Stores, store)
	}
	p.Group.Code = p.Ins
	return p.Group
}

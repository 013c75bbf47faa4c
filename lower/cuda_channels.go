package lower

import (
	"math"

	"ampc/ir"
	"ampc/ptx"
)

// The gradient of a batch norm: a pass over x and dy for the sums of every
// channel, in parts that a launch for each adds up, and one elementwise pass.
// The norm itself is computed in parts: the kernel of its moments takes
// differences to the first element, which are NaN where that is infinite.

// channelGrad takes gradients with a scale, x and dy of one dtype and the rest f32.
func channelGrad(n *ir.Node) bool {
	x := n.In[0].Type
	if !x.Shape.Static() || x.Shape.Elements() == 0 || x.Shape.Elements() > math.MaxInt32 || !floatsOnly(n) {
		return false
	}
	if len(n.In) != 5 || len(n.Out) != len(n.Def().Out) || n.In[1].Type.DType != x.DType {
		return false
	}
	for _, v := range append(n.In[2:5:5], n.Out[1:]...) {
		if v == nil || v.Type.DType != ir.F32 {
			return false
		}
	}
	return true
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

// batchNormGrad launches the two sums of every channel, what joins their parts,
// and dx = rstd·scale·(dy − dbias/n − x̂·dscale/n).
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
	return c.channelStep(k, 1/float64(k.Outer*k.Inner))
}

// channelStep is the elementwise pass; share is what an element has of its channel.
func (c *cudaCall) channelStep(k ptx.Channels, share float64) error {
	shape := []int64{int64(k.Outer), int64(k.C), int64(k.Inner)}
	code := ir.NewCode(nil)
	g := &Group{Shape: shape}
	read := func(id BufferID, strides ...int64) ir.Reg {
		g.Loads = append(g.Loads, c.walk(id, 0, strides...))
		return load(code, len(g.Loads)-1, c.typeOf(id).DType)
	}
	each := func(id BufferID) ir.Reg { return read(id, 0, 1, 0) }
	in, out := c.s.In, c.s.Out
	x, dy := read(in[0], rowMajor(shape)...), read(in[1], rowMajor(shape)...)
	mean, rstd, scale, dscale, dbias := each(in[2]), each(in[3]), each(in[4]), each(out[1]), each(out[2])
	hat := code.Mul(code.Sub(x, mean), rstd)
	inner := code.Sub(dy, code.Mul(dbias, code.F(share)))
	inner = code.Sub(inner, code.Mul(hat, code.Mul(dscale, code.F(share))))
	store := c.walk(out[0], 0, rowMajor(shape)...)
	store.Reg = code.Mul(code.Mul(rstd, scale), inner)
	g.Code, g.Stores = code.Ins, []Access{store}
	return c.group(g)
}

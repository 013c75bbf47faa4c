package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// Images whose elements are sums of few outputs of windows over them are not stored if only gradients
// of batch norms read them: their kernels add up the outputs. These are the gradient of a max pool,
// and that of a convolution by 1×1 filters with strides, which is a convolution without strides and
// zeros between its results. The plan says where (ir.Caps.Spreads).

// maxSpread is the number of windows over a position that a kernel adds up.
const maxSpread = 4

// A max pool of a batch norm's ReLU computes both from the norm's operand, if nothing else reads the
// ReLU but gradients that compute it again: it is not stored (ir.Caps.PooledNorm).

// poolOfNorm launches a max pool of the ReLU of a batch norm, which is not stored.
func (c *cudaCall) poolOfNorm(norm *lower.Step, k ptx.Pool, args []lower.BufferID) error {
	x := c.s.In[0]
	own := &cudaCall{c.cudaLowerer, norm, norm.Kernel.Node}
	p := own.channelPass(own.images())
	y := p.rounded(p.Max(p.norm(channelStats{norm, norm.Out[1], norm.Out[2]}), p.F(0)), c.typeOf(x).DType)
	g := p.cluster()
	pg, err := c.ptxElementwise(g)
	if err != nil {
		return err
	}
	kernel := ptx.PoolOf{Pool: k, Of: pg, X: int(y)}
	return c.launch("max_pool", kernel.Max, append(buffersOf(g.Loads), args...)...)
}

// spread loads an element of images that are not stored, from the outputs in load k of g and, of a max
// pool, the taps in the next one.
func (p *channelPass) spread(g *lower.Cluster, k int) ir.Reg {
	from := g.Loads[k : k+1]
	if from[0].Spread.Taps {
		from = g.Loads[k : k+2]
	}
	at := slices.IndexFunc(p.Loads, func(a lower.Access) bool { return a.Spread == from[0].Spread }) // outputs of several pools may be one tensor
	if at < 0 {
		at = len(p.Loads)
		for _, a := range from {
			p.Loads = append(p.Loads, lower.Access{Buffer: a.Buffer, DType: p.c.typeOf(a.Buffer).DType, Strides: ir.RowMajor(p.Shape), Spread: a.Spread})
		}
	}
	return load(p.Code, at, p.c.typeOf(from[0].Buffer).DType)
}

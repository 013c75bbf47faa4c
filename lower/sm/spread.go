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
// ReLU but gradients that compute it again: it is not stored.

// pooledNorms finds the results of batch norms that only one max pool reads, besides gradients of the
// norms.
func (c *cudaLowerer) pooledNorms() map[lower.BufferID]bool {
	list := map[lower.BufferID]bool{}
	for root, norm := range c.relu {
		call := &cudaCall{c, norm, norm.Kernel.Node}
		k := call.images()
		if norm.Kernel.Fusion.Copy > 0 || k.Inner != 1 || k.C%8 != 0 {
			continue
		}
		pools := 0
		for _, s := range c.readers(root) {
			switch {
			case s.Kernel != nil && s.Kernel.Node.Op == ir.OpMaxPool && s.Kernel.Node.Str("layout") == "NHWC":
				pools++
			case s.Kernel != nil && s.Kernel.Node.Op == ir.OpBatchNormGrad && s.In[0] == norm.In[0] && (&channelGrads{cudaCall: &cudaCall{c, s, s.Kernel.Node}}).onlyComputes(root):
			default:
				pools = -1 << 16
			}
		}
		if pools == 1 {
			list[root] = true
		}
	}
	return list
}

// onlyComputes reports whether the gradients compute the images in root again wherever they read
// them.
func (g *channelGrads) onlyComputes(root lower.BufferID) bool {
	f := g.s.Kernel.Fusion
	if f.Prologue == nil || f.Beside != nil {
		return false
	}
	return !slices.ContainsFunc(g.s.In, func(id lower.BufferID) bool {
		return id != lower.None && g.p.Buffers[id].Root == root && !g.known(id)
	})
}

// poolOfNorm launches a max pool of the ReLU of a batch norm, which is not stored.
func (c *cudaCall) poolOfNorm(k ptx.Pool, args []lower.BufferID) error {
	x := c.s.In[0]
	norm := c.relu[c.p.Buffers[x].Root]
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

// readers lists the steps that read a root. A result of the program counts as one.
func (c *cudaLowerer) readers(root lower.BufferID) (list []*lower.Step) {
	for part := range lower.NumParts {
		for i := range c.p.Parts[part] {
			s := &c.p.Parts[part][i]
			if slices.ContainsFunc(s.In, func(id lower.BufferID) bool { return id != lower.None && c.p.Buffers[id].Root == root }) {
				list = append(list, s)
			}
		}
	}
	for _, o := range c.p.Outputs {
		if c.p.Buffers[o.Buffer].Root == root {
			list = append(list, &lower.Step{})
		}
	}
	return list
}

// spread loads an element of images that are not stored, from the outputs in load k of g and, of a max
// pool, the taps in the next one.
func (p *channelPass) spread(g *lower.Cluster, k int) ir.Reg {
	from := g.Loads[k : k+1]
	if from[0].Spread.Taps {
		from = g.Loads[k : k+2]
	}
	at := slices.IndexFunc(p.Loads, func(a lower.Access) bool { return a.Buffer == from[0].Buffer })
	if at < 0 {
		at = len(p.Loads)
		for _, a := range from {
			p.Loads = append(p.Loads, lower.Access{Buffer: a.Buffer, DType: p.c.typeOf(a.Buffer).DType, Strides: ir.RowMajor(p.Shape), Spread: a.Spread})
		}
	}
	return load(p.Code, at, p.c.typeOf(from[0].Buffer).DType)
}

package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// Images whose elements are sums of few outputs of windows over them need not be stored if only
// gradients of batch norms read them: their kernels add up the outputs. These are the gradient of
// a max pool, and that of a convolution by 1×1 filters with strides, which is a convolution without
// strides and zeros between its results.

// spread is images that no step stores.
type spread struct {
	window        ir.Window
	outputs, taps lower.BufferID // tensors of the windows' outputs, and of a max pool's taps; None before their steps
	pool          bool
}

// size is the bytes that are read in place of the images.
func (w *spread) size(p *lower.Program) int64 {
	n := p.Buffers[w.outputs].Size
	if w.pool {
		n += p.Buffers[w.taps].Size
	}
	return n
}

// spreadOf is how to compute the images in a buffer; nil if they are in memory.
func (c *cudaLowerer) spreadOf(id lower.BufferID) *spread { return c.spreads[c.p.Buffers[id].Root] }

// maxSpread is the number of windows over a position that a kernel adds up.
const maxSpread = 4

// spreadable finds the images of micro that are not stored.
func (c *cudaLowerer) spreadable() {
	c.spreads, c.taps = map[lower.BufferID]*spread{}, map[lower.BufferID]*spread{}
	for i := range c.p.Parts[lower.Micro] {
		s := &c.p.Parts[lower.Micro][i]
		switch {
		case s.Kind == lower.KindConv && c.apart(s):
			c.spreads[c.p.Buffers[s.Out[0]].Root] = &spread{window: s.Conv.Window, outputs: lower.None, taps: lower.None}
		case s.Kind == lower.KindKernel && s.Kernel.Node.Op == ir.OpMaxPoolGrad && s.Kernel.Pool != nil:
			index := c.p.Buffers[s.In[1]].Root
			w := &spread{window: *s.Kernel.Pool, outputs: lower.None, taps: lower.None, pool: true}
			if c.pools(index, &w.window) && w.few() && c.normsRead(s.Out[0], &w.window) {
				c.spreads[c.p.Buffers[s.Out[0]].Root], c.taps[index] = w, w
			}
		}
	}
}

// few reports whether few windows cover a position, and their taps fit into a byte.
func (w *spread) few() bool {
	n, taps := int64(1), int64(1)
	for d, k := range w.window.Kernel {
		if w.window.Dilation[d] != 1 {
			return false
		}
		taps *= k
		n *= (k + w.window.Stride[d] - 1) / w.window.Stride[d]
	}
	return n <= maxSpread && taps < 256
}

// pools reports whether a max pool of micro with window w computes the positions in root index,
// which only one step reads.
func (c *cudaLowerer) pools(index lower.BufferID, w *ir.Window) bool {
	made := slices.ContainsFunc(c.p.Parts[lower.Micro], func(s lower.Step) bool {
		return s.Kind == lower.KindKernel && s.Kernel.Node.Op == ir.OpMaxPool && c.p.Buffers[s.Out[1]].Root == index
	})
	return made && w.Last && len(c.readers(index)) == 1
}

// apart reports whether s is the gradient of an image by 1×1 filters with strides that can be
// computed without them.
func (c *cudaLowerer) apart(s *lower.Step) bool {
	w := &s.Conv.Window
	one := func(x int64) bool { return x == 1 }
	all := func(l []int64, is func(int64) bool) bool {
		return !slices.ContainsFunc(l, func(x int64) bool { return !is(x) })
	}
	zero := func(x int64) bool { return x == 0 }
	if s.Conv.Dir != lower.ConvGradX || !w.Last || !all(w.Kernel, one) || all(w.Stride, one) || !all(w.Begin, zero) || !all(w.End, zero) {
		return false
	}
	small := *s
	small.Conv = withoutStrides(s.Conv)
	return c.inGraph(&small) && c.normsRead(s.Out[0], w)
}

// withoutStrides is the convolution over the positions that a 1×1 filter with strides meets.
func withoutStrides(conv *lower.Conv) *lower.Conv {
	small := *conv
	small.Window.In, small.Window.Stride = small.Window.Out, slices.Repeat([]int64{1}, len(small.Window.Out))
	small.Window.Dilation = small.Window.Stride
	return &small
}

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

// normsRead reports whether only gradients of batch norms of micro read the images in a buffer, which
// windows w cover, as dy or as what dy is computed from.
func (c *cudaLowerer) normsRead(id lower.BufferID, w *ir.Window) bool {
	root := c.p.Buffers[id].Root
	readers := c.readers(root)
	for _, s := range readers {
		if s.Kernel == nil || s.Kernel.Node.Op != ir.OpBatchNormGrad {
			return false
		}
		k := (&cudaCall{c, s, s.Kernel.Node}).images()
		if k.Inner != 1 || k.C%8 != 0 || int64(k.C) != w.C || int64(k.Outer) != w.N*lower.Count(w.In) {
			return false
		}
		x := s.In[:1]
		if b := s.Kernel.Fusion.Beside; b != nil {
			x = append(x[:1:1], b.Step(s).In[0])
		}
		if slices.ContainsFunc(x, func(id lower.BufferID) bool { return c.p.Buffers[id].Root == root }) {
			return false
		}
	}
	return len(readers) > 0
}

// convApart computes the gradient of an image by 1×1 filters with strides where it is not zero.
func (c *cudaLowerer) convApart() error {
	s := *c.from
	w := c.spreadOf(s.Out[0])
	s.Conv = withoutStrides(s.Conv)
	shape := append(append([]int64{w.window.N}, w.window.Out...), w.window.C)
	w.outputs = c.temp("apart", c.typeOf(s.Out[0]).DType, shape...)
	s.Out = []lower.BufferID{w.outputs}
	s.Bytes = c.p.Traffic(&s)
	c.from = &s
	return c.dnn()
}

// spread loads an element of images that are not stored.
func (p *channelPass) spread(w *spread) ir.Reg {
	at := slices.IndexFunc(p.Loads, func(a lower.Access) bool { return a.Buffer == w.outputs })
	if at < 0 {
		at = len(p.Loads)
		s := &lower.Spread{Window: w.window, Taps: w.pool}
		for _, id := range []lower.BufferID{w.outputs, w.taps} {
			if id != lower.None {
				p.Loads = append(p.Loads, lower.Access{Buffer: id, DType: p.c.typeOf(id).DType, Strides: ir.RowMajor(p.Shape), Spread: s})
			}
		}
	}
	return load(p.Code, at, p.c.typeOf(w.outputs).DType)
}

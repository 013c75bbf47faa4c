package cpu

import (
	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// poolKernels run over windows or parts of images. Work is split by plane (image and channel), so
// overlapping windows belong to one task.
var poolKernels = map[ir.Op]binder{
	ir.OpMaxPool:             bindMaxPool,
	ir.OpMaxPoolGrad:         bindMaxPoolGrad,
	ir.OpAvgPool:             bindAvgPool(false),
	ir.OpAvgPoolGrad:         bindAvgPool(true),
	ir.OpAdaptiveAvgPool:     bindAvgPool(false),
	ir.OpAdaptiveAvgPoolGrad: bindAvgPool(true),
}

// pool is the geometry of a pooling op over up to three dimensions, with the input cells that each
// window covers.
type pool struct {
	planes   int
	last     bool
	count    int // number of channels
	x, y     int // positions per plane, of the detailed and of the pooled side
	cells    []int32
	first    []int32 // window i covers cells[first[i]:first[i+1]]
	divisors []float32
}

// span is the range that a window covers along one dimension, without padding. size counts the taps
// that lie in the data or its padding.
type span struct {
	at   []int
	size int
}

func (c *call) pool() *pool { return c.poolOf(c.Window()) }

func (c *call) poolOf(w ir.Window) *pool {
	p := &pool{planes: int(w.N * w.C), last: w.Last, count: int(w.C), x: 1, y: 1}
	var spans [3][]span
	in := spatial3(w.In, 1)
	out := spatial3(w.Out, 1)
	kernel, stride, dil, begin, end := spatial3(w.Kernel, 1), spatial3(w.Stride, 1), spatial3(w.Dilation, 1), spatial3(w.Begin, 0), spatial3(w.End, 0)
	adaptive := c.Op == ir.OpAdaptiveAvgPool || c.Op == ir.OpAdaptiveAvgPoolGrad
	for d := range 3 {
		p.x *= in[d]
		p.y *= out[d]
		for o := range out[d] {
			var s span
			if adaptive {
				for i := o * in[d] / out[d]; i < ((o+1)*in[d]+out[d]-1)/out[d]; i++ {
					s.at = append(s.at, i)
				}
				s.size = len(s.at)
			} else {
				for t := range kernel[d] {
					i := o*stride[d] + t*dil[d] - begin[d]
					if i >= 0 && i < in[d] {
						s.at = append(s.at, i)
					}
					if i < in[d]+end[d] {
						s.size++
					}
				}
			}
			spans[d] = append(spans[d], s)
		}
	}
	padded := c.Flag("count_include_pad")
	for _, a := range spans[0] {
		for _, b := range spans[1] {
			for _, e := range spans[2] {
				p.first = append(p.first, int32(len(p.cells)))
				for _, i := range a.at {
					for _, j := range b.at {
						for _, k := range e.at {
							p.cells = append(p.cells, int32((i*in[1]+j)*in[2]+k))
						}
					}
				}
				n := len(a.at) * len(b.at) * len(e.at)
				if padded {
					n = a.size * b.size * e.size
				}
				p.divisors = append(p.divisors, float32(n))
			}
		}
	}
	p.first = append(p.first, int32(len(p.cells)))
	return p
}

// place returns where plane k of a tensor with that many positions starts, and the distance between
// its elements.
func (p *pool) place(k, positions int) (offset, stride int) {
	if p.last {
		return k/p.count*positions*p.count + k%p.count, p.count
	}
	return k * positions, 1
}

// taps lists, tap by tap, which cell each window reads. If a tap lies outside, the window reads its
// first cell again, which cannot exceed the maximum.
func (p *pool) taps() []int32 {
	most := int32(0)
	for i := range p.y {
		most = max(most, p.first[i+1]-p.first[i])
	}
	taps := make([]int32, int(most)*p.y)
	for t := range most {
		for i := range p.y {
			at := p.first[i]
			if at+t < p.first[i+1] {
				at += t
			}
			taps[int(t)*p.y+i] = p.cells[at]
		}
	}
	return taps
}

// loadRun widens elements of v that are stride apart.
func (c *call) loadRun(dst []float32, v view, offset, stride int) {
	if stride == 1 {
		c.m.Load(dst, v.buf().From(offset))
		return
	}
	for i := range dst {
		dst[i] = v.float(offset + i*stride)
	}
}

// storeRun rounds src to elements of v that are stride apart.
func (c *call) storeRun(v view, offset, stride int, src []float32) {
	if stride == 1 {
		c.m.Store(v.buf().From(offset), src)
		return
	}
	for i, x := range src {
		v.set(offset+i*stride, x)
	}
}

// windows returns the geometry of a pool of images as kern describes it. ok is false where kern has
// no kernel for it or a plane is not contiguous.
func (c *call) windows(w ir.Window) (g *kern.Windows, ok bool) {
	in, out, kernel, stride := spatial3(w.In, 1), spatial3(w.Out, 1), spatial3(w.Kernel, 1), spatial3(w.Stride, 1)
	dil, begin := spatial3(w.Dilation, 1), spatial3(w.Begin, 0)
	g = new(kern.Windows)
	for a := range 2 {
		g.In[a], g.Out[a], g.Kernel[a], g.Stride[a], g.Pad[a] = in[a+1], out[a+1], kernel[a+1], stride[a+1], begin[a+1]
	}
	flat := in[0] == 1 && out[0] == 1 && kernel[0] == 1 && dil == [3]int{1, 1, 1}
	return g, flat && !w.Last && g.Stride[1] <= 2 && min(begin[0], begin[1], begin[2]) >= 0
}

// maxWindows is a max pool that keeps no positions.
func (c *call) maxWindows(g *kern.Windows) func() {
	w, x, y, nx, ny := c.Window(), c.in[0], c.out[0], g.In[0]*g.In[1], g.Out[0]*g.Out[1]
	if nx*ny == 0 {
		return func() {}
	}
	xs, ys, more := c.scratch(nx), c.scratch(ny), c.scratch(g.Scratch())
	if x.t.DType == ir.F32 && y.t.DType == ir.F32 {
		return c.parallel(int(w.N*w.C), nx+ny*g.Kernel[0]*g.Kernel[1]/4, func(w, k int) {
			c.m.MaxWindows(g, y.f32()[k*ny:(k+1)*ny], x.f32()[k*nx:(k+1)*nx], more[w])
		})
	}
	return c.parallel(int(w.N*w.C), nx+ny*g.Kernel[0]*g.Kernel[1]/4, func(w, k int) {
		c.m.MaxWindowsOf(g, y.buf().From(k*ny), x.buf().From(k*nx), ys[w], xs[w], more[w])
	})
}

func bindMaxPool(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	if g, ok := c.inPairs(c.Window()); ok {
		return c.maxPool2(g), nil
	}
	if g, ok := c.windows(c.Window()); ok && c.res(1).i32() == nil {
		return c.maxWindows(g), nil
	}
	p := c.pool()
	taps := p.taps()
	x, y, index := c.in[0], c.out[0], c.res(1).i32()
	xs, ys := c.scratch(p.x), c.scratch(p.y)
	at := c.positions(p.y)
	return c.parallel(p.planes, len(p.cells)+p.x, func(w, k int) {
		from, st := p.place(k, p.x)
		to, sty := p.place(k, p.y)
		c.loadRun(xs[w], x, from, st)
		c.m.MaxTaps(ys[w], at[w], xs[w], taps)
		c.storeRun(y, to, sty, ys[w])
		for i := 0; i < p.y && index != nil; i++ {
			index[to+i*sty] = at[w][i]
		}
	}), nil
}

// positions holds, for each worker, the cell of the maximum of n windows.
func (c *call) positions(n int) [][]int32 {
	return perWorker(c.mem, func() []int32 { return make([]int32, n) })
}

func bindMaxPoolGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	if c.in[1].t.DType.Float() {
		return c.maxPoolAgain(), nil
	}
	dy, index, dx := c.in[0], c.in[1], c.out[0]
	w := c.Window()
	p := &pool{planes: int(w.N * w.C), last: w.Last, count: int(w.C), x: 1, y: 1}
	for i := range w.In {
		p.x *= int(w.In[i])
		p.y *= int(w.Out[i])
	}
	xs, ys := c.scratch(p.x), c.scratch(p.y)
	return c.parallel(p.planes, p.x+4*p.y, func(w, k int) {
		from, st := p.place(k, p.y)
		to, stx := p.place(k, p.x)
		c.loadRun(ys[w], dy, from, st)
		clear(xs[w])
		for i, d := range ys[w] {
			if at := index.int(from + i*st); at >= 0 && at < int64(p.x) {
				xs[w][at] += d
			}
		}
		c.storeRun(dx, to, stx, xs[w])
	}), nil
}

// maxPoolAgain is the gradient of a max pool that finds the positions again in the pooled image.
func (c *call) maxPoolAgain() func() {
	if g, ok := c.inPairs(*c.window); ok {
		return c.maxPool2Again(g)
	}
	dy, x, dx, p := c.in[0], c.in[1], c.out[0], c.poolOf(*c.window)
	taps, at := p.taps(), c.positions(p.y)
	xs, ys, most := c.scratch(p.x), c.scratch(p.y), c.scratch(p.y)
	return c.parallel(p.planes, len(p.cells)+p.x+4*p.y, func(w, k int) {
		from, st := p.place(k, p.y)
		to, stx := p.place(k, p.x)
		c.loadRun(xs[w], x, to, stx)
		c.loadRun(ys[w], dy, from, st)
		c.m.MaxTaps(most[w], at[w], xs[w], taps)
		clear(xs[w])
		for i, d := range ys[w] {
			xs[w][at[w][i]] += d
		}
		c.storeRun(dx, to, stx, xs[w])
	})
}

// bindAvgPool binds the mean over windows or parts, or its gradient.
func bindAvgPool(gradient bool) binder {
	return func(c *call) (func(), error) {
		if err := c.onlyFloats(); err != nil {
			return nil, err
		}
		if g, ok := c.inPairs(c.Window()); ok {
			return c.avgPool2(g, gradient), nil
		}
		p := c.pool()
		in, out, nin, nout := c.in[0], c.out[0], p.x, p.y
		pass := p.mean
		if gradient {
			nin, nout, pass = p.y, p.x, p.spread
		}
		ins, outs := c.scratch(nin), c.scratch(nout)
		return c.parallel(p.planes, len(p.cells)+p.x, func(w, k int) {
			from, st := p.place(k, nin)
			to, sto := p.place(k, nout)
			c.loadRun(ins[w], in, from, st)
			pass(outs[w], ins[w])
			c.storeRun(out, to, sto, outs[w])
		}), nil
	}
}

func (p *pool) mean(y, x []float32) {
	for i := range y {
		s := float32(0)
		for _, cell := range p.cells[p.first[i]:p.first[i+1]] {
			s += x[cell]
		}
		y[i] = s / p.divisors[i]
	}
}

func (p *pool) spread(dx, dy []float32) {
	clear(dx)
	for i, d := range dy {
		d /= p.divisors[i]
		for _, cell := range p.cells[p.first[i]:p.first[i+1]] {
			dx[cell] += d
		}
	}
}

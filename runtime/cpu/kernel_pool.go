package cpu

import (
	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// poolKernels run over windows or parts of images. Work is divided by planes (image and channel) and by the lines of results in
// them, see overLines. The terms of a result are added in the same order whatever the lines of a task are.
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
	count    int      // number of channels
	x, y     int      // positions per plane, of the detailed and of the pooled side
	row      [2]int   // those of a line of each
	reach    [][2]int // for each line of windows, the cells of the lines that they reach
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

// poolLines is a pool without the cells of its windows, and their spans along each dimension.
func (c *call) poolLines(w ir.Window) (p *pool, spans [3][]span) {
	p = &pool{planes: int(w.N * w.C), last: w.Last, count: int(w.C), x: 1, y: 1}
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
	p.row = [2]int{in[2], out[2]}
	for _, a := range spans[0] {
		for _, b := range spans[1] {
			var r [2]int
			if n, k := len(a.at), len(b.at); n*k > 0 {
				r = [2]int{(a.at[0]*in[1] + b.at[0]) * in[2], (a.at[n-1]*in[1] + b.at[k-1] + 1) * in[2]}
			}
			p.reach = append(p.reach, r)
		}
	}
	return p, spans
}

func (c *call) poolOf(w ir.Window) *pool {
	p, spans := c.poolLines(w)
	in, padded := spatial3(w.In, 1), c.Flag("count_include_pad")
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
	for i := range p.y { // of the first tap; others are the same cell or in the same window
		if at, r := int(p.cells[p.first[i]]), &p.reach[i/p.row[1]]; r[0] == r[1] {
			*r = [2]int{at, at + 1}
		} else {
			*r = [2]int{min(r[0], at), max(r[1], at+1)}
		}
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

// cellsOf are the cells that lines [l0,l1) of windows reach.
func (p *pool) cellsOf(l0, l1 int) (lo, hi int) {
	for _, r := range p.reach[l0:l1] {
		if r[0] < r[1] && (lo == hi || r[0] < lo) {
			lo = r[0]
		}
		hi = max(hi, r[1])
	}
	return min(lo, hi), hi
}

// windowsOf are the windows that reach cells [lo,hi), and perhaps others between them, by lines.
func (p *pool) windowsOf(lo, hi int) (l0, l1 int) {
	touches := func(r [2]int) bool { return r[0] < hi && lo < r[1] }
	for l0 = 0; l0 < len(p.reach) && !touches(p.reach[l0]); l0++ {
	}
	for l1 = len(p.reach); l1 > l0 && !touches(p.reach[l1-1]); l1-- {
	}
	return l0, l1
}

// poolUnit is about how many elements of a plane are a unit of work, of whole lines. Tasks have at most poolUnits units, or a plane.
const (
	poolUnit  = 1 << 12
	poolUnits = 8
)

// overLines returns a loop over planes of lines results each, and so much work, in elements read once. f gets lines [l0,l1) of
// plane k.
func (c *call) overLines(planes, lines, work int, f func(w, k, l0, l1 int)) func() {
	per := max(1, min(lines, work/poolUnit))
	n := planes * per
	return c.chunks(n, per*max(1, poolUnits/per), work/per, func(w, lo, hi int) {
		for lo < hi {
			k, first := lo/per, lo%per
			end := min(per, first+hi-lo)
			f(w, k, first*lines/per, end*lines/per)
			lo += end - first
		}
	})
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
	wide := x.t.DType == ir.F32 && y.t.DType == ir.F32
	return c.overLines(int(w.N*w.C), g.Out[0], nx+ny*g.Kernel[0]*g.Kernel[1]/4, func(w, k, l0, l1 int) {
		part, first := g.Rows(l0, l1)
		from, to, nx, ny := k*nx+first*g.In[1], k*ny+l0*g.Out[1], part.In[0]*g.In[1], (l1-l0)*g.Out[1]
		if wide {
			c.m.MaxWindows(&part, y.f32()[to:to+ny], x.f32()[from:from+nx], more[w])
		} else {
			c.m.MaxWindowsOf(&part, y.buf().From(to), x.buf().From(from), ys[w][:ny], xs[w][:nx], more[w])
		}
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
	return c.overLines(p.planes, len(p.reach), len(p.cells)+p.x, func(w, k, l0, l1 int) {
		from, st := p.place(k, p.x)
		to, sty := p.place(k, p.y)
		i0, i1 := l0*p.row[1], l1*p.row[1]
		if i0 == i1 {
			return
		}
		lo, hi := p.cellsOf(l0, l1)
		c.loadRun(xs[w][lo:hi], x, from+lo*st, st)
		c.m.MaxTaps(ys[w][i0:i1], at[w], xs[w], taps[i0:], p.y)
		c.storeRun(y, to+i0*sty, sty, ys[w][i0:i1])
		for i := i0; i < i1 && index != nil; i++ {
			index[to+i*sty] = at[w][i-i0]
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
	p, _ := c.poolLines(c.Window())
	xs, ys := c.scratch(p.x), c.scratch(p.y)
	return c.overLines(p.planes, 1, p.x+4*p.y, func(w, k, _, _ int) { // a position may be anywhere in its plane
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
	return c.overLines(p.planes, p.x/max(1, p.row[0]), len(p.cells)+p.x+4*p.y, func(w, k, r0, r1 int) {
		from, st := p.place(k, p.y)
		to, stx := p.place(k, p.x)
		lo, hi := r0*p.row[0], r1*p.row[0]
		l0, l1 := p.windowsOf(lo, hi)
		i0, i1 := l0*p.row[1], l1*p.row[1]
		from0, end := p.cellsOf(l0, l1)
		c.loadRun(xs[w][from0:end], x, to+from0*stx, stx)
		c.loadRun(ys[w][i0:i1], dy, from+i0*st, st)
		if i0 < i1 {
			c.m.MaxTaps(most[w][:i1-i0], at[w], xs[w], taps[i0:], p.y)
		}
		addAt(xs[w], ys[w][i0:i1], at[w], lo, hi)
		c.storeRun(dx, to+lo*stx, stx, xs[w][lo:hi])
	})
}

// addAt sets cells [lo,hi) of dx to the sums of the dy that belong there.
func addAt(dx, dy []float32, at []int32, lo, hi int) {
	clear(dx[lo:hi])
	if hi-lo == len(dx) {
		for i, d := range dy {
			dx[at[i]] += d
		}
		return
	}
	for i, d := range dy {
		if at := int(at[i]); uint(at-lo) < uint(hi-lo) {
			dx[at] += d
		}
	}
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
		in, out := c.in[0], c.out[0]
		if gradient {
			ins, outs := c.scratch(p.y), c.scratch(p.x)
			return c.overLines(p.planes, p.x/max(1, p.row[0]), len(p.cells)+p.x, func(w, k, r0, r1 int) {
				from, st := p.place(k, p.y)
				to, sto := p.place(k, p.x)
				lo, hi := r0*p.row[0], r1*p.row[0]
				l0, l1 := p.windowsOf(lo, hi)
				i0, i1 := l0*p.row[1], l1*p.row[1]
				c.loadRun(ins[w][i0:i1], in, from+i0*st, st)
				p.spread(outs[w], ins[w][i0:i1], i0, lo, hi)
				c.storeRun(out, to+lo*sto, sto, outs[w][lo:hi])
			}), nil
		}
		ins, outs := c.scratch(p.x), c.scratch(p.y)
		return c.overLines(p.planes, len(p.reach), len(p.cells)+p.x, func(w, k, l0, l1 int) {
			from, st := p.place(k, p.x)
			to, sto := p.place(k, p.y)
			i0, i1 := l0*p.row[1], l1*p.row[1]
			lo, hi := p.cellsOf(l0, l1)
			c.loadRun(ins[w][lo:hi], in, from+lo*st, st)
			p.mean(outs[w][i0:i1], ins[w], i0)
			c.storeRun(out, to+i0*sto, sto, outs[w][i0:i1])
		}), nil
	}
}

// mean computes windows from the i0-th on.
func (p *pool) mean(y, x []float32, i0 int) {
	cells, first, divisors := p.cells, p.first[i0:], p.divisors[i0:]
	at := first[0]
	for i := range y {
		s, end := float32(0), first[i+1]
		for _, cell := range cells[at:end] {
			s += x[cell]
		}
		y[i], at = s/divisors[i], end
	}
}

// spread computes the gradient of cells [lo,hi), which windows from the i0-th on reach.
func (p *pool) spread(dx, dy []float32, i0, lo, hi int) {
	first, divisors, whole := p.first[i0:], p.divisors[i0:], hi-lo == len(dx)
	clear(dx[lo:hi])
	for i, d := range dy {
		d /= divisors[i]
		cells := p.cells[first[i]:first[i+1]]
		if whole {
			for _, cell := range cells {
				dx[cell] += d
			}
			continue
		}
		for _, cell := range cells {
			if at := int(cell); uint(at-lo) < uint(hi-lo) {
				dx[at] += d
			}
		}
	}
}

package cpu

import (
	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// inPairs returns the geometry of a pool whose windows are 2 x 2 elements with stride 2 and without
// padding, if the kernel set has kernels for it. Planes must be contiguous.
func (c *call) inPairs(w ir.Window) (g kern.Pool2, ok bool) {
	two, one, none := [3]int{1, 2, 2}, [3]int{1, 1, 1}, [3]int{}
	in, out := spatial3(w.In, 1), spatial3(w.Out, 1)
	begin, end := spatial3(w.Begin, 0), spatial3(w.End, 0)
	g = kern.Pool2{Planes: int(w.N * w.C), H: in[1], W: in[2]}
	return g, c.m.Pools2(g, kern.F32) && !w.Last && spatial3(w.Kernel, 1) == two && spatial3(w.Stride, 1) == two && spatial3(w.Dilation, 1) == one &&
		begin == none && end == none && in[0] == 1 && out[1] == in[1]/2 && out[2] == in[2]/2
}

// pairs is a part of such a pool: consecutive planes, or lines of one.
type pairs struct {
	kern.Pool2
	in, out int // its first element, and its first pooled one
	before  int // elements of its plane before it
	bufs    []kern.Buf
}

// place is where the part begins in an operand or result with all elements, or with pooled ones, and how many it has.
func (p *pairs) place(all bool) (at, n int) {
	in, out := p.Of(p.Planes)
	if all {
		return p.in, in
	}
	return p.out, out
}

// pool2 runs f over a few planes at a time that fit in the L1 cache, or over lines of one. Operands and results have all elements or
// the pooled ones. The first is the result. If the kernel set has no kernels of their common dtype, f works on f32 in scratch memory.
func (c *call) pool2(g kern.Pool2, views []view, all []bool, f func(p *pairs)) func() {
	in, out := g.Of(1)
	each, lines := max(1, poolUnit/max(1, in)), 1
	if in > poolUnit {
		lines = g.H / 2
	}
	direct := c.m.Pools2(g, kernTypes[views[0].t.DType])
	for _, v := range views {
		direct = direct && v.t.DType == views[0].t.DType
	}
	wide := make([][][]float32, len(views))
	for i := range views {
		if !direct {
			size := out
			if all[i] {
				size = in
			}
			wide[i] = c.scratch(each * size)
		}
	}
	parts := perWorker(c.mem, func() *pairs {
		return &pairs{Pool2: kern.Pool2{W: g.W, Walk: new(kern.Windows2)}, bufs: make([]kern.Buf, len(views))}
	})
	return c.overLines((g.Planes+each-1)/each, lines, each*in, func(w, k, l0, l1 int) {
		p := parts[w]
		p.Planes, p.H, p.in, p.out, p.before = min(each, g.Planes-k*each), g.H, k*each*in, k*each*out, 0
		if lines > 1 {
			p.H, p.before = 2*(l1-l0)+g.H%2*(l1/lines), 2*l0*g.W
			p.in, p.out = p.in+p.before, p.out+l0*(g.W/2)
		}
		for i, v := range views {
			at, n := p.place(all[i])
			if p.bufs[i] = v.buf().From(at); !direct {
				x := wide[i][w][:n]
				if i > 0 {
					c.m.Load(x, p.bufs[i])
				}
				p.bufs[i] = kern.Floats(x)
			}
		}
		f(p)
		if !direct {
			at, n := p.place(all[0])
			c.m.Store(views[0].buf().From(at), wide[0][w][:n])
		}
	})
}

// maxPool2 is a max pool over 2 x 2 windows.
func (c *call) maxPool2(g kern.Pool2) func() {
	index := c.res(1).i32()
	return c.pool2(g, []view{c.out[0], c.in[0]}, []bool{false, true}, func(p *pairs) {
		if index == nil {
			c.m.MaxPool2(p.Pool2, p.bufs[0], nil, p.bufs[1])
			return
		}
		own := index[p.out:]
		c.m.MaxPool2(p.Pool2, p.bufs[0], own, p.bufs[1])
		if _, n := p.place(false); p.before > 0 {
			for i := range own[:n] {
				own[i] += int32(p.before)
			}
		}
	})
}

// maxPool2Again is maxPoolAgain for 2 x 2 windows.
func (c *call) maxPool2Again(g kern.Pool2) func() {
	return c.pool2(g, []view{c.out[0], c.in[0], c.in[1]}, []bool{true, false, true}, func(p *pairs) {
		c.m.MaxPool2Grad(p.Pool2, p.bufs[0], p.bufs[1], p.bufs[2])
	})
}

// avgPool2 is the mean over 2 x 2 windows, or its gradient.
func (c *call) avgPool2(g kern.Pool2, gradient bool) func() {
	return c.pool2(g, []view{c.out[0], c.in[0]}, []bool{gradient, !gradient}, func(p *pairs) {
		if gradient {
			c.m.AvgPool2Grad(p.Pool2, p.bufs[0], p.bufs[1])
		} else {
			c.m.AvgPool2(p.Pool2, p.bufs[0], p.bufs[1])
		}
	})
}

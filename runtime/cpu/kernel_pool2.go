package cpu

import (
	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// pool2Elems is the number of elements that a task of pool2 reads, in whole planes. They fit in the
// L1 cache.
const pool2Elems = 1 << 12

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

// pool2 runs f over a few planes at a time, from plane at on. Operand or result i has sizes[i]
// elements in each plane. The first is the result. If the kernel set has no kernels of their common
// dtype, f works on f32 in scratch memory.
func (c *call) pool2(g kern.Pool2, views []view, sizes []int, f func(g kern.Pool2, at int, bufs []kern.Buf)) func() {
	each := max(1, pool2Elems/max(1, g.H*g.W))
	direct := c.m.Pools2(g, kernTypes[views[0].t.DType])
	for _, v := range views {
		direct = direct && v.t.DType == views[0].t.DType
	}
	wide := make([][][]float32, len(views))
	for i := range views {
		if !direct {
			wide[i] = c.scratch(each * sizes[i])
		}
	}
	bufs := perWorker(c.mem, func() []kern.Buf { return make([]kern.Buf, len(views)) })
	walks := perWorker(c.mem, func() *kern.Windows2 { return new(kern.Windows2) })
	return c.parallel((g.Planes+each-1)/each, each*g.H*g.W, func(w, k int) {
		part, at, b := g, k*each, bufs[w]
		part.Planes, part.Walk = min(each, g.Planes-at), walks[w]
		for i, v := range views {
			if b[i] = v.buf().From(at * sizes[i]); !direct {
				x := wide[i][w][:part.Planes*sizes[i]]
				if i > 0 {
					c.m.Load(x, b[i])
				}
				b[i] = kern.Floats(x)
			}
		}
		f(part, at, b)
		if !direct {
			c.m.Store(views[0].buf().From(at*sizes[0]), wide[0][w][:part.Planes*sizes[0]])
		}
	})
}

// maxPool2 is a max pool over 2 x 2 windows.
func (c *call) maxPool2(g kern.Pool2) func() {
	index := c.res(1).i32()
	in, out := g.Of(1)
	return c.pool2(g, []view{c.out[0], c.in[0]}, []int{out, in}, func(g kern.Pool2, at int, b []kern.Buf) {
		if index == nil {
			c.m.MaxPool2(g, b[0], nil, b[1])
		} else {
			c.m.MaxPool2(g, b[0], index[at*out:], b[1])
		}
	})
}

// maxPool2Again is maxPoolAgain for 2 x 2 windows.
func (c *call) maxPool2Again(g kern.Pool2) func() {
	in, out := g.Of(1)
	return c.pool2(g, []view{c.out[0], c.in[0], c.in[1]}, []int{in, out, in}, func(g kern.Pool2, _ int, b []kern.Buf) {
		c.m.MaxPool2Grad(g, b[0], b[1], b[2])
	})
}

// avgPool2 is the mean over 2 x 2 windows, or its gradient.
func (c *call) avgPool2(g kern.Pool2, gradient bool) func() {
	in, out := g.Of(1)
	if gradient {
		return c.pool2(g, []view{c.out[0], c.in[0]}, []int{in, out}, func(g kern.Pool2, _ int, b []kern.Buf) { c.m.AvgPool2Grad(g, b[0], b[1]) })
	}
	return c.pool2(g, []view{c.out[0], c.in[0]}, []int{out, in}, func(g kern.Pool2, _ int, b []kern.Buf) { c.m.AvgPool2(g, b[0], b[1]) })
}

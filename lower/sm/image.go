package sm

import (
	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

var imageKernels = map[ir.Op]cudaKernel{
	ir.OpPad:                 {(*cudaCall).pad, nil, 0},
	ir.OpResize:              {resize(false), spatial, 0},
	ir.OpResizeGrad:          {resize(true), spatial, 0},
	ir.OpAdaptiveAvgPool:     {adaptivePool(false), spatial, 0},
	ir.OpAdaptiveAvgPoolGrad: {adaptivePool(true), spatial, 0},
	ir.OpMaxPool:             {(*cudaCall).maxPool, nil, 0},
	ir.OpMaxPoolGrad:         {(*cudaCall).maxPoolGrad, nil, 1},
	ir.OpAvgPool:             {(*cudaCall).avgPool, images, 0},
	ir.OpAvgPoolGrad:         {(*cudaCall).avgPoolGrad, images, 0},
}

// Rows over images: pads, resizes and pools.

func ints(v []int64) []int {
	out := make([]int, len(v))
	for i, x := range v {
		out[i] = int(x)
	}
	return out
}

// pad launches a pad by edge or reflection. A pad by a constant is lowered to copies.
func (c *cudaCall) pad() error {
	x, y := c.s.In[0], c.s.Out[0]
	k := ptx.Pad{Name: "k", In: ints(c.dims(x)), Out: ints(c.dims(y)), Lo: ints(c.n.Ints("lo")), Reflect: c.n.Str("mode") == "reflect", DType: c.elem(x)}
	return c.launch("pad", k.Build, x, y)
}

// space views an image as outer, three spatial sizes and inner, channels first
// or last as the spatial axes say.
func space(d []int64, axes []int) (outer, inner int, size [3]int) {
	outer, inner, size = 1, 1, [3]int{1, 1, 1}
	for i, n := range d {
		switch k := i - axes[0]; {
		case k < 0:
			outer *= int(n)
		case k < len(axes):
			size[3-len(axes)+k] = int(n)
		default:
			inner *= int(n)
		}
	}
	return outer, inner, size
}

// resize samples operand 0; its gradient is the transpose.
func resize(back bool) func(c *cudaCall) error {
	return func(c *cudaCall) error {
		in, out := c.s.In[0], c.s.Out[0]
		axes := c.n.SpatialAxes()
		k := ptx.Resize{Name: "k", Linear: c.n.Str("mode") == "linear", Coords: c.n.Str("coords"), TiesUp: c.n.Str("ties") == "up", X: c.elem(in), Y: c.elem(out)}
		k.Outer, k.Inner, k.In = space(c.dims(in), axes)
		_, _, k.Out = space(c.dims(out), axes)
		if !back {
			return c.launch("resize", k.Forward, in, out)
		}
		k.In, k.Out, k.X, k.Y = k.Out, k.In, k.Y, k.X
		return c.launch("resize_grad", k.Backward, in, out)
	}
}

// spatial reports whether the operand is a float with one to three spatial
// dimensions.
func spatial(n *ir.Node) bool { return floatsOnly(n) && n.In[0].Type.Shape.Rank() <= 5 }

// adaptivePool averages parts of operand 0; its gradient is the transpose.
func adaptivePool(back bool) func(c *cudaCall) error {
	return func(c *cudaCall) error {
		in, out := c.s.In[0], c.s.Out[0]
		axes := c.n.SpatialAxes()
		k := ptx.AdaptivePool{Name: "k", X: c.elem(in), Y: c.elem(out)}
		k.Outer, k.Inner, k.In = space(c.dims(in), axes)
		_, _, k.Out = space(c.dims(out), axes)
		if !back {
			return c.launch("adaptive_avg_pool", k.Forward, in, out)
		}
		k.In, k.Out, k.X, k.Y = k.Out, k.In, k.Y, k.X
		return c.launch("adaptive_avg_pool_grad", k.Backward, in, out)
	}
}

// pool is the geometry of a node over images.
func (c *cudaCall) pool() ptx.Pool {
	w := c.n.Window()
	p := poolOf(&w)
	p.CountPad = c.n.Op != ir.OpMaxPool && c.n.Flag("count_include_pad")
	p.In, p.Out = c.elem(c.s.In[0]), c.elem(c.s.Out[0])
	return p
}

// maxPool omits results that nothing reads: the positions of a pool in forward, or
// the values of a pool that is computed again.
func (c *cudaCall) maxPool() error {
	p, args := c.pool(), []lower.BufferID(nil)
	p.NoMax, p.NoIndex = !c.isRead(c.s.Out[0]), !c.isRead(c.s.Out[1])
	if p.NoMax && p.NoIndex {
		p.NoMax = false
	}
	if !p.NoMax {
		args = append(args, c.s.Out[0])
	}
	if !p.NoIndex {
		index := c.s.Out[1]
		p.Taps = c.typeOf(index).DType == ir.U8
		args = append(args, index)
	}
	if norm := c.relu[c.p.Buffers[c.s.In[0]].Root]; norm != nil && norm.Kernel.Fusion.Unstored {
		return c.poolOfNorm(norm, p, args)
	}
	return c.launch("max_pool", p.Max, append(c.s.In[:1:1], args...)...)
}

// maxPoolGrad adds dy at the positions in index. If the pool that computed index is
// known, every position reads the windows that cover it; otherwise the elements of
// an image are added one after the other.
func (c *cudaCall) maxPoolGrad() error {
	dy, index, dx := c.s.In[0], c.s.In[1], c.s.Out[0]
	if pool := c.s.Kernel.Pool; pool != nil {
		p := poolOf(pool)
		p.In, p.Out = c.elem(dy), c.elem(dx)
		return c.launch("max_pool_grad", p.MaxBackward, dy, index, dx)
	}
	w := c.n.Window()
	sum := dx
	if c.typeOf(dx).DType != ir.F32 {
		sum = c.temp("sum", ir.F32, c.dims(dx)...)
	}
	if err := c.fillZero(sum); err != nil || c.elements(dy) == 0 {
		return err
	}
	k := ptx.Scatter{Name: "k", Add: true, Outer: int(w.N * w.C), N: int(lower.Count(w.In)), M: int(lower.Count(w.Out)), Inner: 1,
		IDs: c.elem(index), In: c.elem(dy), Out: ptx.Float32}
	if w.Last {
		k.Outer, k.Inner = int(w.N), int(w.C)
	}
	if err := c.launch("scatter", k.Build, sum, dy, index); err != nil || sum == dx {
		return err
	}
	return c.cast(sum, dx)
}

func (c *cudaCall) avgPool() error {
	return c.launch("avg_pool", c.pool().Avg, c.s.In[0], c.s.Out[0])
}

func (c *cudaCall) avgPoolGrad() error {
	return c.launch("avg_pool_grad", c.pool().AvgBackward, c.s.In[0], c.s.Out[0])
}

// images reports whether the node is a pool of floats.
func images(n *ir.Node) bool { return floatsOnly(&ir.Node{In: n.In[:1], Out: n.Out[:1]}) }

package lower

import (
	"ampc/ir"
	"ampc/ptx"
)

// Rows over images: pads, resizes and pools.

func ints(v []int64) []int {
	out := make([]int, len(v))
	for i, x := range v {
		out[i] = int(x)
	}
	return out
}

// pad is by edge or reflection; by a constant it is copies.
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
		k := ptx.Resize{Name: "k", Linear: c.n.Str("mode") == "linear", Coords: c.n.Str("coords"), X: c.elem(in), Y: c.elem(out)}
		k.Outer, k.Inner, k.In = space(c.dims(in), axes)
		_, _, k.Out = space(c.dims(out), axes)
		if !back {
			return c.launch("resize", k.Forward, in, out)
		}
		k.In, k.Out, k.X, k.Y = k.Out, k.In, k.Y, k.X
		return c.launch("resize_grad", k.Backward, in, out)
	}
}

// spatial takes floats with one to three spatial dimensions.
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

// planar takes pools over one or two spatial dimensions.
func planar(n *ir.Node) bool {
	for _, list := range [2][]*ir.Value{n.In[:1], n.Out[:1]} {
		if d := list[0].Type.DType; d != ir.F32 && d != ir.F16 && d != ir.BF16 || list[0].Type.Shape.Elements() == 0 {
			return false
		}
	}
	return n.In[0].Type.Shape.Rank() <= 4
}

func (c *cudaCall) pool() (ptx.Pool, error) {
	w := c.n.Window()
	p, err := poolOf(&w)
	p.CountPad = c.n.Op != ir.OpMaxPool && c.n.Flag("count_include_pad")
	p.In, p.Out = c.elem(c.s.In[0]), c.elem(c.s.Out[0])
	return p, err
}

func (c *cudaCall) maxPool() error {
	p, err := c.pool()
	if err != nil {
		return err
	}
	return c.launch("max_pool", p.Max, c.s.In[0], c.s.Out[0], c.s.Out[1])
}

// maxPoolGrad adds dy at the positions that index names: the row does not say
// which windows a position belongs to, so every position looks at all of them.
func (c *cudaCall) maxPoolGrad() error {
	dy, index, dx := c.s.In[0], c.s.In[1], c.s.Out[0]
	w := c.n.Window()
	k := ptx.Gather{Name: "k", Elementwise: true, Outer: int(w.N * w.C), N: int(count(w.In)), M: int(count(w.Out)), Inner: 1,
		IDs: c.elem(index), In: c.elem(dy), Out: c.elem(dx)}
	if w.Last {
		k.Outer, k.Inner = int(w.N), int(w.C)
	}
	return c.launch("max_pool_grad", k.Scatter, dy, index, dx)
}

func (c *cudaCall) avgPool() error {
	p, err := c.pool()
	if err != nil {
		return err
	}
	return c.launch("avg_pool", p.Avg, c.s.In[0], c.s.Out[0])
}

func (c *cudaCall) avgPoolGrad() error {
	p, err := c.pool()
	if err != nil {
		return err
	}
	return c.launch("avg_pool_grad", p.AvgBackward, c.s.In[0], c.s.Out[0])
}

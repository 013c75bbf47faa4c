package ir

import (
	"fmt"
	"slices"
)

var poolRows = map[Op]Def{
	OpMaxPool: {
		Name: "max_pool", Doc: "The largest element of each window, NaN where it holds one, and its index: the first such position, counted row-major over the spatial dimensions of x.",
		In:    in(Operand{Name: "x"}),
		Out:   out(Result{Name: "y"}, Result{Name: "index", Class: Fixed, Cheap: true}),
		Attrs: windowAttrs(kernelAttr, ceilAttr), Class: Clear, Why: "keeps order", Unit: UnitSame,
		Window: poolWindow, Infer: inferMaxPool, Cost: costPool, Bound: noBound,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			if d[0] == nil {
				return []*Value{nil}
			}
			return []*Value{b.maxPoolGrad(d[0], n.Out[1], b.spatialSizes(n, n.In[0]), n.Str("layout"))}
		},
		Range: func(n *Node, in []Interval) []Interval {
			return []Interval{in[0], {Lo: 0, Hi: sure(n.In[0].Type.Shape, count(n.In[0].Type))}}
		},
	},
	OpMaxPoolGrad: {
		Name: "max_pool_grad", Nonfinite: addedAsIs, Doc: "Adds each element of dy to the position of x that index names; windows may share positions.",
		In:    in(Operand{Name: "dy", ReadsLow: true}, Operand{Name: "index", Kinds: KInt, Class: Fixed, Searched: true}),
		Out:   out(Result{Name: "dx", StoresLow: true}),
		Attrs: []AttrDef{sizeAttr, layoutAttr}, Class: Keep, Why: "sums overlapping windows", Unit: UnitSame,
		GradOf: OpMaxPool, Window: poolGradWindow, Infer: inferPoolGrad, Bound: boundPoolGrad, Cost: flops(0, 1), Range: sumRange(func(n *Node) float64 { return sure(n.In[0].Type.Shape, count(n.In[0].Type)) }),
		Grad: gradMaxPoolGrad,
	},
	OpAvgPool: {
		Name: "avg_pool", Doc: "The mean of each window; padding counts as zeros where count_include_pad, and not at all elsewhere.",
		In: in(Operand{Name: "x", ReadsLow: true}), Out: out(Result{Name: "y", StoresLow: true}), Attrs: avgAttrs(),
		Class: Keep, Why: "sums need f32", Unit: UnitSame, Window: poolWindow, Infer: inferAvgPool, Cost: costPool,
		Bound: func(n *Node) Bound { return Bound{ULP: 1, K: product(n.Ints("kernel"))} },
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.avgPoolGrad(d[0], poolAttrs(n).With("size", b.spatialSizes(n, n.In[0])))}
		},
		Range: func(_ *Node, in []Interval) []Interval {
			return []Interval{{Lo: min(in[0].Lo, 0), Hi: max(in[0].Hi, 0), NaN: in[0].NaN}}
		},
	},
	OpAvgPoolGrad: {
		Name: "avg_pool_grad", Doc: "Spreads dy evenly over the windows it came from.",
		In: in(Operand{Name: "dy", ReadsLow: true}), Out: out(Result{Name: "dx", StoresLow: true}), Attrs: avgAttrs(sizeAttr),
		Class: Keep, Why: "sums overlapping windows", Unit: UnitSame, GradOf: OpAvgPool, Window: poolGradWindow, Infer: inferPoolGrad, Bound: boundPoolGrad, Cost: costPool, Range: sumRange(func(n *Node) float64 { return float64(product(n.Ints("kernel"))) }),
		Grad: func(b *Builder, n *Node, d []*Value) []*Value { return []*Value{b.AvgPool(d[0], poolAttrs(n))} },
	},
	OpAdaptiveAvgPool: {
		Name: "adaptive_avg_pool", Nonfinite: addedAsIs, Doc: "The mean over windows that split each spatial dimension into size parts: part i of n over in elements covers floor(i·in/n) up to ceil((i+1)·in/n).",
		In: in(Operand{Name: "x", ReadsLow: true}), Out: out(Result{Name: "y", StoresLow: true}), Attrs: []AttrDef{sizeAttr, layoutAttr},
		Class: Keep, Why: "sums need f32", Unit: UnitSame, Window: poolWindow, Infer: inferAdaptive, Cost: flops(0, 1), Range: within(0),
		Bound: func(n *Node) Bound { return Bound{ULP: 1, K: count(n.In[0].Type)} },
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.adaptiveAvgPoolGrad(d[0], b.spatialSizes(n, n.In[0]), n.Str("layout"))}
		},
	},
	OpAdaptiveAvgPoolGrad: {
		Name: "adaptive_avg_pool_grad", Nonfinite: addedAsIs, Doc: "Spreads dy evenly over the parts it came from.",
		In: in(Operand{Name: "dy", ReadsLow: true}), Out: out(Result{Name: "dx", StoresLow: true}), Attrs: []AttrDef{sizeAttr, layoutAttr},
		Class: Keep, Why: "sums overlapping windows", Unit: UnitSame, GradOf: OpAdaptiveAvgPool, Window: poolGradWindow, Infer: inferPoolGrad, Bound: boundPoolGrad, Cost: flops(0, 1),
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.AdaptiveAvgPool(d[0], b.spatialSizes(n, n.In[0]), n.Str("layout"))}
		},
	},
}

var (
	poolWindow     = &WindowRow{Image: In0, Places: Out0}
	poolGradWindow = &WindowRow{Image: Out0, Places: In0}

	kernelAttr = AttrDef{Name: "kernel", Kind: AttrInts, Required: true, Doc: "window, one number per spatial dimension"}
	ceilAttr   = AttrDef{Name: "ceil", Kind: AttrBool, Doc: "a last window may reach beyond the data"}
	sizeAttr   = AttrDef{Name: "size", Kind: AttrInts, Required: true, Doc: "spatial dimensions of the result"}
)

func avgAttrs(more ...AttrDef) []AttrDef {
	return windowAttrs(append(more, kernelAttr, ceilAttr, AttrDef{Name: "count_include_pad", Kind: AttrBool, Doc: "divide by the window's size, padding included"})...)
}

func product(v []int64) int64 {
	p := int64(1)
	for _, x := range v {
		p *= x
	}
	return p
}

func costPool(n *Node) Cost {
	small := min(count(n.In[0].Type), count(n.Out[0].Type)) // the side with one element per window
	return Cost{Flops: small * product(n.Ints("kernel"))}
}

func boundPoolGrad(n *Node) Bound {
	if n.Op == OpAvgPoolGrad {
		return Bound{ULP: 1, K: product(n.Ints("kernel"))}
	}
	return Bound{ULP: 1, K: max(count(n.In[0].Type), 1)}
}

// poolShape is the shape of windows over x.
func poolShape(n *Node) (Shape, error) {
	x := n.In[0]
	if err := firstError(wantRank("x", x, 3, 5), n.checkOut()); err != nil || !x.Type.Shape.Known() {
		return Shape{}, err
	}
	nd := x.Type.Shape.Rank() - 2
	s, err := n.spatial(nd)
	if err != nil {
		return Shape{}, err
	}
	kernel, err := n.windowList("kernel", nd, 1)
	if err != nil {
		return Shape{}, err
	}
	batch, c, in := parts(x.Type.Shape, s.last)
	to := make([]Dim, nd)
	for i := range to {
		if s.begin[i] >= kernel[i]*s.dilation[i] || s.end[i] >= kernel[i]*s.dilation[i] {
			return Shape{}, fmt.Errorf("kernel %d with pads %d and %d: a window would hold padding alone", kernel[i], s.begin[i], s.end[i])
		}
		if to[i], err = s.output(i, in[i], kernel[i], n.Flag("ceil")); err != nil {
			return Shape{}, err
		}
	}
	return image(batch, c, to, s.last), nil
}

func inferMaxPool(n *Node) ([]Type, error) {
	s, err := poolShape(n)
	if n.Has("out") {
		err = firstError(err, fmt.Errorf("keeps the dtype of x, out does not apply"))
	}
	return []Type{{n.In[0].Type.DType, s}, {I32, s}}, err
}

func inferAvgPool(n *Node) ([]Type, error) {
	s, err := poolShape(n)
	return []Type{{n.keptDType(), s}}, err
}

// resized is operand 0's shape with the spatial dimensions that size gives.
func (n *Node) resized() (Shape, error) {
	v := n.In[0]
	if err := firstError(wantRank(n.Def().In[0].Name, v, 3, 5), n.checkOut()); err != nil || !v.Type.Shape.Known() {
		return Shape{}, err
	}
	last := n.Str("layout") == "NHWC"
	if l := n.Str("layout"); !last && l != "NCHW" {
		return Shape{}, fmt.Errorf("layout %q, want NCHW or NHWC", l)
	}
	batch, c, space := parts(v.Type.Shape, last)
	to, err := n.sizeList("size", len(space))
	return image(batch, c, toDims(to), last), err
}

func inferAdaptive(n *Node) ([]Type, error) {
	s, err := n.resized()
	return []Type{{n.keptDType(), s}}, err
}

func inferPoolGrad(n *Node) ([]Type, error) {
	s, err := n.resized()
	t := []Type{{n.keptDType(), s}}
	dy := n.In[0].Type.Shape
	if err != nil || !dy.Known() {
		return t, err
	}
	switch n.Op {
	case OpMaxPoolGrad:
		return t, wantShape("index", n.In[1], dy.Dims()...)
	case OpAvgPoolGrad:
		back := *n
		back.In = []*Value{{Name: n.In[0].Name, Type: Type{F32, s}}}
		got, err := poolShape(&back)
		if err == nil && !sameSizes(got, dy) {
			err = fmt.Errorf("dy %s has type %s, want shape %s", n.In[0], n.In[0].Type, dimsString(got.Dims(), nil))
		}
		return t, err
	}
	return t, nil
}

// gradMaxPoolGrad gathers the elements of d at index.
func gradMaxPoolGrad(b *Builder, n *Node, d []*Value) []*Value {
	s := n.In[0].Type.Shape
	last := n.Str("layout") == "NHWC"
	if !s.Known() {
		b.Fail("max_pool_grad: the gradient needs the rank of %s", n.In[0])
		return []*Value{nil, nil}
	}
	batch, c, _ := parts(s, last)
	flat := func(v *Value, n Dim) *Value {
		if last {
			return b.reshaped(v, batch, n, c)
		}
		return b.reshaped(v, batch, c, n)
	}
	axis := int64(2)
	if last {
		axis = 1
	}
	windows, cells := Dim(1), Dim(1)
	for i, x := range b.spatialSizes(n, n.In[0]) {
		windows, cells = windows*Dim(x), cells*Dim(n.Ints("size")[i])
	}
	picked := b.GatherElements(flat(d[0], cells), flat(n.In[1], windows), axis)
	return []*Value{b.reshaped(picked, s.Dims()...), nil}
}

// poolAttrs copies the attributes of an average pool.
func poolAttrs(n *Node) Attrs {
	return n.Attrs.only("strides", "pads", "dilations", "layout", "kernel", "ceil", "count_include_pad")
}

// MaxPool takes the maximum of each window. Attributes: kernel, strides, pads,
// dilations, ceil, layout. Result 1 of the node is the position of the maximum.
func (b *Builder) MaxPool(x *Value, a Attrs) *Value { return b.one(OpMaxPool, []*Value{x}, a) }

// maxPoolGrad adds dy to the positions that index, a result of max_pool, names
// in an image of the given spatial size.
func (b *Builder) maxPoolGrad(dy, index *Value, size []int64, layout string) *Value {
	return b.one(OpMaxPoolGrad, []*Value{dy, index}, A("size", size, "layout", layout))
}

// AvgPool takes the mean of each window. Attributes: those of MaxPool and count_include_pad.
func (b *Builder) AvgPool(x *Value, a Attrs) *Value { return b.one(OpAvgPool, []*Value{x}, a) }

// avgPoolGrad is the gradient of AvgPool; a also holds the size of x.
func (b *Builder) avgPoolGrad(dy *Value, a Attrs) *Value {
	return b.one(OpAvgPoolGrad, []*Value{dy}, a)
}

// AdaptiveAvgPool averages down to the given spatial size.
func (b *Builder) AdaptiveAvgPool(x *Value, size []int64, layout string) *Value {
	return b.one(OpAdaptiveAvgPool, []*Value{x}, A("size", size, "layout", layout))
}

// adaptiveAvgPoolGrad is the gradient of AdaptiveAvgPool; size is that of x.
func (b *Builder) adaptiveAvgPoolGrad(dy *Value, size []int64, layout string) *Value {
	return b.one(OpAdaptiveAvgPoolGrad, []*Value{dy}, A("size", size, "layout", layout))
}

// GlobalAvgPool averages each channel over all positions, which stay as ones.
func (b *Builder) GlobalAvgPool(x *Value, layout string) *Value {
	ones := []int64{}
	if x != nil {
		ones = slices.Repeat([]int64{1}, max(x.Type.Shape.Rank()-2, 0))
	}
	return b.AdaptiveAvgPool(x, ones, layout)
}

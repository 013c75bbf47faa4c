package ir

import (
	"fmt"
	"slices"
)

// The weights of a convolution are [O,C/groups,*kernel] in layout NCHW and
// [O,*kernel,C/groups] in NHWC.
var convRows = map[Op]Def{
	OpConv: {
		Name: "conv", Doc: "Convolves over 1, 2 or 3 spatial dimensions: x[N,C,*], w[O,C/groups,*], b[O]; in NHWC x[N,*,C], w[O,*,C/groups].",
		In: in(x("x"), x("w"), biasIn), Out: out(Result{Name: "y", StoresF32: true}), Attrs: windowAttrs(groupsAttr),
		Class: Low, Why: "tensor cores", Flags: Convolves, Unit: unitLinear,
		Window: &WindowRow{Image: In0, Places: Out0, Filter: In1}, Aligned: alignedConv,
		Infer: inferConv, Grad: gradConv,
		Bound: func(n *Node) Bound { return Bound{K: n.taps() + 1} },
		Cost:  func(n *Node) Cost { return Cost{Flops: 2 * count(n.Out[0].Type) * n.taps()} },
		Range: productRange(func(n *Node) float64 { return sure(n.In[1].Type.Shape, n.taps()) }),
	},
	OpConvGradX: {
		Name: "conv_grad_x", Doc: "The gradient of conv in x: spreads dy over the windows it came from.",
		In: in(x("dy"), x("w")), Out: out(Result{Name: "dx", StoresF32: true}),
		Attrs: windowAttrs(groupsAttr, AttrDef{Name: "size", Kind: AttrInts, Required: true, Doc: "spatial dimensions of x"}),
		Class: Low, Why: "tensor cores", Flags: Convolves, Unit: UnitProduct,
		GradOf: OpConv, Window: &WindowRow{Image: Out0, Places: In0, Filter: In1},
		Infer: inferConvGradX, Grad: gradConvGradX,
		Bound: func(n *Node) Bound { return Bound{K: n.spreads()} },
		Cost:  func(n *Node) Cost { return Cost{Flops: 2 * count(n.In[0].Type) * n.taps()} },
		Range: productRange(func(n *Node) float64 { return sure(n.In[1].Type.Shape, n.spreads()) }),
	},
	OpConvGradW: {
		Name: "conv_grad_w", Doc: "The gradient of conv in w: x and dy multiplied over all positions and images.",
		In: in(x("x"), x("dy")), Out: out(Result{Name: "dw", StoresF32: true}),
		Attrs: windowAttrs(groupsAttr, AttrDef{Name: "kernel", Kind: AttrInts, Required: true, Doc: "spatial dimensions of w"}),
		Class: Low, Why: "tensor cores", Flags: Convolves, Unit: UnitProduct,
		GradOf: OpConv, Window: &WindowRow{Image: In0, Places: In1, Filter: Out0},
		Infer: inferConvGradW, Grad: gradConvGradW,
		Bound: func(n *Node) Bound { return Bound{K: n.positions(1)} },
		Cost:  func(n *Node) Cost { return Cost{Flops: 2 * count(n.Out[0].Type) * n.positions(1)} },
		Range: productRange(func(n *Node) float64 { return sure(n.In[1].Type.Shape, n.positions(1)) }),
	},
	OpConvTranspose: {
		Name: "conv_transpose", Doc: "Transposed convolution: the gradient of a conv that maps O channels to C, plus b[O]; w[C,O/groups,*], in NHWC w[C,*,O/groups].",
		In: in(x("x"), x("w"), biasIn), Out: out(Result{Name: "y", StoresF32: true}),
		Attrs: windowAttrs(groupsAttr, AttrDef{Name: "output_padding", Kind: AttrInts, Doc: "added to the spatial dimensions of the result; absent: zeros"}),
		Class: Low, Why: "tensor cores", Flags: Convolves, Unit: unitLinear,
		Window: &WindowRow{Image: Out0, Places: In0, Filter: In1},
		Infer:  inferConvTranspose, Grad: gradConvTranspose, Expand: expandConvTranspose,
		Bound: func(n *Node) Bound { return Bound{K: n.spreads() + 1} },
		Cost:  func(n *Node) Cost { return Cost{Flops: 2 * count(n.In[0].Type) * n.taps()} },
		Range: productRange(func(n *Node) float64 { return sure(n.In[1].Type.Shape, n.spreads()) }),
	},
}

// alignedConv is the channels of ungrouped convolutions.
func alignedConv(n *Node) [][]int {
	if n.Int("groups") != 1 {
		return nil
	}
	channels := n.channelAxis(n.In[0].Type.Shape.Rank())
	return [][]int{{channels}, {channels, 0}, {0}}
}

// taps is the number of products whose sum is one element of conv's result: a filter's size.
func (n *Node) taps() int64 {
	s := n.In[1].Type.Shape
	if s.Rank() < 3 {
		return unknownElements
	}
	return count(n.In[1].Type) / max(size(s.Dim(0)), 1)
}

// positions is the number of windows of operand i, over all images.
func (n *Node) positions(i int) int64 {
	s := n.In[i].Type.Shape
	if s.Rank() < 3 {
		return unknownElements
	}
	return count(n.In[i].Type) / max(size(s.Dim(n.channelAxis(s.Rank()))), 1)
}

// spreads is the largest number of products whose sum is one element of conv_grad_x's result: the
// positions of a filter in each channel of its group.
func (n *Node) spreads() int64 {
	s := n.In[1].Type.Shape
	if s.Rank() < 3 {
		return unknownElements
	}
	return count(n.In[1].Type) / max(size(s.Dim(0)), 1) / max(size(s.Dim(n.channelAxis(s.Rank()))), 1) * max(size(s.Dim(0))/max(n.Int("groups"), 1), 1)
}

// productRange is the range of a sum of k products of operands 0 and 1, plus a bias.
func productRange(k func(n *Node) float64) func(*Node, []Interval) []Interval {
	return func(n *Node, in []Interval) []Interval {
		m := k(n) * in[0].magnitude() * in[1].magnitude()
		if n.operand(2) != nil {
			m += in[2].magnitude()
		}
		return []Interval{around(m, in[0].NaN || in[1].NaN)}
	}
}

// convOperands checks ranks and attributes; nd is 0 if a shape is not known.
func convOperands(n *Node) (nd int, s spatial, err error) {
	a, b := n.In[0], n.In[1]
	names := n.Def().In
	if err := firstError(wantRank(names[0].Name, a, 3, 5), wantRank(names[1].Name, b, 3, 5), n.checkOut()); err != nil {
		return 0, s, err
	}
	if g := n.Int("groups"); g < 1 {
		return 0, s, fmt.Errorf("groups=%d, want one or more", g)
	}
	if !a.Type.Shape.Known() || !b.Type.Shape.Known() {
		return 0, s, nil
	}
	nd = a.Type.Shape.Rank() - 2
	if b.Type.Shape.Rank() != nd+2 {
		return 0, s, fmt.Errorf("ranks differ: %s %s, %s %s", a, a.Type, b, b.Type)
	}
	s, err = n.spatial(nd)
	return nd, s, err
}

// grouped is the number of d filters or channels in one group.
func grouped(what string, d Dim, groups int64) (Dim, error) {
	if d < 0 {
		return UnknownDim, nil
	}
	if int64(d)%groups != 0 {
		return 0, fmt.Errorf("%d %s do not split into %d groups", d, what, groups)
	}
	return d / Dim(groups), nil
}

func inferConv(n *Node) ([]Type, error) {
	t := Type{DType: n.lowDType()}
	nd, s, err := convOperands(n)
	if err != nil || nd == 0 {
		return []Type{t}, err
	}
	batch, channels, in := parts(n.In[0].Type.Shape, s.last)
	o, per, kernel := parts(n.In[1].Type.Shape, s.last)
	if _, err := grouped("filters", o, n.Int("groups")); err != nil {
		return nil, err
	}
	if !fits(channels, mulDims(per, Dim(n.Int("groups")))) {
		return nil, fmt.Errorf("channels differ: %s %s, %s %s with groups=%d", n.In[0], n.In[0].Type, n.In[1], n.In[1].Type, n.Int("groups"))
	}
	to := make([]Dim, nd)
	for i := range to {
		if kernel[i] < 0 {
			to[i] = UnknownDim
		} else if to[i], err = s.output(i, in[i], int64(kernel[i]), false); err != nil {
			return nil, err
		}
	}
	t.Shape = image(batch, o, to, s.last)
	return []Type{t}, wantShape("bias", n.operand(2), o)
}

func inferConvGradX(n *Node) ([]Type, error) {
	t := Type{DType: n.lowDType()}
	nd, s, err := convOperands(n)
	if err != nil || nd == 0 {
		return []Type{t}, err
	}
	batch, o, _ := parts(n.In[0].Type.Shape, s.last)
	o2, per, kernel := parts(n.In[1].Type.Shape, s.last)
	if !fits(o, o2) {
		return nil, fmt.Errorf("channels differ: dy %s %s, w %s %s", n.In[0], n.In[0].Type, n.In[1], n.In[1].Type)
	}
	if _, err := grouped("filters", narrow(o, o2), n.Int("groups")); err != nil {
		return nil, err
	}
	in, err := n.sizeList("size", nd)
	if err != nil {
		return nil, err
	}
	t.Shape = image(batch, mulDims(per, Dim(n.Int("groups"))), toDims(in), s.last)
	return []Type{t}, s.matches(n.In[0], sizes(kernel), in)
}

// matches fails unless windows over in have dy's spatial dimensions.
func (s *spatial) matches(dy *Value, kernel, in []int64) error {
	_, _, got := parts(dy.Type.Shape, s.last)
	for i := range in {
		if kernel[i] < 0 {
			continue
		}
		want, err := s.output(i, Dim(in[i]), kernel[i], false)
		if err != nil {
			return err
		}
		if !fits(got[i], want) {
			return fmt.Errorf("dy %s has type %s, spatial dimension %d should be %d", dy, dy.Type, i, want)
		}
	}
	return nil
}

func inferConvGradW(n *Node) ([]Type, error) {
	t := Type{DType: n.lowDType()}
	nd, s, err := convOperands(n)
	if err != nil || nd == 0 {
		return []Type{t}, err
	}
	batch, channels, in := parts(n.In[0].Type.Shape, s.last)
	batch2, o, _ := parts(n.In[1].Type.Shape, s.last)
	if !fits(batch, batch2) {
		return nil, fmt.Errorf("batches differ: x %s %s, dy %s %s", n.In[0], n.In[0].Type, n.In[1], n.In[1].Type)
	}
	if _, err := grouped("filters", o, n.Int("groups")); err != nil {
		return nil, err
	}
	per, err := grouped("channels", channels, n.Int("groups"))
	if err != nil {
		return nil, err
	}
	kernel, err := n.windowList("kernel", nd, 1)
	if err != nil {
		return nil, err
	}
	t.Shape = image(o, per, toDims(kernel), s.last)
	for _, d := range in {
		if d < 0 {
			return []Type{t}, nil
		}
	}
	return []Type{t}, s.matches(n.In[1], kernel, sizes(in))
}

func inferConvTranspose(n *Node) ([]Type, error) {
	t := Type{DType: n.lowDType()}
	nd, s, err := convOperands(n)
	if err != nil || nd == 0 {
		return []Type{t}, err
	}
	batch, c, in := parts(n.In[0].Type.Shape, s.last)
	c2, per, kernel := parts(n.In[1].Type.Shape, s.last)
	if !fits(c, c2) {
		return nil, fmt.Errorf("channels differ: x %s %s, w %s %s", n.In[0], n.In[0].Type, n.In[1], n.In[1].Type)
	}
	if _, err := grouped("channels", narrow(c, c2), n.Int("groups")); err != nil {
		return nil, err
	}
	extra, err := n.windowList("output_padding", nd, 0)
	if err != nil {
		return nil, err
	}
	to := make([]Dim, nd)
	for i := range to {
		if to[i], err = s.input(i, in[i], kernel[i], extra[i]); err != nil {
			return nil, err
		}
	}
	o := mulDims(per, Dim(n.Int("groups")))
	t.Shape = image(batch, o, to, s.last)
	return []Type{t}, wantShape("bias", n.operand(2), o)
}

// input is the number of elements that a window over spatial dimension i needs in order to have out
// positions, plus extra: the size of a transposed convolution.
func (s *spatial) input(i int, out, kernel Dim, extra int64) (Dim, error) {
	if out < 0 || kernel < 0 {
		return UnknownDim, nil
	}
	if out > Dim(maxElements/maxWindow) || kernel > maxWindow || kernel < 1 {
		return 0, fmt.Errorf("spatial dimension %d has %d elements under a kernel of %d, want 1 to %d", i, out, kernel, maxWindow)
	}
	if extra >= max(s.stride[i], s.dilation[i]) {
		return 0, fmt.Errorf("output_padding holds %d, want less than the stride or the dilation", extra)
	}
	size := (int64(out)-1)*s.stride[i] + s.dilation[i]*(int64(kernel)-1) + 1 - s.begin[i] - s.end[i] + extra
	if size < 1 {
		return 0, fmt.Errorf("pads leave no output in spatial dimension %d", i)
	}
	return Dim(size), nil
}

// windowOf copies the attributes that describe windows, and adds one.
func windowOf(n *Node, name string, v any) Attrs {
	return n.sameWindow().With(name, v)
}

func (n *Node) sameWindow() Attrs {
	return n.Attrs.only("strides", "pads", "dilations", "layout", "groups")
}

// spatialSizes are v's spatial dimensions; not known, the builder fails for n.
func (b *Builder) spatialSizes(n *Node, v *Value) []int64 {
	if !v.Type.Shape.Known() {
		b.Fail("%s: the gradient needs the rank of %s", n.Def().Name, v)
		return nil
	}
	_, _, d := parts(v.Type.Shape, n.Str("layout") == "NHWC")
	for _, x := range d {
		if x < 0 {
			b.needsSizes(v.Type, "%s: the gradient needs the spatial dimensions of %s, which has type %s", n.Def().Name, v, b.g.TypeString(v.Type))
		}
	}
	return sizes(d)
}

func gradConv(b *Builder, n *Node, d []*Value) []*Value {
	x, w, dy := n.In[0], n.In[1], d[0]
	g := []*Value{
		b.ConvGradX(dy, w, windowOf(n, "size", b.spatialSizes(n, x))),
		b.convGradW(x, dy, windowOf(n, "kernel", b.spatialSizes(n, w))),
		nil,
	}
	if n.operand(2) != nil {
		g[2] = b.sumBut(dy, n.channelAxis(x.Type.Shape.Rank()))
	}
	return g
}

func gradConvGradX(b *Builder, n *Node, d []*Value) []*Value {
	dy, w, dd := n.In[0], n.In[1], d[0]
	return []*Value{b.Conv(dd, w, nil, n.sameWindow()), b.convGradW(dd, dy, windowOf(n, "kernel", b.spatialSizes(n, w)))}
}

func gradConvGradW(b *Builder, n *Node, d []*Value) []*Value {
	x, dy, dd := n.In[0], n.In[1], d[0]
	return []*Value{b.ConvGradX(dy, dd, windowOf(n, "size", b.spatialSizes(n, x))), b.Conv(x, dd, nil, n.sameWindow())}
}

func gradConvTranspose(b *Builder, n *Node, d []*Value) []*Value {
	x, w, dy := n.In[0], n.In[1], d[0]
	if b.spatialSizes(n, n.Out[0]); b.Err() != nil {
		return make([]*Value, 3)
	}
	window, beyond := b.reached(n)
	var bias *Value
	if n.operand(2) != nil {
		bias = b.sumBut(dy, n.channelAxis(x.Type.Shape.Rank()))
	}
	for _, a := range n.SpatialAxes() {
		if k := beyond[a]; k > 0 {
			dy = b.sliceAxis(dy, int64(a), 0, int64(dy.Type.Shape.Dim(a))-k)
		}
	}
	return []*Value{b.Conv(dy, w, nil, window), b.convGradW(dy, x, window.With("kernel", b.spatialSizes(n, w))), bias}
}

// reached splits what output_padding adds to a transposed convolution where it
// is a stride or more, so that as many windows as x has elements fit: window
// has the pads at the end that it fills taken off, and beyond says, by axis, how
// many elements lie behind the last window's last tap and hold zero.
func (b *Builder) reached(n *Node) (window Attrs, beyond []int64) {
	window, beyond = n.sameWindow(), make([]int64, n.Out[0].Type.Shape.Rank())
	nd := len(beyond) - 2
	s, err := n.spatial(nd)
	extra, err2 := n.windowList("output_padding", nd, 0)
	if err := firstError(err, err2); err != nil {
		b.Fail("%s: %v", n.Def().Name, err)
		return window, beyond
	}
	end := slices.Clone(s.end)
	for i, a := range n.SpatialAxes() {
		if extra[i] >= s.stride[i] {
			end[i], beyond[a] = max(s.end[i]-extra[i], 0), max(extra[i]-s.end[i], 0)
		}
	}
	if !slices.Equal(end, s.end) {
		window = window.With("pads", append(slices.Clone(s.begin), end...))
	}
	return window, beyond
}

func expandConvTranspose(b *Builder, n *Node) []*Value {
	size := b.spatialSizes(n, n.Out[0])
	if b.Err() != nil {
		return []*Value{nil}
	}
	window, beyond := b.reached(n)
	for i, a := range n.SpatialAxes() {
		size[i] -= beyond[a]
	}
	y := b.ConvGradX(n.In[0], n.In[1], window.With("size", size))
	if slices.ContainsFunc(beyond, func(k int64) bool { return k > 0 }) {
		y = b.Pad(y, make([]int64, len(beyond)), beyond, 0)
	}
	if c := n.operand(2); c != nil {
		y = b.Add(y, b.alongChannels(n, c, n.In[0].Type.Shape.Rank()))
	}
	return []*Value{y}
}

// Conv convolves x with w and adds bias (nil: none). Attributes: strides,
// pads, dilations, groups, layout.
func (b *Builder) Conv(x, w, bias *Value, a Attrs) *Value {
	return b.one(OpConv, values(x, w, bias), a)
}

// ConvGradX is the gradient of Conv in x, whose spatial dimensions a gives as size.
func (b *Builder) ConvGradX(dy, w *Value, a Attrs) *Value {
	return b.one(OpConvGradX, []*Value{dy, w}, a)
}

// convGradW is the gradient of Conv in w, whose spatial dimensions a gives as kernel.
func (b *Builder) convGradW(x, dy *Value, a Attrs) *Value {
	return b.one(OpConvGradW, []*Value{x, dy}, a)
}

// ConvTranspose is the transposed convolution. Attributes: those of Conv and output_padding.
func (b *Builder) ConvTranspose(x, w, bias *Value, a Attrs) *Value {
	return b.one(OpConvTranspose, values(x, w, bias), a)
}

package ampc

import (
	"cmp"
	"slices"

	"ampc/ir"
)

// Layout says where the channels of an image batch stand.
type Layout uint8

const (
	ChannelsFirst Layout = iota // [N,C,...], PyTorch's default
	ChannelsLast                // [N,...,C]
)

// String returns the name that dumps use.
func (l Layout) String() string {
	if l == ChannelsLast {
		return "NHWC"
	}
	return "NCHW"
}

// ConvOptions are the options of Conv and ConvTranspose. Each list has a number
// for every spatial dimension, or is nil.
type ConvOptions struct {
	Strides       []int // nil: ones
	Pads          []int // before each spatial dimension, then behind each; nil: zeros
	Dilations     []int // nil: ones
	Groups        int   // channels are split into so many groups that do not mix; 0: 1
	OutputPadding []int // of ConvTranspose: added to the sizes of the result; nil: zeros
	Layout        Layout
}

func (c ConvOptions) attrs() ir.Attrs {
	a := ir.A("groups", cmp.Or(c.Groups, 1), "layout", c.Layout.String())
	for name, list := range map[string][]int{"strides": c.Strides, "pads": c.Pads, "dilations": c.Dilations, "output_padding": c.OutputPadding} {
		if list != nil {
			a = a.With(name, list)
		}
	}
	return a
}

// Conv convolves x with w and adds bias (the zero Tensor: none). Conv2d is the
// layer that owns its weights.
//
//   - Shapes: x[N,C,...], w[O,C/Groups,...], bias[O] to [N,O,...], with 1 to 3 spatial dimensions.
//   - DTypes: floats; the result has the wider of x's and w's.
//   - Errors: channels that do not divide into Groups, or a window larger than the padded image.
//   - PyTorch: F.conv1d, F.conv2d, F.conv3d; pads may differ at the two ends, padding_mode is Pad before it.
func (o ops) Conv(x, w, bias Tensor, opts ...ConvOptions) Tensor {
	c := option(o, "conv", opts)
	if c.OutputPadding != nil {
		o.Fail("conv: OutputPadding is for ConvTranspose")
	}
	return o.tensor(o.b.Conv(x.v, w.v, bias.v, c.attrs()))
}

// ConvTranspose is the transposed convolution, the gradient of Conv by its
// operand. ConvTranspose2d is the layer that owns its weights.
//
//   - Shapes: x[N,C,...], w[C,O/Groups,...], bias[O] (the zero Tensor: none) to [N,O,...].
//   - DTypes: floats; the result has the wider of x's and w's.
//   - Errors: channels that do not divide into Groups, or sizes that are below 1.
//   - PyTorch: F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d.
func (o ops) ConvTranspose(x, w, bias Tensor, opts ...ConvOptions) Tensor {
	return o.tensor(o.b.ConvTranspose(x.v, w.v, bias.v, option(o, "conv_transpose", opts).attrs()))
}

// PoolOptions are the options of MaxPool and AvgPool. Each list has a number
// for every spatial dimension, or is nil.
type PoolOptions struct {
	Strides   []int // nil: the kernel, so that windows do not overlap
	Pads      []int // before each spatial dimension, then behind each; nil: zeros
	Dilations []int // nil: ones
	Ceil      bool  // a last window may reach beyond the data
	CountPad  bool  // of AvgPool: padding counts in the mean, as PyTorch's does by default
	Layout    Layout
}

func (c PoolOptions) attrs(kernel []int) ir.Attrs {
	if c.Strides == nil {
		c.Strides = kernel
	}
	a := ir.A("kernel", kernel, "strides", c.Strides, "ceil", c.Ceil, "layout", c.Layout.String())
	for name, list := range map[string][]int{"pads": c.Pads, "dilations": c.Dilations} {
		if list != nil {
			a = a.With(name, list)
		}
	}
	return a
}

// MaxPool takes the maximum of each window.
//
//   - Shapes: x[N,C,...] to [N,C,...], with 1 to 3 spatial dimensions; kernel has a number for each.
//   - DTypes: float; the result has x's.
//   - Errors: lists whose length is not that of the kernel, or a window larger than the padded image.
//   - PyTorch: nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d; without return_indices.
func (o ops) MaxPool(x Tensor, kernel []int, opts ...PoolOptions) Tensor {
	c := option(o, "max_pool", opts)
	if c.CountPad {
		o.Fail("max_pool: CountPad is for AvgPool")
	}
	return o.tensor(o.b.MaxPool(x.v, c.attrs(kernel)))
}

// AvgPool takes the mean of each window.
//
//   - Shapes: x[N,C,...] to [N,C,...], with 1 to 3 spatial dimensions; kernel has a number for each.
//   - DTypes: float; sums are f32, the result has x's.
//   - Errors: lists whose length is not that of the kernel, or a window larger than the padded image.
//   - PyTorch: nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d; padding counts only with CountPad.
func (o ops) AvgPool(x Tensor, kernel []int, opts ...PoolOptions) Tensor {
	c := option(o, "avg_pool", opts)
	return o.tensor(o.b.AvgPool(x.v, c.attrs(kernel).With("count_include_pad", c.CountPad)))
}

// Pool2dOptions are the options of MaxPool2d and AvgPool2d.
type Pool2dOptions struct {
	Stride   int  // 0: the window, so that windows do not overlap
	Padding  int  // on each side of each spatial dimension
	Ceil     bool // a last window may reach beyond the data
	CountPad bool // of AvgPool2d: padding counts in the mean, as PyTorch's does by default
}

func (c Pool2dOptions) square(k int) PoolOptions {
	p := PoolOptions{Ceil: c.Ceil, CountPad: c.CountPad}
	if c.Stride != 0 {
		p.Strides = []int{c.Stride, c.Stride}
	}
	if c.Padding != 0 {
		p.Pads = []int{c.Padding, c.Padding, c.Padding, c.Padding}
	}
	return p
}

// MaxPool2d takes the maximum over windows of k by k.
//
//   - Shapes: x[N,C,H,W] to [N,C,H/k,W/k], where options do not say otherwise.
//   - DTypes: float; the result has x's.
//   - Errors: a window larger than the padded image.
//   - PyTorch: nn.MaxPool2d(k).
func (o ops) MaxPool2d(x Tensor, k int, opts ...Pool2dOptions) Tensor {
	return o.MaxPool(x, []int{k, k}, option(o, "max_pool2d", opts).square(k))
}

// AvgPool2d takes the mean over windows of k by k.
//
//   - Shapes: x[N,C,H,W] to [N,C,H/k,W/k], where options do not say otherwise.
//   - DTypes: float; sums are f32, the result has x's.
//   - Errors: a window larger than the padded image.
//   - PyTorch: nn.AvgPool2d(k); padding counts only with CountPad.
func (o ops) AvgPool2d(x Tensor, k int, opts ...Pool2dOptions) Tensor {
	return o.AvgPool(x, []int{k, k}, option(o, "avg_pool2d", opts).square(k))
}

// AdaptiveOptions are the options of AdaptiveAvgPool.
type AdaptiveOptions struct{ Layout Layout }

// AdaptiveAvgPool averages down to the given spatial size.
//
//   - Shapes: x[N,C,...] to [N,C,size...]; size has a number for each spatial dimension.
//   - DTypes: float; sums are f32, the result has x's.
//   - Errors: as many sizes as there are spatial dimensions are wanted, each 1 or more.
//   - PyTorch: nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d.
func (o ops) AdaptiveAvgPool(x Tensor, size []int, opts ...AdaptiveOptions) Tensor {
	c := option(o, "adaptive_avg_pool", opts)
	return o.tensor(o.b.AdaptiveAvgPool(x.v, wide(size), c.Layout.String()))
}

// GlobalAvgPool takes the mean over all spatial dimensions, which vanish.
//
//   - Shapes: x[N,C,...] to [N,C].
//   - DTypes: float; sums are f32, the result has x's.
//   - Errors: x has fewer than 3 dimensions.
//   - PyTorch: x.mean(dim=(2,3)), nn.AdaptiveAvgPool2d(1) and nn.Flatten behind it.
func (o ops) GlobalAvgPool(x Tensor) Tensor {
	axes, ok := o.spatial("global_avg_pool", x)
	if !ok {
		return Tensor{}
	}
	return o.called("pool").ReduceMean(x, Axes(axes...))
}

// GlobalMaxPool takes the maximum over all spatial dimensions, which vanish.
//
//   - Shapes: x[N,C,...] to [N,C].
//   - DTypes: float; the result has x's.
//   - Errors: x has fewer than 3 dimensions.
//   - PyTorch: x.amax(dim=(2,3)), nn.AdaptiveMaxPool2d(1) and nn.Flatten behind it.
func (o ops) GlobalMaxPool(x Tensor) Tensor {
	axes, ok := o.spatial("global_max_pool", x)
	if !ok {
		return Tensor{}
	}
	return o.called("pool").ReduceMax(x, Axes(axes...))
}

// spatial lists the dimensions of x behind batch and channels.
func (o ops) spatial(op string, x Tensor) (axes []int, ok bool) {
	if !o.given(op, "", x) {
		return nil, false
	}
	for i := 2; i < x.Rank(); i++ {
		axes = append(axes, i)
	}
	if axes == nil {
		o.Fail("%s: %s is %s, want [batch, channels, ...]", op, x.v, x.v.Type)
	}
	return axes, axes != nil
}

// called builds with the name that Named gave, else with that one.
func (o ops) called(name string) ops {
	if next := o.b.NextName(); next != "" {
		name = next
	}
	return o.at(name)
}

// at builds with a name for the next op's result.
func (o ops) at(name string) ops { return ops{o.b.Named(name)} }

// AdaptiveMaxPool takes maxima down to the given spatial size: of windows whose sizes
// differ by one at most where the size does not divide x's.
//
//   - Shapes: x[N,C,...] to [N,C,size...]; size has a number for each spatial dimension, and x's are numbers.
//   - DTypes: float; the result has x's.
//   - Errors: as many sizes as there are spatial dimensions are wanted, each 1 or more.
//   - PyTorch: nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d; without return_indices.
func (o ops) AdaptiveMaxPool(x Tensor, size []int) Tensor {
	o, last := o.composed("adaptive_max_pool")
	if !o.given("adaptive_max_pool", "", x) {
		return Tensor{}
	}
	if len(size) == 0 || x.Rank() != len(size)+2 {
		o.Fail("adaptive_max_pool: %s is %s, want a size for each dimension after the second, got %v", x.v, x.v.Type, size)
		return Tensor{}
	}
	for i := len(size) - 1; i >= 0; i-- { // the last one first: of equal elements the first in memory gets the gradient
		n, in := size[i], o.size("adaptive_max_pool", "", x, i+2)
		if in < 0 || n < 1 {
			o.Fail("adaptive_max_pool: size %d of %v, want 1 or more", n, size)
			return Tensor{}
		}
		kernel := slices.Repeat([]int{1}, len(size))
		var parts []Tensor
		for k := range n {
			from, to := k*in/n, ((k+1)*in+n-1)/n
			kernel[i] = to - from
			parts = append(parts, o.MaxPool(o.Slice(x, []int{i + 2}, []int{from}, []int{to}), kernel))
		}
		if i == 0 {
			o = last
		}
		x = o.Concat(i+2, parts...)
	}
	return x
}

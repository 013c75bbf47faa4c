package ampc

// Conv2dOptions are the options of Conv2d.
type Conv2dOptions struct {
	Stride   int // of the window in each dimension; 0: 1
	Padding  int // zeros on each side of each spatial dimension
	Dilation int // distance of the window's elements; 0: 1
	Groups   int // channels are split into so many groups that do not mix; 0: 1
	NoBias   bool
	Init     Init // of the weights; zero: uniform in ±1/√(in/Groups·kernel²), as the bias always is
}

// Conv2d is a square convolution over images, with weights
// w[out,C/Groups,kernel,kernel] and b[out].
//
//   - Shapes: x[N,C,H,W] to [N,out,H',W'], H' = (H + 2·Padding − Dilation·(kernel−1) − 1)/Stride + 1.
//   - DTypes: float; weights are f32.
//   - Errors: a name that is taken, channels that do not divide into Groups, or a kernel larger than the padded image.
//   - PyTorch: nn.Conv2d; padding_mode is Pad before it.
func (m *Model) Conv2d(name string, x Tensor, out, kernel int, opts ...Conv2dOptions) Tensor {
	o := option(m.ops, "conv2d", opts)
	groups := o.Groups
	if groups == 0 {
		groups = 1
	}
	l, ok := m.layer("conv2d", name)
	in := l.channels("conv2d", name, x, groups)
	if !ok || in < 0 {
		return Tensor{}
	}
	fan := fanIn(in / groups * kernel * kernel)
	w := l.Param("w", o.Init.or(fan), out, in/groups, kernel, kernel)
	var b Tensor
	if !o.NoBias {
		b = l.Param("b", fan, out)
	}
	c := window(o.Stride, o.Padding, o.Dilation)
	c.Groups = groups
	return m.at(name).Conv(x, w, b, c)
}

// ConvTranspose2dOptions are the options of ConvTranspose2d.
type ConvTranspose2dOptions struct {
	Stride        int // of the window in each dimension of the result; 0: 1
	Padding       int // what is taken away on each side of each spatial dimension
	OutputPadding int // added to the sizes of the result
	Dilation      int // distance of the window's elements; 0: 1
	NoBias        bool
	Init          Init // of the weights; zero: uniform in ±1/√(out·kernel²), as the bias always is
}

// ConvTranspose2d is the transpose of a square convolution, to larger images,
// with weights w[C,out,kernel,kernel] and b[out].
//
//   - Shapes: x[N,C,H,W] to [N,out,H',W'], H' = (H−1)·Stride − 2·Padding + Dilation·(kernel−1) + OutputPadding + 1.
//   - DTypes: float; weights are f32.
//   - Errors: a name that is taken, or sizes below 1.
//   - PyTorch: nn.ConvTranspose2d; without groups.
func (m *Model) ConvTranspose2d(name string, x Tensor, out, kernel int, opts ...ConvTranspose2dOptions) Tensor {
	o := option(m.ops, "conv_transpose2d", opts)
	l, ok := m.layer("conv_transpose2d", name)
	in := l.channels("conv_transpose2d", name, x, 1)
	if !ok || in < 0 {
		return Tensor{}
	}
	fan := fanIn(out * kernel * kernel)
	w := l.Param("w", o.Init.or(fan), in, out, kernel, kernel)
	var b Tensor
	if !o.NoBias {
		b = l.Param("b", fan, out)
	}
	c := window(o.Stride, o.Padding, o.Dilation)
	if p := o.OutputPadding; p != 0 {
		c.OutputPadding = []int{p, p}
	}
	return m.at(name).ConvTranspose(x, w, b, c)
}

// window is where the windows of a square convolution lie; 0 and 1 are the
// defaults of stride and dilation.
func window(stride, padding, dilation int) ConvOptions {
	var c ConvOptions
	if stride != 0 && stride != 1 {
		c.Strides = []int{stride, stride}
	}
	if dilation != 0 && dilation != 1 {
		c.Dilations = []int{dilation, dilation}
	}
	if padding != 0 {
		c.Pads = []int{padding, padding, padding, padding}
	}
	return c
}

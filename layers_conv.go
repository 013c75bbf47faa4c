package ampc

import "slices"

// Conv2dOptions are the options of Conv2d.
type Conv2dOptions struct {
	Stride   int // of the window in each dimension; 0: 1
	Padding  int // zeros on each side of each spatial dimension
	Dilation int // distance of the window's elements; 0: 1
	Groups   int // channels are split into so many groups that do not mix; 0: 1
	NoBias   bool
	Init     Init // of the weights; zero: uniform in ±1/√(C/Groups·elements of the window), as the bias always is
}

// Conv1dOptions are the options of Conv1d: those of Conv2d.
type Conv1dOptions Conv2dOptions

// Conv3dOptions are the options of Conv3d: those of Conv2d.
type Conv3dOptions Conv2dOptions

// Conv1d is a convolution over sequences, with weights w[out,C/Groups,kernel] and
// b[out].
//
//   - Shapes: x[N,C,L] to [N,out,L'], L' = (L + 2·Padding − Dilation·(kernel−1) − 1)/Stride + 1.
//   - DTypes: float; weights are f32.
//   - Errors: a name that is taken, channels that do not divide into Groups, or a kernel longer than the padded sequence.
//   - PyTorch: nn.Conv1d; padding_mode is Pad before it.
func (m *Model) Conv1d(name string, x Tensor, out, kernel int, opts ...Conv1dOptions) Tensor {
	return m.conv("conv1d", name, x, out, []int{kernel}, Conv2dOptions(option(m.ops, "conv1d", opts)))
}

// Conv2d is a square convolution over images, with weights
// w[out,C/Groups,kernel,kernel] and b[out].
//
//   - Shapes: x[N,C,H,W] to [N,out,H',W'], H' = (H + 2·Padding − Dilation·(kernel−1) − 1)/Stride + 1.
//   - DTypes: float; weights are f32.
//   - Errors: a name that is taken, channels that do not divide into Groups, or a kernel larger than the padded image.
//   - PyTorch: nn.Conv2d; padding_mode is Pad before it.
func (m *Model) Conv2d(name string, x Tensor, out, kernel int, opts ...Conv2dOptions) Tensor {
	return m.conv("conv2d", name, x, out, []int{kernel, kernel}, option(m.ops, "conv2d", opts))
}

// Conv3d is a cubic convolution over volumes, with weights
// w[out,C/Groups,kernel,kernel,kernel] and b[out].
//
//   - Shapes: x[N,C,D,H,W] to [N,out,D',H',W'], D' = (D + 2·Padding − Dilation·(kernel−1) − 1)/Stride + 1.
//   - DTypes: float; weights are f32.
//   - Errors: a name that is taken, channels that do not divide into Groups, or a kernel larger than the padded volume.
//   - PyTorch: nn.Conv3d; padding_mode is Pad before it.
func (m *Model) Conv3d(name string, x Tensor, out, kernel int, opts ...Conv3dOptions) Tensor {
	return m.conv("conv3d", name, x, out, []int{kernel, kernel, kernel}, Conv2dOptions(option(m.ops, "conv3d", opts)))
}

// conv is the layer of a convolution with a kernel of that size.
func (m *Model) conv(kind, name string, x Tensor, out int, kernel []int, o Conv2dOptions) Tensor {
	groups := o.Groups
	if groups == 0 {
		groups = 1
	}
	l, ok := m.layer(kind, name)
	in := l.channels(kind, name, x, groups)
	if !ok || in < 0 {
		return Tensor{}
	}
	fan := fanIn(in / groups * product(kernel))
	w := l.Param("w", o.Init.or(fan), append([]int{out, in / groups}, kernel...)...)
	var b Tensor
	if !o.NoBias {
		b = l.Param("b", fan, out)
	}
	c := window(len(kernel), o.Stride, o.Padding, o.Dilation)
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

// ConvTranspose3dOptions are the options of ConvTranspose3d.
type ConvTranspose3dOptions struct {
	Stride        int    // of the window in each dimension of the result; 0: 1
	Padding       int    // what is taken away on each side of each spatial dimension
	OutputPadding [3]int // added to depth, height and width of the result
	Dilation      int    // distance of the window's elements; 0: 1
	NoBias        bool
	Init          Init // of the weights; zero: uniform in ±1/√(out·kernel³), as the bias always is
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
	c := window(2, o.Stride, o.Padding, o.Dilation)
	if p := o.OutputPadding; p != 0 {
		c.OutputPadding = []int{p, p}
	}
	return m.convTranspose("conv_transpose2d", name, x, out, []int{kernel, kernel}, c, o.NoBias, o.Init)
}

// ConvTranspose3d is the transpose of a cubic convolution, to larger volumes,
// with weights w[C,out,kernel,kernel,kernel] and b[out].
//
//   - Shapes: x[N,C,D,H,W] to [N,out,D',H',W'], D' = (D−1)·Stride − 2·Padding + Dilation·(kernel−1) + OutputPadding + 1.
//   - DTypes: float; weights are f32.
//   - Errors: a name that is taken, or sizes below 1.
//   - PyTorch: nn.ConvTranspose3d; without groups.
func (m *Model) ConvTranspose3d(name string, x Tensor, out, kernel int, opts ...ConvTranspose3dOptions) Tensor {
	o := option(m.ops, "conv_transpose3d", opts)
	c := window(3, o.Stride, o.Padding, o.Dilation)
	if o.OutputPadding != [3]int{} {
		c.OutputPadding = o.OutputPadding[:]
	}
	return m.convTranspose("conv_transpose3d", name, x, out, []int{kernel, kernel, kernel}, c, o.NoBias, o.Init)
}

// convTranspose is the layer of a transposed convolution with a kernel of that
// size.
func (m *Model) convTranspose(kind, name string, x Tensor, out int, kernel []int, c ConvOptions, noBias bool, init Init) Tensor {
	l, ok := m.layer(kind, name)
	in := l.channels(kind, name, x, 1)
	if !ok || in < 0 {
		return Tensor{}
	}
	fan := fanIn(out * product(kernel))
	w := l.Param("w", init.or(fan), append([]int{in, out}, kernel...)...)
	var b Tensor
	if !noBias {
		b = l.Param("b", fan, out)
	}
	return m.at(name).ConvTranspose(x, w, b, c)
}

// window is where the windows of a convolution over that many dimensions lie; 0
// and 1 are the defaults of stride and dilation.
func window(dims, stride, padding, dilation int) ConvOptions {
	var c ConvOptions
	if stride != 0 && stride != 1 {
		c.Strides = slices.Repeat([]int{stride}, dims)
	}
	if dilation != 0 && dilation != 1 {
		c.Dilations = slices.Repeat([]int{dilation}, dims)
	}
	if padding != 0 {
		c.Pads = slices.Repeat([]int{padding}, 2*dims)
	}
	return c
}

func product(sizes []int) int {
	n := 1
	for _, s := range sizes {
		n *= s
	}
	return n
}

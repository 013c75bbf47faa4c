package models

import (
	"fmt"

	"ampc"
)

func mlp(z *Zoo, o Options) {
	m := z.Model
	h := m.Input("x", ampc.F32, o.Int("batch"), o.Int("in"))
	for i := range o.Int("layers") {
		h = m.Named("relu").Relu(m.Linear(fmt.Sprintf("fc%d", i+1), h, o.Int("hidden")))
	}
	z.classify(m.Linear(fmt.Sprintf("fc%d", o.Int("layers")+1), h, o.Int("classes")), sgd(0.1))
}

// lenet follows LeCun et al. 1998 with today's activations. Images under 20
// pixels are padded in the second convolution too, as they would vanish.
// conv1=20&conv2=50&pad=0&fc1=500&fc2=0 is the variant that Caffe made common.
func lenet(z *Zoo, o Options) {
	m := z.Model
	size := o.Int("size")
	x := m.Input("x", ampc.F32, o.Int("batch"), o.Int("channels"), size, size)
	pad := 0
	if size < 20 {
		pad = 2
	}
	x = m.MaxPool2d(m.Relu(m.Conv2d("conv1", x, o.Int("conv1"), 5, ampc.Conv2dOptions{Padding: o.Int("pad")})), 2)
	x = m.MaxPool2d(m.Relu(m.Conv2d("conv2", x, o.Int("conv2"), 5, ampc.Conv2dOptions{Padding: pad})), 2)
	x = m.Flatten(x)
	for i := 1; i <= 2; i++ {
		if n := o.Int(fmt.Sprintf("fc%d", i)); n > 0 {
			x = m.Relu(m.Linear(fmt.Sprintf("fc%d", i), x, n))
		}
	}
	z.classify(m.Linear("fc3", x, o.Int("classes")), sgd(0.05))
}

func resnetOptions(width float64, blocks ...float64) Options {
	o := Options{"batch": 32, "size": 32, "channels": 3, "classes": 10, "width": width}
	for i, n := range blocks {
		o[fmt.Sprintf("blocks%d", i+1)] = n
	}
	return o
}

// resnet is He et al. 2015 without the max pooling that large images need.
func resnet(z *Zoo, o Options) {
	m := z.Model
	x := m.Input("x", ampc.F32, o.Int("batch"), o.Int("channels"), o.Int("size"), o.Int("size"))
	x = m.Relu(convNorm(m, "", x, o.Int("width"), 3, 1))
	z.classify(m.Linear("fc", m.GlobalAvgPool(stages(m, x, o, residual)), o.Int("classes")), sgd(0.05))
}

// resnet50 is He et al. 2015 for ImageNet, with the stride of a block in its
// 3x3 convolution as Goyal et al. 2017 and today's libraries have it. Of its
// default options it has 25.557 million parameters.
func resnet50(z *Zoo, o Options) {
	m := z.Model
	x := m.Input("x", ampc.F32, o.Int("batch"), o.Int("channels"), o.Int("size"), o.Int("size"))
	x = m.Relu(convNorm(m, "", x, o.Int("width"), 7, 2))
	x = m.MaxPool2d(x, 3, ampc.Pool2dOptions{Stride: 2, Padding: 1})
	z.classify(m.Linear("fc", m.GlobalAvgPool(stages(m, x, o, bottleneck)), o.Int("classes")), sgd(0.05))
}

// stages stacks blocks; each stage halves the image and doubles the width.
func stages(m *ampc.Model, x ampc.Tensor, o Options, block func(m *ampc.Model, x ampc.Tensor, width, stride int) ampc.Tensor) ampc.Tensor {
	for stage := range 4 {
		for i := range o.Int(fmt.Sprintf("blocks%d", stage+1)) {
			stride := 1
			if stage > 0 && i == 0 {
				stride = 2
			}
			x = block(m.Scope(fmt.Sprintf("s%d.b%d", stage+1, i+1)), x, o.Int("width")<<stage, stride)
		}
	}
	return x
}

// convNorm is a convolution that keeps the image's size except for its stride, and
// batch norm.
func convNorm(m *ampc.Model, name string, x ampc.Tensor, width, kernel, stride int) ampc.Tensor {
	y := m.Conv2d("conv"+name, x, width, kernel, ampc.Conv2dOptions{Stride: stride, Padding: kernel / 2, NoBias: true})
	return m.BatchNorm("bn"+name, y)
}

func residual(m *ampc.Model, x ampc.Tensor, width, stride int) ampc.Tensor {
	y := convNorm(m, "2", m.Relu(convNorm(m, "1", x, width, 3, stride)), width, 3, 1)
	return join(m, x, y, width, stride)
}

// bottleneck computes at a quarter of the width of its result.
func bottleneck(m *ampc.Model, x ampc.Tensor, width, stride int) ampc.Tensor {
	y := m.Relu(convNorm(m, "1", x, width, 1, 1))
	y = convNorm(m, "3", m.Relu(convNorm(m, "2", y, width, 3, stride)), 4*width, 1, 1)
	return join(m, x, y, 4*width, stride)
}

// join ends a block: x itself, or projected where y has another shape, plus y.
func join(m *ampc.Model, x, y ampc.Tensor, width, stride int) ampc.Tensor {
	if stride != 1 || x.Dim(1) != width {
		x = convNorm(m, "skip", x, width, 1, stride)
	}
	return m.Relu(m.Named("sum").Add(x, y))
}

// unet is Ronneberger et al. 2015 with the blocks that diffusion models use.
func unet(z *Zoo, o Options) {
	m := z.Model
	shape := []any{o.Int("batch"), o.Int("channels"), o.Int("size"), o.Int("size")}
	x := m.Input("x", ampc.F32, shape...)
	noise := m.Input("noise", ampc.F32, shape...)
	width := o.Int("width")
	var skips []ampc.Tensor
	h := m.Conv2d("in", x, width, 3, ampc.Conv2dOptions{Padding: 1})
	for i := range o.Int("levels") {
		b := m.Scope(fmt.Sprintf("down%d", i+1))
		h = unetBlock(b, h, width<<i)
		skips = append(skips, h)
		h = b.Conv2d("pool", h, width<<(i+1), 3, ampc.Conv2dOptions{Stride: 2, Padding: 1})
	}
	h = unetBlock(m.Scope("mid"), h, width<<o.Int("levels"))
	for i := o.Int("levels") - 1; i >= 0; i-- {
		b := m.Scope(fmt.Sprintf("up%d", i+1))
		h = b.ConvTranspose2d("grow", h, width<<i, 2, ampc.ConvTranspose2dOptions{Stride: 2})
		h = unetBlock(b, b.Named("join").Concat(1, h, skips[i]), width<<i)
	}
	z.Output = m.Conv2d("out", m.Silu(m.GroupNorm("norm", h, 8)), o.Int("channels"), 3, ampc.Conv2dOptions{Padding: 1})
	z.train(m.Named("loss").MSE(z.Output, noise), adamw(2e-4))
}

func unetBlock(m *ampc.Model, x ampc.Tensor, width int) ampc.Tensor {
	for i := 1; i <= 2; i++ {
		x = m.Conv2d(fmt.Sprintf("conv%d", i), x, width, 3, ampc.Conv2dOptions{Padding: 1})
		x = m.Silu(m.GroupNorm(fmt.Sprintf("norm%d", i), x, 8))
	}
	return x
}

package models

import (
	"fmt"
	"math"

	"ampc"
)

// uniform is how weights start that so many inputs meet: PyTorch's default.
func uniform(fan int) ampc.Init {
	r := 1 / math.Sqrt(float64(fan))
	return ampc.Uniform(-r, r)
}

// unet3d is Çiçek et al. 2016 (arXiv 1606.06650): a class for every voxel of a
// volume. The second convolution of a level doubles its channels before they are
// pooled. Convolutions keep the volume's size, so that nothing is cut from what
// skips the lower levels; where a size is odd, the volume grows by what pooling
// dropped.
func unet3d(z *Zoo, o Options) {
	m := z.Model
	batch, depth, size, width, levels := o.Int("batch"), o.Int("depth"), o.Int("size"), o.Int("width"), o.Int("levels")
	h := m.Input("x", ampc.F32, batch, o.Int("channels"), depth, size, size)
	labels := m.Input("voxels", ampc.I32, batch, depth, size, size)
	var skips []ampc.Tensor
	for i := range levels {
		b := m.Scope(fmt.Sprintf("down%d", i+1))
		h = volumeBlock(b, h, width<<i, width<<(i+1))
		skips = append(skips, h)
		h = b.Named("pool").MaxPool(h, []int{2, 2, 2})
	}
	h = volumeBlock(m.Scope("mid"), h, width<<levels, width<<(levels+1))
	for i := levels - 1; i >= 0; i-- {
		b := m.Scope(fmt.Sprintf("up%d", i+1))
		grow := ampc.ConvTranspose3dOptions{Stride: 2}
		for axis := range grow.OutputPadding {
			grow.OutputPadding[axis] = skips[i].Dim(axis+2) % 2
		}
		h = b.ConvTranspose3d("grow", h, h.Dim(1), 2, grow)
		h = volumeBlock(b, b.Named("join").Concat(1, skips[i], h), width<<(i+1), width<<(i+1))
	}
	z.Output = m.Conv3d("out", h, o.Int("classes"), 1)
	loss := m.Named("loss").CrossEntropy(z.Output, labels, ampc.CrossEntropyOptions{Axis: 1})
	z.train(loss, sgd(0.01))
	z.Metrics["correct"] = correct(m, z.Output, labels, 1)
}

// volumeBlock is two convolutions, to the channels first and second.
func volumeBlock(m *ampc.Model, x ampc.Tensor, first, second int) ampc.Tensor {
	for i, width := range []int{first, second} {
		x = m.Conv3d(fmt.Sprintf("conv%d", i+1), x, width, 3, ampc.Conv3dOptions{Padding: 1, NoBias: true})
		x = m.Relu(m.BatchNorm(fmt.Sprintf("bn%d", i+1), x))
	}
	return x
}

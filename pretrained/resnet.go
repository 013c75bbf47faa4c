package pretrained

import (
	"fmt"

	"ampc"
	"ampc/weights"
)

// ResNet is a residual network (He et al. 2015) with the names of torchvision:
// layer1.0.conv1.weight and so on. torchvision publishes no config.json.
type ResNet struct {
	Depth   int // 18, 34, 50, 101 or 152; from 50 on the stride of a block is in its 3×3 convolution
	Classes int // 0: 1000
}

// blocks are the numbers of blocks in the four stages.
var blocks = map[int][4]int{18: {2, 2, 2, 2}, 34: {3, 4, 6, 3}, 50: {3, 4, 6, 3}, 101: {3, 4, 23, 3}, 152: {3, 8, 36, 3}}

// Features are the images' features before the last layer: x f32[N,3,H,W], as
// torchvision normalizes images, to [N,512], or [N,2048] from depth 50 on.
func (r ResNet) Features(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
	stages, ok := blocks[r.Depth]
	if !ok {
		m.Fail("ResNet: depth %d: want 18, 34, 50, 101 or 152", r.Depth)
		return ampc.Tensor{}
	}
	x = m.Relu(batchNorm(m, "bn1", conv(m, "conv1", x, 64, 7, 2)))
	x = m.MaxPool2d(x, 3, ampc.Pool2dOptions{Stride: 2, Padding: 1})
	for stage, n := range stages {
		for i := range n {
			stride := 1
			if stage > 0 && i == 0 {
				stride = 2
			}
			x = r.block(m.Scope(fmt.Sprintf("layer%d.%d", stage+1, i)), x, 64<<stage, stride)
		}
	}
	return m.GlobalAvgPool(x)
}

// Logits are those of the classes: x f32[N,3,H,W] to [N,Classes].
func (r ResNet) Logits(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
	n := r.Classes
	if n == 0 {
		n = 1000
	}
	return linear(m, "fc", r.Features(m, x), n, true)
}

// Weights are what weights.Load needs for the published files.
func (r ResNet) Weights() []weights.Option {
	return []weights.Option{weights.Ignore("*.num_batches_tracked")}
}

func (r ResNet) block(m *ampc.Model, x ampc.Tensor, width, stride int) ampc.Tensor {
	out, y := width, ampc.Tensor{}
	if r.Depth < 50 {
		y = m.Relu(batchNorm(m, "bn1", conv(m, "conv1", x, width, 3, stride)))
		y = batchNorm(m, "bn2", conv(m, "conv2", y, width, 3, 1))
	} else {
		out = 4 * width
		y = m.Relu(batchNorm(m, "bn1", conv(m, "conv1", x, width, 1, 1)))
		y = m.Relu(batchNorm(m, "bn2", conv(m, "conv2", y, width, 3, stride)))
		y = batchNorm(m, "bn3", conv(m, "conv3", y, out, 1, 1))
	}
	if stride != 1 || x.Dim(1) != out {
		x = batchNorm(m, "downsample.1", conv(m, "downsample.0", x, out, 1, stride))
	}
	return m.Relu(m.Add(x, y))
}

// conv is torch.nn.Conv2d without bias that keeps the image's size except for its stride.
func conv(m *ampc.Model, name string, x ampc.Tensor, out, kernel, stride int) ampc.Tensor {
	in := max(x.Dim(1), 1)
	w := m.Scope(name).Param("weight", ampc.Kaiming(out*kernel*kernel), out, in, kernel, kernel)
	p := kernel / 2
	return m.Named(name).Conv(x, w, ampc.Tensor{}, ampc.ConvOptions{Strides: []int{stride, stride}, Pads: []int{p, p, p, p}})
}

// batchNorm is torch.nn.BatchNorm2d under its own names.
func batchNorm(m *ampc.Model, name string, x ampc.Tensor) ampc.Tensor {
	s, n := m.Scope(name), max(x.Dim(1), 1)
	scale, bias := s.Param("weight", ampc.Fill(1), n), s.Param("bias", ampc.Zeros(), n)
	mean, variance := s.State("running_mean", ampc.Zeros(), n), s.State("running_var", ampc.Fill(1), n)
	return m.Named(name).BatchNormWith(x, scale, bias, mean, variance)
}

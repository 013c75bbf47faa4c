package onnxmodel

import (
	"fmt"
	"math"
)

// conv is a convolution with square taps; groups of 0 are 1.
func (g *Graph) conv(name, x string, in, out, taps, stride, groups int64) string {
	groups = max(groups, 1)
	fan := float64(in / groups * taps * taps)
	w := g.Weight(name+".weight", 0, math.Sqrt(2/fan), out, in/groups, taps, taps)
	p := taps / 2
	return g.Op("Conv", []string{x, w}, Ints("kernel_shape", taps, taps), Ints("pads", p, p, p, p), Ints("strides", stride, stride), Int("group", groups))
}

func (g *Graph) batchNorm(name, x string, c int64) string {
	return g.Op("BatchNormalization", []string{x, g.Weight(name+".weight", 1, 0.1, c), g.Weight(name+".bias", 0, 0.1, c), g.Weight(name+".mean", 0, 0.1, c), g.Weight(name+".var", 1, 0.05, c)}, Float("epsilon", 1e-5))
}

func (g *Graph) relu(x string) string { return g.Op("Relu", []string{x}) }

func (g *Graph) biased(name, x string, in, out, taps, stride int64) string {
	fan := float64(in * taps * taps)
	p := taps / 2
	return g.Op("Conv", []string{x, g.Weight(name+".weight", 0, math.Sqrt(2/fan), out, in, taps, taps), g.Weight(name+".bias", 0, 0.02, out)}, Ints("kernel_shape", taps, taps), Ints("pads", p, p, p, p), Ints("strides", stride, stride))
}

// classify averages over pixels and scores the classes.
func (g *Graph) classify(x string, width, classes int64) {
	y := g.Op("Flatten", []string{g.Op("GlobalAveragePool", []string{x})}, Int("axis", 1))
	g.Node("Gemm", []string{y, g.Weight("fc.weight", 0, 0.02, classes, width), g.Weight("fc.bias", 0, 0.02, classes)}, []string{"logits"}, Int("transB", 1))
	g.Output("logits", F32, "batch", int(classes))
}

// ResNet50 is ResNet-50 for pictures x [batch, 3, height, width], with batch norms as
// nodes. Output logits [batch, 1000].
func ResNet50() *Graph {
	g := New("resnet50", 13)
	x := g.Input("x", F32, "batch", 3, "height", "width")
	x = g.relu(g.batchNorm("bn1", g.conv("conv1", x, 3, 64, 7, 2, 0), 64))
	x = g.Op("MaxPool", []string{x}, Ints("kernel_shape", 3, 3), Ints("pads", 1, 1, 1, 1), Ints("strides", 2, 2))
	in := int64(64)
	for s, blocks := range []int64{3, 4, 6, 3} {
		width := int64(64) << s
		for b := range blocks {
			name, stride := fmt.Sprintf("layer%d.%d", s+1, b), int64(1)
			if b == 0 && s > 0 {
				stride = 2
			}
			y := g.relu(g.batchNorm(name+".bn1", g.conv(name+".conv1", x, in, width, 1, 1, 0), width))
			y = g.relu(g.batchNorm(name+".bn2", g.conv(name+".conv2", y, width, width, 3, stride, 0), width))
			y = g.batchNorm(name+".bn3", g.conv(name+".conv3", y, width, 4*width, 1, 1, 0), 4*width)
			if b == 0 {
				x = g.batchNorm(name+".down.1", g.conv(name+".down.0", x, in, 4*width, 1, stride, 0), 4*width)
			}
			x, in = g.relu(g.Op("Add", []string{y, x})), 4*width
		}
	}
	g.classify(x, in, 1000)
	return g
}

// SqueezeNet is SqueezeNet 1.1 for x [batch, 3, height, width].
func SqueezeNet() *Graph {
	g := New("squeezenet", 13)
	x := g.relu(g.biased("conv1", g.Input("x", F32, "batch", 3, "height", "width"), 3, 64, 3, 2))
	in := int64(64)
	pool := func() {
		x = g.Op("MaxPool", []string{x}, Ints("kernel_shape", 3, 3), Ints("strides", 2, 2))
	}
	pool()
	for i, f := range [][2]int64{{16, 64}, {16, 64}, {32, 128}, {32, 128}, {48, 192}, {48, 192}, {64, 256}, {64, 256}} {
		name := fmt.Sprintf("fire%d", i+2)
		s := g.relu(g.biased(name+".squeeze", x, in, f[0], 1, 1))
		a, b := g.relu(g.biased(name+".expand1", s, f[0], f[1], 1, 1)), g.relu(g.biased(name+".expand3", s, f[0], f[1], 3, 1))
		x, in = g.Op("Concat", []string{a, b}, Int("axis", 1)), 2*f[1]
		if i == 1 || i == 3 {
			pool()
		}
	}
	x = g.relu(g.biased("classifier", x, in, 1000, 1, 1))
	g.Node("Flatten", []string{g.Op("GlobalAveragePool", []string{x})}, []string{"logits"}, Int("axis", 1))
	g.Output("logits", F32, "batch", 1000)
	return g
}

// MobileNet is MobileNetV2 of a width (1 is the published one) for x [batch, 3,
// height, width].
func MobileNet(width float64) *Graph {
	g := New("mobilenet", 13)
	wide := func(c float64) int64 { return max(int64(c*width+4)/8*8, 8) }
	clip := func(x string) string { return g.Op("Clip", []string{x, g.Number(0), g.Number(6)}) }
	in := wide(32)
	x := clip(g.batchNorm("stem.bn", g.conv("stem", g.Input("x", F32, "batch", 3, "height", "width"), 3, in, 3, 2, 0), in))
	for s, c := range [][4]int64{{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}} {
		for b := range c[2] {
			name, stride, out := fmt.Sprintf("block%d.%d", s, b), int64(1), wide(float64(c[1]))
			if b == 0 {
				stride = c[3]
			}
			y, mid := x, in*c[0]
			if c[0] > 1 {
				y = clip(g.batchNorm(name+".bn1", g.conv(name+".expand", y, in, mid, 1, 1, 0), mid))
			}
			y = clip(g.batchNorm(name+".bn2", g.conv(name+".depthwise", y, mid, mid, 3, stride, mid), mid))
			y = g.batchNorm(name+".bn3", g.conv(name+".project", y, mid, out, 1, 1, 0), out)
			if stride == 1 && in == out {
				y = g.Op("Add", []string{x, y})
			}
			x, in = y, out
		}
	}
	x = clip(g.batchNorm("last.bn", g.conv("last", x, in, wide(1280), 1, 1, 0), wide(1280)))
	g.classify(x, wide(1280), 1000)
	return g
}

// YOLO is a detection head as exported with its selection of boxes: features x
// [1, 64, height, width] at stride 8 become boxes and scores, and
// NonMaxSuppression picks some. Outputs boxes [picked, 4] and scores [picked].
func YOLO(classes int64) *Graph {
	g := New("yolo", 13)
	x := g.Input("x", F32, 1, 64, "height", "width")
	silu := func(x string) string { return g.Op("Mul", []string{x, g.Op("Sigmoid", []string{x})}) }
	n := &net{g, Transformer{}}
	y := silu(g.biased("head.0", x, 64, 64, 3, 1))
	y = g.biased("head.1", y, 64, 4+classes, 1, 1)
	y = g.Op("Transpose", []string{n.reshape(y, nil, 1, 4+classes, -1)}, Ints("perm", 0, 2, 1))
	parts := g.Ops("Split", 2, []string{y, g.List(4, classes)}, Int("axis", 2))
	rows, cols := g.Op("Squeeze", []string{n.size(x, 2), g.List(0)}), g.Op("Squeeze", []string{n.size(x, 3), g.List(0)})
	grid := func(n, other string, mine bool) string {
		r := g.Op("Cast", []string{g.Op("Range", []string{g.Const(nil, 0), n, g.Const(nil, 1)})}, Int("to", F32))
		axis := int64(1)
		if !mine {
			axis = 0
		}
		r = g.Op("Unsqueeze", []string{r, g.List(axis)})
		shape := []string{g.Op("Unsqueeze", []string{rows, g.List(0)}), g.Op("Unsqueeze", []string{cols, g.List(0)})}
		return g.Op("Reshape", []string{g.Op("Expand", []string{r, g.Op("Concat", shape, Int("axis", 0))}), g.List(1, -1, 1)})
	}
	centre := g.Op("Concat", []string{grid(rows, cols, true), grid(cols, rows, false)}, Int("axis", 2))
	sides := g.Ops("Split", 2, []string{g.Op("Sigmoid", []string{parts[0]}), g.List(2, 2)}, Int("axis", 2))
	scale := func(x string, by float32) string { return g.Op("Mul", []string{x, g.Number(by)}) }
	lo := g.Op("Sub", []string{centre, scale(sides[0], 3)})
	hi := g.Op("Add", []string{centre, scale(sides[1], 3)})
	boxes := scale(g.Op("Concat", []string{lo, hi}, Int("axis", 2)), 8)
	scores := g.Op("Transpose", []string{g.Op("Sigmoid", []string{parts[1]})}, Ints("perm", 0, 2, 1))
	picked := g.Op("NonMaxSuppression", []string{boxes, scores, g.List(20), g.add1(0.45), g.add1(0.3)})
	at := g.Op("Squeeze", []string{g.Op("Slice", []string{picked, g.List(2), g.List(3), g.List(1)}), g.List(1)})
	g.Node("Gather", []string{g.Op("Squeeze", []string{boxes, g.List(0)}), at}, []string{"boxes"}, Int("axis", 0))
	g.Node("GatherND", []string{scores, picked}, []string{"scores"})
	g.Output("boxes", F32, "picked", 4)
	g.Output("scores", F32, "picked")
	return g
}

// add1 is a list of one number.
func (g *Graph) add1(x float32) string {
	return g.Op("Unsqueeze", []string{g.Number(x), g.List(0)})
}

// UNet is one level of a diffusion U-Net: group norms, SiLU and convolutions with a
// time embedding, then attention over pixels. Inputs x [batch, width, size, size] and
// time [batch, 4·width]; output y.
func UNet(width, heads int64) *Graph {
	g := New("unet", 17)
	n := &net{g, Transformer{Heads: heads, Width: width}}
	x, time := g.Input("x", F32, "batch", int(width), "height", "width"), g.Input("time", F32, "batch", int(4*width))
	silu := func(x string) string { return g.Op("Mul", []string{x, g.Op("Sigmoid", []string{x})}) }
	norm := func(name, x string) string { // a group norm, as PyTorch exports it
		y := g.Op("Reshape", []string{x, g.List(0, 8, -1)})
		y = g.Op("InstanceNormalization", []string{y, g.Weight(name+".one", 1, 0, 8), g.Weight(name+".zero", 0, 0, 8)}, Float("epsilon", 1e-5))
		y = g.Op("Reshape", []string{y, g.Op("Shape", []string{x})})
		return g.Op("Add", []string{g.Op("Mul", []string{y, g.Weight(name+".weight", 1, 0.1, width, 1, 1)}), g.Weight(name+".bias", 0, 0.1, width, 1, 1)})
	}
	h := g.biased("conv1", silu(norm("norm1", x)), width, width, 3, 1)
	t := n.linear("time", silu(time), 4*width, width)
	h = g.Op("Add", []string{h, g.Op("Unsqueeze", []string{t, g.List(2, 3)})})
	h = g.biased("conv2", silu(norm("norm2", h)), width, width, 3, 1)
	x = g.Op("Add", []string{x, h})
	pixels := g.Op("Transpose", []string{g.Op("Reshape", []string{norm("norm3", x), g.List(0, 0, -1)})}, Ints("perm", 0, 2, 1))
	y := g.Op("Transpose", []string{n.attend("attention", pixels, "")}, Ints("perm", 0, 2, 1))
	g.Node("Add", []string{x, g.Op("Reshape", []string{y, g.Op("Shape", []string{x})})}, []string{"y"})
	g.Output("y", F32, "batch", int(width), "height", "width")
	return g
}

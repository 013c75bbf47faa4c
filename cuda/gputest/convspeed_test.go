package gputest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"ampc/cuda"
)

// images are convolutions of ResNet-50 with channels last, by input size, channels, filters, kernel and
// stride. A first layer with more channels than images have stands for one whose input is padded.
var images = []struct{ size, in, out, kernel, stride int64 }{
	{224, 3, 64, 7, 2}, {224, 4, 64, 7, 2}, {224, 8, 64, 7, 2},
	{56, 64, 64, 1, 1}, {56, 256, 64, 1, 1}, {56, 256, 512, 1, 2}, {56, 64, 64, 3, 1}, {56, 128, 128, 3, 2},
	{28, 512, 128, 1, 1}, {28, 128, 128, 3, 1}, {14, 1024, 256, 1, 1}, {14, 256, 256, 3, 1}, {7, 512, 2048, 1, 1}, {7, 512, 512, 3, 1},
}

// TestConvSpeed times the filter's gradient of ResNet-50's convolutions in bf16 at 256 images: cuDNN with
// a result in bf16 and in f32, and for kernels of one element the product that it is. Numbers are for
// reading, not for judging.
func TestConvSpeed(t *testing.T) {
	g := open(t)
	n, b := g.openDnn(t), g.openBlas(t)
	if g.simulated() && testing.Short() {
		t.Skip("without -short every convolution runs once on the simulator, in small")
	}
	for _, s := range images {
		if g.simulated() {
			s.size, s.in, s.out = max(s.size/14, 7), min(s.in, 8), 8
		}
		c := cuda.Conv{Type: cuda.DnnBFloat16, NHWC: true}
		to, pad := (s.size-1)/s.stride+1, s.kernel/2
		c.X, c.W, c.Y = []int64{g.of(256, 2), s.in, s.size, s.size}, []int64{s.out, s.in, s.kernel, s.kernel}, []int64{g.of(256, 2), s.out, to, to}
		pads := []int64{pad, pad}
		c.Shape = cuda.ConvShape{Pads: pads, EndPads: pads, Strides: []int64{s.stride, s.stride}, Dilations: []int64{1, 1}}
		line := fmt.Sprintf("conv %3d² %4d to %4d, %d×%d by %d:", s.size, s.in, s.out, s.kernel, s.kernel, s.stride)
		if s.size > 200 {
			c.Kind, c.Out = cuda.DnnConv, cuda.DnnBFloat16
			line += " forward " + g.timeConv(t, n, c)
		}
		c.Kind = cuda.DnnConvFilter
		for _, c.Out = range []cuda.DnnType{cuda.DnnBFloat16, cuda.DnnFloat} {
			line += fmt.Sprintf(", filter %s %s", dnnTypes[c.Out], g.timeConv(t, n, c))
		}
		fmt.Println(line)
		if s.kernel == 1 && s.stride == 1 {
			at := func(d cuda.DataType, ld int64) cuda.Matrix { return cuda.Matrix{Type: d, Ld: ld} }
			m := cuda.RowMajor(s.out, s.in, c.X[0]*to*to, true, false, at(cuda.R16BF, s.out), at(cuda.R16BF, s.in), at(cuda.R32F, s.in), cuda.Compute32F)
			g.timeProduct(t, b, shape{"filter f32", m, nil}, cuda.EpilogueNone, cuda.R16BF)
		}
	}
}

// timeConv is what the first three deterministic engines take.
func (g *gpu) timeConv(t *testing.T, n cuda.Dnn, c cuda.Conv) string {
	t.Helper()
	graph := c.Graph()
	plans, err := n.Plans(graph, cuda.DnnOptions{Workspace: 1 << 30, Deterministic: true, Most: 3})
	if errors.Is(err, cuda.ErrNotSupported) {
		return "no plan"
	}
	g.must(t, err)
	feeds, space := g.drawFeeds(t, graph, cuda.R16BF), int64(256)
	for _, p := range plans {
		space = max(space, p.Workspace())
	}
	ws := g.draw(t, cuda.R32F, space/4)
	var all []string
	best := math.Inf(1)
	for _, p := range plans {
		sec := g.seconds(t, func() error { return p.Run(feeds, ws, g.s) })
		best = min(best, sec)
		all = append(all, fmt.Sprintf("%s %.3f", p.Engine(), sec*1e3))
		g.must(t, p.Close())
	}
	for _, p := range append(feeds, ws) {
		g.must(t, g.Free(p))
	}
	return fmt.Sprintf("%.3f ms (%s)", best*1e3, strings.Join(all, ", "))
}

package kern

import (
	"fmt"
	"testing"

	"ampc/internal/philox"
)

// BenchmarkRows are row kernels and their gradients on 1024 rows of 1024 f32, which lie in the last-level cache. Bytes
// are those of operands and results.
func BenchmarkRows(b *testing.B) {
	const rows, cols = 1024, 1024
	d := newDice(2)
	x, dy, y := d.buf(F32, rows*cols), d.buf(F32, rows*cols), zeros(F32, rows*cols)
	gamma, beta := d.buf(F32, cols), d.buf(F32, cols)
	labels := make([]int32, rows)
	for i := range labels {
		labels[i] = int32(i*7) % cols
	}
	stats := func() []float32 { return make([]float32, rows) }
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		run := func(name string, tensors int, f func()) {
			b.Run(name, func(b *testing.B) { bytesPerSec(b, 4*tensors*rows*cols, f) })
		}
		run("softmax", 2, func() { m.Softmax(y, x, rows, cols) })
		run("softmax_grad", 3, func() { m.SoftmaxGrad(y, x, dy, rows, cols) })
		for name, rms := range map[string]bool{"layer_norm": false, "rms_norm": true} {
			n := &Norm{Rows: rows, Cols: cols, RMS: rms, Eps: 1e-5, X: x, Y: y, Gamma: gamma, Beta: beta, Mean: stats(), Rstd: stats(),
				DY: dy, DX: y, DGamma: zeros(F32, cols), DBeta: zeros(F32, cols)}
			run(name, 2, func() { m.Norm(n) })
			run(name+"_grad", 3, func() { m.NormGrad(n) })
		}
		c := &CrossEntropy{Rows: rows, Cols: cols, X: x, Labels: ints32(labels), Ignore: -1}
		run("cross_entropy", 1, func() { m.CrossEntropy(c) })
		run("gather", 2, func() { m.Gather(y, x, ints32(labels), cols, nil) })
		run("scatter_add", 2, func() { m.ScatterAdd(y, x, ints32(labels), cols, true) })
	})
}

// BenchmarkAcross are sums along a leading axis, as gradients of biases: of few rows and many, in caches and in memory.
func BenchmarkAcross(b *testing.B) {
	for _, p := range Paths() {
		if p.lanes == 1 {
			continue
		}
		for _, workers := range []int{1, 2} {
			for t := range numTypes {
				for _, rows := range []int{64, 128, 512, 1024, 4096, 30000, 100000} {
					for _, cols := range []int{10, 64, 128, 768, 3072} {
						if t.Size()*rows*cols > 1<<28 {
							continue
						}
						b.Run(fmt.Sprintf("%s/%d/%v/%dx%d", p.Name(), workers, t, rows, cols), func(b *testing.B) {
							m := New(p, workers)
							defer m.Close()
							x, sum := newDice(6).buf(t, rows*cols), zeros(F32, cols)
							bytesPerSec(b, t.Size()*rows*cols, func() { m.Reduce(ReduceSum, sum, x, 1, rows, cols) })
						})
					}
				}
			}
		}
	}
}

// BenchmarkChannelNorm are batch and group norms of ResNet's and U-Net's sizes and one of 64 MB, and their gradients.
func BenchmarkChannelNorm(b *testing.B) {
	shapes := []struct{ images, channels, space, groups int }{{32, 64, 1024, 0}, {32, 256, 64, 0}, {32, 512, 16, 0}, {4, 64, 1024, 8}, {16, 64, 16384, 0}, {32, 512, 49, 0}, {1, 256, 3136, 1}}
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for _, s := range shapes {
			for _, t := range []Type{F32, F16} {
				for _, last := range []bool{false, true} {
					size := s.images * s.channels * s.space
					d := newDice(3)
					n := &ChannelNorm{Images: s.images, Channels: s.channels, Space: s.space, ChannelsLast: last, Groups: s.groups, Eps: 1e-5,
						X: d.buf(t, size), Y: zeros(t, size), DY: d.buf(t, size), DX: zeros(t, size), Gamma: d.buf(F32, s.channels), Beta: d.buf(F32, s.channels),
						DGamma: zeros(F32, s.channels), DBeta: zeros(F32, s.channels)}
					for _, v := range []*[]float32{&n.Mean, &n.Var, &n.Rstd} {
						*v = make([]float32, n.Stats())
					}
					name := fmt.Sprintf("%dx%dx%d/groups=%d/last=%v/%v", s.images, s.channels, s.space, s.groups, last, t)
					b.Run(name+"/fwd", func(b *testing.B) { bytesPerSec(b, 2*t.Size()*size, func() { m.ChannelNorm(n) }) })
					b.Run(name+"/bwd", func(b *testing.B) { bytesPerSec(b, 3*t.Size()*size, func() { m.ChannelNormGrad(n) }) })
				}
			}
		}
	})
}

// BenchmarkSmooth are the vector primitives that compute more than they move, on 16 Ki values in cache.
func BenchmarkSmooth(b *testing.B) {
	const n = 16 << 10
	d := newDice(2)
	x, y := d.buf(F32, n).f32(), make([]float32, n)
	for i := range x {
		x[i] = max(x[i], -x[i])
	}
	words := make([]int64, n)
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for _, op := range []Unary{Exp, Tanh, Erf, GeluErf, GeluTanh, Silu, Sigmoid, Log, Rsqrt} {
			b.Run(op.String(), func(b *testing.B) { bytesPerSec(b, 8*n, func() { m.Unary(op, y, x) }) })
		}
		b.Run("philox", func(b *testing.B) { bytesPerSec(b, 8*n, func() { m.Philox(philox.Draw{Seed: 1}, words, 0) }) })
	})
}

// BenchmarkPool are pools of 2 x 2 windows side by side and their gradients, of LeNet's sizes: 40 planes, in cache.
func BenchmarkPool(b *testing.B) {
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for _, size := range []int{24, 8} {
			for t := range numTypes {
				g := Pool2{Planes: 40, H: size, W: size}
				if !m.Pools2(g, t) {
					continue
				}
				in, out := g.Of(g.Planes)
				d := newDice(4)
				x, y, dx, index := d.buf(t, in), d.buf(t, out), zeros(t, in), make([]int32, out)
				run := func(name string, elems int, f func()) {
					b.Run(fmt.Sprintf("%dx%d/%v/%s", size, size, t, name), func(b *testing.B) { bytesPerSec(b, t.Size()*elems, f) })
				}
				run("max", in+out, func() { m.MaxPool2(g, y, nil, x) })
				run("max_at", in+out+4/t.Size()*out, func() { m.MaxPool2(g, y, index, x) })
				run("max_grad", 2*in+out, func() { m.MaxPool2Grad(g, dx, y, x) })
				run("avg", in+out, func() { m.AvgPool2(g, y, x) })
				run("avg_grad", in+out, func() { m.AvgPool2Grad(g, dx, y) })
			}
		}
	})
}

package kern

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Every benchmark prints what it reaches against a probe measured beside it: the multiply-add loop of its path, or
// a copy of as many bytes. Samples alternate with probes, since neighbours share the machine.

// ratio runs probe and work in turn until the benchmark has run b.N times, and reports the median rate of work (units a
// second, in 1e9) and the median of its share of the rate of the probe that ran just before.
func ratio(b *testing.B, unit string, units float64, work func(), probeUnits float64, probe func()) {
	started := time.Now()
	ratioBy(func() time.Duration { return time.Since(started) }, b, unit, units, work, probeUnits, probe)
}

// ratioBy is ratio by another clock.
func ratioBy(now func() time.Duration, b *testing.B, unit string, units float64, work func(), probeUnits float64, probe func()) {
	probe()
	work()
	rates, shares := make(samples, 0, 1<<12), make(samples, 0, 1<<12)
	b.ReportAllocs()
	for b.Loop() {
		start := now()
		probe()
		mid := now()
		work()
		end := now()
		rate := units / float64(end-mid)
		rates = rates.add(rate)
		shares = shares.add(rate / (probeUnits / float64(mid-start)))
	}
	b.ReportMetric(rates.median(), unit)
	b.ReportMetric(shares.median(), "of-probe")
	b.ReportMetric(0, "ns/op")
}

// samples keeps what it has room for, so that it allocates nothing while a benchmark runs.
type samples []float64

func (s samples) add(x float64) samples {
	if len(s) < cap(s) {
		return append(s, x)
	}
	return s
}

func (s samples) median() float64 {
	slices.Sort(s)
	return s[len(s)/2]
}

func onVectorPaths(b *testing.B, f func(b *testing.B, m *Machine)) {
	for _, p := range Paths() {
		if p.lanes > 1 {
			b.Run(p.Name(), func(b *testing.B) {
				m := New(p, 1)
				defer m.Close()
				f(b, m)
			})
		}
	}
}

const probeIters = 20000

func flops(b *testing.B, m *Machine, flop float64, work func()) {
	ratio(b, "GFLOP/s", flop, work, m.probeFlop*probeIters, func() { m.Probe(probeIters) })
}

// bytesPerSec counts n bytes read and written. The probe is Go's copy, which uses streaming stores for what is as large as
// these, moving as many bytes between two blocks of memory of its own, gotten as the kernels' operands are.
func bytesPerSec(b *testing.B, n int, work func()) {
	dst, src := Alloc(int64(n/2)), Alloc(int64(n/2))
	for i := range src { // pages never written share one page of zeros
		src[i], dst[i] = 1, 1
	}
	ratio(b, "GB/s", float64(n), work, float64(n), func() { copy(dst, src) })
}

func benchGemm(m, n, k int, t Type) *Gemm {
	d := newDice(1)
	return &Gemm{M: m, N: n, K: k, A: Mat{Buf: d.buf(t, m*k), LD: k}, B: Mat{Buf: d.buf(t, k*n), LD: n}, C: Mat{Buf: zeros(F32, m*n), LD: n}}
}

func BenchmarkGemm(b *testing.B) {
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for _, n := range []int{64, 128, 256, 512, 1024, 2048} {
			for t := range numTypes {
				g := benchGemm(n, n, n, t)
				b.Run(fmt.Sprintf("%d/%v", n, t), func(b *testing.B) {
					flops(b, m, 2*float64(n)*float64(n)*float64(n), func() { m.Gemm(g) })
				})
			}
		}
	})
}

// BenchmarkHalves are products of halves, with the same product of f32 as the probe: of-probe is how much faster they are.
func BenchmarkHalves(b *testing.B) {
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for _, s := range [][2]int{{512, 512}, {1024, 1024}, {2048, 2048}, {1, 4096}, {2, 4096}} {
			for _, tb := range []bool{false, true} {
				f := benchGemm(s[0], s[1], s[1], F32)
				f.B.T = tb
				flop := 2 * float64(s[0]) * float64(s[1]) * float64(s[1])
				for _, t := range []Type{F16, BF16} {
					g := benchGemm(s[0], s[1], s[1], t)
					g.B.T = tb
					b.Run(fmt.Sprintf("%dx%d/%v/tb=%v", s[0], s[1], t, tb), func(b *testing.B) {
						ratio(b, "GFLOP/s", flop, func() { m.Gemm(g) }, flop, func() { m.Gemm(f) })
					})
				}
			}
		}
	})
}

// BenchmarkGemmShapes are products of small models: an MLP at batch 128, a GPT of width 256, LeNet as a product.
func BenchmarkGemmShapes(b *testing.B) {
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for _, s := range [][3]int{{128, 512, 784}, {128, 512, 512}, {128, 10, 512}, {512, 10, 128}, {1024, 256, 256}, {1024, 768, 256}, {32, 500, 800}, {20, 576, 25}} {
			g := benchGemm(s[0], s[1], s[2], F32)
			for _, tb := range []bool{false, true} {
				if g.B.T = tb; tb {
					g.B.LD = s[2]
				}
				b.Run(fmt.Sprintf("%dx%dx%d/tb=%v", s[0], s[1], s[2], tb), func(b *testing.B) {
					flops(b, m, 2*float64(s[0]*s[1]*s[2]), func() { m.Gemm(g) })
				})
			}
		}
	})
}

// BenchmarkEpilogue is a linear layer of a small GPT: bias, residual, half results.
func BenchmarkEpilogue(b *testing.B) {
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		d := newDice(6)
		for name, epi := range map[string]Epilogue{"none": {}, "bias": {Bias: d.buf(F32, 1024)}, "rowbias": {RowBias: d.buf(F32, 1024)},
			"bias+gelu": {Bias: d.buf(F32, 1024), Act: ActGeluTanh}, "residual": {Residual: Mat{Buf: d.buf(F32, 1<<20), LD: 1024}}} {
			for t := range numTypes {
				g := benchGemm(1024, 1024, 256, t)
				g.C.Buf, g.Epilogue = zeros(t, 1<<20), epi
				b.Run(fmt.Sprintf("%s/%v", name, t), func(b *testing.B) { flops(b, m, 2*1024*1024*256, func() { m.Gemm(g) }) })
			}
		}
	})
}

// BenchmarkSmallM is y = x W for few rows, with W in memory.
func BenchmarkSmallM(b *testing.B) {
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for _, rows := range []int{1, 2, 4, 8, 16} {
			for t := range numTypes {
				for _, tb := range []bool{false, true} {
					g := benchGemm(rows, 4096, 4096, t)
					g.B.T = tb
					b.Run(fmt.Sprintf("%dx4096/%v/tb=%v", rows, t, tb), func(b *testing.B) {
						flops(b, m, 2*float64(rows)*4096*4096, func() { m.Gemm(g) })
					})
				}
			}
		}
	})
}

// BenchmarkTransposed is y = x W^T for few rows, with W in memory or packed before.
func BenchmarkTransposed(b *testing.B) {
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for _, cols := range []int{3072, 50257} {
			for t := range numTypes {
				for _, rows := range []int{1, 2, 4, 8} {
					g := benchGemm(rows, cols, 768, t)
					g.B.T, g.B.LD = true, 768
					run := func(name string) {
						b.Run(fmt.Sprintf("%dx%d/%v/%s", rows, cols, t, name), func(b *testing.B) {
							flops(b, m, 2*768*float64(rows*cols), func() { m.Gemm(g) })
						})
					}
					run("memory")
					g.B.Fixed = Fixed{Weights: NewWeights(nil, NewBlock)}
					run("packed")
					g.B.Fixed.Drop()
				}
			}
		}
	})
}

// BenchmarkCache are row kernels and smooth primitives on data in cache.
func BenchmarkCache(b *testing.B) {
	const rows, cols = 16, 1024
	d := newDice(2)
	x, y := d.buf(F32, rows*cols), zeros(F32, rows*cols)
	gamma, beta := d.buf(F32, cols), d.buf(F32, cols)
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		run := func(name string, f func()) {
			b.Run(name, func(b *testing.B) { bytesPerSec(b, 8*rows*cols, f) })
		}
		run("softmax", func() { m.Softmax(y, x, rows, cols) })
		n := &Norm{Rows: rows, Cols: cols, Eps: 1e-5, X: x, Y: y, Gamma: gamma, Beta: beta}
		run("layer_norm", func() { m.Norm(n) })
		for _, op := range []Unary{GeluErf, GeluTanh, Exp, Log, Tanh, Erf, Sigmoid, Sin} {
			run(op.String(), func() { m.Unary(op, y.f32(), x.f32()) })
		}
	})
}

// benchConv is a layer of square images, of stride 1.
func benchConv(t Type, n, c, k, size, kernel, pad int, last bool) *Conv {
	out := size + 2*pad - kernel + 1
	v := &Conv{N: n, C: c, K: k, Groups: 1, In: [3]int{1, size, size}, Out: [3]int{1, out, out}, Kernel: [3]int{1, kernel, kernel},
		Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, pad, pad}, ChannelsLast: last}
	if last {
		v.Weights = OXI
	}
	d := newDice(3)
	v.X, v.W, v.Y = d.buf(t, n*c*size*size), d.buf(t, k*c*kernel*kernel), d.buf(t, n*k*out*out)
	return v
}

// byDefinition is m without transforms of convolutions.
func byDefinition(m *Machine) *Machine {
	plain := *m.Path
	plain.wino = nil
	return New(&plain, m.pool.Workers())
}

// BenchmarkConv are the 3x3 layers of ResNet-18 and the layers of LeNet by the definition, forward and both gradients.
func BenchmarkConv(b *testing.B) {
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		m = byDefinition(m)
		defer m.Close()
		for i := range 6 {
			last, t := i%2 == 1, Type(i/2)
			for _, c := range []*Conv{benchConv(t, 8, 64, 64, 32, 3, 1, last), benchConv(t, 8, 128, 128, 16, 3, 1, last), benchConv(t, 8, 256, 256, 8, 3, 1, last),
				benchConv(t, 8, 512, 512, 4, 3, 1, last), benchConv(t, 32, 1, 20, 28, 5, 0, last), benchConv(t, 32, 20, 50, 12, 5, 0, last)} {
				flop := 2 * float64(c.N*c.K*c.C*volume(c.Out)*volume(c.Kernel))
				for name, f := range map[string]func(*Conv){"fwd": m.Conv, "dx": m.ConvInputGrad, "dw": m.ConvWeightGrad} {
					b.Run(fmt.Sprintf("%dx%dx%d/last=%v/%v/%s", c.In[1], c.C, c.K, last, t, name), func(b *testing.B) { flops(b, m, flop, func() { f(c) }) })
				}
			}
		}
	})
}

// BenchmarkResNet are the convolutions of ResNet-18 at batch 32, by whichever way they go: stem, layers, those of stride 2 and
// their shortcuts.
func BenchmarkResNet(b *testing.B) {
	layers := []struct{ c, k, size, kernel, stride int }{{3, 64, 32, 3, 1}, {64, 64, 32, 3, 1}, {128, 128, 16, 3, 1}, {256, 256, 8, 3, 1}, {512, 512, 4, 3, 1},
		{64, 128, 32, 3, 2}, {128, 256, 16, 3, 2}, {256, 512, 8, 3, 2}, {64, 128, 32, 1, 2}, {128, 256, 16, 1, 2}, {256, 512, 8, 1, 2}}
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for t := range numTypes {
			for _, l := range layers {
				name := fmt.Sprintf("%v/%dx%dx%d/%dx%d/stride=%d", t, l.size, l.c, l.k, l.kernel, l.kernel, l.stride)
				b.Run(name, func(b *testing.B) {
					c := benchConv(t, 32, l.c, l.k, l.size, l.kernel, l.kernel/2, false)
					out := l.size / l.stride
					c.Stride, c.Out = [3]int{1, l.stride, l.stride}, [3]int{1, out, out}
					c.Y.Data = c.Y.Data[:c.N*c.K*out*out*t.Size()]
					grad := *c
					grad.W = zeros(F32, c.W.Len())
					flop := 2 * float64(c.N*c.K*c.C*volume(c.Out)*volume(c.Kernel))
					b.Run("fwd", func(b *testing.B) { flops(b, m, flop, func() { m.Conv(c) }) })
					b.Run("dx", func(b *testing.B) { flops(b, m, flop, func() { m.ConvInputGrad(c) }) })
					b.Run("dw", func(b *testing.B) { flops(b, m, flop, func() { m.ConvWeightGrad(&grad) }) })
				})
			}
		}
	})
}

// BenchmarkDepthwise is a 3x3 layer of 128 channels.
func BenchmarkDepthwise(b *testing.B) {
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for name, last := range map[string]bool{"first": false, "last": true} {
			d := newDice(5)
			c := &Conv{N: 8, C: 128, K: 128, Groups: 128, In: [3]int{1, 28, 28}, Out: [3]int{1, 28, 28}, Kernel: [3]int{1, 3, 3},
				Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, 1, 1}, ChannelsLast: last,
				X: d.buf(F32, 8*128*784), W: d.buf(F32, 128*9), Y: d.buf(F32, 8*128*784)}
			b.Run(name, func(b *testing.B) { flops(b, m, 2*8*128*784*9, func() { m.Conv(c) }) })
		}
	})
}

func BenchmarkAttention(b *testing.B) {
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for _, s := range []struct{ batch, heads, s, d int }{{8, 8, 128, 32}, {1, 8, 1024, 64}} {
			for t := range numTypes {
				d := newDice(4)
				a := &Attention{Batch: s.batch, Heads: s.heads, KVHeads: s.heads, S: s.s, T: s.s, D: s.d, DV: s.d, Scale: 0.125}
				for _, v := range []*View{&a.Q, &a.K, &a.V, &a.Y, &a.DY, &a.GradQ, &a.GradK, &a.GradV} {
					*v = d.view(t, s.batch, s.heads, s.s, s.d)
				}
				a.LSE = make([]float32, s.batch*s.heads*s.s)
				flop := 4 * float64(s.batch*s.heads*s.s*s.s*s.d)
				for _, causal := range []bool{false, true} {
					name := fmt.Sprintf("%dx%d/%v/causal=%v/", s.s, s.d, t, causal)
					b.Run(name+"fwd", func(b *testing.B) { a.Causal = causal; flops(b, m, flop, func() { m.Attention(a) }) })
					b.Run(name+"bwd", func(b *testing.B) { a.Causal = causal; flops(b, m, 2.5*flop, func() { m.AttentionGrad(a) }) })
				}
			}
		}
	})
}

// BenchmarkRegion is an empty parallel region.
func BenchmarkRegion(b *testing.B) {
	for _, n := range []int{1, 2, 4, 17, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := startPool(n, Host{})
			defer p.Close()
			b.ReportAllocs()
			for b.Loop() {
				p.Run(n, &nothing{})
			}
		})
	}
}

type nothing struct{}

func (*nothing) Run(_, _ int) {}

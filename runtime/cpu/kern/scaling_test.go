package kern

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// BenchmarkScaling runs kernels of training steps on machines of one and of two workers in turn and reports the fastest run
// of the first against that of the second. The fastest, as a neighbour takes a processor away for some of them.
func BenchmarkScaling(b *testing.B) {
	if testing.Short() {
		b.Skip("-short: takes two processors that are idle")
	}
	for _, p := range Paths() {
		if p.lanes == 1 {
			continue
		}
		b.Run(p.Name(), func(b *testing.B) {
			one, two := New(p, 1), New(p, 2)
			defer one.Close()
			defer two.Close()
			for _, t := range []Type{F32, BF16} {
				for _, s := range scalingShapes {
					g := benchGemm(s.m, s.n, s.k, t)
					if g.A.T = s.at; s.at {
						g.A.LD = s.m
					}
					if g.B.T = s.bt; s.bt {
						g.B.LD = s.k
					}
					b.Run(fmt.Sprintf("%v/%dx%dx%d", t, s.m, s.n, s.k), func(b *testing.B) {
						scaling(b, 2*float64(s.m)*float64(s.n)*float64(s.k), func() { one.Gemm(g) }, func() { two.Gemm(g) })
					})
				}
				for _, c := range []*Conv{benchConv(t, 32, 64, 64, 32, 3, 1, false), benchConv(t, 32, 128, 128, 16, 3, 1, false), benchConv(t, 32, 256, 256, 8, 3, 1, false),
					benchConv(t, 32, 512, 512, 4, 3, 1, false), benchConv(t, 32, 1, 20, 28, 5, 0, false), benchConv(t, 32, 20, 50, 12, 5, 0, false)} {
					flop := 2 * float64(c.N*c.K*c.C*volume(c.Out)*volume(c.Kernel))
					name := fmt.Sprintf("%v/conv%dx%dx%d", t, c.In[1], c.C, c.K)
					b.Run(name+"/fwd", func(b *testing.B) { scaling(b, flop, func() { one.Conv(c) }, func() { two.Conv(c) }) })
					b.Run(name+"/dx", func(b *testing.B) { scaling(b, flop, func() { one.ConvInputGrad(c) }, func() { two.ConvInputGrad(c) }) })
					b.Run(name+"/dw", func(b *testing.B) {
						scaling(b, flop, func() { one.ConvWeightGrad(c) }, func() { two.ConvWeightGrad(c) })
					})
				}
			}
		})
	}
}

// Products of the GPT, the MLP and LeNet of docs/performance.md: results, gradients of what they read and of weights.
var scalingShapes = []struct {
	m, n, k int
	at, bt  bool
}{
	{1024, 768, 256, false, false}, {1024, 1024, 256, false, false}, {1024, 256, 1024, false, false}, {1024, 256, 256, false, false},
	{1024, 256, 768, false, true}, {1024, 1024, 256, false, true}, {1024, 256, 1024, false, true},
	{256, 768, 1024, true, false}, {256, 1024, 1024, true, false}, {1024, 256, 1024, true, false}, {256, 256, 1024, true, false},
	{128, 512, 784, false, false}, {128, 512, 512, false, false}, {128, 10, 512, false, false}, {512, 10, 128, true, false},
	{128, 512, 512, false, true}, {128, 512, 10, false, true}, {784, 512, 128, true, false}, {512, 512, 128, true, false},
	{32, 500, 800, false, false}, {32, 800, 500, false, true}, {800, 500, 32, true, false},
}

// scaling reports how many times faster two is than one, and its rate.
func scaling(b *testing.B, flop float64, one, two func()) {
	fastest := func(best float64, f func()) float64 {
		start := time.Now()
		f()
		return min(best, time.Since(start).Seconds())
	}
	one()
	two()
	alone, both := math.Inf(1), math.Inf(1)
	for b.Loop() {
		alone = fastest(alone, one)
		two() // wakes the second worker, as the step before does in training
		both = fastest(both, two)
	}
	b.ReportMetric(alone/both, "times")
	b.ReportMetric(flop/both/1e9, "GFLOP/s")
	b.ReportMetric(0, "ns/op")
}

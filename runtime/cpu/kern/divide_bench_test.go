package kern

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkDivide finds the divisions of the products of TestDivision for the first time, packing and other numbers of panels included.
// It prints the mean, and the time that one product in ten takes at least.
func BenchmarkDivide(b *testing.B) {
	block := NewBlock(1 << 31)
	defer block.Release()
	kernels := dividedKernels(block)[:2*len(dividedProducts)]
	for _, n := range []int{2, 8, 64, 128} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var times []time.Duration
			m := NewPlanner(Paths()[0], n, func(Planned) {})
			for b.Loop() {
				for _, k := range kernels {
					clear(m.divided)
					clear(m.panels)
					start := time.Now()
					k.run(m)
					times = append(times, time.Since(start))
				}
			}
			slices.Sort(times)
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(len(times)), "µs/product")
			b.ReportMetric(float64(times[len(times)*9/10].Nanoseconds())/1000, "µs-tenth")
		})
	}
}

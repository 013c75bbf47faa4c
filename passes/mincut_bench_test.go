package passes

import (
	"fmt"
	"testing"
)

// BenchmarkMincut times amp with the minimum cut alone, on decoders.
func BenchmarkMincut(b *testing.B) {
	for _, layers := range []int64{48, 4800} {
		b.Run(fmt.Sprintf("layers=%d", layers), func(b *testing.B) {
			var ms float64
			var free, largest int
			for b.Loop() {
				c := trainConfig(withMincut(MixedF16()))
				c.NoVerify, c.Until = true, "amp"
				c.After = func(e Event) {
					if e.Pass == "amp" {
						ms = float64(e.Took.Microseconds()) / 1000
						free, largest = e.Counters["cut_free"], e.Counters["cut_largest"]
					}
				}
				mustRun(b, gptGraph(layers, 8, 1024, 1600, 25, 50257), c)
			}
			b.ReportMetric(ms, "ms-amp")
			b.ReportMetric(float64(free), "free")
			b.ReportMetric(float64(largest), "largest")
		})
	}
}

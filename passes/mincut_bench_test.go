package passes

import (
	"fmt"
	"testing"
	"time"

	"ampc/ir"
)

// BenchmarkMincut times the minimum cut on training graphs of decoders: of the
// depth of GPT-2's largest model, and with about 100,000 and a million free
// variables. ms-cut is the construction of the network and the flow, ms-amp the
// whole pass, which also writes the choice into the graph.
func BenchmarkMincut(b *testing.B) {
	for _, layers := range []int64{48, 970, 9710} {
		b.Run(fmt.Sprintf("layers=%d", layers), func(b *testing.B) {
			var cut, all time.Duration
			var counters map[string]int
			for b.Loop() {
				b.StopTimer()
				c := trainConfig(MixedF16())
				c.NoVerify, c.Until = true, "cluster"
				g := mustRun(b, gptGraph(layers, 8, 1024, 1600, 25, 50257), c)
				cut += timedCut(b, g, newContext(c))
				ctx := newContext(c)
				b.StartTimer()
				start := time.Now()
				if err := amp(g, ctx); err != nil {
					b.Fatal(err)
				}
				all += time.Since(start)
				counters = ctx.counters
			}
			b.ReportMetric(cut.Seconds()*1e3/float64(b.N), "ms-cut")
			b.ReportMetric(all.Seconds()*1e3/float64(b.N), "ms-amp")
			b.ReportMetric(float64(counters["cut_free"]), "free")
			b.ReportMetric(float64(counters["cut_components"]), "components")
			b.ReportMetric(float64(counters["cut_largest"]), "largest")
		})
	}
}

// timedCut is how long the cut of g takes, from values to a choice.
func timedCut(b *testing.B, g *ir.Graph, c *Context) time.Duration {
	b.Helper()
	a := newAssigner(g, c)
	err := a.storeParams()
	if err == nil {
		a.guard, err = a.guarded()
	}
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	if err := a.mincut(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

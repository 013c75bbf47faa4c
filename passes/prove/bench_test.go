package prove_test

import (
	"testing"

	"ampc/passes/prove"
)

// BenchmarkProve judges a finished step with one of everything.
func BenchmarkProve(b *testing.B) {
	t := &testing.T{}
	source, g, r := compiled(t, "mixed-f16", nil)
	b.ReportMetric(float64(g.NumNodes()), "nodes")
	for b.Loop() {
		if f := prove.Prove(source, g, r); len(f) > 0 {
			b.Fatal(f)
		}
	}
}

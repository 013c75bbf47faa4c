package models_test

import (
	"runtime"
	"testing"
	"time"

	"ampc"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
)

// BenchmarkProof compiles training steps and reports which part of the median time
// (passes and lowering) goes to the proof, the copy of the source included.
func BenchmarkProof(b *testing.B) {
	for _, spec := range []string{"gpt2", "resnet50"} {
		b.Run(spec, func(b *testing.B) {
			z, err := models.Open(spec)
			if err != nil {
				b.Fatal(err)
			}
			var with, without []float64
			for b.Loop() {
				with = append(with, compileTime(b, z, true))
				without = append(without, compileTime(b, z, false))
			}
			b.ReportMetric(middle(without), "ms/compile")
			b.ReportMetric(100*(middle(with)/middle(without)-1), "%proof")
		})
	}
}

// compileTime is in milliseconds.
func compileTime(b *testing.B, z *models.Zoo, prove bool) float64 {
	c := z.Steps[0].Config
	c.Policy, c.Compile.NoProof = ampc.MixedF16(), !prove
	g, p, err := z.Model.Source(c, z.Steps[0].Losses...)
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	start := time.Now()
	if err := passes.Run(g, p); err != nil {
		b.Fatal(err)
	}
	if _, err := lower.Lower(g, lower.CPU); err != nil {
		b.Fatal(err)
	}
	return time.Since(start).Seconds() * 1000
}

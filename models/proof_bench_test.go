package models_test

import (
	"testing"
	"time"

	"ampc"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
)

// BenchmarkProof compiles training steps and reports which part of the time
// (passes and lowering) goes to the proof, the copy of the source included.
func BenchmarkProof(b *testing.B) {
	for _, spec := range []string{"gpt2", "resnet50"} {
		b.Run(spec, func(b *testing.B) {
			z, err := models.Open(spec)
			if err != nil {
				b.Fatal(err)
			}
			var with, without time.Duration
			for b.Loop() {
				with += compileTime(b, z, true)
				without += compileTime(b, z, false)
			}
			b.ReportMetric(float64(without.Microseconds())/float64(b.N)/1000, "ms/compile")
			b.ReportMetric(100*(float64(with)/float64(without)-1), "%proof")
		})
	}
}

func compileTime(b *testing.B, z *models.Zoo, prove bool) time.Duration {
	c := z.Steps[0].Config
	c.Policy, c.NoProof = ampc.MixedF16(), !prove
	g, p, err := z.Model.Source(c, z.Steps[0].Losses...)
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	if err := passes.Run(g, p); err != nil {
		b.Fatal(err)
	}
	if _, err := lower.Lower(g, lower.CPU); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

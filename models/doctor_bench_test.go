package models_test

import (
	"context"
	"testing"
	"time"

	"ampc"
	"ampc/models"
)

// BenchmarkDoctor has a step diagnosed whose gradients overflow from the loss on:
// it is replayed to the end of its backward pass, in f16 and in f32. "steps" is
// how many times the step's own time that takes.
func BenchmarkDoctor(b *testing.B) {
	for _, spec := range []string{"gpt?layers=4&dim=256&heads=8&seq=128&batch=8&vocab=256", "lenet?batch=128", "mlp?batch=256"} {
		b.Run(spec, func(b *testing.B) {
			z, err := models.Open(spec)
			if err != nil {
				b.Fatal(err)
			}
			defer z.Model.Close()
			c := z.Steps[0].Config
			c.Policy, c.Scaler = ampc.MixedF16(), ampc.Static(1<<24)
			loss := z.Steps[0].Losses[0]
			loss.Weight = 1 << 24
			step, err := z.Model.Train(c, loss)
			if err != nil {
				b.Fatal(err)
			}
			feed := z.Batch(1)
			run := func() time.Duration {
				start := time.Now()
				r, err := step.Run(context.Background(), feed)
				if err != nil || !r.Skipped() {
					b.Fatalf("skipped %t: %v", r.Skipped(), err)
				}
				return time.Since(start)
			}
			run()
			var steps, looks time.Duration
			for b.Loop() {
				for range 4 {
					steps += run() / 4
				}
				start := time.Now()
				d, err := step.Diagnose(context.Background())
				looks += time.Since(start)
				if err != nil || d.Cause == ampc.NoFault {
					b.Fatalf("%v: %v", err, d)
				}
			}
			b.ReportMetric(float64(looks)/float64(steps), "steps")
			b.ReportMetric(float64(looks.Milliseconds())/float64(b.N), "ms/diagnosis")
		})
	}
}

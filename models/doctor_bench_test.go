package models_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"ampc"
	"ampc/internal/trial"
	"ampc/models"
)

// BenchmarkDoctor has steps diagnosed whose gradients overflow from the loss on
// (first), and ones that overflow f16 in the update of the first layer, for which
// the replays in f16 and f32 have to run to their end (last). "steps" is how
// many times the step's own time a diagnosis takes.
func BenchmarkDoctor(b *testing.B) {
	first := func(c *ampc.TrainConfig, loss *ampc.Loss) { c.Scaler, loss.Weight = ampc.Static(1<<24), 1<<24 }
	last := func(c *ampc.TrainConfig, _ *ampc.Loss) {
		c.Gradients = func(u *ampc.Update, gs []ampc.Grad) []ampc.Grad {
			gs[0].Value = u.Cast(u.Cast(u.Affine(gs[0].Value, 1e12, 0), ampc.F16), ampc.F32)
			return gs
		}
	}
	for _, spec := range []string{"gpt", "gpt?layers=4&dim=256&heads=8&seq=128&batch=8&vocab=256", "lenet?batch=128", "mlp", "mlp?batch=256", "mlp?hidden=1024"} {
		b.Run(spec+"/first", func(b *testing.B) { benchDoctor(b, spec, first) })
		b.Run(spec+"/last", func(b *testing.B) { benchDoctor(b, spec, last) })
	}
}

func benchDoctor(b *testing.B, spec string, spoil func(*ampc.TrainConfig, *ampc.Loss)) {
	z, err := models.Open(spec)
	if err != nil {
		b.Fatal(err)
	}
	defer z.Model.Close()
	c, loss := z.Steps[0].Config, z.Steps[0].Losses[0]
	c.Policy = ampc.MixedF16()
	spoil(&c, &loss)
	step, err := z.Model.Train(c, loss)
	if err != nil {
		b.Fatal(err)
	}
	feed := z.Batch(1)
	run := func() time.Duration {
		start := time.Now()
		r, err := step.Run(context.Background(), feed)
		if err != nil || !trial.Metrics(b, r).Skipped {
			b.Fatalf("skipped %t: %v", trial.Metrics(b, r).Skipped, err)
		}
		return time.Since(start)
	}
	run()
	var steps, looks, stepsCPU, looksCPU time.Duration
	for b.Loop() {
		cpu := spent(b)
		for range 4 {
			steps += run() / 4
		}
		stepsCPU, cpu = stepsCPU+(spent(b)-cpu)/4, spent(b)
		start := time.Now()
		d, err := step.Diagnose(context.Background())
		looks += time.Since(start)
		looksCPU += spent(b) - cpu
		if err != nil || d.Cause == ampc.NoFault {
			b.Fatalf("%v: %v", err, d)
		}
	}
	b.ReportMetric(float64(looks)/float64(steps), "steps")
	b.ReportMetric(float64(looksCPU)/float64(stepsCPU), "cpu-steps") // on a busy machine the one that says something
	b.ReportMetric(float64(looks.Milliseconds())/float64(b.N), "ms/diagnosis")
}

// spent is the processor time of the process so far.
func spent(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

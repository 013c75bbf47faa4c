package ampc_test

import (
	"context"
	"testing"

	"ampc"
)

// What a skipped step prepares for a diagnosis in the background does not disturb steps that run
// on, steps and models that are closed, or the diagnosis.
func TestPreparedBesideSteps(t *testing.T) {
	ctx := context.Background()
	for _, end := range []string{"run", "close step", "close model", "diagnose"} {
		m := ampc.New("small", ampc.Seed(1))
		x := m.Input("x", ampc.F32, 8, 16)
		loss := m.MSE(m.Linear("fc", x, 4), m.Input("y", ampc.F32, 8, 4))
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16(), RestoreScale: ampc.RestoreNever}, ampc.Loss{Value: loss})
		if err != nil {
			t.Fatal(err)
		}
		feed := make([]float32, 8*16)
		for i := range feed {
			feed[i] = 1e6
		}
		run := func() {
			r, err := step.Run(ctx, ampc.Feed{"x": feed, "y": make([]float32, 8*4)})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := r.Wait(ctx); err != nil || !got.Skipped {
				t.Fatalf("skipped %t: %v", got.Skipped, err)
			}
		}
		run()
		switch end {
		case "run":
			for range 20 {
				run()
			}
		case "close step":
			err = step.Close()
		case "diagnose":
			var d *ampc.Diagnosis
			if d, err = step.Diagnose(ctx); err == nil && d.Cause != ampc.ForwardOverflow {
				t.Errorf("%s: %s", end, d)
			}
		}
		if err != nil {
			t.Errorf("%s: %v", end, err)
		}
		if err := m.Close(); err != nil {
			t.Errorf("%s: %v", end, err)
		}
	}
}

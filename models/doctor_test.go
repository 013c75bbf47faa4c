package models_test

import (
	"context"
	"testing"

	"ampc"
	"ampc/internal/trial"
	"ampc/models"
)

// Of training without a fault the doctor reports nothing: every model of the zoo under
// three policies, seeds of their own, the loss scale growing until it overflows
// and finding its way back.
func TestCleanRunsAreNotBlamed(t *testing.T) {
	eager := ampc.Dynamic()
	eager.Every = 2 // so soon that every run overflows
	skips := 0
	for i, spec := range inSmall {
		for k, c := range []ampc.TrainConfig{
			{Policy: ampc.MixedF16(), Scaler: eager},
			{Policy: ampc.MixedBF16()},
			{Policy: ampc.Torch(ampc.F16), Scaler: eager},
		} {
			skips += clean(t, spec, c, int64(3*i+k))
		}
	}
	if skips < len(inSmall) {
		t.Errorf("%d steps were skipped: the runs do not search for their scale", skips)
	}
}

// clean trains a model and has every skipped step, and the last one, looked at.
func clean(t *testing.T, spec string, c ampc.TrainConfig, seed int64) (skips int) {
	t.Helper()
	z, err := models.Open(spec, ampc.Seed(seed))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	own := z.Steps[0].Config
	own.Policy, own.Scaler = c.Policy, c.Scaler
	step, err := z.Model.Train(own, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	const steps = 40
	for i := range int64(steps) {
		r, err := step.Run(context.Background(), z.Batch(1000*seed+i))
		if err != nil {
			t.Fatal(err)
		}
		if trial.Metrics(t, r).Skipped {
			skips++
		} else if i < steps-1 {
			continue
		}
		d, err := step.Diagnose(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if d.Cause != ampc.NoFault {
			t.Errorf("%s under %s, step %d at scale %g:\n%s", spec, c.Policy.Name, i, trial.Metrics(t, r).Scale, d)
		}
	}
	return skips
}

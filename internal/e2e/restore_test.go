package e2e_test

import (
	"context"
	"strings"
	"testing"

	"ampc"
)

// lengths compiles a step whose loss is the mean length of rows: its gradient is
// 0/0 where a row is 0, and its value is not.
func lengths(t *testing.T, c ampc.TrainConfig) (*ampc.Model, *ampc.Step) {
	t.Helper()
	m := ampc.New("lengths")
	x := m.Input("x", ampc.F32, 4, 8)
	h := m.Linear("fc", x, 8)
	length := m.Sqrt(m.ReduceSum(m.Square(h), ampc.Axes(1)))
	loss := m.Named("loss").ReduceMean(length)
	c.Optimizer, c.LR, c.Policy = ampc.SGD(0), ampc.Constant(0.01), ampc.MixedF16()
	step, err := m.Train(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, step
}

// A batch whose gradient is 0/0 although its loss is finite lowers the loss
// scale. The doctor says that f32 has the NaN too; RestoreScale takes it back.
func TestRestoreScale(t *testing.T) {
	m, step := lengths(t, ampc.TrainConfig{})
	if err := step.RestoreScale(); err == nil || !strings.HasSuffix(err.Error(), "no step was run yet") {
		t.Errorf("before the first step: %v", err)
	}
	run := func(x []float32) *ampc.Result {
		r, err := step.Run(context.Background(), ampc.Feed{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	good, bad := all(32, 0.5), all(32, 0.5)
	clear(bad[8:16])
	set(t, m, "fc.b", make([]float32, 8))
	first := run(good)
	if metrics(t, first).Skipped {
		t.Fatal("the first step is to be taken")
	}
	if err := step.RestoreScale(); err == nil || !strings.Contains(err.Error(), "was taken") {
		t.Errorf("after a step that was taken: %v", err)
	}
	set(t, m, "fc.b", make([]float32, 8))
	for i := range 3 {
		r := run(bad)
		if !metrics(t, r).Skipped || metrics(t, r).Loss != metrics(t, r).Loss || metrics(t, r).Scale != metrics(t, first).Scale {
			t.Fatalf("bad batch %d: skipped %t, loss %g, scale %g; want a finite loss, skipped, at %g", i, metrics(t, r).Skipped, metrics(t, r).Loss, metrics(t, r).Scale, metrics(t, first).Scale)
		}
		d, err := step.Diagnose(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if d.Cause != ampc.NotPrecision {
			t.Errorf("bad batch %d: %s", i, d)
		}
		for range 2 { // once is enough
			if err := step.RestoreScale(); err != nil {
				t.Fatal(err)
			}
		}
		if again, err := step.Diagnose(context.Background()); err != nil || again.String() != d.String() {
			t.Errorf("the diagnosis after the scale was restored: %v\n%s\nwant\n%s", err, again, d)
		}
	}
	if r := run(good); metrics(t, r).Skipped || metrics(t, r).Scale != metrics(t, first).Scale {
		t.Errorf("the next good batch: skipped %t at %g, want it taken at %g", metrics(t, r).Skipped, metrics(t, r).Scale, metrics(t, first).Scale)
	}
	set(t, m, "fc.b", make([]float32, 8))
	run(bad)
	if r := run(good); metrics(t, r).Scale != metrics(t, first).Scale/2 {
		t.Errorf("a scale that is not restored is %g, want half of %g", metrics(t, r).Scale, metrics(t, first).Scale)
	}
}

// With TrainConfig.RestoreScale the step does so itself: a NaN of the data leaves
// the scale alone, an overflow lowers it, and skips that never end are noticed.
func TestRestoreScaleByItself(t *testing.T) {
	m, step := lengths(t, ampc.TrainConfig{RestoreScale: true})
	run := func(x []float32) ampc.Metrics {
		t.Helper()
		r, err := step.Run(context.Background(), ampc.Feed{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		set(t, m, "fc.b", make([]float32, 8))
		return metrics(t, r)
	}
	set(t, m, "fc.b", make([]float32, 8))
	good, bad := all(32, 0.5), all(32, 0.5)
	clear(bad[8:16])
	first := run(good)
	for i := range 25 {
		if err := step.Stuck(); err != nil {
			t.Fatalf("after %d bad batches: %v", i, err)
		}
		if got := run(bad); !got.Skipped || got.Loss != got.Loss || got.Scale != first.Scale {
			t.Fatalf("bad batch %d: %+v; want a finite loss, skipped, at %g", i, got, first.Scale)
		}
	}
	if err := step.Stuck(); err == nil || !strings.Contains(err.Error(), "25 steps in a row, and no loss scale helps") {
		t.Errorf("after 25 bad batches: %v", err)
	}
	if got := run(good); got.Skipped || got.Scale != first.Scale {
		t.Errorf("a good batch after them: %+v, want it taken at %g", got, first.Scale)
	}
	if err := step.Stuck(); err != nil {
		t.Errorf("after a step that was taken: %v", err)
	}
	set(t, m, "amp.scale", []float32{1 << 20})
	if got := run(good); !got.Skipped || got.Loss != got.Loss {
		t.Errorf("a batch whose gradients overflow: %+v", got)
	}
	if got := run(good); got.Scale != 1<<19 {
		t.Errorf("after an overflow the scale is %g, want half of %d", got.Scale, 1<<20)
	}
}

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/runtime/gpu"
)

// lengths compiles a step whose loss is the mean length of rows, each times c: its
// gradient is 0/0 where a row is 0, and its value is not.
func lengths(t *testing.T, c ampc.TrainConfig, options ...ampc.ModelOption) (*ampc.Model, *ampc.Step) {
	t.Helper()
	m := ampc.New("lengths", options...)
	x := m.Input("x", ampc.F32, 4, 8)
	h := m.Linear("fc", x, 8)
	length := m.Sqrt(m.ReduceSum(m.Square(h), ampc.Axes(1)))
	loss := m.Named("loss").ReduceMean(m.Mul(length, m.Input("c", ampc.F32, 4)))
	c.Optimizer, c.LR, c.Policy = ampc.SGD(0), ampc.Constant(0.01), ampc.MixedF16()
	step, err := m.Train(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, step
}

// A batch whose gradient is 0/0 although its loss is finite lowers the loss
// scale with RestoreNever. The doctor says that f32 has the NaN too; RestoreScale
// takes it back.
func TestRestoreScale(t *testing.T) {
	testRestored(t, ampc.RestoreNever)
}

// On a GPU the scale is lowered by default, and taken back in the same way.
func TestRestoreScaleOnGPU(t *testing.T) {
	b, err := gpu.OpenSim("sm_90")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	testRestored(t, ampc.RestoreAuto, ampc.On(b))
}

func testRestored(t *testing.T, restore ampc.RestoreScale, options ...ampc.ModelOption) {
	m, step := lengths(t, ampc.TrainConfig{RestoreScale: restore}, options...)
	if err := step.RestoreScale(); err == nil || !strings.HasSuffix(err.Error(), "no step was run yet") {
		t.Errorf("before the first step: %v", err)
	}
	run := func(x []float32) *ampc.Result {
		r, err := step.Run(context.Background(), ampc.Feed{"x": x, "c": all(4, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	good, bad := all(32, 0.5), all(32, 0.5)
	clear(bad[8:16])
	set(t, m, "fc.b", make([]float32, 8))
	first := metrics(t, run(good))
	if first.Skipped {
		t.Fatal("the first step is to be taken")
	}
	if err := step.RestoreScale(); err == nil || !strings.Contains(err.Error(), "was taken") {
		t.Errorf("after a step that was taken: %v", err)
	}
	set(t, m, "fc.b", make([]float32, 8))
	for i := range 3 {
		r := run(bad)
		if !metrics(t, r).Skipped || metrics(t, r).Loss != metrics(t, r).Loss || metrics(t, r).Scale != first.Scale {
			t.Fatalf("bad batch %d: skipped %t, loss %g, scale %g; want a finite loss, skipped, at %g", i, metrics(t, r).Skipped, metrics(t, r).Loss, metrics(t, r).Scale, first.Scale)
		}
		d := ask(t, step)
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
	if r := run(good); metrics(t, r).Skipped || metrics(t, r).Scale != first.Scale {
		t.Errorf("the next good batch: skipped %t at %g, want it taken at %g", metrics(t, r).Skipped, metrics(t, r).Scale, first.Scale)
	}
	set(t, m, "fc.b", make([]float32, 8))
	run(bad)
	if r := run(good); metrics(t, r).Scale != first.Scale/2 {
		t.Errorf("a scale that is not restored is %g, want half of %g", metrics(t, r).Scale, first.Scale)
	}
}

// The step does so itself: a NaN of the data leaves the scale alone, an overflow
// lowers it, and skips that never end are noticed.
func TestRestoreScaleByItself(t *testing.T) {
	m, step := lengths(t, ampc.TrainConfig{})
	run := func(x []float32) ampc.Metrics {
		t.Helper()
		r, err := step.Run(context.Background(), ampc.Feed{"x": x, "c": all(4, 1)})
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

// A micro-batch that is left out for a gradient that is 0/0 at a finite loss leaves the
// scale alone, though the step is taken, and so does one that skips the step; one whose gradients overflow lowers it, before
// such a one and after it.
func TestDroppedMicroBatchSparesScale(t *testing.T) {
	testDropped(t, []ampc.RestoreScale{ampc.RestoreAuto, ampc.RestoreAlways})
}

// The same on a GPU, where the host waits before the update if it is asked to, and the
// scale is lowered otherwise.
func TestDroppedMicroBatchSparesScaleOnGPU(t *testing.T) {
	b, err := gpu.OpenSim("sm_90")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	testDropped(t, []ampc.RestoreScale{ampc.RestoreAlways}, ampc.On(b))
	_, step := lengths(t, ampc.TrainConfig{Micro: 3, BadMicro: ampc.DropMicro}, ampc.On(b))
	waits := b.Syncs()
	for range 3 {
		good := ampc.Feed{"x": all(32, 0.5), "c": all(4, 1)}
		if _, err := step.Run(context.Background(), good, good, good); err != nil {
			t.Fatal(err)
		}
	}
	if b.Syncs() != waits {
		t.Error("with RestoreAuto the host waits for the device")
	}
}

func testDropped(t *testing.T, restores []ampc.RestoreScale, options ...ampc.ModelOption) {
	x := all(32, 0.5)
	good, bad, large := ampc.Feed{"x": x, "c": all(4, 1)}, ampc.Feed{"x": slices.Clone(x), "c": all(4, 1)}, ampc.Feed{"x": x, "c": all(4, 100)}
	clear(bad["x"].([]float32)[8:16])
	for _, c := range []struct {
		name    string
		mode    ampc.BadMicro
		batches []ampc.Feed
		lowers  bool
	}{
		{"first", ampc.DropMicro, []ampc.Feed{bad, good, good}, false},
		{"last", ampc.DropMicro, []ampc.Feed{good, good, bad}, false},
		{"two", ampc.DropMicro, []ampc.Feed{bad, good, bad}, false},
		{"of two", ampc.DropMicro, []ampc.Feed{good, bad}, false},
		{"never", ampc.DropMicro, []ampc.Feed{good, bad, good}, true},
		{"skip", ampc.SkipStep, []ampc.Feed{good, bad, good}, false},
		{"overflow", ampc.DropMicro, []ampc.Feed{good, large, good}, true},
		{"overflow, then data", ampc.DropMicro, []ampc.Feed{large, bad, good}, true},
		{"data, then overflow", ampc.DropMicro, []ampc.Feed{bad, large, good}, true},
	} {
		restores := restores
		if c.name == "never" {
			restores = []ampc.RestoreScale{ampc.RestoreNever}
		}
		for _, restore := range restores {
			t.Run(fmt.Sprintf("%s/%d", c.name, restore), func(t *testing.T) {
				m, step := lengths(t, ampc.TrainConfig{Micro: 3, BadMicro: c.mode, RestoreScale: restore}, options...)
				set(t, m, "fc.b", make([]float32, 8))
				for range 3 { // on a GPU the third is a graph
					before, _ := m.Variable("amp.scale")
					r, err := step.Run(context.Background(), c.batches...)
					if err != nil {
						t.Fatal(err)
					}
					got := metrics(t, r)
					if got.Skipped != (c.mode == ampc.SkipStep) || got.Loss != got.Loss {
						t.Fatalf("%+v: want a finite loss, the step taken where micro-batches are left out", got)
					}
					after, _ := m.Variable("amp.scale")
					if lowered := after.At(0) < before.At(0); lowered != c.lowers {
						t.Errorf("the scale went from %g to %g, want it lowered: %t", before.At(0), after.At(0), c.lowers)
					}
					set(t, m, "fc.b", make([]float32, 8))
				}
			})
		}
	}
}

// Looking for data to blame changes nothing in a search for the scale, nor after it.
func TestSearchIsNotSpared(t *testing.T) {
	trace := func(restore ampc.RestoreScale) (all []ampc.Metrics) {
		c := ampc.TrainConfig{RestoreScale: restore, Scaler: ampc.Dynamic()}
		c.Scaler.Init, c.Scaler.Every = 1<<24, 3
		_, step := lengths(t, c)
		for range 24 {
			all = append(all, metrics(t, run(t, step, ampc.Feed{"x": points(3, 8)["x"], "c": []float32{1, 2, 3, 4}})))
		}
		return all
	}
	never, auto := trace(ampc.RestoreNever), trace(ampc.RestoreAuto)
	if !slices.Equal(never, auto) || !never[0].Skipped || never[23].Scale >= 1<<24 {
		t.Errorf("with RestoreAuto:\n%+v\nwith RestoreNever:\n%+v", auto, never)
	}
}

package ampc_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
)

// A guard with ranges from calibration steps keeps what came near the largest
// f16 in f32, and the step then runs where it would have overflowed.
func TestCalibratedGuard(t *testing.T) {
	build := func() (*ampc.Model, ampc.Tensor) {
		m := ampc.New("tall")
		x := m.Input("x", ampc.F32, 8, 16)
		h := m.Linear("h", x, 16, ampc.LinearOptions{Init: ampc.Uniform(0.5, 1)})
		s := m.Named("s").ReduceMean(h, ampc.ReduceOptions{Axes: []int{1}, Keep: true})
		return m, m.Named("loss").ReduceMean(m.Named("log").Log(s), ampc.Axes(0, 1))
	}
	x := make([]float32, 8*16)
	for i := range x {
		x[i] = 6000 + float32(i)
	}
	feed := ampc.Feed{"x": x}
	for _, guard := range []float64{0, 4} {
		m, loss := build()
		c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3), Policy: ampc.MixedF16()}
		seen, err := m.Calibrate(t.Context(), c, []ampc.Feed{feed}, ampc.Loss{Value: loss})
		if err != nil {
			t.Fatal(err)
		}
		if r := seen.Recorded["h"]; r.Hi < 65504 {
			t.Fatalf("h reaches %g: the test says nothing", r.Hi)
		}
		c.Compile.Ranges, c.Policy.Guard = seen, guard
		step, err := m.Train(c, ampc.Loss{Value: loss})
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, step, feed)
		h := step.Graph().Value("h")
		if low := h.Type.DType == ir.F16; low != (guard == 0) || math.IsInf(metrics(t, r).Loss, 0) != (guard == 0) {
			t.Errorf("guard %g: h is stored as %s, the loss is %g", guard, h.Type.DType, metrics(t, r).Loss)
		}
		m.Close()
	}
	m, loss := build()
	if _, err := m.Calibrate(t.Context(), ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, []ampc.Feed{{}}, ampc.Loss{Value: loss}); err == nil || !strings.Contains(err.Error(), `input "x" is missing`) {
		t.Errorf("a feed without an input: %v", err)
	}
}

// The end of the context ends a calibration.
func TestCalibrateIsInterrupted(t *testing.T) {
	m := ampc.New("net")
	x := m.Input("x", ampc.F32, 2, 2)
	loss := m.ReduceMean(m.Linear("fc", x, 2), ampc.Axes(0, 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Calibrate(ctx, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, []ampc.Feed{{"x": []float32{1, 2, 3, 4}}}, ampc.Loss{Value: loss})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

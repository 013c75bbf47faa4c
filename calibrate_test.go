package ampc_test

import (
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
		h := m.Linear("h", x, 16, ampc.WeightInit(&ampc.Init{Func: "uniform", Args: []float64{0.5, 1}}))
		s := m.Named("s").ReduceMean(h, true, 1)
		return m, m.Named("loss").ReduceMean(m.Named("log").Log(s), false, 0, 1)
	}
	x := make([]float32, 8*16)
	for i := range x {
		x[i] = 6000 + float32(i)
	}
	feed := ampc.Feed{"x": x}
	for _, guard := range []float64{0, 4} {
		m, loss := build()
		c := ampc.Config{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3), Policy: ampc.MixedF16()}
		seen, err := m.Calibrate(c, []ampc.Feed{feed}, ampc.Loss{Value: loss})
		if err != nil {
			t.Fatal(err)
		}
		if r := seen.Recorded["h"]; r.Hi < 65504 {
			t.Fatalf("h reaches %g: the test says nothing", r.Hi)
		}
		c.Ranges, c.Policy.Guard = seen, guard
		step, err := ampc.Train(m, loss, c)
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, step, feed)
		h := step.Graph().Value("h")
		if low := h.Type.DType == ir.F16; low != (guard == 0) || math.IsInf(r.Loss(), 0) != (guard == 0) {
			t.Errorf("guard %g: h is stored as %s, the loss is %g", guard, h.Type.DType, r.Loss())
		}
		m.Close()
	}
	m, loss := build()
	if _, err := m.Calibrate(ampc.Config{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, []ampc.Feed{{}}, ampc.Loss{Value: loss}); err == nil || !strings.Contains(err.Error(), `input "x" is missing`) {
		t.Errorf("a feed without an input: %v", err)
	}
}

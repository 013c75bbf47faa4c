package ampc_test

import (
	"context"
	"math"
	"testing"

	"ampc"
)

// Watch reports the 16-bit values of a step as they are stored, and nothing after its end.
func TestWatch(t *testing.T) {
	m := ampc.New("watched")
	x := m.Input("x", ampc.F32, 2, 4)
	h := m.Linear("a", x, 4)
	loss := m.ReduceMean(m.Square(m.Linear("b", h, 1)))
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16()}, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	seen := map[string]ampc.StoredRange{}
	if !step.Watch(func(r ampc.StoredRange) { seen[r.Value] = r }) {
		t.Fatal("the CPU cannot watch")
	}
	run := func(scale float32) {
		t.Helper()
		in := make([]float32, 8)
		for i := range in {
			in[i] = scale * float32(i-3)
		}
		r, err := step.Run(context.Background(), ampc.Feed{"x": in})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	run(0.5)
	if r := seen["x.f16"]; r.AbsMax != 2 || !r.Finite || r.DType != ampc.F16 || r.High != 2/65504. || r.Low != 1<<25 {
		t.Errorf("x.f16 in %v", seen)
	}
	for name, r := range seen {
		if r.DType != ampc.F16 || math.IsInf(r.AbsMax, 0) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	run(1e6)
	if r := seen["x.f16"]; r.Finite {
		t.Errorf("x.f16 of 4e6 is finite: %+v", r)
	}
	clear(seen)
	step.Watch(nil)
	if run(1); len(seen) != 0 {
		t.Errorf("after its end: %v", seen)
	}
}

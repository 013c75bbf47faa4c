package ampc_test

import (
	"testing"

	"ampc"
)

// Every row's gradient is finite in f16, their sum, the bias's gradient, is not:
// torch stores it in the bias's 16 bits before it is unscaled, so its step is
// skipped; ampc's own policy sums and stores f32 and takes it.
func TestBiasGradientOverflowsAsInTorch(t *testing.T) {
	for _, c := range []struct {
		policy  ampc.Policy
		skipped bool
	}{{ampc.Torch(ampc.F16), true}, {ampc.O1(ampc.F16), true}, {ampc.MixedF16(), false}} {
		m := ampc.New("bias")
		defer m.Close()
		x, y := m.Input("x", ampc.F32, 64, 4), m.Input("y", ampc.F32, 64, 1)
		loss := m.MSE(m.Linear("fc", x, 1), y)
		step, err := ampc.Train(m, loss, ampc.Config{Optimizer: ampc.SGD(0), LR: ampc.Constant(0), Policy: c.policy, Scaler: ampc.Static(1 << 16)})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []string{"fc.w", "fc.b"} {
			if err := m.SetVariable(v, make([]float32, 4)[:map[string]int{"fc.w": 4, "fc.b": 1}[v]]); err != nil {
				t.Fatal(err)
			}
		}
		target := make([]float32, 64)
		for i := range target {
			target[i] = -16 // a row's gradient: 2·16/64·65536 = 32768
		}
		r, err := step.Run(t.Context(), ampc.Feed{"x": make([]float32, 64*4), "y": target})
		if err != nil {
			t.Fatal(err)
		}
		if r.Skipped() != c.skipped {
			t.Errorf("%s: skipped %t, want %t", c.policy.Name, r.Skipped(), c.skipped)
		}
	}
}

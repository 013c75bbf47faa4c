package e2e_test

import (
	"testing"

	"ampc"
	"ampc/passes/systems"
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
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0), Policy: c.policy, Scaler: ampc.Static(1 << 16)}, ampc.Loss{Value: loss})
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
		if metrics(t, r).Skipped != c.skipped {
			t.Errorf("%s: skipped %t, want %t", c.policy.Name, metrics(t, r).Skipped, c.skipped)
		}
	}
}

// A step with every op that a preset of another system tells apart is what its
// source says under each of them: Train proves it.
func TestSystemsAreProved(t *testing.T) {
	for _, system := range systems.Names() {
		for _, low := range []ampc.DType{ampc.F16, ampc.BF16} {
			p, err := ampc.PolicyNamed(system + "-" + low.String())
			if err != nil {
				t.Fatal(err)
			}
			m := ampc.New("told_apart")
			x := m.Input("x", ampc.F32, 2, 6, 8)
			h := m.RMSNorm("norm", m.GRU("gru", m.Linear("in", x, 8), 8))
			h = m.Add(h, m.RNN("rnn", h, 8))
			h = m.Pow(m.Sigmoid(h), m.Scalar(ampc.F32, 3))
			scores := m.Matmul(h, h, ampc.MatmulOptions{TransposeY: true})
			h = m.Add(m.Resize(h, []int{8}), m.Softplus(m.Square(h)))
			loss := m.AddN(m.ReduceMean(h), m.ReduceMean(m.Linear("out", h, 3)), // a 16-bit loss: the scale is rounded as torch rounds it
				m.ReduceMean(m.Pow(m.Sigmoid(scores), m.Sigmoid(scores))))
			if _, err := m.Train(ampc.TrainConfig{Optimizer: ampc.AdamW(0.1), LR: ampc.Constant(1e-3), Policy: p}, ampc.Loss{Value: loss}); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
			m.Close()
		}
	}
}

package e2e_test

import (
	"testing"

	"ampc"
)

// Arithmetic on what a cast of the source has rounded is proved under every policy,
// forward and backward: the policy adds no rounding for the cast's sake.
func TestArithmeticBehindCastsIsProved(t *testing.T) {
	chains := map[string]func(m *ampc.Model, x ampc.Tensor) ampc.Tensor{
		"square":  func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Square(x) },
		"scaled":  func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Affine(m.Square(x), 3, 0) },
		"exp":     func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Relu(m.Exp(x)) },
		"softmax": func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Softmax(x, -1) },
		"relu":    func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Relu(x) },
		"product": func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Linear("fc2", m.Sigmoid(x), 8) },
	}
	joins := map[string]func(m *ampc.Model, h, low, y ampc.Tensor) ampc.Tensor{
		"alone":     func(_ *ampc.Model, _, _, y ampc.Tensor) ampc.Tensor { return y },
		"by wide":   func(m *ampc.Model, h, _, y ampc.Tensor) ampc.Tensor { return m.Mul(h, y) },
		"by narrow": func(m *ampc.Model, _, low, y ampc.Tensor) ampc.Tensor { return m.Mul(low, y) },
	}
	for _, name := range []string{"f32", "tf32", "mixed-f16", "mixed-bf16", "o1-f16", "o2-bf16", "o3-f16", "torch-f16", "torch-cpu-bf16", "manual"} {
		p, err := ampc.PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		for chain, makes := range chains {
			if name == "manual" && chain == "product" { // needs a cast of the weight, by hand
				continue
			}
			for join, joined := range joins {
				for _, low := range []ampc.DType{ampc.F16, ampc.BF16} {
					m := ampc.New("m")
					h := m.Linear("fc", m.Input("x", ampc.F32, 4, 8), 8)
					narrow := m.Named("narrow").Cast(h, low)
					loss := m.ReduceMean(joined(m, h, narrow, makes(m, narrow)))
					if _, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: p}, ampc.Loss{Value: loss}); err != nil {
						t.Errorf("%s, %s of a cast to %s, %s: %v", name, chain, low, join, err)
					}
					m.Close()
				}
			}
		}
	}
}

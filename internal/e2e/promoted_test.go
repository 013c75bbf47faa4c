package e2e_test

import (
	"fmt"
	"testing"

	"ampc"
)

// A product that meets an f32 parameter of its own shape is stored in 16 bits for the
// backward pass, although the sum or product that reads it is f32: the proof accepts it.
func TestProductsThatMeetParameters(t *testing.T) {
	meet := map[string]func(m *ampc.Model, x, p ampc.Tensor) ampc.Tensor{
		"mul": func(m *ampc.Model, x, p ampc.Tensor) ampc.Tensor { return m.Mul(x, p) },
		"add": func(m *ampc.Model, x, p ampc.Tensor) ampc.Tensor { return m.Add(x, p) },
		"div": func(m *ampc.Model, x, p ampc.Tensor) ampc.Tensor { return m.Div(p, m.Affine(x, 1, 100)) },
		"max": func(m *ampc.Model, x, p ampc.Tensor) ampc.Tensor { return m.Max(x, p) },
	}
	behind := map[string]func(m *ampc.Model, h ampc.Tensor) ampc.Tensor{
		"product": func(m *ampc.Model, h ampc.Tensor) ampc.Tensor {
			return m.Matmul(h, m.Param("v", ampc.Normal(0, 0.1), 64, 64))
		},
		"tanh":    func(m *ampc.Model, h ampc.Tensor) ampc.Tensor { return m.Tanh(h) },
		"softmax": func(m *ampc.Model, h ampc.Tensor) ampc.Tensor { return m.Softmax(h, -1) },
		"nothing": func(_ *ampc.Model, h ampc.Tensor) ampc.Tensor { return h },
	}
	for _, p := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16(), {}} {
		for first, f := range meet {
			for second, g := range behind {
				t.Run(fmt.Sprintf("%s/%s/%s", p.Name, first, second), func(t *testing.T) {
					m := ampc.New("m")
					defer m.Close()
					x := m.Matmul(m.Input("x", ampc.F32, 64, 64), m.Param("w", ampc.Normal(0, 0.1), 64, 64))
					loss := m.ReduceMean(m.Square(g(m, f(m, x, m.Param("p", ampc.Normal(0, 0.1), 64, 64)))))
					c := ampc.TrainConfig{Policy: p, Optimizer: ampc.AdamW(0), LR: ampc.Constant(1e-3)}
					if _, err := m.Train(c, ampc.Loss{Value: loss}); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

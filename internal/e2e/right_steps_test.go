package e2e_test

import (
	"testing"

	"ampc"
)

// The checker refuses none of these steps, which are right.
func TestRightStepsAreProved(t *testing.T) {
	lstm := func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return matrix(m, m.LSTM("lstm", m.Reshape(x, 2, 4, 8), 8))
	}
	for name, build := range map[string]func(m *ampc.Model, x ampc.Tensor) (out, result ampc.Tensor){
		// The gradient of a row follows the row, which is moved from 16 bits by a reshape of a transpose.
		"gradient of a row": func(m *ampc.Model, x ampc.Tensor) (out, result ampc.Tensor) {
			h := lstm(m, x)
			row := m.Broadcast(m.Slice(h, []int{0}, []int{2}, []int{3}), 8, 8)
			return m.RMSNorm("norm", m.Tanh(m.Add(h, row))), row
		},
		// So does that of parts that are joined.
		"gradient of parts": func(m *ampc.Model, x ampc.Tensor) (out, result ampc.Tensor) {
			h := lstm(m, x)
			p := m.Split(h, 1, 3, 5)
			joined := m.Mul(m.Concat(1, m.Tanh(p[1]), p[0]), m.Exp(m.Tanh(h)))
			return m.Min(joined, m.Tanh(joined)), m.Abs(joined)
		},
		// Two nodes compute the same, and one is pinned to 16 bits.
		"pinned twin": func(m *ampc.Model, x ampc.Tensor) (out, result ampc.Tensor) {
			a := m.Abs(x)
			wide, low := m.Exp(a), m.Precision(ampc.PinLow).Exp(matrix(m, m.Reshape(a, 4, 16)))
			return m.Mul(m.Linear("fc", m.Add(wide, x), 8), wide), m.Sigmoid(low)
		},
		// A product is rounded by a cast of the source, and moved to the caller without.
		"cast beside a result": func(m *ampc.Model, x ampc.Tensor) (out, result ampc.Tensor) {
			h := m.Linear("fc", x, 8)
			r := m.Cast(m.Cast(h, ampc.BF16), ampc.F32)
			return m.Add(r, rowMean(m, r)), m.Flip(h, 1)
		},
		// A norm is rounded by a cast of the source, and another norm reads it as it is stored.
		"cast beside a norm": func(m *ampc.Model, x ampc.Tensor) (out, result ampc.Tensor) {
			h := m.LayerNorm("norm", m.Affine(x, 2, 0.5))
			return m.RMSNorm("next", h), m.Cast(m.Cast(h, ampc.F16), ampc.F32)
		},
	} {
		for _, policy := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16()} {
			t.Run(name+"/"+policy.Name, func(t *testing.T) {
				m := ampc.New("right", ampc.Seed(1))
				defer m.Close()
				x, y := m.Input("x", ampc.F32, 8, 8), m.Input("y", ampc.F32, 8, 8)
				out, result := build(m, x)
				loss := m.MSE(m.Linear("out", out, 8), y)
				c := ampc.TrainConfig{Policy: policy, Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Outputs: []ampc.Output{{Tensor: result}}}
				if _, err := m.Train(c, ampc.Loss{Value: loss}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

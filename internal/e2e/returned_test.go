package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"ampc"
)

// A step is proved whatever the caller asks to see of it, and whatever dtype its losses have:
// every policy, several micro-batches, averages, and losses with scalers of their own.
func TestReturnedValuesAreProved(t *testing.T) {
	makers := map[string]func(m *ampc.Model, x ampc.Tensor) ampc.Tensor{
		"add":     func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Add(x, x) },
		"exp":     func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Exp(x) },
		"dropout": func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Dropout("drop", x, 0.5) },
		"norm":    func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.LayerNorm("ln", x) },
		"lowered": func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Precision(ampc.PinLow).Affine(x, 2, 0.5) },
		"pinned":  func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Precision(ampc.PinF32).Gelu(x) },
	}
	readers := map[string]func(m *ampc.Model, x ampc.Tensor) ampc.Tensor{
		"square":  func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Square(x) },
		"affine":  func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Affine(m.Transpose(x, 1, 0), 3, 0.25) },
		"itself":  func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Mul(x, x) },
		"tanh":    func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Tanh(x) },
		"product": func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Linear("last", x, 8) },
	}
	policies := ampc.PolicyNames()
	if testing.Short() {
		policies = []string{"mixed-f16", "mixed-f16-trunk", "o2-bf16", "o3-f16", "torch-f16", "torch-cpu-bf16", "tensorflow-bf16"}
	}
	steps := 0
	for made, value := range makers {
		for read, reader := range readers {
			for _, name := range policies {
				for _, shown := range []bool{false, true} {
					p, err := ampc.PolicyNamed(name)
					if err != nil {
						t.Fatal(err)
					}
					m := ampc.New("returned", ampc.Seed(1))
					h := value(m, m.Linear("first", m.Input("x", ampc.F32, 8, 8), 8))
					rest := m.Linear("rest", h, 8)
					c := ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0.9), LR: ampc.Constant(1e-3), Micro: 1 + steps%2, EMA: 0.9}
					if shown {
						c.Outputs = []ampc.Output{{Tensor: h}}
					}
					own := ampc.Dynamic()
					losses := []ampc.Loss{{Value: m.ReduceMean(reader(m, h))}, {Value: m.ReduceMean(m.Abs(rest)), Weight: 0.5, Scaler: &own}}
					if _, err := m.Train(c, losses[:1+steps/2%2]...); err != nil {
						t.Errorf("%s: %v", fmt.Sprint(made, " read by ", read, " under ", name, ", shown ", shown), err)
					}
					m.Close()
					steps++
				}
			}
		}
	}
}

// A norm of a transposed tensor that backward computes again is the norm of the source.
func TestRecomputedNormOfATransposedTensor(t *testing.T) {
	for _, p := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16(), ampc.O2(ampc.BF16)} {
		m := ampc.New("turned", ampc.Seed(1))
		x := m.Input("x", ampc.F32, 8, 8)
		norm := m.LayerNorm("norm", m.Transpose(x, 1, 0))
		product := m.Mul(m.Linear("gate", x, 8), norm)
		loss := m.ReduceMean(m.Mul(m.Linear("last", m.Mul(product, x), 8), product))
		step, err := m.Train(ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}, ampc.Loss{Value: loss})
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		var text strings.Builder
		if err := step.WriteIR(&text); err != nil || !strings.Contains(text.String(), "norm.again") {
			t.Errorf("%s: the norm is not computed again: %v\n%s", p.Name, err, &text)
		}
		m.Close()
	}
}

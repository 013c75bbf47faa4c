package e2e_test

import (
	"math"
	"testing"

	"ampc"
)

// What is added to a product or norm may be rounded in the same kernel, as an f32 input is under o3.
func TestRoundedResiduals(t *testing.T) {
	const residual = 100
	image := func(m *ampc.Model, d ampc.DType) ampc.Tensor { return m.Input("x", d, 2, 4, 3, 8) }
	layers := map[string]func(m *ampc.Model, d ampc.DType) ampc.Tensor{
		"linear": func(m *ampc.Model, d ampc.DType) ampc.Tensor { return m.Linear("fc", m.Input("x", d, 8, 24), 64) },
		"matmul": func(m *ampc.Model, d ampc.DType) ampc.Tensor {
			return m.Matmul(m.Input("x", d, 8, 24), m.Param("w", ampc.Normal(0, 0.1), 24, 64))
		},
		"conv":  func(m *ampc.Model, d ampc.DType) ampc.Tensor { return m.Conv2d("conv", image(m, d), 8, 1) },
		"batch": func(m *ampc.Model, d ampc.DType) ampc.Tensor { return m.BatchNorm("bn", image(m, d)) },
		"layer": func(m *ampc.Model, d ampc.DType) ampc.Tensor { return m.LayerNorm("ln", m.Input("x", d, 8, 24)) },
	}
	for name, layer := range layers {
		for _, low := range []ampc.DType{ampc.F16, ampc.BF16} {
			for _, relu := range []bool{false, true} {
				m := ampc.New("residual", ampc.Seed(1))
				y := layer(m, low)
				z := m.Input("z", ampc.F32, sizes(y)...)
				if y = m.Add(y, z); relu {
					y = m.Relu(y)
				}
				step, err := m.Infer(ampc.InferConfig{Policy: ampc.O3(low)}, y)
				if err != nil {
					t.Errorf("%s in %s: %v", name, low, err)
					continue
				}
				if found, err := step.Prove(); err != nil || len(found) > 0 {
					t.Errorf("%s in %s: %v, %v", name, low, found, err)
				}
				feed := ampc.Feed{"x": ones(m.Lookup("x"), 0.5), "z": ones(z, residual)}
				got, err := run(t, step, feed).Value(y)
				if err != nil {
					t.Fatal(err)
				}
				for i, v := range got.Floats() {
					if math.Abs(float64(v)-residual) > 10 {
						t.Errorf("%s in %s: element %d is %g, want about %d", name, low, i, v, residual)
						break
					}
				}
				m.Close()
			}
		}
	}
}

// sizes are those of t, as Input takes them.
func sizes(t ampc.Tensor) (list []any) {
	for _, d := range t.Shape() {
		list = append(list, d)
	}
	return list
}

// ones are as many numbers x as t has elements.
func ones(t ampc.Tensor, x float32) []float32 {
	n := 1
	for _, d := range t.Shape() {
		n *= d
	}
	list := make([]float32, n)
	for i := range list {
		list[i] = x
	}
	return list
}

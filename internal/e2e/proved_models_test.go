package e2e_test

import (
	"context"
	"math"
	"testing"

	"ampc"
)

// Models that were refused once, found by TestRandomModelsAreProved.
func TestProvedModels(t *testing.T) {
	axis0 := ampc.ReduceOptions{Axes: []int{0}, Keep: true}
	norm := func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return matrix(m, m.Relu(m.BatchNorm("norm", m.Conv2d("conv", images(m, x), 2, 1))))
	}
	tests := []struct {
		name, policy string
		make         func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor)
	}{
		{"gradient of a concatenation's slice, added up", "mixed-bf16", func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor) {
			h := m.Linear("first", x, 8)
			return m.Sigmoid(m.Softmax(middle(m, h, h), -1)), x
		}},
		{"gradient of a concatenation's slice, read beside f32", "mixed-f16", func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor) {
			h := m.Linear("second", m.Sigmoid(x), 8)
			both := middle(m, m.Linear("first", x, 8), h)
			return m.Precision(ampc.PinF32).Gelu(m.Add(m.Mul(h, x), both)), m.Sigmoid(both)
		}},
		{"slice of a concatenation with an input, returned", "o3-f16", func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor) {
			s := middle(m, x, m.Add(x, rowMean(m, x)))
			return s, s
		}},
		{"slice of a concatenation with a pinned value", "o3-bf16", func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor) {
			g := m.Precision(ampc.PinF32).Gelu(x)
			s := middle(m, m.Exp(g), g)
			return m.Mul(m.Abs(s), m.LogSoftmax(s, -1)), g
		}},
		{"cast by hand of a value that is returned in f32", "torch-bf16", func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor) {
			s := middle(m, m.Matmul(x, x), m.Square(x))
			return m.Add(m.Cast(m.Cast(s, ampc.F16), ampc.F32), rowMean(m, x)), s
		}},
		{"norm behind a move that a cluster promotes", "mixed-f16", func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor) {
			n := m.RMSNorm("norm", m.Exp(x))
			a := m.Affine(n, 2, 0.5)
			return m.Sigmoid(a), m.Linear("beside", n, 8)
		}},
		{"kept value that a cast by hand rounds", "mixed-bf16", func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor) {
			h := m.LogSoftmax(m.Tanh(m.Linear("first", x, 8)), 0)
			return m.Cast(m.Cast(h, ampc.BF16), ampc.F32), x
		}},
		{"activation behind a norm, computed again", "mixed-bf16-trunk", func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor) {
			return m.Checkpoint(m.Affine(norm(m, x), 1, 1)), x
		}},
		{"rounded gradient of an activation before a norm's", "paddle-bf16", func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor) {
			return m.LayerNorm("last", norm(m, x)), x
		}},
		{"maximum of a pinned value", "mixed-bf16-trunk", func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor) {
			h := m.Cast(m.Cast(m.Linear("first", x, 8), ampc.F16), ampc.F32)
			return m.Mul(h, m.ReduceMax(m.Precision(ampc.PinF32).Linear("second", x, 8), axis0)), x
		}},
		{"maximum of a value that a sum reads in f32", "mixed-bf16-trunk", func(m *ampc.Model, x ampc.Tensor) (y, shown ampc.Tensor) {
			h := matrix(m, m.Conv2d("conv", images(m, x), 2, 3, ampc.Conv2dOptions{Padding: 1}))
			return m.Add(m.Hardswish(m.Mul(x, m.ReduceMax(h, axis0))), h), m.Hardswish(h)
		}},
	}
	feed := ampc.Feed{"x": make([]float32, 64), "ids": make([]int32, 8)}
	for i := range 64 {
		feed["x"].([]float32)[i] = float32(math.Sin(float64(i)))
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := ampc.PolicyNamed(tt.policy)
			if err != nil {
				t.Fatal(err)
			}
			m := ampc.New("proved", ampc.Seed(1))
			defer m.Close()
			y, shown := tt.make(m, m.Input("x", ampc.F32, 8, 8))
			loss := m.CrossEntropy(m.Linear("out", y, 8), m.Input("ids", ampc.I32, 8))
			c := ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}
			if shown.Name() != "x" {
				c.Outputs = []ampc.Output{{Tensor: shown}}
			}
			step, err := m.Train(c, ampc.Loss{Value: loss})
			if err != nil {
				t.Fatal(err)
			}
			r, err := step.Run(context.Background(), feed)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := r.Wait(context.Background()); err != nil || got.Skipped {
				t.Errorf("skipped %t, %v", got.Skipped, err)
			}
		})
	}
}

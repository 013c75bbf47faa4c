package e2e_test

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"

	"ampc"
)

var arrangements = flag.Bool("arrangements", false, "train every returned value with every arrangement of losses and micro-batches")

// A step is proved whatever the caller asks to see of it, and whatever dtype its losses have:
// every policy, several micro-batches, averages, and losses with scalers of their own.
func TestReturnedValuesAreProved(t *testing.T) {
	makers := []struct {
		name string
		make func(m *ampc.Model, x ampc.Tensor) ampc.Tensor
	}{
		{"add", func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Add(x, x) }},
		{"exp", func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Exp(x) }},
		{"dropout", func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Dropout("drop", x, 0.5) }},
		{"norm", func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.LayerNorm("ln", x) }},
		{"lowered", func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Precision(ampc.PinLow).Affine(x, 2, 0.5) }},
		{"pinned", func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Precision(ampc.PinF32).Gelu(x) }},
	}
	readers := []struct {
		name string
		read func(m *ampc.Model, x ampc.Tensor) ampc.Tensor
	}{
		{"square", func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Square(x) }},
		{"affine", func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Affine(m.Transpose(x, 1, 0), 3, 0.25) }},
		{"itself", func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Mul(x, x) }},
		{"tanh", func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Tanh(x) }},
		{"product", func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Linear("last", x, 8) }},
	}
	policies := ampc.PolicyNames()
	if testing.Short() {
		policies = []string{"mixed-f16", "mixed-f16-trunk", "o2-bf16", "o3-f16", "torch-f16", "torch-cpu-bf16", "tensorflow-bf16"}
	}
	draw := rand.New(rand.NewPCG(1, 2))
	for _, made := range makers {
		for _, read := range readers {
			for _, name := range policies {
				drawn := draw.IntN(8)
				for arrangement := range 8 {
					if arrangement != drawn && !*arrangements {
						continue
					}
					shown, micro, losses := arrangement&1 != 0, 1+arrangement>>1&1, 1+arrangement>>2
					if err := trainReturned(name, made.make, read.read, shown, micro, losses); err != nil {
						t.Errorf("%s read by %s under %s, shown %t, %d micro-batches, %d losses: %v", made.name, read.name, name, shown, micro, losses, err)
					}
				}
			}
		}
	}
}

// trainReturned compiles a step of one or two losses that may return the value that make makes.
func trainReturned(policy string, make, read func(*ampc.Model, ampc.Tensor) ampc.Tensor, shown bool, micro, losses int) error {
	p, err := ampc.PolicyNamed(policy)
	if err != nil {
		return err
	}
	m := ampc.New("returned", ampc.Seed(1))
	defer m.Close()
	h := make(m, m.Linear("first", m.Input("x", ampc.F32, 8, 8), 8))
	rest := m.Linear("rest", h, 8)
	c := ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0.9), LR: ampc.Constant(1e-3), Micro: micro, EMA: 0.9}
	if shown {
		c.Outputs = []ampc.Output{{Tensor: h}}
	}
	own := ampc.Dynamic()
	both := []ampc.Loss{{Value: m.ReduceMean(read(m, h))}, {Value: m.ReduceMean(m.Abs(rest)), Weight: 0.5, Scaler: &own}}
	_, err = m.Train(c, both[:losses]...)
	return err
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

// A step computes a norm of rows or planes of one element again in a cluster, which the change of its statistics' shape is not in.
func TestRecomputedNormsOfSingleElements(t *testing.T) {
	norms := []func(m *ampc.Model) ampc.Tensor{
		func(m *ampc.Model) ampc.Tensor {
			return m.LayerNorm("norm", m.Linear("fc", m.Input("x", ampc.F32, 8, 3), 1))
		},
		func(m *ampc.Model) ampc.Tensor {
			return m.RMSNorm("norm", m.Linear("fc", m.Input("x", ampc.F32, 1, 3), 1))
		},
		func(m *ampc.Model) ampc.Tensor {
			return m.GroupNorm("norm", m.Conv2d("conv", m.Input("x", ampc.F32, 2, 3, 4, 4), 4, 4), 2)
		},
		func(m *ampc.Model) ampc.Tensor {
			return m.InstanceNorm("norm", m.Conv2d("conv", m.Input("x", ampc.F32, 2, 3, 4, 4), 4, 4), ampc.InstanceNormOptions{Affine: true})
		},
	}
	for _, p := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16(), ampc.MixedBF16()} {
		for i, norm := range norms {
			m := ampc.New("single", ampc.Seed(1))
			loss := m.ReduceMean(m.Silu(norm(m)))
			step, err := m.Train(ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}, ampc.Loss{Value: loss})
			if err != nil {
				t.Errorf("norm %d under %s: %v", i, p.Name, err)
				continue
			}
			var text strings.Builder
			if err := step.WriteIR(&text); err != nil || !strings.Contains(text.String(), "norm.again") {
				t.Errorf("norm %d under %s: the norm is not computed again: %v\n%s", i, p.Name, err, &text)
			}
			m.Close()
		}
	}
}

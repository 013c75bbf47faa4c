package e2e_test

import (
	"ampc"
	"testing"
)

func TestLossFallsUnderEveryPolicy(t *testing.T) {
	for _, p := range []ampc.Policy{{}, ampc.F32Only(), ampc.TF32(), ampc.MixedF16(), ampc.MixedBF16(), ampc.O1(ampc.F16), ampc.O2(ampc.F16), ampc.Torch(ampc.BF16)} {
		m, loss := small(32)
		c := adam()
		c.Policy = p
		s := train(t, m, loss, c)
		first := metrics(t, run(t, s, points(0, 32))).Loss
		var r *ampc.Result
		for i := range 60 {
			r = run(t, s, points(uint64(i), 32))
		}
		if got := metrics(t, r).Loss; !(got < 0.6*first) {
			t.Errorf("policy %q: loss went from %g to %g", p.Name, first, got)
		}
		if err := s.Stuck(); err != nil {
			t.Errorf("policy %q: %v", p.Name, err)
		}
	}
}

// A product may read any source of numbers, whatever the policy: it rounds what it reads.
func TestProductsReadSources(t *testing.T) {
	sources := map[string]func(m *ampc.Model) ampc.Tensor{
		"normal":    func(m *ampc.Model) ampc.Tensor { return m.RandNormal(ampc.F32, 0, 1, 4, 8) },
		"uniform":   func(m *ampc.Model) ampc.Tensor { return m.RandUniform(ampc.F32, -1, 1, 4, 8) },
		"bernoulli": func(m *ampc.Model) ampc.Tensor { return m.RandBernoulli(ampc.F32, 0.5, 4, 8) },
		"iota":      func(m *ampc.Model) ampc.Tensor { return m.Iota(ampc.F32, 1, 4, 8) },
		"full":      func(m *ampc.Model) ampc.Tensor { return m.Full(ampc.F32, 0.3, 4, 8) },
		"one_hot":   func(m *ampc.Model) ampc.Tensor { return m.OneHot(m.Input("ids", ampc.I32, 4), 8, 1, ampc.F32) },
		"compared": func(m *ampc.Model) ampc.Tensor {
			return m.Cast(m.Gt(m.Input("x", ampc.F32, 4, 8), m.Scalar(ampc.F32, 0)), ampc.F32)
		},
	}
	for _, name := range ampc.PolicyNames() {
		p, err := ampc.PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		for of, source := range sources {
			m := ampc.New("source")
			y := m.Linear("fc", source(m), 5)
			c := ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}
			if _, err := m.Train(c, ampc.Loss{Value: m.ReduceSum(m.Square(y))}); err != nil {
				t.Errorf("%s under %s, training: %v", of, name, err)
			}
			if _, err := m.Infer(ampc.InferConfig{Policy: p}, y); err != nil {
				t.Errorf("%s under %s: %v", of, name, err)
			}
			m.Close()
		}
	}
}

// A mask of attention is trained: its gradient, which several nodes of the backward pass compute from a product, is f32.
func TestMasksAreTrained(t *testing.T) {
	for _, name := range ampc.PolicyNames() {
		p, err := ampc.PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, shape := range [][]int{{1, 1, 6, 6}, {1, 2, 6, 6}, {2, 1, 1, 6}, {6, 6}} {
			for _, b := range []int{1, 2} {
				if len(shape) == 4 && shape[0] > b || p.Manual {
					continue
				}
				m := ampc.New("mask")
				var qkv [3]ampc.Tensor
				for i, in := range []string{"q", "k", "v"} {
					qkv[i] = m.Input(in, ampc.F32, b, 2, 6, 4)
				}
				o := ampc.SDPAOptions{Mask: m.Param("mask", ampc.Normal(0, 1), shape...), Causal: b == 1}
				loss := m.ReduceMean(m.Square(m.ScaledDotProductAttention(qkv[0], qkv[1], qkv[2], o)))
				if loss.DType() != ampc.F32 {
					loss = m.Cast(loss, ampc.F32)
				}
				if _, err := m.Train(ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}, ampc.Loss{Value: loss}); err != nil {
					t.Errorf("mask %v, batch %d under %s: %v", shape, b, name, err)
				}
				m.Close()
			}
		}
	}
}

// A pin to the policy's 16 bits has no effect on products of a policy that has none.
func TestLowPinsWithoutLow(t *testing.T) {
	for _, p := range []ampc.Policy{ampc.F32Only(), ampc.TF32()} {
		m := ampc.New("pinned")
		y := m.Precision(ampc.PinLow).Linear("fc", m.Input("x", ampc.F32, 4, 6), 5)
		if _, err := m.Infer(ampc.InferConfig{Policy: p}, y); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if _, err := m.Train(ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}, ampc.Loss{Value: m.ReduceMean(m.Square(y))}); err != nil {
			t.Errorf("%s, training: %v", p.Name, err)
		}
		m.Close()
	}
}

// A norm that is pinned to 16 bits, which no kernel runs with what follows it, compiles under every policy.
func TestPinnedNorms(t *testing.T) {
	for _, name := range ampc.PolicyNames() {
		p, err := ampc.PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		m := ampc.New("pinned")
		x := m.Input("x", ampc.F32, 2, 4, 3, 3)
		y := m.Relu(m.Add(m.Precision(ampc.PinLow).BatchNorm("bn", x), x))
		if _, err := m.Infer(ampc.InferConfig{Policy: p}, y); err != nil && !p.Manual {
			t.Errorf("%s: %v", name, err)
		}
		m.Close()
	}
}

// The gradient of a split whose parts are not all used is joined with zeros, which have every scale.
func TestPartsOfSplits(t *testing.T) {
	for _, name := range ampc.PolicyNames() {
		p, err := ampc.PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		for part := range 2 {
			m := ampc.New("split")
			used := m.Split(m.Param("w", ampc.Normal(0, 1), 8, 6), 1, 2, 4)[part]
			loss := m.ReduceMean(m.Cast(m.Square(used), ampc.F32))
			if _, err := m.Train(ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}, ampc.Loss{Value: loss}); err != nil {
				t.Errorf("part %d under %s: %v", part, name, err)
			}
			m.Close()
		}
	}
}

package e2e_test

import (
	"testing"

	"ampc"
	"ampc/optim"
)

// Small steps that the checker once refused, rightly or not, each under the policies that it did.
func TestStepsOnceRefused(t *testing.T) {
	for _, x := range []struct {
		name     string
		policies []string
		make     func(m *ampc.Model) (c ampc.TrainConfig, losses []ampc.Loss)
	}{
		{"the gradient of a weight behind two gathers", []string{"mixed-f16-trunk", "mixed-bf16-trunk"}, gatherTwice},
		{"a pool of a square, both returned", []string{"o2-f16", "o2-bf16", "o3-f16", "o3-bf16"}, returnedPool},
		{"Lion with a scaled loss and another", []string{"o2-bf16", "o2-f16"}, scaledLion},
	} {
		for _, name := range x.policies {
			p, err := ampc.PolicyNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			m := ampc.New("refused", ampc.Seed(1))
			c, losses := x.make(m)
			c.Policy, c.LR = p, ampc.Constant(1e-3)
			if _, err := m.Train(c, losses...); err != nil {
				t.Errorf("%s under %s: %v", x.name, name, err)
			}
			m.Close()
		}
	}
}

func gatherTwice(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	once := m.Gather(m.Param("w", ampc.Fill(1), 6, 4), m.Input("i", ampc.I32, 5), 0)
	twice := m.Gather(once, m.Input("j", ampc.I32, 3), 0)
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, []ampc.Loss{{Value: m.ReduceSum(m.Square(twice))}}
}

func returnedPool(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	pool := m.MaxPool(m.Param("w", ampc.Fill(1), 2, 12, 14, 4), []int{2, 2})
	square := m.Mul(pool, pool)
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), Outputs: []ampc.Output{{Tensor: m.MaxPool(square, []int{2, 1})}, {Tensor: square}}}
	return c, []ampc.Loss{{Value: m.ReduceMean(m.Square(square))}}
}

func scaledLion(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	x := m.Linear("fc", m.Input("x", ampc.F32, 4, 4), 4)
	own := ampc.Dynamic()
	losses := []ampc.Loss{{Value: m.ReduceMean(m.Square(x))}, {Value: m.ReduceMean(m.Abs(m.Mul(x, x))), Scaler: &own}}
	return ampc.TrainConfig{Optimizer: optim.Lion(optim.LionOptions{})}, losses
}

// Under o2, which casts weights for every reader, the update reads the f32 weights: steps that are
// too small for 16 bits add up.
func TestUpdatesReadMasterWeights(t *testing.T) {
	for _, p := range []ampc.Policy{ampc.MixedBF16(), ampc.O2(ampc.BF16), ampc.O2(ampc.F16)} {
		m := ampc.New("masters")
		loss := m.ReduceSum(m.Mul(m.Param("w", ampc.Fill(1), 4), m.Input("x", ampc.F32, 4)))
		const lr = 0x1p-14
		s := train(t, m, loss, ampc.TrainConfig{Optimizer: optim.Lion(optim.LionOptions{}), LR: ampc.Constant(lr), Policy: p})
		for range 3 {
			run(t, s, ampc.Feed{"x": []float32{1, 2, 3, 4}})
		}
		w, err := m.Variable("w")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := w.At(0), 1-3*lr; got != want {
			t.Errorf("%s: three steps of %g lead from 1 to %g, want %g", p.Name, lr, got, want)
		}
	}
}

package bridge

import (
	"ampc/ir/eval"
	"math"
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"

	"ampc"
)

var nets = []struct {
	name string
	make func() *net
	rate float64
}{
	{"mlp", func() *net { return mlp(32, 64, 48, 32, 10) }, 0.05},
	{"lenet", func() *net { return leNet(8) }, 0.001},
	{"recurrent", func() *net { return recurrent(8, 6, 5, 12) }, 0.05},
	{"autoencoder", func() *net { return autoencoder(16, 20, 7) }, 1},
}

const trainSteps = 50

// The user's loop gives the same losses on either machine.
func TestSameLosses(t *testing.T) {
	for _, c := range nets {
		t.Run(c.name, func(t *testing.T) {
			tape, ours := c.make(), c.make()
			want := tape.train(t, G.NewTapeMachine(tape.g, G.BindDualValues(tape.params...)), trainSteps, c.rate)
			got := ours.train(t, machine(t, ours.g), trainSteps, c.rate)
			worst := 0.0
			for i := range want {
				worst = max(worst, math.Abs(got[i]-want[i])/math.Abs(want[i]))
			}
			if worst > 1e-6 {
				t.Errorf("losses differ by %.2g", worst)
			}
			if got[trainSteps-1] > 0.95*got[0] {
				t.Errorf("the loss went from %g to %g", got[0], got[trainSteps-1])
			}
			t.Logf("%d steps: losses differ by %.2g", trainSteps, worst)
		})
	}
}

// With the same weights, at every step of a training, the gradients are the
// same, or ours are as near to those in float64. Weights are taken from the tape machine's model at each step: left
// alone, a rectifier or a pool that decides otherwise on one bit separates them.
func TestSameGradients(t *testing.T) {
	for _, c := range nets {
		t.Run(c.name, func(t *testing.T) {
			tape, ours := c.make(), c.make()
			a, b := G.NewTapeMachine(tape.g, G.BindDualValues(tape.params...)), machine(t, ours.g)
			defer a.Close()
			s, worst := G.NewVanillaSolver(G.WithLearnRate(c.rate)), 0.0
			tops := make([]float64, len(tape.params))
			for range trainSteps {
				tape.run(t, a)
				ours.run(t, b)
				is, want := ours.grads(t), tape.grads(t)
				if diff := apart(tops, want, is); diff > 1e-6 { // whose error is it?
					exact := ours.exact(t, b)
					ourError := apart(slices.Clone(tops), exact, is)
					t.Logf("gradients differ by %.2g: ours err by %.2g, the tape machine's by %.2g", diff, ourError, apart(slices.Clone(tops), exact, want))
					worst = max(worst, ourError)
				} else {
					worst = max(worst, diff)
				}
				if err := s.Step(G.NodesToValueGrads(tape.params)); err != nil {
					t.Fatal(err)
				}
				a.Reset()
				for k, p := range tape.params {
					copy(ours.params[k].Value().Data().([]float32), p.Value().Data().([]float32))
				}
			}
			if worst > 1e-6 {
				t.Errorf("gradients differ by %.2g", worst)
			}
			t.Logf("%d steps: gradients differ by %.2g", trainSteps, worst)
		})
	}
}

// exact are the gradients at the weights and inputs of the last run, in float64.
func (m *net) exact(t *testing.T, vm *Machine) (all [][]float64) {
	t.Helper()
	env := map[string]*eval.Tensor{}
	set := func(name string, data []float32) {
		v := vm.Step().Graph().Var(name)
		env[name] = eval.New(v.Type)
		for i, x := range data {
			env[name].F[i] = float64(x)
		}
	}
	for _, p := range m.params {
		set(p.Name(), p.Value().Data().([]float32))
	}
	for n, x := range m.feed {
		set(n.Name(), x.Data().([]float32))
	}
	r, err := eval.Run(vm.Step().Graph(), env, eval.Options{Float64: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.params {
		all = append(all, r.Values["d."+p.Name()].F)
	}
	return all
}

// apart is the largest difference of two lists of gradients, each relative to
// the largest element that its parameter's gradient has had, which is kept in
// tops: late gradients are small differences of large terms.
func apart(tops []float64, a, b [][]float64) float64 {
	worst := 0.0
	for i := range a {
		diff := 0.0
		for j := range a[i] {
			tops[i] = max(tops[i], math.Abs(a[i][j]))
			diff = max(diff, math.Abs(a[i][j]-b[i][j]))
		}
		worst = max(worst, diff/tops[i])
	}
	return worst
}

// Mixed precision with the user's solver, and with ours inside.
func TestMixed(t *testing.T) {
	for _, c := range nets {
		t.Run(c.name, func(t *testing.T) {
			tape := c.make()
			want := tape.train(t, G.NewTapeMachine(tape.g, G.BindDualValues(tape.params...)), trainSteps, c.rate)
			host := c.make()
			vm := machine(t, host.g, WithPolicy(ampc.MixedF16()), WithConfig(func(c *ampc.TrainConfig) { c.Scaler.Init = 1024 }))
			if !vm.Step().Scaled() {
				t.Error("the loss is not scaled")
			}
			got := host.train(t, vm, trainSteps, c.rate)
			near(t, "solver on the host", got, want)

			inside := c.make()
			vm = machine(t, inside.g, WithPolicy(ampc.MixedF16()), WithOptimizer(ampc.SGD(0), ampc.Constant(c.rate)),
				WithConfig(func(c *ampc.TrainConfig) { c.Scaler.Init = 1024 }))
			got = nil
			for range trainSteps {
				got = append(got, inside.run(t, vm))
			}
			near(t, "optimizer inside", got, want)
			before := inside.params[0].Value().Data().([]float32)[0]
			if err := vm.Sync(); err != nil {
				t.Fatal(err)
			}
			if after := inside.params[0].Value().Data().([]float32)[0]; after == before {
				t.Error("Sync left the weights as they were")
			}
		})
	}
}

func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i := range want {
		if math.Abs(got[i]-want[i]) > 0.01*math.Abs(want[i]) {
			t.Errorf("%s: step %d: loss %g, want %g", what, i, got[i], want[i])
			return
		}
	}
}

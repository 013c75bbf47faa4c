package bridge

import (
	"math"
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
	{"lenet", func() *net { return leNet(8) }, 0.002},
	{"recurrent", func() *net { return recurrent(8, 6, 5, 12) }, 0.05},
	{"autoencoder", func() *net { return autoencoder(16, 20, 7) }, 1},
}

const trainSteps = 50

// The user's loop gives the same losses and gradients on either machine.
func TestSameAsTapeMachine(t *testing.T) {
	for _, c := range nets {
		t.Run(c.name, func(t *testing.T) {
			tape, ours := c.make(), c.make()
			l1, g1, e1 := tape.train(t, G.NewTapeMachine(tape.g, G.BindDualValues(tape.params...)), trainSteps, c.rate)
			l2, g2, e2 := ours.train(t, machine(t, ours.g), trainSteps, c.rate)
			worst := 0.0
			for i := range l1 {
				worst = max(worst, math.Abs(l1[i]-l2[i])/math.Abs(l1[i]))
			}
			if worst > 1e-6 {
				t.Errorf("losses differ by %.2g", worst)
			}
			if l2[trainSteps-1] > 0.95*l2[0] {
				t.Errorf("the loss went from %g to %g", l2[0], l2[trainSteps-1])
			}
			first, last := apart(g1, g2), apart(e1, e2)
			if first > 1e-6 || last > 1e-5 {
				t.Errorf("gradients differ by %.2g in the first step, by %.2g in the last", first, last)
			}
			t.Logf("%d steps: losses differ by %.2g, gradients by %.2g in the first step and %.2g in the last", trainSteps, worst, first, last)
		})
	}
}

// apart is the largest difference of two lists of gradients, each relative to
// the largest element of its parameter.
func apart(a, b [][]float64) float64 {
	worst := 0.0
	for i := range a {
		var top, diff float64
		for j := range a[i] {
			top = max(top, math.Abs(a[i][j]))
			diff = max(diff, math.Abs(a[i][j]-b[i][j]))
		}
		worst = max(worst, diff/top)
	}
	return worst
}

// Mixed precision with the user's solver, and with ours inside.
func TestMixed(t *testing.T) {
	for _, c := range nets {
		t.Run(c.name, func(t *testing.T) {
			tape := c.make()
			want, _, _ := tape.train(t, G.NewTapeMachine(tape.g, G.BindDualValues(tape.params...)), trainSteps, c.rate)
			host := c.make()
			vm := machine(t, host.g, WithPolicy(ampc.MixedF16()), WithConfig(func(c *ampc.Config) { c.Scaler.Init = 1024 }))
			if !vm.Step().Scaled() {
				t.Error("the loss is not scaled")
			}
			got, _, _ := host.train(t, vm, trainSteps, c.rate)
			near(t, "solver on the host", got, want)

			inside := c.make()
			vm = machine(t, inside.g, WithPolicy(ampc.MixedF16()), WithOptimizer(ampc.SGD(0), ampc.Constant(c.rate)),
				WithConfig(func(c *ampc.Config) { c.Scaler.Init = 1024 }))
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

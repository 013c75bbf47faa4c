package ampc_test

import (
	"ampc"
	"strings"
	"testing"
)

// The weight of a shared layer gets the gradients of all its applications.
func TestSharedWeights(t *testing.T) {
	m := ampc.New("shared")
	x := m.Input("x", ampc.F32, 1, 1)
	f := m.Shared("f", func(m *ampc.Model, x ...ampc.Tensor) ampc.Tensor {
		return m.Linear("fc", x[0], 1, ampc.LinearOptions{NoBias: true, Init: ampc.Fill(3)})
	})
	loss := m.ReduceSum(f(f(x))) // w²·x
	s := train(t, m, loss, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.5), Grads: []ampc.Tensor{m.Lookup("f.fc.w")}})
	r := run(t, s, ampc.Feed{"x": []float32{2}})
	if g, err := r.Grad(m.Lookup("f.fc.w")); err != nil || g.At(0) != 12 {
		t.Errorf("gradient %v (%v), want 12", g, err)
	}
	if w, _ := m.Variable("f.fc.w"); w.At(0) != 3-6 {
		t.Errorf("weight %g, want -3", w.At(0))
	}
	if got := len(m.Variables()); got == 0 || strings.Count(strings.Join(m.Variables(), " "), "fc.w") != 1 {
		t.Errorf("variables %v, want one weight", m.Variables())
	}
}

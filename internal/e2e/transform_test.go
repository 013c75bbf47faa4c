package e2e_test

import (
	"ampc"
	"testing"
)

// A transform sees unscaled gradients, whatever the loss scale.
func TestGradientTransform(t *testing.T) {
	m := ampc.New("transform")
	x := m.Input("x", ampc.F32, 4)
	loss := m.ReduceSum(m.Mul(m.Param("w", ampc.Fill(1), 4), x))
	s := train(t, m, loss, ampc.TrainConfig{
		Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Policy: ampc.MixedF16(), Scaler: ampc.Static(1024),
		Gradients: func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
			for i := range g {
				g[i].Value = u.Clip(g[i].Value, -2.5, 2.5)
			}
			return g
		},
	})
	run(t, s, ampc.Feed{"x": []float32{1, 2, 3, -4}})
	w, _ := m.Variable("w")
	for i, want := range []float64{0, -1, -1.5, 3.5} {
		if w.At(i) != want {
			t.Errorf("w[%d] = %g, want %g", i, w.At(i), want)
		}
	}
}

package e2e_test

import (
	"math"
	"testing"

	"ampc"
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

// momentum is SGD's momentum written by a user: v = 0.9·v + g, w -= lr·v.
func momentum(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
	for i, x := range g {
		v := u.State(x.Param.Name()+".velocity", x.Param.Type(), ampc.Zeros())
		next := u.Named("velocity").Add(u.Affine(v, 0.9, 0), x.Value)
		u.Set(v, next)
		g[i].Value = next
	}
	return g
}

// An optimizer with a state of its own, written without an import of ir, trains
// to the numbers of the built-in one, and a skipped step leaves its state alone.
func TestUsersOwnOptimizer(t *testing.T) {
	build := func(c ampc.TrainConfig) (*ampc.Model, *ampc.Step) {
		m := ampc.New("line")
		x := m.Input("x", ampc.F32, 4, 2)
		loss := m.ReduceMean(m.Square(m.Linear("fc", x, 3, ampc.LinearOptions{Init: ampc.Fill(0.5)})))
		c.LR, c.Policy, c.Scaler = ampc.Constant(0.125), ampc.MixedF16(), ampc.Static(1024)
		return m, train(t, m, loss, c)
	}
	own, ours := build(ampc.TrainConfig{Optimizer: ampc.SGD(0), Gradients: momentum})
	built, theirs := build(ampc.TrainConfig{Optimizer: ampc.SGD(0.9)})
	for i, f := range []ampc.Feed{{"x": all(8, 1)}, {"x": all(8, 0.5)}, {"x": all(8, float32(math.Inf(1)))}, {"x": all(8, 0.25)}} {
		a, b := metrics(t, run(t, ours, f)), metrics(t, run(t, theirs, f))
		if a.Skipped != (i == 2) || b.Skipped != a.Skipped {
			t.Errorf("step %d: skipped %t and %t", i, a.Skipped, b.Skipped)
		}
		v, err := own.Variable("fc.w.velocity")
		if err != nil || math.IsNaN(v.At(0)) || v.At(0) == 0 {
			t.Errorf("step %d: velocity %g (%v)", i, v.At(0), err)
		}
	}
	w, _ := own.Variable("fc.w")
	want, _ := built.Variable("fc.w")
	for i := range w.Len() {
		if math.Abs(w.At(i)-want.At(i)) > 1e-6 {
			t.Errorf("w[%d] = %g, the built-in momentum gives %g", i, w.At(i), want.At(i))
		}
	}
}

// Bad states are one line each.
func TestUsersOwnStateMistakes(t *testing.T) {
	for want, edit := range map[string]func(u *ampc.Update, v ampc.Tensor, g []ampc.Grad){
		"it is set already":                            func(u *ampc.Update, v ampc.Tensor, g []ampc.Grad) { u.Set(v, g[0].Value); u.Set(v, g[0].Value) },
		"want the type of the state":                   func(u *ampc.Update, v ampc.Tensor, g []ampc.Grad) { u.Set(v, u.ReduceSum(g[0].Value)) },
		"it is not a state that Update.State declared": func(u *ampc.Update, v ampc.Tensor, g []ampc.Grad) { u.Set(g[0].Param, g[0].Value) },
		"absent": func(u *ampc.Update, v ampc.Tensor, g []ampc.Grad) { u.Set(v, ampc.Tensor{}) },
	} {
		m := ampc.New("m")
		loss := m.ReduceSum(m.Mul(m.Param("w", ampc.Fill(1), 4), m.Input("x", ampc.F32, 4)))
		_, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Gradients: func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
			edit(u, u.State("v", g[0].Param.Type(), ampc.Zeros()), g)
			return g
		}}, ampc.Loss{Value: loss})
		wantError(t, err, want)
	}
}

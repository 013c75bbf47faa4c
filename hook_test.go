package ampc_test

import (
	"strings"
	"testing"

	"ampc"
	"ampc/internal/trial"
)

// A mistake in TrainConfig.Gradients is answered by the line that made it, or by that of Train.
func TestMistakesInTheGradientHook(t *testing.T) {
	type hook = func(u *ampc.Update, g []ampc.Grad) []ampc.Grad
	state := func(u *ampc.Update, g []ampc.Grad) ampc.Tensor {
		return u.State("v", g[0].Param.Type(), ampc.Zeros())
	}
	for want, f := range map[string]hook{
		"TrainConfig.Gradients returns 0 gradients, want 2": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad { return nil },
		"TrainConfig.Gradients returns 3 gradients, want 2": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad { return append(g, g[0]) },
		"returns %reduce_sum f32[] as the gradient of %fc.w f32[3,2]: want its shape": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
			g[0].Value = u.ReduceSum(g[0].Value)
			return g
		},
		"TrainConfig.Gradients returns no gradient of %fc.w": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad { g[0].Value = ampc.Tensor{}; return g },
		"a gradient of %fc.b at place 0, want that of %fc.w": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad { g[0].Param = g[1].Param; return g },
		"TrainConfig.Gradients panics: mine":                 func(u *ampc.Update, g []ampc.Grad) []ampc.Grad { panic("mine") },
		"set %fc.w f32[3,2]: it is not a state":              func(u *ampc.Update, g []ampc.Grad) []ampc.Grad { u.Set(g[0].Param, g[0].Value); return g },
		"set %v f32[3,2] to %reduce_sum f32[]: want the type": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
			u.Set(state(u, g), u.ReduceSum(g[0].Value))
			return g
		},
		"set %v f32[3,2]: it is set already": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
			v := state(u, g)
			u.Set(v, g[0].Value)
			u.Set(v, v)
			return g
		},
		"set %v f32[3,2]: the value is absent": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad { u.Set(state(u, g), ampc.Tensor{}); return g },
		"set: the state is absent":             func(u *ampc.Update, g []ampc.Grad) []ampc.Grad { u.Set(ampc.Tensor{}, g[0].Value); return g },
		`state "amp.x": names that begin with "amp."`: func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
			u.State("amp.x", g[0].Param.Type(), ampc.Zeros())
			return g
		},
		`state "v": the type is the zero Type`: func(u *ampc.Update, g []ampc.Grad) []ampc.Grad { u.State("v", ampc.Type{}, ampc.Zeros()); return g },
	} {
		m := ampc.New("hook")
		x, y := m.Input("x", ampc.F32, 2, 3), m.Input("y", ampc.I32, 2)
		loss := m.CrossEntropy(m.Linear("fc", x, 2), y)
		_, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Gradients: f}, ampc.Loss{Value: loss})
		if err == nil || !strings.HasPrefix(err.Error(), "hook_test.go:") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want hook_test.go:LINE: %s", err, want)
		}
	}
}

// The error of a loss through an op without a gradient says why it has none.
func TestNoGradSaysWhy(t *testing.T) {
	op := trial.Boost()
	op.Grad, op.NoGrad = nil, "nobody derived it"
	m := ampc.New("none")
	loss := m.ReduceSum(m.Apply(op, m.Param("w", ampc.Fill(1), 4)))
	_, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, ampc.Loss{Value: loss})
	wantError(t, err, "hook_test.go:", "has no gradient: nobody derived it")
}

package ampc_test

import (
	"context"
	"fmt"
	"math"
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
	op.Grad, op.NoGrad = nil, "it was not derived"
	m := ampc.New("none")
	loss := m.ReduceSum(m.Apply(op, m.Param("w", ampc.Fill(1), 4)))
	_, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, ampc.Loss{Value: loss})
	wantError(t, err, "hook_test.go:", "has no gradient: it was not derived")
}

// gradientHooks edit gradients in ways that read them once, twice, beside a state, and
// through a sum.
var gradientHooks = map[string]func(u *ampc.Update, g []ampc.Grad) []ampc.Grad{
	"none": nil,
	"same": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad { return g },
	"double": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
		for i := range g {
			g[i].Value = u.Affine(g[i].Value, 2, 0)
		}
		return g
	},
	"cube": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
		for i := range g {
			g[i].Value = u.Mul(u.Mul(g[i].Value, g[i].Value), g[i].Value)
		}
		return g
	},
	"momentum": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
		for i := range g {
			v := u.State(fmt.Sprint("v", i), g[i].Param.Type(), ampc.Zeros())
			g[i].Value = u.Add(u.Affine(v, 0.9, 0), g[i].Value)
			u.Set(v, g[i].Value)
		}
		return g
	},
	"norm": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
		for i := range g {
			sum := u.ReduceSum(u.Mul(g[i].Value, g[i].Value))
			g[i].Value = u.Mul(g[i].Value, u.Rsqrt(u.Affine(sum, 1, 1e-6)))
		}
		return g
	},
	"all together": func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
		sum := u.ReduceMean(g[0].Value)
		for i := range g {
			g[i].Value = u.Add(g[i].Value, sum)
		}
		return g
	},
}

// A hook on gradients, beside clipping and micro-batches, compiles under every policy, is
// proved, and moves the weights as in f32.
func TestGradientHooksUnderEveryPolicy(t *testing.T) {
	train := func(t *testing.T, policy, hook string, clip ampc.Clip, micro int) []float32 {
		t.Helper()
		p, err := ampc.PolicyNamed(policy)
		if err != nil {
			t.Fatal(err)
		}
		m := ampc.New("hook")
		defer m.Close()
		x, y := m.Input("x", ampc.F32, 2, 3), m.Input("y", ampc.I32, 2)
		loss := m.CrossEntropy(m.Linear("fc2", m.Relu(m.Linear("fc", x, 8)), 2), y)
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Gradients: gradientHooks[hook],
			Policy: p, Scaler: ampc.Static(1024), Clip: clip, Micro: micro}, ampc.Loss{Value: loss})
		if err != nil {
			t.Errorf("%s, hook %q, clip %v, %d micro-batches: %v", policy, hook, clip, micro, err)
			return nil
		}
		feeds := []ampc.Feed{{"x": []float32{1, 2, 3, 3, 2, 1}, "y": []int32{0, 1}}, {"x": []float32{-1, 0, 1, 2, 2, 2}, "y": []int32{1, 0}}}[:micro]
		for range 3 {
			r, err := step.Run(context.Background(), feeds...)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := r.Wait(context.Background()); err != nil || got.Skipped {
				t.Fatalf("%s, hook %q: skipped %t (%v)", policy, hook, got.Skipped, err)
			}
		}
		w, err := m.Variable("fc2.w")
		if err != nil {
			t.Fatal(err)
		}
		return w.Floats()
	}
	for hook := range gradientHooks {
		for _, clip := range []ampc.Clip{{}, ampc.ClipNorm(1), ampc.ClipValue(0.5)} {
			for micro := 1; micro <= 2; micro++ {
				if testing.Short() && (micro > 1 || clip.Norm > 0) {
					continue
				}
				want := train(t, "f32", hook, clip, micro)
				for _, policy := range ampc.PolicyNames() {
					if policy == "manual" { // nothing is lowered without rules
						continue
					}
					for i, x := range train(t, policy, hook, clip, micro) {
						if d := math.Abs(float64(x - want[i])); !(d < 0.02) {
							t.Errorf("%s, hook %q, clip %v, %d micro-batches: weight %d is %g, in f32 %g", policy, hook, clip, micro, i, x, want[i])
							break
						}
					}
				}
			}
		}
	}
}

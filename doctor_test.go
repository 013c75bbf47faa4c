package ampc_test

import (
	"math"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/passes"
)

// depths are where an illness is placed among the identical layers.
var depths = []int{0, 3, 5}

// Each illness makes a step of the f16 policy wrong wherever it sits, does no
// harm where it is listed as clean, and without it every step is finite.
func TestIllnessesAreWhatTheySay(t *testing.T) {
	for _, i := range illnesses() {
		t.Run(i.name, func(t *testing.T) {
			for _, p := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16(), ampc.F32Only()} {
				if r := i.open(t, p, -1).run(); r.Skipped() {
					t.Errorf("%s: the healthy step is skipped, loss %g", p.Name, r.Loss())
				}
			}
			for _, k := range depths {
				if r := i.open(t, ampc.MixedF16(), k).run(); !r.Skipped() {
					t.Errorf("layer %d: the step is taken, loss %g", k, r.Loss())
				}
				for _, p := range i.clean {
					if r := i.open(t, p, k).run(); r.Skipped() || math.IsNaN(r.Loss()) {
						t.Errorf("%s, layer %d: skipped %t, loss %g", p.Name, k, r.Skipped(), r.Loss())
					}
				}
			}
		})
	}
}

// What the compiler does about an illness before it breaks out.
func TestCompilerPrevents(t *testing.T) {
	layers := func(f func(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor)) illness {
		return illness{layer: f}
	}
	for name, c := range map[string]struct {
		ill    illness
		infect func(w *ward)
		passes string // the counter that says so
	}{
		"a constant mask of -1e9 is clamped": {layers(func(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
			mask := m.Full(ampc.F32, -1e9, wardRows, wardRows) // all of it: no row is left
			scores := low(m).Add(m.Matmul(m.Linear("q", h, wardWidth), h, false, true), mask)
			return branch(m, h, m.Matmul(m.Softmax(scores, -1), h, false, false)), nil
		}), nil, "masks_clamped"},
		"a spelled-out norm squares in f32": {layers(func(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
			u := m.Linear("up", h, wardWidth)
			return branch(m, h, m.Div(u, m.Sqrt(m.Affine(m.ReduceMean(m.Square(u), true, -1), 1, 1e-6)))), nil
		}), func(w *ward) { w.times("h3.up.w", 4000) }, "rms_norm"},
		"sigmoid and bce become one": {layers(func(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
			p := m.Sigmoid(m.Linear("logit", h, 1))
			return branch(m, h, m.Tanh(h)), m.BCE(p, m.Input("label", ampc.F32, wardRows, 1))
		}), func(w *ward) { w.plus("h3.logit.b", 30) }, "sigmoid_bce"},
	} {
		t.Run(name, func(t *testing.T) {
			fired := 0
			c.ill.config = func(conf *ampc.Config) {
				conf.After = func(e passes.Event) { fired += e.Counters[c.passes] }
			}
			w := c.ill.open(t, ampc.MixedF16(), -1)
			if c.infect != nil {
				c.infect(w)
			}
			if r := w.run(); r.Skipped() || math.IsNaN(r.Loss()) {
				t.Errorf("skipped %t, loss %g", r.Skipped(), r.Loss())
			}
			if fired == 0 {
				t.Errorf("no pass counted %s", c.passes)
			}
		})
	}
}

// An epsilon that its dtype loses and Adam's moments in f16 do not compile.
func TestCompilerRefuses(t *testing.T) {
	m := ampc.New("eps")
	h, _ := epsilonLayer(m, m.Input("x", ampc.F32, wardRows, wardWidth))
	c := ampc.Config{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3), Policy: ampc.MixedF16(), Disable: []string{"recognise"}}
	_, err := ampc.Train(m, m.ReduceMean(h, false), c)
	wantError(t, err, "doctor_scenarios_test.go:", "1e-12")
	m, loss := small(8)
	c.Optimizer = ampc.Adam()
	c.Optimizer.StateDType = ampc.F16
	_, err = ampc.Train(m, loss, c)
	wantError(t, err, "state in f16", "use f32")
}

// What a transform makes of finite gradients is checked as the gradients are.
func TestTransformIsChecked(t *testing.T) {
	m := ampc.New("transform")
	loss := m.ReduceSum(m.Mul(m.Param("w", ampc.Fill(1), 4), m.Input("x", ampc.F32, 4)), false)
	s := train(t, m, loss, ampc.Config{
		Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Policy: ampc.MixedBF16(),
		Gradients: func(b *ir.Builder, g []ampc.GradOf) []ampc.GradOf {
			g[0].Grad = b.Reciprocal(g[0].Grad)
			return g
		},
	})
	if r := run(t, s, ampc.Feed{"x": []float32{1, 2, 0, 4}}); !r.Skipped() {
		t.Error("an infinite step is taken")
	}
	if w, _ := m.Variable("w"); w.At(2) != 1 {
		t.Errorf("w[2] = %g, want 1", w.At(2))
	}
}

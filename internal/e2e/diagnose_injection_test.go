package e2e_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/lower"
	"ampc/runtime"
)

// depths are where a fault is injected among the identical layers.
var depths = []int{0, 3, 5}

// Each fault makes a step of the f16 policy wrong wherever it sits, does no
// harm where it is listed as clean, and without it every step is finite.
func TestFaultsAreWhatTheySay(t *testing.T) {
	for _, i := range faults() {
		t.Run(i.name, func(t *testing.T) {
			for _, p := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16(), ampc.F32Only()} {
				w := i.open(t, p, -1)
				if r := w.run(); metrics(t, r).Skipped {
					t.Errorf("%s: the step without the fault is skipped, loss %g", p.Name, metrics(t, r).Loss)
				}
				if d := w.diagnose(); d.Cause != ampc.NoFault {
					t.Errorf("%s: the step without the fault is blamed:\n%s", p.Name, d)
				}
			}
			for _, k := range depths {
				if r := i.open(t, ampc.MixedF16(), k).run(); !metrics(t, r).Skipped {
					t.Errorf("layer %d: the step is taken, loss %g", k, metrics(t, r).Loss)
				}
				for _, p := range i.clean {
					if r := i.open(t, p, k).run(); metrics(t, r).Skipped || math.IsNaN(metrics(t, r).Loss) {
						t.Errorf("%s, layer %d: skipped %t, loss %g", p.Name, k, metrics(t, r).Skipped, metrics(t, r).Loss)
					}
				}
			}
		})
	}
}

// The doctor names the node, the cause and the direction of each fault at every
// depth, says the same again, finds nothing where the same numbers are clean, and
// does not blame the precision for what is wrong in any.
func TestDiagnoseFaults(t *testing.T) {
	for _, i := range faults() {
		t.Run(i.name, func(t *testing.T) {
			for _, k := range depths {
				for _, p := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16(), ampc.F32Only()} {
					w := i.open(t, p, k)
					skipped := metrics(t, w.run()).Skipped
					d := w.diagnose()
					switch {
					case p.Low == ampc.F16, i.clean == nil:
						i.want.check(t, d, k, p)
					case !skipped && d.Cause != ampc.NoFault:
						t.Errorf("%s, layer %d is blamed:\n%s", p.Name, k, d)
					}
					most := 3
					if d.BF16 != nil && d.BF16.NaN+d.BF16.Inf > 0 {
						most++ // a part of one in bf16 says nothing of what rounding does
					}
					if d.Replays > most {
						t.Errorf("%s, layer %d: the step was run %d times", p.Name, k, d.Replays)
					}
					if again := w.diagnose(); again.String() != d.String() {
						t.Errorf("%s, layer %d: a second look says\n%s\nafter\n%s", p.Name, k, again, d)
					}
				}
			}
		})
	}
}

func (f finding) check(t *testing.T, d *ampc.Diagnosis, k int, p ampc.Policy) {
	t.Helper()
	node := strings.ReplaceAll(f.node, "%s", fmt.Sprintf("h%d.", k))
	if p.Low != ampc.F16 {
		node = strings.TrimSuffix(node, ".f16")
	}
	if d.Cause != f.cause || d.Node != node || d.Op != f.op || string(d.Direction) != f.direction || !strings.Contains(d.String(), f.says) {
		t.Errorf("%s, layer %d: want %s at %s = %s, %s, saying %q; the doctor says\n%s", p.Name, k, f.cause, node, f.op, f.direction, f.says, d)
	}
	if layer := fmt.Sprintf("h%d", k); d.Scope != layer && !strings.HasPrefix(d.Scope, layer+".") {
		t.Errorf("%s, layer %d: %s is said to be in %q", p.Name, k, d.Node, d.Scope)
	}
	if d.Direction != "update" && !strings.HasPrefix(d.Pos, "diagnose_faults_test.go:") {
		t.Errorf("%s, layer %d: %s is said to be at %q", p.Name, k, d.Node, d.Pos)
	}
}

func (w *subject) diagnose() *ampc.Diagnosis {
	w.t.Helper()
	return ask(w.t, w.step)
}

// Nothing is paid while steps are clean: they launch what they launched before
// the doctor was ever asked, and after it has looked.
func TestCleanStepsLaunchTheSame(t *testing.T) {
	i := faults()[0]
	w := i.open(t, ampc.MixedF16(), -1)
	launched := func() (steps []string) {
		if !w.step.Profile(func(part lower.Part, step int, _ runtime.Timing) { steps = append(steps, fmt.Sprint(part, step)) }) {
			t.Fatal("the backend does not say what it runs")
		}
		if r := w.run(); metrics(t, r).Skipped {
			t.Fatal("the step is skipped")
		}
		w.step.Profile(nil)
		return steps
	}
	before := launched()
	program := w.step.Program().String()
	w.diagnose()
	i.inject(w, "h3.")
	w.run()
	if d := w.diagnose(); d.Cause == ampc.NoFault {
		t.Error("the step with the fault is not blamed")
	}
	for name, x := range i.open(t, ampc.MixedF16(), -1).feed {
		w.feed[name] = x
	}
	if after := launched(); !slices.Equal(before, after) {
		t.Errorf("a clean step ran\n%v\nand after the diagnosis\n%v", before, after)
	}
	if program != w.step.Program().String() {
		t.Error("the diagnosis changed the program")
	}
}

// What the compiler does so that a fault has no effect.
func TestCompilerPrevents(t *testing.T) {
	layers := func(f func(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor)) fault {
		return fault{layer: f}
	}
	for name, c := range map[string]struct {
		fault  fault
		inject func(w *subject)
		passes string // the counter that says so
	}{
		"a constant mask of -1e9 is clamped": {layers(func(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
			mask := m.Full(ampc.F32, -1e9, subjectRows, subjectRows) // all of it: no row is left
			scores := m.Precision(ampc.PinLow).Add(m.Matmul(m.Linear("q", h, subjectWidth), h, ampc.MatmulOptions{TransposeY: true}), mask)
			return branch(m, h, m.Matmul(m.Softmax(scores, -1), h)), ampc.Tensor{}
		}), nil, "masks_clamped"},
		"a spelled-out norm squares in f32": {layers(func(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
			u := m.Linear("up", h, subjectWidth)
			return branch(m, h, m.Div(u, m.Sqrt(m.Affine(m.ReduceMean(m.Square(u), ampc.ReduceOptions{Axes: []int{-1}, Keep: true}), 1, 1e-6)))), ampc.Tensor{}
		}), func(w *subject) { w.times("h3.up.w", 4000) }, "rms_norm"},
		"sigmoid and bce become one": {layers(func(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
			p := m.Sigmoid(m.Linear("logit", h, 1))
			return branch(m, h, m.Tanh(h)), m.BCE(p, m.Input("label", ampc.F32, subjectRows, 1))
		}), func(w *subject) { w.plus("h3.logit.b", 30) }, "sigmoid_bce"},
	} {
		t.Run(name, func(t *testing.T) {
			fired := 0
			c.fault.config = func(conf *ampc.TrainConfig) {
				conf.Compile.After = func(e ampc.PassEvent) { fired += e.Counters[c.passes] }
			}
			w := c.fault.open(t, ampc.MixedF16(), -1)
			if c.inject != nil {
				c.inject(w)
			}
			if r := w.run(); metrics(t, r).Skipped || math.IsNaN(metrics(t, r).Loss) {
				t.Errorf("skipped %t, loss %g", metrics(t, r).Skipped, metrics(t, r).Loss)
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
	h, _ := epsilonLayer(m, m.Input("x", ampc.F32, subjectRows, subjectWidth))
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3), Policy: ampc.MixedF16().Lower("shifted"), Compile: ampc.CompileOptions{Disable: []string{"recognize"}}}
	_, err := m.Train(c, ampc.Loss{Value: m.ReduceMean(h)})
	wantError(t, err, "diagnose_faults_test.go:", "1e-12")
	m, loss := small(8)
	c.Optimizer = ampc.Adam()
	c.Optimizer.StateDType = ampc.F16
	_, err = m.Train(c, ampc.Loss{Value: loss})
	wantError(t, err, "state in f16", "use f32")
}

// What a transform makes of finite gradients is checked as the gradients are.
func TestTransformIsChecked(t *testing.T) {
	m := ampc.New("transform")
	loss := m.ReduceSum(m.Mul(m.Param("w", ampc.Fill(1), 4), m.Input("x", ampc.F32, 4)))
	s := train(t, m, loss, ampc.TrainConfig{
		Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Policy: ampc.MixedBF16(),
		Gradients: func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
			g[0].Value = u.Reciprocal(g[0].Value)
			return g
		},
	})
	if r := run(t, s, ampc.Feed{"x": []float32{1, 2, 0, 4}}); !metrics(t, r).Skipped {
		t.Error("an infinite step is taken")
	}
	if w, _ := m.Variable("w"); w.At(2) != 1 {
		t.Errorf("w[2] = %g, want 1", w.At(2))
	}
}

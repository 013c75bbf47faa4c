package passes

import (
	"math"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
)

// trainer runs a compiled step with the evaluator, state carried in env.
type trainer struct {
	t   *testing.T
	g   *ir.Graph
	env map[string]*eval.Tensor
	ctx *Context

	exact bool // round nothing
	last  *eval.Result
}

// trainingPasses are the passes up to the update, as the pipeline runs them.
var trainingPasses = []string{"mode", "canon", "autodiff", "accumulate", "scale", "optimizer"}

func compileStep(text string, cfg Config) (*ir.Graph, *Context, error) {
	g, err := ir.Parse("test.ir", []byte(text))
	if err != nil {
		return nil, nil, err
	}
	cfg.Train = true
	cfg = resolved(g, cfg)
	c := newContext(cfg)
	if err := c.training.claim(g, cfg); err != nil {
		return nil, nil, err
	}
	for _, p := range Pipeline() {
		for _, name := range trainingPasses {
			if p.Name != name {
				continue
			}
			if err := runPass(p, g, c); err != nil {
				return nil, nil, err
			}
			if err := checkAfter(p, g, Config{Debugging: Debugging{Check: true}}); err != nil {
				return nil, nil, err
			}
		}
	}
	return g, c, nil
}

// named stands in a test's config for the value of this name in the graph that
// the config is for; resolved puts that in its place.
func named(name string) *ir.Value { return &ir.Value{Name: name} }

func resolved(g *ir.Graph, c Config) Config {
	at := map[*ir.Value]*ir.Value{}
	find := func(v *ir.Value) {
		if v != nil && v.Def == nil && v.Kind == ir.NotVar && v.Type == (ir.Type{}) {
			at[v] = v
			if w := g.Value(v.Name); w != nil {
				at[v] = w
			}
		} else if v != nil {
			at[v] = v
		}
	}
	for _, l := range c.Losses {
		find(l.Value)
	}
	for _, o := range c.Outputs {
		find(o.Value)
	}
	return c.On(at)
}

func newTrainer(t *testing.T, text string, cfg Config) *trainer {
	t.Helper()
	g, c, err := compileStep(text, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &trainer{t: t, g: g, env: map[string]*eval.Tensor{}, ctx: c}
}

type feed = map[string]*eval.Tensor

// step runs one step and returns what it computed; states move on in env.
func (tr *trainer) step(feeds ...feed) *eval.Result {
	tr.t.Helper()
	r, err := eval.Step(tr.g, tr.env, feeds, eval.Options{Seed: 1, Float64: tr.exact})
	if err != nil {
		tr.t.Fatalf("%v\n%s", err, tr.g)
	}
	for _, v := range tr.g.Vars {
		if v.Kind == ir.Param || v.Kind == ir.State {
			tr.env[v.Name] = r.Values[v.Name]
		}
	}
	for name, x := range r.Next {
		tr.env[name] = x
	}
	tr.last = r
	return r
}

// initial is what a variable starts with.
func (tr *trainer) initial(name string) []float64 {
	tr.t.Helper()
	x, err := eval.InitVar(tr.g.Var(name), 1)
	if err != nil {
		tr.t.Fatal(err)
	}
	return x.F
}

func (tr *trainer) scalar(name string) float64 {
	tr.t.Helper()
	x := tr.env[name]
	if x == nil {
		tr.t.Fatalf("no variable %s", name)
	}
	return x.At(0)
}

func f32s(dims []ir.Dim, x ...float64) *eval.Tensor { return eval.Floats(ir.F32, dims, x...) }

// pairText is a linear model with two parameters; its gradients are products
// of the inputs, so tests can make them overflow at will.
const pairText = `graph @pair {
  input %x : f32[4,3]
  input %y : f32[4,2]
  param %l.w : f32[3,2] = normal(0, 0.5)
  param %l.b : f32[2] = data(0.1, -0.2)
forward:
  %out = linear %x, %l.w, %l.b : f32[4,2]
  %sum, %count = mse %out, %y : f32[], f32[]
  %loss = div %sum, %count : f32[]
  return %loss
}`

func pairFeed(k int) feed {
	x, y := make([]float64, 12), make([]float64, 8)
	for i := range x {
		x[i] = float64(float32(math.Sin(float64(7*k + 3*i))))
	}
	for i := range y {
		y[i] = float64(float32(math.Cos(float64(5*k + 2*i))))
	}
	return feed{"x": f32s([]ir.Dim{4, 3}, x...), "y": f32s([]ir.Dim{4, 2}, y...)}
}

func oneGroup(o Optimizer, s Schedule) []Group { return []Group{{Optimizer: o, LR: s}} }

// plain is an optimizer written as a loop over float32, from the formulas.
type plain func(step int, w, g []float32)

func plainSGD(lr, momentum, decay float32, nesterov bool) plain {
	var m []float32
	return func(_ int, w, g []float32) {
		if m == nil {
			m = make([]float32, len(w))
		}
		for i := range w {
			d := g[i] + float32(decay*w[i])
			if decay == 0 {
				d = g[i]
			}
			m[i] = float32(momentum*m[i]) + d
			u := m[i]
			if nesterov {
				u = d + float32(momentum*m[i])
			}
			w[i] -= float32(lr * u)
		}
	}
}

func plainAdam(lr, b1, nb1, b2, nb2, eps, decay float32, decoupled bool) plain {
	var m, v []float32
	var c1, c2 float32
	return func(_ int, w, g []float32) {
		if m == nil {
			m, v = make([]float32, len(w)), make([]float32, len(w))
		}
		c1 = float32(b1*c1) + float32(nb1)
		c2 = float32(b2*c2) + float32(nb2)
		for i := range w {
			d, from := g[i], w[i]
			switch {
			case decay == 0:
			case decoupled:
				from = w[i] - float32(float32(lr*decay)*w[i])
			default:
				d += float32(decay * w[i])
			}
			m[i] = float32(b1*m[i]) + float32(nb1*d)
			v[i] = float32(b2*v[i]) + float32(nb2*float32(d*d))
			den := float32(math.Sqrt(float64(v[i]/c2))) + eps
			w[i] = from - float32(lr*float32((m[i]/c1)/den))
		}
	}
}

func TestOptimizersEqualPlainLoops(t *testing.T) {
	nesterov := SGD(0.9)
	nesterov.Nesterov, nesterov.Decay = true, 0.01
	decayed := Adam()
	decayed.Decay = 0.02
	for _, c := range []struct {
		name string
		opt  Optimizer
		lr   float64
		make func() plain
	}{
		{"sgd", SGD(0), 0.1, func() plain { return plainSGD(0.1, 0, 0, false) }},
		{"momentum", SGD(0.9), 0.1, func() plain { return plainSGD(0.1, 0.9, 0, false) }},
		{"nesterov", nesterov, 0.05, func() plain { return plainSGD(0.05, 0.9, 0.01, true) }},
		{"adam", decayed, 0.01, func() plain { return plainAdam(0.01, 0.9, 0.1, 0.999, 0.001, 1e-8, 0.02, false) }},
		{"adamw", AdamW(0.1), 0.01, func() plain { return plainAdam(0.01, 0.9, 0.1, 0.999, 0.001, 1e-8, 0.1, true) }},
	} {
		for _, scaler := range []Scaler{Unscaled(), Static(1024), Dynamic()} {
			t.Run(c.name+"/"+scaler.Mode.String(), func(t *testing.T) {
				tr := newTrainer(t, pairText, Config{Training: Training{Groups: oneGroup(c.opt, Constant(c.lr)), Scaler: scaler}})
				loops := map[string]plain{"l.w": c.make(), "l.b": c.make()}
				want := map[string][]float32{}
				for k := range 12 {
					r := tr.step(pairFeed(k))
					for name, loop := range loops {
						if want[name] == nil {
							want[name] = narrow(r.Values[name], 1)
						}
						g := narrow(r.Values["d."+name], scaleOf(r))
						loop(k, want[name], g)
						for i, w := range want[name] {
							if got := tr.env[name].F[i]; got != float64(w) {
								t.Fatalf("step %d: %s[%d] = %v, the loop has %v", k, name, i, got, w)
							}
						}
					}
				}
			})
		}
	}
}

func scaleOf(r *eval.Result) float64 {
	if s := r.Values["amp.scale"]; s != nil {
		return s.F[0]
	}
	return 1
}

func narrow(x *eval.Tensor, scale float64) []float32 {
	f := make([]float32, len(x.F))
	for i, v := range x.F {
		f[i] = float32(v / scale)
	}
	return f
}

// The scale is exact: training with it gives the bits of training without.
func TestScalingChangesNoBit(t *testing.T) {
	run := func(s Scaler) []float64 {
		tr := newTrainer(t, pairText, Config{Training: Training{Groups: oneGroup(AdamW(0.1), Constant(0.01)), Scaler: s}})
		for k := range 20 {
			tr.step(pairFeed(k))
		}
		return tr.env["l.w"].F
	}
	want := run(Unscaled())
	for _, s := range []Scaler{Static(1 << 10), Dynamic()} {
		for i, x := range run(s) {
			if x != want[i] {
				t.Errorf("%s: weight %d is %v, without scaling %v", s.Mode, i, x, want[i])
			}
		}
	}
}

// snapshot is every variable's bytes.
func (tr *trainer) snapshot() map[string]string {
	s := map[string]string{}
	for name, x := range tr.env {
		s[name] = string(x.Bytes())
	}
	return s
}

func TestSkippedStepChangesNothingButScalerAndAttempt(t *testing.T) {
	huge := pairFeed(0)
	huge["x"] = f32s([]ir.Dim{4, 3}, 1e36, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	infinite := pairFeed(0)
	infinite["y"] = f32s([]ir.Dim{4, 2}, math.Inf(1), 0, 0, 0, 0, 0, 0, 0)
	for _, c := range []struct {
		name    string
		scaler  Scaler
		bad     feed
		changed []string
	}{
		{"gradient overflow", Dynamic(), huge, []string{"amp.scale", "amp.good", "amp.attempt"}},
		{"forward overflow", Dynamic(), infinite, []string{"amp.good", "amp.fwd_run", "amp.attempt"}},
		{"static", Static(1 << 16), huge, []string{"amp.attempt"}},
		{"no scaler", Unscaled(), infinite, []string{"amp.attempt"}},
	} {
		for _, opt := range []Optimizer{SGD(0.9), Adam(), AdamW(0.1)} {
			t.Run(c.name+"/"+opt.Algorithm.String(), func(t *testing.T) {
				text := pairText
				if c.name == "gradient overflow" || c.name == "static" {
					// the loss stays finite while its scaled gradient does not
					text = strings.Replace(text, "%sum, %count = mse %out, %y", "%sum, %count = l1_loss %out, %y", 1)
				}
				tr := newTrainer(t, text, Config{Training: Training{Groups: oneGroup(opt, Cosine(0.1, 5, 100)), Scaler: c.scaler, EMA: 0.9}})
				tr.step(pairFeed(1))
				tr.step(pairFeed(2))
				before := tr.snapshot()
				r := tr.step(c.bad)
				if r.Values["skip"].I[0] != 1 {
					t.Fatal("the step was not skipped")
				}
				changed := map[string]bool{}
				for name, x := range tr.snapshot() {
					if x != before[name] {
						changed[name] = true
					}
				}
				for _, name := range c.changed {
					if !changed[name] {
						t.Errorf("%s did not change", name)
					}
					delete(changed, name)
				}
				for name := range changed {
					t.Errorf("%s changed in a skipped step", name)
				}
			})
		}
	}
}

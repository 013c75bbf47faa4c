package models_test

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ampc"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// The number of threads changes no bit.
func TestThreadsChangeNoBit(t *testing.T) {
	for _, spec := range inSmall {
		var first map[string][]byte
		for _, threads := range []int{1, 2, 7} {
			got := trained(t, spec, threads)
			if first == nil {
				first = got
				continue
			}
			for name, b := range first {
				if !bytes.Equal(b, got[name]) {
					t.Errorf("%s: %s differs between 1 and %d threads", spec, name, threads)
				}
			}
		}
	}
}

// trained runs three steps and returns every variable's bytes.
func trained(t *testing.T, spec string, threads int) map[string][]byte {
	t.Helper()
	b, err := cpu.Open(threads)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	c.Policy = ampc.MixedF16()
	if err := z.Model.Set(ampc.On(b)); err != nil {
		t.Fatal(err)
	}
	step, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		if _, err := step.Run(context.Background(), feed(z.Model.Graph(), i)); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string][]byte{}
	for _, name := range z.Model.Variables() {
		h, err := z.Model.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = h.Bytes
	}
	return out
}

// Drawn anew, weights and batch together, each parameter's gradient is as near
// to float64 under the mixed policies as under torch's rules.
//
// A draw compares two squared errors by (a−b)/(a+b). Were both policies equally
// good, its sign would be a coin's, and for sums of signed numbers
// P(Σd ≥ z·√Σd²) ≤ exp(−z²/2) whatever they are (Hoeffding). So the 66
// comparisons give a false alarm in one of 1,200 sets of draws; a hundred draws
// find a gradient that is 2 to 9% worse, by how much its errors vary.
//
// Draws that share the weights are not independent: the roundings of weights
// and of the few rows that few tokens make then decide, and tip all batches
// alike, by up to 6% either way.
func TestGradientsNoWorseThanTorchs(t *testing.T) {
	const z = 4.75
	draws := uint64(100)
	if testing.Short() {
		draws = 30
	}
	for _, spec := range []string{"mlp?batch=8&in=16&hidden=8", "lenet?batch=4&size=8", "gpt?batch=2&seq=8&vocab=16&layers=1&heads=2&dim=16"} {
		x := newExact(t, spec)
		for _, c := range []struct{ ours, torchs ampc.Policy }{
			{ampc.MixedF16(), ampc.Torch(ampc.F16)}, {ampc.MixedBF16(), ampc.Torch(ampc.BF16)},
		} {
			ours, torchs := newGradients(t, spec, c.ours), newGradients(t, spec, c.torchs)
			found := map[string]*comparison{"all parameters": {}}
			for seed := range draws {
				f := feed(ours.z.Model.Graph(), seed)
				want := x.gradients(t, seed, f)
				a, b := ours.errors(t, seed, f, want), torchs.errors(t, seed, f, want)
				all := 0.0
				for name := range want {
					if found[name] == nil {
						found[name] = &comparison{}
					}
					all += found[name].add(difference(a[name], b[name]))
				}
				found["all parameters"].add(all)
			}
			for name, d := range found {
				t.Logf("%s under %s, %s: %.1f", spec, c.ours.Name, name, d.z())
				if d.z() > z {
					t.Errorf("%s under %s: the gradient of %s is worse than under %s, %.1f deviations in %d draws", spec, c.ours.Name, name, c.torchs.Name, d.z(), draws)
				}
			}
			if d := found["all parameters"]; !testing.Short() && !strings.HasPrefix(spec, "lenet") && d.z() > -z {
				t.Errorf("%s under %s: %d draws cannot tell it from %s, which rounds more often: the test is blind", spec, c.ours.Name, draws, c.torchs.Name)
			}
		}
	}
}

// comparison sums signed differences of draws.
type comparison struct{ sum, squares float64 }

func (c *comparison) add(d float64) float64 {
	c.sum, c.squares = c.sum+d, c.squares+d*d
	return d
}

// z is the sum in units of what chance alone makes of it.
func (c *comparison) z() float64 { return c.sum / max(math.Sqrt(c.squares), 1e-30) }

// difference is between −1 (b alone has errors) and 1. What overflowed has more than what did not.
func difference(a, b float64) float64 {
	bad := func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }
	switch {
	case bad(a) && bad(b), a == b:
		return 0
	case bad(a):
		return 1
	case bad(b):
		return -1
	}
	return (a - b) / (a + b)
}

// exact computes every parameter's gradient in float64, without any rounding,
// on the f32 step.
type exact struct {
	g     *ir.Graph
	names []string
}

func newExact(t *testing.T, spec string) *exact {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	x := &exact{}
	var p passes.Config
	if x.g, p, err = z.Model.Source(z.Steps[0].Config, z.Steps[0].Losses...); err != nil {
		t.Fatal(err)
	}
	for _, w := range params(x.g) {
		x.names = append(x.names, w.Name)
		p.Outputs = append(p.Outputs, passes.Output{Kind: passes.OfGradient, Value: w})
	}
	if err := passes.Run(x.g, p); err != nil {
		t.Fatal(err)
	}
	if len(x.g.Return) != len(x.names) {
		t.Fatalf("%s returns %d values, want %d gradients", spec, len(x.g.Return), len(x.names))
	}
	return x
}

// gradients are those of f at the initial weights that seed draws.
func (x *exact) gradients(t *testing.T, seed uint64, f ampc.Feed) map[string][]float64 {
	t.Helper()
	env := map[string]*eval.Tensor{}
	for _, v := range x.g.Vars {
		y := initial(t, v, seed)
		switch fed := f[v.Name].(type) {
		case []float64:
			y.F = fed
		case []int:
			for i, n := range fed {
				y.I[i] = int64(n)
			}
		}
		env[v.Name] = y
	}
	r, err := eval.Run(x.g, env, eval.Options{Float64: true})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]float64{}
	for i, name := range x.names {
		out[name] = r.Values[x.g.Return[i].Name].F
	}
	return out
}

// initial is what a variable holds at first.
func initial(t *testing.T, v *ir.Value, seed uint64) *eval.Tensor {
	t.Helper()
	x, err := eval.InitVar(v, int64(seed))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func params(g *ir.Graph) (out []*ir.Value) {
	for _, v := range g.Vars {
		if v.Kind == ir.Param {
			out = append(out, v)
		}
	}
	return out
}

// gradients are those that a policy computes on the CPU.
type gradients struct {
	z    *models.Zoo
	step *ampc.Step
}

func newGradients(t *testing.T, spec string, policy ampc.Policy) *gradients {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { z.Model.Close() })
	c := z.Steps[0].Config
	c.Policy, c.Clip = policy, ampc.Clip{}
	for _, v := range params(z.Model.Graph()) {
		c.Grads = append(c.Grads, z.Model.FromIR(v))
	}
	if policy.Low == ampc.F16 {
		c.Scaler = ampc.Static(1 << 16)
	}
	step, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	return &gradients{z, step}
}

// errors are the squared relative errors of the gradients of f at the initial
// weights that seed draws.
func (g *gradients) errors(t *testing.T, seed uint64, f ampc.Feed, exact map[string][]float64) map[string]float64 {
	t.Helper()
	for _, v := range params(g.z.Model.Graph()) {
		if err := g.z.Model.SetVariable(v.Name, initial(t, v, seed).F); err != nil {
			t.Fatal(err)
		}
	}
	r, err := g.step.Run(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for name, want := range exact {
		h, err := r.Grad(g.z.Model.Lookup(name))
		if err != nil {
			t.Fatal(err)
		}
		var off, size float64
		for i, w := range want {
			d := h.At(i) - w
			off, size = off+d*d, size+w*w
		}
		out[name] = off / max(size, 1e-30)
	}
	return out
}

// The order in which nodes happen to stand decides nothing: shuffled before
// every pass, each model comes out as the same text and the same Program.
func TestShufflingChangesNothing(t *testing.T) {
	for _, spec := range inSmall {
		for _, policy := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16(), ampc.O1(ampc.F16), ampc.O3(ampc.BF16)} {
			plain, shuffled := compiled(t, spec, policy, false), compiled(t, spec, policy, true)
			if plain != shuffled {
				t.Errorf("%s under %s: shuffled, it differs:\n%s", spec, policy.Name, cmp.Diff(plain, shuffled))
			}
		}
	}
}

// compiled is a model's last graph and its Program as text.
func compiled(t *testing.T, spec string, policy ampc.Policy, check bool) string {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := z.Steps[0].Config
	c.Policy = policy
	g, p, err := z.Model.Source(c, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	p.Check = check
	if err := passes.Run(g, p); err != nil {
		t.Fatalf("%s under %s: %v", spec, policy.Name, err)
	}
	program, err := lower.Lower(g, lower.CPU)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(g.String())
	if err := program.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

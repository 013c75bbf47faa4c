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
	c.Policy, c.Backend = ampc.MixedF16(), b
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

// exactGradients computes every parameter's gradient in float64, without any
// rounding, on the f32 step.
func exactGradients(t *testing.T, z *models.Zoo, f ampc.Feed) map[string][]float64 {
	t.Helper()
	g := z.Model.Graph().Clone()
	var want []passes.Output
	c := z.Steps[0].Config
	for _, w := range params(g) {
		want = append(want, passes.Output{Value: "d." + w.Name})
	}
	p := c.Passes(z.Steps[0].Losses...)
	p.Outputs = want
	if err := passes.Run(g, p); err != nil {
		t.Fatal(err)
	}
	env := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		x, err := eval.InitVar(v, 0)
		if err != nil {
			t.Fatal(err)
		}
		switch fed := f[v.Name].(type) {
		case []float64:
			x.F = fed
		case []int:
			for i, n := range fed {
				x.I[i] = int64(n)
			}
		}
		env[v.Name] = x
	}
	r, err := eval.Run(g, env, eval.Options{Float64: true})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]float64{}
	for i, w := range want {
		out[w.Value[2:]] = r.Values[g.Return[i].Name].F
	}
	return out
}

func params(g *ir.Graph) (out []*ir.Value) {
	for _, v := range g.Vars {
		if v.Kind == ir.Param {
			out = append(out, v)
		}
	}
	return out
}

// gradientErrors is, per parameter, the relative error of the gradient that a
// policy computes on the CPU.
func gradientErrors(t *testing.T, spec string, policy ampc.Policy, seed uint64) map[string]float64 {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	f := feed(z.Model.Graph(), seed)
	exact := exactGradients(t, z, f)
	c := z.Steps[0].Config
	c.Policy, c.Grads = policy, params(z.Model.Graph())
	c.Clip = ampc.Clip{}
	step, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Run(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for name, want := range exact {
		h, err := r.Grad(name)
		if err != nil {
			t.Fatal(err)
		}
		var off, size float64
		for i, w := range want {
			d := h.At(i) - w
			off, size = off+d*d, size+w*w
		}
		out[name] = math.Sqrt(off / max(size, 1e-30))
	}
	return out
}

// Over several batches each parameter's gradient is as near to float64 under
// the mixed policies as under torch's rules.
func TestGradientsNoWorseThanTorchs(t *testing.T) {
	const batches, noise = 12, 1.03 // what 12 batches leave of chance in a root mean square
	for _, spec := range []string{"mlp?batch=8&in=16&hidden=8", "lenet?batch=4&size=8", "gpt?batch=2&seq=8&vocab=16&layers=1&heads=2&dim=16"} {
		for _, c := range []struct {
			ours, torchs ampc.Policy
		}{{ampc.MixedF16(), ampc.Torch(ampc.F16)}, {ampc.MixedBF16(), ampc.Torch(ampc.BF16)}} {
			a, b := rms(t, spec, c.ours, batches), rms(t, spec, c.torchs, batches)
			for name := range a {
				if !(a[name] <= noise*b[name]) {
					t.Errorf("%s under %s: gradient of %s is off by %.3g, under %s by %.3g", spec, c.ours.Name, name, a[name], c.torchs.Name, b[name])
				}
			}
		}
	}
}

// rms is the root mean square of gradientErrors over n batches.
func rms(t *testing.T, spec string, policy ampc.Policy, n uint64) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for seed := range n {
		for name, e := range gradientErrors(t, spec, policy, seed) {
			out[name] += e * e / float64(n)
		}
	}
	for name, x := range out {
		out[name] = math.Sqrt(x)
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
	g := z.Model.Graph().Clone()
	c := z.Steps[0].Config
	c.Policy = policy
	p := c.Passes(z.Steps[0].Losses...)
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

package models_test

import (
	"math"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/models"
	"ampc/passes"
	"ampc/passes/prove"
)

// A step whose image regions run with channels last computes what the source
// computes: every next value agrees except for the order of sums.
func TestLayoutChangesNoMeaning(t *testing.T) {
	for _, spec := range []string{"lenet?batch=2&size=8", "resnet8?batch=2&size=8&width=4", "unet?batch=2&size=8&width=8&levels=1", "unet3d?batch=2&depth=4&size=4&width=4&levels=1", "convlstm?batch=2&seq=2&ahead=1&size=4&width=4&layers=1", "vit?batch=2&size=8&patch=4&layers=1&heads=2&dim=16"} {
		z, err := models.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		first, _ := stepWith(t, z, ampc.F32Only(), "")
		last, converted := stepWith(t, z, ampc.F32Only(), "NHWC")
		if converted == 0 {
			t.Errorf("%s: nothing was converted", spec)
		}
		for name, want := range first {
			got := last[name]
			for i := range want.F {
				if d := math.Abs(got.F[i] - want.F[i]); !(d <= 2e-4*(1e-2+math.Abs(want.F[i]))) {
					t.Errorf("%s: %s element %d is %g, with channels first %g", spec, name, i, got.F[i], want.F[i])
					break
				}
			}
		}
		if _, n := stepWith(t, z, ampc.MixedF16(), "NHWC"); n != converted {
			t.Errorf("%s: %d nodes converted under mixed-f16, %d under f32", spec, n, converted)
		}
	}
}

// stepWith compiles the model for a target that wants a layout, proves it,
// and evaluates one step.
func stepWith(t *testing.T, z *models.Zoo, policy ampc.Policy, layout string) (map[string]*eval.Tensor, int) {
	t.Helper()
	c := z.Steps[0].Config
	c.Policy, c.Optimizer, c.LR = policy, ampc.SGD(0.9), ampc.Constant(0.1)
	c.Groups = nil
	g, p, err := z.Model.Source(c, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	p.Check, p.Caps.Layout = true, layout
	var source *ir.Graph
	p.Source = func(t *ir.Graph) { source = t }
	converted := 0
	p.After = func(e passes.Event) { converted += e.Counters["nodes_converted"] }
	if err := passes.Run(g, p); err != nil {
		t.Fatalf("%s: %v", z.Name, err)
	}
	for _, f := range prove.Prove(source, g, p.Policy.ProofRules(source, p.Caps, false)) {
		t.Errorf("%s with layout %q: %s", z.Name, layout, f)
	}
	env := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		w := *v
		if v.Kind == ir.Input && v.Type.DType.Float() {
			w.Init = &ir.Init{Func: "uniform", Args: []float64{-1, 1}}
		}
		x, err := eval.InitVar(&w, 1)
		if err != nil {
			t.Fatal(err)
		}
		env[v.Name] = x
	}
	r, err := eval.Run(g, env, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Next, converted
}

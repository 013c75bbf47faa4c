package models_test

import (
	"fmt"
	"testing"

	"ampc/ir"
	"ampc/models"
	"ampc/passes"
	"ampc/passes/prove"
)

// Every step of every model is proved under every policy, whichever algorithm
// assigned the dtypes, with one micro-batch and with two.
func TestEveryStepIsProved(t *testing.T) {
	for _, spec := range inSmall {
		z, err := models.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, policy := range policies(t) {
			for _, step := range z.Steps {
				for micro := 1; micro <= 2; micro++ {
					c := step.Config
					c.Policy, c.Micro = policy, micro
					g, p, err := z.Model.Source(c, step.Losses...)
					if err != nil {
						t.Fatal(err)
					}
					var source *ir.Graph
					p.Source = func(t *ir.Graph) { source = t }
					if err := passes.Run(g, p); err != nil {
						t.Fatalf("%s under %s: %v", spec, policy.Name, err)
					}
					for _, f := range prove.Prove(source, g, policy.ProofRules(source, ir.Caps{}, c.NoSkip)) {
						t.Errorf("%s %s under %s, %d micro-batches: %s", spec, step.Name, policy.Name, micro, f)
					}
				}
			}
		}
	}
}

// policies are all presets, and the mixed ones under every algorithm.
func policies(t *testing.T) []passes.Policy {
	t.Helper()
	var ps []passes.Policy
	for _, name := range passes.PolicyNames() {
		p, err := passes.PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
		if name != "mixed-f16" && name != "mixed-bf16" {
			continue
		}
		for _, algorithm := range []string{"local", "paint", "mincut"} {
			q := p
			q.Name, q.Algorithm = fmt.Sprintf("%s by %s", name, algorithm), algorithm
			ps = append(ps, q)
		}
	}
	return ps
}

// The gradients of every step of every model are those that the rows give, with
// and without a loss scale, for one micro-batch and for two.
func TestGradientsOfEveryModel(t *testing.T) {
	for _, spec := range inSmall {
		z, err := models.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, policy := range []passes.Policy{passes.F32(), passes.MixedF16()} {
			for _, step := range z.Steps {
				for _, micro := range []int{1, 2} {
					c := step.Config
					c.Policy, c.Micro = policy, micro
					g, p, err := z.Model.Source(c, step.Losses...)
					if err != nil {
						t.Fatal(err)
					}
					var source *ir.Graph
					p.Source, p.Until = func(t *ir.Graph) { source = t }, "optimizer"
					if err := passes.Run(g, p); err != nil {
						t.Fatalf("%s under %s: %v", spec, policy.Name, err)
					}
					for _, f := range prove.Gradients(source) {
						t.Errorf("%s %s under %s, %d micro-batches: %s", spec, step.Name, policy.Name, micro, f)
					}
				}
			}
		}
	}
}

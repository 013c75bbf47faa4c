package models_test

import (
	"fmt"
	"testing"

	"ampc"
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
					for _, f := range prove.Prove(source, g, p.Policy.ProofRules(source, ir.Caps{}, c.NoSkip)) {
						t.Errorf("%s %s under %s, %d micro-batches: %s", spec, step.Name, policy.Name, micro, f)
					}
				}
			}
		}
	}
}

// policies are all presets, and the mixed ones under every algorithm.
func policies(t *testing.T) []ampc.Policy {
	t.Helper()
	var ps []ampc.Policy
	for _, name := range ampc.PolicyNames() {
		p, err := ampc.PolicyNamed(name)
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
		for _, policy := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16()} {
			for _, step := range z.Steps {
				for _, micro := range []int{1, 2} {
					c := step.Config
					c.Policy, c.Micro = policy, micro
					g, p, err := z.Model.Source(c, step.Losses...)
					if err != nil {
						t.Fatal(err)
					}
					var source *ir.Graph
					p.Source, p.Until = func(t *ir.Graph) { source = t }, "chunks"
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

// arrangements are ways to scale, check and change gradients, beside the policies.
var arrangements = map[string]func(p *passes.Config){
	"dropped micro-batches":  func(p *passes.Config) { p.Micro, p.BadMicro = 3, passes.DropMicro },
	"clipped":                func(p *passes.Config) { p.Clip = passes.Clip{Norm: 1, Value: 0.5} },
	"average":                func(p *passes.Config) { p.EMA = 0.99 },
	"unchecked":              func(p *passes.Config) { p.NoSkip, p.Scaler = true, passes.Unscaled() },
	"static":                 func(p *passes.Config) { p.Scaler = passes.Static(1024) },
	"unscaled":               func(p *passes.Config) { p.Scaler = passes.Unscaled() },
	"torch's scaler":         func(p *passes.Config) { p.Scaler = passes.TorchScaler() },
	"deepspeed's, 2 batches": func(p *passes.Config) { p.Scaler, p.Micro = passes.DeepSpeedScaler(), 2 },
	"notes":                  func(p *passes.Config) { p.Scaler = passes.Dynamic(); p.Scaler.Sharing = passes.Collect },
	"advances for others":    func(p *passes.Config) { p.Scaler = passes.Dynamic(); p.Scaler.Sharing = passes.Advance },
	"16-bit copies":          func(p *passes.Config) { p.WeightCopies = true },
	"normed by hand": func(p *passes.Config) {
		p.Gradients = func(b *ir.Builder, gs []passes.GradOf) []passes.GradOf {
			for i := range gs {
				g := gs[i].Grad
				norm := b.Sqrt(b.ReduceSum(b.Square(g), false))
				limit := b.Clip(b.Reciprocal(b.Affine(norm, 1, 1e-6)), 0, 1)
				gs[i].Grad = b.Mul(g, limit)
			}
			return gs
		}
		p.Clip = passes.Clip{Value: 0.5}
	},
}

// No arrangement of scalers, checks and clips makes a correct step suspect, nor
// its gradients.
func TestEveryArrangementIsProved(t *testing.T) {
	for _, spec := range inSmall {
		z, err := models.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		for name, edit := range arrangements {
			for _, policy := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16()} {
				for _, step := range z.Steps {
					c := step.Config
					c.Policy = policy
					g, p, err := z.Model.Source(c, step.Losses...)
					if err != nil {
						t.Fatal(err)
					}
					var source *ir.Graph
					p.Source = func(t *ir.Graph) { source = t }
					edit(&p)
					if err := passes.Run(g, p); err != nil {
						t.Fatalf("%s, %s: %v", spec, name, err)
					}
					found := prove.Prove(source, g, p.Policy.ProofRules(source, ir.Caps{}, p.NoSkip))
					for _, f := range append(found, prove.Gradients(source)...) {
						t.Errorf("%s %s under %s, %s: %s", spec, step.Name, policy.Name, name, f)
					}
				}
			}
		}
	}
}

package models_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"ampc"
	"ampc/internal/trial"
	"ampc/ir"
	"ampc/models"
)

// inSmall is every model of the zoo at a size that a test can train.
var inSmall = []string{
	"mlp?batch=8&in=16&hidden=8", "lenet?batch=4&size=8", "resnet?batch=4&size=8&width=4&blocks1=1&blocks2=1&blocks3=0&blocks4=0", "resnet8?batch=2&size=8&width=4",
	"resnet50?batch=4&size=16&width=4&classes=4&blocks1=1&blocks2=1&blocks3=0&blocks4=0", "gpt2?batch=2&seq=8&vocab=16&layers=1&heads=2&dim=16",
	"gpt?batch=2&seq=8&vocab=16&layers=1&heads=2&dim=16", "lstm?batch=2&seq=4&vocab=16&dim=8", "bert?batch=2&seq=8&vocab=16&layers=1&heads=2&dim=16",
	"unet3d?batch=1&depth=5&size=7&width=4&levels=1", "convlstm?batch=2&seq=2&ahead=2&size=4&width=4",
	"unet?batch=2&size=8&width=8&levels=1", "vit?batch=2&size=8&patch=4&layers=1&heads=2&dim=16", "gan?batch=8&in=8&hidden=8",
}

// feed draws inputs for every input of a model: normal floats, small integers.
func feed(g *ir.Graph, seed uint64) ampc.Feed {
	r := rand.New(rand.NewPCG(seed, 9))
	f := ampc.Feed{}
	for _, v := range g.Vars {
		if v.Kind != ir.Input || v.Attr.Get("role") != nil {
			continue
		}
		n := int(v.Type.Shape.Elements())
		if v.Type.DType.Float() {
			x := make([]float64, n)
			for i := range x {
				x[i] = r.NormFloat64()
			}
			f[v.Name] = x
			continue
		}
		x := make([]int, n)
		for i := range x {
			x[i] = r.IntN(2)
		}
		f[v.Name] = x
	}
	return f
}

// Every model trains on one batch until it knows it, under f32 and both mixed policies.
func TestEveryModelLearnsOneBatch(t *testing.T) {
	for _, spec := range inSmall {
		for _, policy := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16(), ampc.MixedBF16()} {
			z, err := models.Open(spec)
			if err != nil {
				t.Fatal(err)
			}
			c := z.Steps[0].Config
			c.Policy = policy
			if len(c.Groups) == 0 {
				c.LR, c.Optimizer = ampc.Constant(1e-2), ampc.Adam()
			}
			for i := range c.Groups {
				c.Groups[i].LR = ampc.Constant(1e-2)
			}
			step, err := z.Model.Train(c, z.Steps[0].Losses...)
			if err != nil {
				t.Errorf("%s under %s: %v", spec, policy.Name, err)
				continue
			}
			f := feed(z.Model.Graph(), 1)
			var first, last float64
			for i := range 40 {
				r, err := step.Run(context.Background(), f)
				if err != nil {
					t.Fatalf("%s under %s: %v", spec, policy.Name, err)
				}
				last = trial.Metrics(t, r).Loss
				if i == 0 {
					first = last
				}
			}
			if !(last < 0.95*first) {
				t.Errorf("%s under %s: loss went from %g to %g", spec, policy.Name, first, last)
			}
			z.Model.Close()
		}
	}
}

// An evaluation rounds where training rounds: over the same weights and inputs
// its loss has the same bits.
func TestEvaluationInheritsTheAssignment(t *testing.T) {
	for _, spec := range inSmall {
		if spec[:4] == "resn" || spec[:4] == "bert" || spec[:6] == "unet3d" {
			continue // batch norm and dropout compute something else in evaluation
		}
		for _, policy := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16(), ampc.O2(ampc.F16)} {
			z, err := models.Open(spec)
			if err != nil {
				t.Fatal(err)
			}
			c := z.Steps[0].Config
			c.Policy = policy
			step, err := z.Model.Train(c, z.Steps[0].Losses...)
			if err != nil {
				t.Fatal(err)
			}
			loss := z.Steps[0].Losses[0].Value
			eval, err := step.Eval(loss, z.Output)
			if err != nil {
				t.Errorf("%s under %s: %v", spec, policy.Name, err)
				continue
			}
			f := feed(z.Model.Graph(), 2)
			got, err := eval.Run(context.Background(), f)
			if err != nil {
				t.Fatal(err)
			}
			h, err := got.Value(loss)
			if err != nil {
				t.Fatal(err)
			}
			want, err := step.Run(context.Background(), f)
			if err != nil {
				t.Fatal(err)
			}
			if h.At(0) != trial.Metrics(t, want).Loss {
				t.Errorf("%s under %s: evaluation %v, training %v", spec, policy.Name, h.At(0), trial.Metrics(t, want).Loss)
			}
			z.Model.Close()
		}
	}
}

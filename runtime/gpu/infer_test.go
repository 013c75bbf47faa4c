package gpu_test

import (
	"math/rand/v2"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/lower/sm"
	"ampc/models"
	"ampc/passes"
	"ampc/runtime/runtimetest"
)

// TestInference runs the ResNets with statistics and scales unlike their first
// ones: every norm ends in the sum and the ReLU behind it, in f32 and 16 bits,
// and stays near the evaluator.
func TestInference(t *testing.T) {
	for _, c := range []struct {
		spec, policy string
		share        float64
	}{
		{"resnet8?batch=2&size=8&width=4", "f32", 1e-6},
		{"resnet50?batch=2&size=16&width=4&classes=4&blocks1=1&blocks2=1&blocks3=0&blocks4=0", "f32", 1e-6},
		{"resnet50?batch=2&size=16&width=4&classes=4&blocks1=1&blocks2=1&blocks3=0&blocks4=0", "mixed-f16", 2e-3},
	} {
		t.Run(c.spec+"/"+c.policy, func(t *testing.T) {
			z, err := models.Open(c.spec)
			if err != nil {
				t.Fatal(err)
			}
			z.Model.IR().Return(z.Output.IR())
			config := z.Steps[0].Config
			if config.Policy, err = ampc.PolicyNamed(c.policy); err != nil {
				t.Fatal(err)
			}
			g, p, err := z.Model.Source(config)
			if err != nil {
				t.Fatal(err)
			}
			p.Caps = sm.Must("sm_90").Caps()
			if err := passes.Run(g, p); err != nil {
				t.Fatal(err)
			}
			l := runtimetest.Load(t, openSim(t, "sm_90"), g, 3)
			defer l.Close(t)
			r := rand.New(rand.NewPCG(2, 5))
			vars := l.Variables(t)
			for _, x := range vars {
				if x.Type.Shape.Rank() == 1 && x.Type.DType == ir.F32 { // scales, biases, statistics
					for i := range x.F {
						x.F[i] = float64(float32(0.5 + r.Float64()))
					}
				}
			}
			l.Assume(t, vars)
			f := feed(g, r)
			t.Logf("off by %.1e, %.0e allowed", near(t, "inference", l.Step(t, f), l.Want(t, f), c.share), c.share)
		})
	}
}

package gpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/gpu"
	"ampc/runtime/runtimetest"
)

// ready takes a model of the zoo through the passes.
func ready(t *testing.T, spec, policy string) *ir.Graph {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := z.Steps[0].Config
	if c.Policy, err = passes.PolicyNamed(policy); err != nil {
		t.Fatal(err)
	}
	g := z.Model.Graph().Clone()
	if err := passes.Run(g, c.Passes(z.Steps[0].Losses...)); err != nil {
		t.Fatal(err)
	}
	return g
}

func openSim(t *testing.T, target lower.Target) *gpu.Backend {
	t.Helper()
	b, err := gpu.OpenSim(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// feed draws an input of every kind: floats around zero, ids below two.
func feed(g *ir.Graph, r *rand.Rand) map[string]*eval.Tensor {
	f := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		if role, _ := v.Attr.Get("role").(string); v.Kind != ir.Input || role == runtime.RoleMicro {
			continue
		}
		x := eval.New(v.Type)
		for i := range x.F {
			x.F[i] = float64(float32(r.NormFloat64()))
		}
		for i := range x.I {
			x.I[i] = r.Int64N(2)
		}
		f[v.Name] = x
	}
	return f
}

// trainedSteps is how long the simulated device and the CPU train side by side.
const trainedSteps = 20

// TestModelsTrainAsOnTheCPU trains models of the zoo from the lowered CUDA
// program and from the CPU's. Results of every step stay within share of the
// largest element: sums are taken in another order, and what low dtypes round
// differently travels through the steps.
func TestModelsTrainAsOnTheCPU(t *testing.T) {
	for _, c := range []struct {
		spec, policy string
		target       lower.Target
		steps        int
		share        float64
	}{
		{"mlp?batch=4&hidden=32", "f32", "sm_90", trainedSteps, 1e-4},
		{"mlp?batch=4&hidden=32", "mixed-f16", "sm_90", trainedSteps, 2e-2},
		{"mlp?batch=4&hidden=32", "mixed-bf16", "sm_80", trainedSteps, 5e-2},
		{"mlp?batch=4&hidden=32", "mixed-f16", "sm_70", 2, 2e-2},
		{"lenet?batch=1", "f32", "sm_90", 2, 1e-3},
		{"gpt?layers=1&batch=2&seq=8&dim=16&heads=2&dropout=0.1", "f32", "sm_90", 4, 1e-3},
		{"gpt?layers=1&batch=2&seq=8&dim=16&heads=2", "mixed-f16", "sm_90", 4, 5e-2},
		{"gpt?layers=1&batch=1&seq=128&dim=16&heads=2&tanh=1", "mixed-bf16", "sm_90", 2, 5e-2},
		{"gpt?layers=1&batch=1&seq=128&dim=16&heads=2&tanh=1", "mixed-bf16", "sm_90/nodnn/noaux", 2, 5e-2},
	} {
		t.Run(fmt.Sprintf("%s/%s/%s", c.spec, c.policy, c.target), func(t *testing.T) {
			g := ready(t, c.spec, c.policy)
			host, err := cpu.Open(1)
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			b := openSim(t, c.target)
			want, got := runtimetest.Load(t, host, g, 3), runtimetest.Load(t, b, g, 3)
			defer want.Close(t)
			defer got.Close(t)
			r := rand.New(rand.NewPCG(1, 9))
			for step := range c.steps {
				f := feed(g, r)
				near(t, fmt.Sprintf("step %d", step), got.Step(t, f), want.Step(t, f), c.share)
			}
			trained := want.Variables(t)
			if c.policy != "f32" {
				delete(trained, keyBias)
			}
			near(t, "trained", got.Variables(t), trained, c.share)
		})
	}
}

// keyBias holds biases of keys, which shift all scores of a query alike: their
// gradient is nothing but rounding, and AdamW steps by the sign of it.
const keyBias = "%h0.attn.qkv.b"

// near wants every element within share of its tensor's largest, ids and flags equal.
func near(t *testing.T, when string, got, want map[string]*eval.Tensor, share float64) {
	t.Helper()
	for name, w := range want {
		g, top := got[name], 0.0
		for _, v := range w.F {
			top = math.Max(top, math.Abs(v))
		}
		for i, v := range w.F {
			if d := math.Abs(g.F[i] - v); !(d <= share*top) {
				t.Fatalf("%s: %s[%d] is %g, the CPU has %g (largest %g)", when, name, i, g.F[i], v, top)
			}
		}
		for i, v := range w.I {
			if g.I[i] != v {
				t.Fatalf("%s: %s[%d] is %d, the CPU has %d", when, name, i, g.I[i], v)
			}
		}
	}
}

// float is the first f32 of a tensor's bytes.
func float(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

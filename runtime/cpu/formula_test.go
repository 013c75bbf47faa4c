package cpu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// formulas takes a model through passes with changes to its configuration, loads it and lists what its clusters compute.
func formulas(t *testing.T, b *cpu.Backend, spec, policy string, change func(*passes.Config)) []cpu.GroupFormula {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	step := z.Steps[0]
	if step.Config.Policy, err = ampc.PolicyNamed(policy); err != nil {
		t.Fatal(err)
	}
	g, c, err := z.Model.Source(step.Config, step.Losses...)
	if err != nil {
		t.Fatal(err)
	}
	change(&c)
	if err := passes.Run(g, c); err != nil {
		t.Fatal(err)
	}
	return cpu.Formulas(loaded(t, b, lowered(t, g)))
}

func vectorBackend(t *testing.T) *cpu.Backend {
	t.Helper()
	b, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	if ok, refused := b.ComposesKernels(); !ok {
		t.Skip("this process composes no kernels of formulas, on " + b.Name() + " " + refused)
	}
	return b
}

// TestUpdateFormulas holds that every optimizer's update of a weight is one kernel, 16-bit copy and skip included.
func TestUpdateFormulas(t *testing.T) {
	b := vectorBackend(t)
	optimizers := map[string]passes.Optimizer{
		"sgd": passes.SGD(0), "momentum": passes.SGD(0.9), "adam": passes.Adam(), "adamw": passes.AdamW(0.1),
		"nesterov": {Algorithm: passes.UseSGD, Momentum: 0.9, Nesterov: true},
		"decayed":  {Algorithm: passes.UseSGD, Momentum: 0.9, Decay: 1e-4},
	}
	for name, o := range optimizers {
		for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16"} {
			for _, weightCopies := range []bool{false, true} {
				list := formulas(t, b, "mlp?hidden=32", policy, func(c *passes.Config) {
					c.Groups[0].Optimizer, c.WeightCopies = o, weightCopies
				})
				updates := 0
				for _, f := range list {
					if f.Part == lower.Update && f.Elements > 1 {
						updates++
						if f.Runs != cpu.Composed {
							t.Errorf("%s under %s, copies %t: no kernel of\n%s", name, policy, weightCopies, f.Text)
						}
					}
				}
				if updates < 4 {
					t.Errorf("%s under %s: %d updates of parameters, want at least 4", name, policy, updates)
				}
			}
		}
	}
}

// TestModelFormulas holds that the large dense clusters of the zoo are one kernel each, except for those with more
// operands and results than a kernel has registers for their addresses.
func TestModelFormulas(t *testing.T) {
	b := vectorBackend(t)
	counts := map[cpu.Runs]int{}
	for _, spec := range []string{"gpt?layers=1&dim=64&heads=2&seq=32&batch=2", "resnet8?batch=2", "unet?batch=2", "mlp?batch=32", "lenet?batch=2", "vit?batch=2&layers=1", "gpt2?layers=1&dim=64&heads=2&seq=32&batch=2&vocab=64", "bert?layers=1", "gan", "unet3d?depth=8&size=8", "convlstm?seq=2&ahead=2&size=8"} {
		for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16"} {
			for _, f := range formulas(t, b, spec, policy, func(*passes.Config) {}) {
				if f.Elements >= 256 {
					counts[f.Runs]++
				}
				tensors := strings.Count(" "+f.Text, " l") + strings.Count(f.Text, " s")
				if f.Part == lower.Micro && f.Text != "" && f.Elements > 1024 && tensors <= 12 && f.Runs != cpu.Composed {
					t.Errorf("%s under %s: no kernel of %d elements of\n%s", spec, policy, f.Elements, f.Text)
				}
			}
		}
	}
	t.Log(counts)
	if ok, _ := b.ComposesKernels(); ok && counts[cpu.Passes] > counts[cpu.Composed]+counts[cpu.Partial] {
		t.Errorf("more clusters run in passes than in composed kernels: %v", counts)
	}
}

// TestStreamingStores computes results larger than the caches, which kernels write by streaming stores: whole blocks and a
// rest.
func TestStreamingStores(t *testing.T) {
	if testing.Short() {
		t.Skip("fills 150 MB")
	}
	const n = 9<<20 + 12345
	for _, c := range []struct {
		threads, composed int
		code              string
	}{
		{1, 1, "%y' = add %a, %b"},
		{3, 1, "%y' = add %a, %b"},
		{2, 2, "%m = neg %a\n  %y' = sub %a, %m"},
	} {
		b, err := cpu.Open(c.threads)
		if err != nil {
			t.Fatal(err)
		}
		g, err := ir.Parse("t.ir", fmt.Appendf(nil, `graph @big {
  input %%a : f32[%d]
  input %%b : f32[%[1]d]
  state %%y : f32[%[1]d]
update:
  %s
}
`, n, c.code))
		if err != nil {
			t.Fatal(err)
		}
		p := lowered(t, g)
		s, err := b.NewStore(p.Vars)
		if err != nil {
			t.Fatal(err)
		}
		e, err := b.Load(p, s)
		if err != nil {
			t.Fatal(err)
		}
		if ok, _ := b.ComposesKernels(); ok && cpu.ComposedKernels(e) != c.composed {
			t.Errorf("%q has %d composed kernels, want %d", c.code, cpu.ComposedKernels(e), c.composed)
		}
		for _, f := range cpu.Formulas(e) {
			if ok, _ := b.ComposesKernels(); ok && (f.Runs != cpu.Composed || !f.Streams) {
				t.Errorf("%q runs %s, streaming stores %t; want %s and streaming stores", c.code, f.Runs, f.Streams, cpu.Composed)
			}
		}
		x, y := make([]byte, 4*n), make([]byte, 4*n)
		for i := range n {
			binary.NativeEndian.PutUint32(x[4*i:], math.Float32bits(float32(i%1000)))
		}
		in := runtime.Tensor{Type: p.Vars[0].Type, Data: x}
		if _, err := e.Step(context.Background(), []runtime.Feed{{"a": in, "b": in}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Read("y", y); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if got := math.Float32frombits(binary.NativeEndian.Uint32(y[4*i:])); got != float32(2*(i%1000)) {
				t.Fatalf("%q on %d threads: element %d is %g, want %d", c.code, c.threads, i, got, 2*(i%1000))
			}
		}
		b.Close()
	}
}

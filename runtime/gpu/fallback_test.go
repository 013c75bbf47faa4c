package gpu_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ampc/cuda/sim"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/runtimetest"
)

// classLoss is a loss of classes of logits in dtype d, and its gradient.
func classLoss(d, attrs, returned string) string {
	logits := "affine %h {scale=1.5}"
	if d != "f32" {
		logits = "cast %h {to=" + d + "}"
	}
	return fmt.Sprintf(`graph @loss {
  input %%x : f32[9,33]
  input %%y : i32[9]
  const %%one : f32[] = 1
forward:
  %%h = affine %%x {scale=2} : f32[9,33]
  %%logits = %s : %s[9,33]
  %%sum, %%count = cross_entropy %%logits, %%y {%s} : f32[], f32[]
backward:
  %%d = cross_entropy_grad %%logits, %%y, %%one {out=%s %s} : %s[9,33]
  return %%sum, %%count, %%d%s
}
`, logits, d, attrs, d, attrs, d, returned)
}

// TestLossInPlace: the second pass of a loss of classes leaves the gradient where
// the logits were, unless something reads these later; values are the evaluator's.
func TestLossInPlace(t *testing.T) {
	shares := map[string]float64{"f32": 0x1p-21, "f16": 0x1p-10, "bf16": 0x1p-7}
	for d, share := range shares {
		for _, attrs := range []string{"", "ignore=1", "smoothing=0.1", "ignore=1 smoothing=0.1"} {
			for _, returned := range []string{"", ", %logits"} {
				name := strings.TrimSpace(d + " " + attrs + returned)
				_, b := device(t, sim.Options{})
				g, err := ir.Parse("loss.ir", []byte(classLoss(d, attrs, returned)))
				if err != nil {
					t.Fatal(err)
				}
				l := runtimetest.Load(t, b, g, 1)
				logits, grad := named(t, l.Program, "logits"), named(t, l.Program, "d")
				if same := logits.Offset == grad.Offset && logits.Size == grad.Size; same != (returned == "") {
					t.Errorf("%s: logits at %d, live %v, their gradient at %d, live %v\n%s", name, logits.Offset, logits.Live, grad.Offset, grad.Live, l.Program)
				}
				f := feed(g, rand.New(rand.NewPCG(2, 3)))
				near(t, name, l.Step(t, f), l.Want(t, f), share)
				l.Close(t)
			}
		}
	}
}

// named is the work buffer of this name.
func named(t *testing.T, p *lower.Program, name string) *lower.Buffer {
	t.Helper()
	i := slices.IndexFunc(p.Buffers, func(b lower.Buffer) bool { return b.Name == name && b.Arena == lower.WorkArena })
	if i < 0 {
		t.Fatalf("no work buffer %%%s in\n%s", name, p)
	}
	return &p.Buffers[i]
}

// TestFallback trains convolutions and attention where cuDNN is missing: the
// device's name says so, no step calls it, and what is trained stays near the
// CPU's and the evaluator's.
func TestFallback(t *testing.T) {
	for i, c := range []struct {
		spec, policy string
		share        float64
		together     bool
	}{
		{"vit?batch=1&size=8&layers=1&heads=2&dim=8&classes=4", "mixed-f16", 1e-4, false},
		{"gpt?layers=1&batch=1&seq=6&dim=8&heads=2&vocab=12&dropout=0.1", "mixed-bf16", 3e-2, false},
		{"bert?batch=1&seq=6&vocab=12&layers=1&heads=2&dim=8", "f32", 1e-6, false},
		{"unet?batch=1&size=8&width=8&levels=1", "mixed-bf16", 2e-2, false},
		{"resnet8?batch=2&size=8&width=4", "mixed-f16", 5e-3, true},
	} {
		if testing.Short() && i > 0 {
			continue
		}
		t.Run(c.spec+"/"+c.policy, func(t *testing.T) {
			_, b := device(t, sim.Options{NoDnn: true})
			if b.Target().String() != "sm_90/nodnn" || !strings.HasSuffix(b.Name(), "/nodnn") {
				t.Errorf("a device without cuDNN is %s, of target %s", b.Name(), b.Target())
			}
			for _, g := range ready(t, c.spec, c.policy, b.Target().String()) {
				p, err := lower.Lower(g, b.Target())
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range slices.Concat(p.Parts[:]...) {
					if s.Kind == lower.KindConv || s.Kind == lower.KindAttention {
						t.Errorf("%s %s is left to cuDNN", s.Kind, s.Node.Name)
					}
				}
				trainBeside(t, g, openSim(t, b.Target().String()), 3, c.share, c.together)
			}
		})
	}
}

package gpu_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/cuda/sim"
	"ampc/internal/trial"
	"ampc/lower"
	"ampc/models"
	"ampc/runtime/gpu"
)

// firstLosses trains a zoo model on a device and gives its losses and notes.
func firstLosses(t *testing.T, spec string, b *gpu.Backend) (losses []float64, notes string) {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	if c.Policy, err = ampc.PolicyNamed("mixed-f16"); err != nil {
		t.Fatal(err)
	}
	if err := z.Model.Set(ampc.On(b)); err != nil {
		t.Fatal(err)
	}
	step, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		got, err := step.Run(context.Background(), z.Batch(int64(i)))
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, trial.Metrics(t, got).Loss)
	}
	return losses, strings.Join(step.Notes(), "\n")
}

// TestRefusalsAreGoneAround trains on devices whose libraries refuse what the target promises: each refused
// problem is noted once, in the library's words, the device keeps its name, and the losses are those of
// the device that lacks nothing.
func TestRefusalsAreGoneAround(t *testing.T) {
	const resnet = "resnet8?batch=2&size=8&width=8&classes=4&blocks2=1&blocks3=0"
	const gpt = "gpt2?layers=1&batch=1&seq=128&dim=16&heads=2&vocab=32"
	const unet = "unet?batch=1&size=8&width=8&levels=1"
	for _, c := range []struct {
		name, spec string
		faults     sim.Options
		words      []string
	}{
		{"nothing compiled", unet, sim.Options{NoFusion: true}, []string{"NOT_SUPPORTED_GRAPH_PATTERN", "NOT_SUPPORTED_DATA_TYPE"}},
		{"no convolutions", resnet, sim.Options{NoConv: true}, []string{"no convolutions"}},
		{"no attention, plain products", gpt, sim.Options{NoAttention: true, NoAux: true}, []string{"no attention", "CUBLAS_STATUS_NOT_SUPPORTED", "epilogue 256"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.faults.Major = 9
			b, err := gpu.OpenSimulator(c.faults)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			want, quiet := firstLosses(t, c.spec, openSim(t, "sm_90"))
			got, notes := firstLosses(t, c.spec, b)
			if strings.Contains(quiet, "refused") || !strings.Contains(notes, "refused, step ") || b.Name() != "sim:sm_90" {
				t.Errorf("%s, notes:\n%s\nwithout faults:\n%s", b.Name(), notes, quiet)
			}
			for _, w := range c.words {
				if !strings.Contains(notes, w) {
					t.Errorf("the notes do not have %q:\n%s", w, notes)
				}
			}
			for i := range want {
				if d := math.Abs(got[i] - want[i]); !(d <= 2e-3*math.Abs(want[i])) {
					t.Errorf("loss %d is %g, %g where nothing is refused", i, got[i], want[i])
				}
			}
			// What was refused once is not asked for again.
			if again, notes := firstLosses(t, c.spec, b); strings.Contains(notes, "refused") || again[0] != got[0] {
				t.Errorf("the next model: loss %g after %g, notes:\n%s", again[0], got[0], notes)
			}
		})
	}
}

// TestRefusalOfOneStep: one convolution is refused, and the others stay with cuDNN.
func TestRefusalOfOneStep(t *testing.T) {
	convs := func(opt sim.Options) (count int, notes []string) {
		opt.Major, opt.Engines = 9, []sim.Engine{{Index: 1, Times: 1, Workspace: 1 << 10, Parts: 1}}
		b, err := gpu.OpenSimulator(opt)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		z, err := models.Open("resnet8?batch=2&size=8&width=8&classes=4&blocks2=1&blocks3=0")
		if err != nil {
			t.Fatal(err)
		}
		defer z.Model.Close()
		if err := z.Model.Set(ampc.On(b)); err != nil {
			t.Fatal(err)
		}
		step, err := z.Model.Train(z.Steps[0].Config, z.Steps[0].Losses...)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range slices.Concat(step.Program().Parts[:]...) {
			if s.Kind == lower.KindConv {
				count++
			}
		}
		return count, step.Notes()
	}
	all, _ := convs(sim.Options{})
	rest, notes := convs(sim.Options{Faults: []sim.Fault{{Call: "cudnnBackendFinalize", At: 2, Code: 3002}, {Call: "cudnnBackendFinalize", At: 3, Code: 3002}}})
	text := strings.Join(notes, "\n")
	if rest >= all || rest < all/2 || strings.Count(text, "refused, step ") != 1 || !strings.Contains(text, "NOT_SUPPORTED_SHAPE (3002)") || !strings.Contains(text, "; there") {
		t.Errorf("%d of %d convolutions are cuDNN's, notes:\n%s", rest, all, text)
	}
}

package doctor_test

import (
	"testing"

	"ampc"
	"ampc/lower"
	"ampc/runtime/cpu"
	"ampc/runtime/doctor"
)

// A step whose loss was not finite is diagnosed from its forward pass alone as from the whole step.
func TestForwardAlone(t *testing.T) {
	for _, spec := range []string{"mlp", "lenet?batch=8", "gpt?layers=1&dim=32&heads=2&seq=16&batch=2&vocab=32"} {
		for _, weight := range []string{".w", "head.w", "fc2.w", "qkv.w"} {
			c := caseOf(t, spec, 1)
			scaleBy(c, weight, 1<<24)
			if d := diagnosed(t, c); d.Cause == doctor.None {
				continue
			}
			whole := said(t, c)
			alone := *c
			alone.NotFinite = true
			if got := said(t, &alone); got != whole {
				t.Errorf("%s, %s: from the forward pass\n%s\nfrom the step\n%s", spec, weight, got, whole)
			}
		}
	}
}

func diagnosed(t *testing.T, c *doctor.Case) *doctor.Diagnosis {
	t.Helper()
	d, err := doctor.Diagnose(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A scaled gradient of -Inf alone, which is no mask, ends the search.
func TestSearchEndsAtGradients(t *testing.T) {
	b, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m := ampc.New("falling", ampc.Seed(1))
	defer m.Close()
	x := m.Input("x", ampc.F32, 8, 16)
	h := m.Linear("fc2", m.Tanh(m.Linear("fc1", x, 16)), 4)
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0), Policy: ampc.MixedF16(), Scaler: ampc.Static(1 << 24)}
	step, err := m.Train(c, ampc.Loss{Value: m.ReduceSum(m.Affine(h, -1, 0))})
	if err != nil {
		t.Fatal(err)
	}
	k := caseAfter(t, step, ampc.Feed{"x": make([]float32, 8*16)})
	part, at, of, err := doctor.SearchedTo(b, k)
	if err != nil {
		t.Fatal(err)
	}
	if part != lower.Micro || at >= of-1 {
		t.Errorf("the search ends in part %s at step %d of %d", part, at, of)
	}
}

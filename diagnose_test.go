package ampc_test

import (
	"context"
	"math"
	"testing"

	"ampc"
)

// deep is three equal layers; edit makes one of them go wrong.
func deep(t *testing.T, c ampc.Config, edit func(b *ampc.Model, layer int, x ampc.Tensor) ampc.Tensor) (*ampc.Model, *ampc.Step) {
	t.Helper()
	m := ampc.New("deep")
	x := m.Input("x", ampc.F32, 4, 8)
	for i := range 3 {
		b := m.Scope([]string{"l0", "l1", "l2"}[i])
		x = edit(b, i, b.Relu(b.Linear("fc", x, 8)))
	}
	loss := m.Named("loss").ReduceMean(m.Square(x), false)
	c.Optimizer, c.LR = ampc.SGD(0), ampc.Constant(0.01)
	step, err := ampc.Train(m, loss, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, step
}

func ones(n int, x float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = x
	}
	return v
}

func diagnose(t *testing.T, step *ampc.Step, f ampc.Feed) *ampc.Diagnosis {
	t.Helper()
	if _, err := step.Run(context.Background(), f); err != nil {
		t.Fatal(err)
	}
	d, err := step.Diagnose(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", d)
	return d
}

func TestDiagnose(t *testing.T) {
	keep := func(b *ampc.Model, _ int, x ampc.Tensor) ampc.Tensor { return x }
	t.Run("clean", func(t *testing.T) {
		_, step := deep(t, ampc.Config{Policy: ampc.MixedF16()}, keep)
		if d := diagnose(t, step, ampc.Feed{"x": ones(32, 1)}); d.Cause != ampc.NoFault {
			t.Error(d.Cause)
		}
	})
	t.Run("input", func(t *testing.T) {
		_, step := deep(t, ampc.Config{Policy: ampc.MixedF16()}, keep)
		x := ones(32, 1)
		x[7] = float32(math.NaN())
		if d := diagnose(t, step, ampc.Feed{"x": x}); d.Cause != ampc.BadInput || d.Node != "x" {
			t.Error(d.Cause, d.Node)
		}
	})
	t.Run("state", func(t *testing.T) {
		m, step := deep(t, ampc.Config{Policy: ampc.MixedF16()}, keep)
		w := ones(64, 1)
		w[3] = float32(math.NaN())
		if err := m.SetVariable("l1.fc.w", w); err != nil {
			t.Fatal(err)
		}
		if d := diagnose(t, step, ampc.Feed{"x": ones(32, 1)}); d.Cause != ampc.BadState || d.Node != "l1.fc.w" {
			t.Error(d.Cause, d.Node)
		}
	})
	t.Run("overflow", func(t *testing.T) {
		m, step := deep(t, ampc.Config{Policy: ampc.MixedF16()}, keep)
		if err := m.SetVariable("l1.fc.w", ones(64, 66246)); err != nil {
			t.Fatal(err)
		}
		diagnose(t, step, ampc.Feed{"x": ones(32, 1)})
	})
}

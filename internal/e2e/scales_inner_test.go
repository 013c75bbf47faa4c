package e2e_test

import (
	"context"
	"math"
	"testing"

	"ampc"
	"ampc/ir"
)

// sloped is a perceptron with a penalty on the slope of its fit by the input, the
// slope computed at a scale.
func sloped(t *testing.T, scale float64, c ampc.TrainConfig) (*ampc.Model, *ampc.Step) {
	t.Helper()
	m := ampc.New("sloped")
	t.Cleanup(func() { m.Close() })
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.F32, 8, 1)
	h := m.Tanh(m.Linear("fc1", x, 16))
	fit := m.Named("fit").MSE(m.Linear("fc2", h, 1), y)
	slope := m.ScaledGrad(scale, fit, x)[0]
	loss := m.Named("loss").Add(fit, m.ReduceSum(m.Square(slope)))
	c.Optimizer, c.LR = ampc.SGD(0), ampc.Constant(0.01)
	step, err := m.Train(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	return m, step
}

func slopedFeed(seed int) ampc.Feed {
	x, y := make([]float32, 32), make([]float32, 8)
	for i := range x {
		x[i] = float32(math.Sin(float64(7*i + seed)))
	}
	for i := range y {
		y[i] = float32(math.Cos(float64(3*i + seed)))
	}
	return ampc.Feed{"x": x, "y": y}
}

// An inner gradient that overflows at its initial scale lowers that scale and no
// other, and training continues as it does in f32.
func TestInnerScaleBacksOff(t *testing.T) {
	for _, micro := range []int{1, 2} {
		low, step := sloped(t, 1<<24, ampc.TrainConfig{Policy: ampc.MixedF16(), Micro: micro})
		wide, plain := sloped(t, 1, ampc.TrainConfig{Policy: ampc.F32Only(), Micro: micro})
		skipped, taken := 0, 0
		for taken < 5 {
			feeds := []ampc.Feed{slopedFeed(taken), slopedFeed(taken + 100)}[:micro]
			r, err := step.Run(context.Background(), feeds...)
			if err != nil {
				t.Fatal(err)
			}
			if metrics(t, r).Skipped {
				if skipped++; skipped > 24 {
					t.Fatalf("%d micro-batches: the step is skipped for good", micro)
				}
				continue
			}
			if metrics(t, r).Scale != 65536 {
				t.Errorf("%d micro-batches: the loss scale went to %g for the inner gradient", micro, metrics(t, r).Scale)
			}
			if err := step.Stuck(); err != nil {
				t.Error(err)
			}
			taken++
			if _, err := plain.Run(context.Background(), feeds...); err != nil {
				t.Fatal(err)
			}
		}
		inner, err := low.Variable("amp.grad.scale")
		if err != nil {
			t.Fatal(err)
		}
		if want := math.Ldexp(1<<24, -skipped); skipped < 3 || inner.At(0) != want {
			t.Errorf("%d micro-batches: %d skipped steps left the inner scale at %g", micro, skipped, inner.At(0))
		}
		followsF32(t, low, wide, 5, "fc1.w", "fc2.w")
		fit := low.Lookup("loss")
		eval, err := step.Eval(fit)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := eval.Run(context.Background(), slopedFeed(1)); err != nil {
			t.Fatal(err)
		} else if x, err := r.Value(fit); err != nil || math.IsNaN(x.At(0)) || math.IsInf(x.At(0), 0) {
			t.Errorf("the evaluation at the scale that fits: %v, %v", x, err)
		}
	}
}

// What the data make NaN lowers no scale, inside the forward pass or outside.
func TestDataLowerNoScale(t *testing.T) {
	for _, bad := range []ampc.BadMicro{ampc.SkipStep, ampc.DropMicro} {
		m, step := sloped(t, 64, ampc.TrainConfig{Policy: ampc.MixedF16(), Micro: 2, BadMicro: bad})
		spoiled := slopedFeed(3)
		spoiled["x"].([]float32)[5] = nan
		for range 5 {
			if _, err := step.Run(context.Background(), slopedFeed(2), spoiled); err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range map[string]float64{"amp.scale": 65536, "amp.grad.scale": 64} {
			if v, err := m.Variable(name); err != nil || v.At(0) != want {
				t.Errorf("%v: %s is %g, want %g (%v)", bad, name, v.At(0), want, err)
			}
		}
	}
}

// What the compiler makes for an inner gradient has the line of the call.
func TestInnerGradientPositions(t *testing.T) {
	_, step := sloped(t, 64, ampc.TrainConfig{Policy: ampc.MixedF16()})
	for _, n := range step.Graph().Body[ir.Forward] {
		if n.Pos.File != "" && n.Pos.File != "scales_inner_test.go" {
			t.Errorf("%s is said to be at %s", n.Out[0], n.Pos)
		}
	}
}

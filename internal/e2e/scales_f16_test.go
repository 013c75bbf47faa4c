package e2e_test

import (
	"math"
	"testing"

	"ampc"
)

// forked has a shared layer and two heads, each with a loss: a and b.
func forked() (m *ampc.Model, a, b ampc.Tensor) {
	m = ampc.New("forked")
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.I32, 8)
	h := m.Gelu(m.Linear("both", x, 16))
	a = m.Named("a").CrossEntropy(m.Linear("first", h, 3), y)
	return m, a, m.Named("b").ReduceMean(m.Square(m.Linear("second", h, 2)))
}

// 2a+3b and 3a-5b over a shared layer, with one scaler and with two.
func TestCombinedLossesInF16(t *testing.T) {
	start := ampc.Dynamic()
	start.Init = 1024 // at 65536 the sum of both gradients passes f16 in a few steps
	for _, w := range [][2]float64{{2, 3}, {3, -5}} {
		for _, second := range []*ampc.Scaler{nil, new(ampc.Scaler)} {
			if second != nil {
				*second = ampc.Dynamic()
				second.Init = 64
			}
			steps := func(p ampc.Policy, first ampc.Scaler, scaler *ampc.Scaler) *ampc.Model {
				m, a, b := forked()
				t.Cleanup(func() { m.Close() })
				s, err := m.Train(ampc.TrainConfig{Policy: p, Scaler: first, Optimizer: ampc.SGD(0), LR: ampc.Constant(0.02)}, ampc.Loss{Value: a, Weight: w[0]}, ampc.Loss{Value: b, Weight: w[1], Scaler: scaler})
				if err != nil {
					t.Fatal(err)
				}
				for i := range 5 {
					if r := run(t, s, points(uint64(i), 8)); metrics(t, r).Skipped {
						t.Fatalf("%v: step %d is skipped at scale %g", w, i, metrics(t, r).Scale)
					}
				}
				return m
			}
			followsF32(t, steps(ampc.MixedF16(), start, second), steps(ampc.F32Only(), ampc.Scaler{}, nil), 5, "both.w", "first.w", "second.w", "both.b")
		}
	}
}

// Of two optimizers with a scaler each, one overflows: it skips and its scale
// falls, the other continues as plain steps do, and both end where those end.
func TestTwoOptimizersInF16(t *testing.T) {
	build := func(p ampc.Policy, scaler *ampc.Scaler) (*ampc.Model, *ampc.Step) {
		m := ampc.New("apart")
		t.Cleanup(func() { m.Close() })
		x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.I32, 8)
		a := m.Named("a").CrossEntropy(m.Linear("first", m.Gelu(m.Linear("in1", x, 16)), 3), y)
		b := m.Named("b").ReduceMean(m.Square(m.Linear("second", m.Gelu(m.Linear("in2", x, 16)), 2)))
		s, err := m.Train(ampc.TrainConfig{Policy: p, Groups: []ampc.Group{
			{Pattern: "in1", Optimizer: ampc.SGD(0.9), LR: ampc.Constant(0.02)}, {Pattern: "first", Optimizer: ampc.SGD(0.9), LR: ampc.Constant(0.02)},
			{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.02)},
		}}, ampc.Loss{Value: a}, ampc.Loss{Value: b, Scaler: scaler})
		if err != nil {
			t.Fatal(err)
		}
		return m, s
	}
	high := ampc.Dynamic()
	high.Init, high.Cap = 1<<24, 1<<24
	low, s := build(ampc.MixedF16(), &high)
	wide, plain := build(ampc.F32Only(), nil)
	start, _ := low.Variable("second.w")
	skips := 0
	for moved := false; !moved; {
		run(t, s, points(1, 8))
		run(t, plain, points(1, 8))
		now, _ := low.Variable("second.w")
		for i := range now.Len() {
			moved = moved || now.At(i) != start.At(i)
		}
		if !moved {
			if skips++; skips > 24 {
				t.Fatal("the second optimizer never steps")
			}
		}
	}
	if skips == 0 {
		t.Fatal("nothing overflows at a scale of 2^24: the test says nothing")
	}
	followsF32(t, low, wide, skips+1, "first.w", "in1.w") // whatever the other does
	for range skips {
		run(t, s, points(1, 8))
	}
	followsF32(t, low, wide, 2*skips+1, "second.w", "in2.w")
}

// An inner gradient that overflows f16 makes its own scale fall and never freezes the
// step: with calm data it is taken, as in f32.
func TestGradientPenaltyInF16(t *testing.T) {
	build := func(p ampc.Policy, scale float64) (*ampc.Model, *ampc.Step) {
		m := ampc.New("penalty")
		x, y := m.Input("x", ampc.F32, 8, 4), m.Input("target", ampc.F32, 8, 2)
		fit := m.Named("fit").MSE(m.Linear("out", m.Tanh(m.Linear("in", x, 16)), 2), y)
		slope := m.ScaledGrad(scale, fit, x)[0]
		loss := m.Named("loss").Add(fit, m.ReduceSum(m.Square(slope)))
		return m, train(t, m, loss, ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(0.05)})
	}
	feed := func(target float32) ampc.Feed {
		f := ampc.Feed{"x": points(3, 8)["x"], "target": make([]float32, 16)}
		for i := range 16 {
			f["target"].([]float32)[i] = target * float32(i%3-1)
		}
		return f
	}
	low, s := build(ampc.MixedF16(), 1<<14)
	wide, plain := build(ampc.F32Only(), 1)
	last := math.Inf(1)
	for range 3 {
		r := run(t, s, feed(500))
		inner, err := low.Variable("amp.grad.scale")
		if err != nil || !metrics(t, r).Skipped || !(inner.At(0) < last) {
			t.Fatalf("a wild step: skipped %t, the inner scale at %g, %g before (%v)", metrics(t, r).Skipped, inner.At(0), last, err)
		}
		last = inner.At(0)
	}
	for range 3 {
		if r := run(t, s, feed(0.5)); metrics(t, r).Skipped {
			t.Fatalf("a calm step is skipped at scale %g", metrics(t, r).Scale)
		}
		run(t, plain, feed(0.5))
	}
	followsF32(t, low, wide, 3, "in.w", "out.w")
}

// Accumulation with a bad micro-batch: dropped, it leaves what plain f32 steps
// over the others do; skipped, the step leaves all as it was and the next is taken.
func TestBadMicroBatchInF16(t *testing.T) {
	for _, mode := range []ampc.BadMicro{ampc.SkipStep, ampc.DropMicro} {
		build := func(p ampc.Policy) (*ampc.Model, *ampc.Step) {
			m, loss := small(8)
			return m, train(t, m, loss, ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Micro: 3, BadMicro: mode})
		}
		low, s := build(ampc.MixedF16())
		wide, plain := build(ampc.F32Only())
		bad := points(9, 8)
		bad["x"].([]float32)[5] = float32(math.Inf(1))
		if r := run(t, s, points(1, 8), bad, points(2, 8)); metrics(t, r).Skipped != (mode == ampc.SkipStep) {
			t.Errorf("mode %d: skipped %t", mode, metrics(t, r).Skipped)
		}
		if mode == ampc.DropMicro {
			run(t, plain, points(1, 8), points(2, 8))
		}
		followsF32(t, low, wide, 1, "fc1.w", "fc2.w")
		run(t, s, points(4, 8), points(5, 8))
		run(t, plain, points(4, 8), points(5, 8))
		followsF32(t, low, wide, 2, "fc1.w", "fc2.w")
	}
}

// The norm that clips is that of unscaled gradients, folded into the multiplier:
// clipped steps in f16 are those of f32, and far from unclipped ones.
func TestClippingInF16(t *testing.T) {
	build := func(p ampc.Policy, norm float64) *ampc.Model {
		m, loss := small(8)
		s := train(t, m, loss, ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(0.5), Clip: ampc.Clip{Norm: norm}})
		for i := range 3 {
			r := run(t, s, points(uint64(i), 8))
			if metrics(t, r).Skipped {
				t.Fatalf("step %d is skipped", i)
			}
			if all, err := metrics(t, r).GradNorm(); (err == nil) != (norm > 0) || norm > 0 && !(all > norm && all < 100) {
				t.Errorf("the norm is %g (%v): unscaled it is a few units, and more than %g", all, err, norm)
			}
		}
		return m
	}
	low, wide, free := build(ampc.MixedF16(), 0.05), build(ampc.F32Only(), 0.05), build(ampc.F32Only(), 0)
	followsF32(t, low, wide, 3, "fc1.w", "fc2.w", "fc2.b")
	a, _ := wide.Variable("fc2.w")
	b, _ := free.Variable("fc2.w")
	far := 0.0
	for i := range a.Len() {
		far = max(far, math.Abs(a.At(i)-b.At(i)))
	}
	if far < 0.01 {
		t.Errorf("clipped and unclipped weights differ by %g: the test says nothing", far)
	}
}

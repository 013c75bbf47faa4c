package e2e_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/golden"
)

// Training that diverges in f32 as well is said to diverge, whatever overflows
// first in f16; the same overflow in training that does not is not.
func TestDiagnoseDivergence(t *testing.T) {
	build := func(p ampc.Policy, rate float64) (*ampc.Model, *ampc.Step) {
		m := ampc.New("diverging")
		t.Cleanup(func() { m.Close() })
		x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.F32, 8, 1)
		loss := m.MSE(m.Linear("fc2", m.Relu(m.Linear("fc1", x, 16)), 1), y)
		return m, train(t, m, loss, ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(rate), Scaler: ampc.Static(1)})
	}
	_, wide := build(ampc.F32Only(), 0.9)
	last := 0.0
	for range 40 {
		last = metrics(t, run(t, wide, slopedFeed(1))).Loss
	}
	if last < 1e6 && !math.IsNaN(last) {
		t.Fatalf("f32 does not diverge: loss %g", last)
	}
	_, low := build(ampc.MixedF16(), 0.9)
	for range 60 {
		if metrics(t, run(t, low, slopedFeed(1))).Skipped {
			break
		}
	}
	var d *ampc.Diagnosis
	for range 6 { // the record outlasts the results that are kept
		run(t, low, slopedFeed(1))
		d = ask(t, low)
		if d.Cause != ampc.Diverged || len(d.Remedies) > 0 || !strings.Contains(d.Why, "in f32 as well") || !strings.Contains(d.Advice, "learning rate") {
			t.Fatalf("%s", d)
		}
	}
	said := sayings{"diverging": d}
	m, calm := build(ampc.MixedF16(), 0.01)
	for range 5 {
		run(t, calm, slopedFeed(1))
	}
	set(t, m, "fc1.b", all(16, 1e5))
	if said["calm"] = diagnose(t, calm, slopedFeed(1)); said["calm"].Cause != ampc.ForwardOverflow {
		t.Errorf("%s", said["calm"])
	}
	m, fresh := build(ampc.MixedF16(), 0.01)
	set(t, m, "fc1.b", all(16, 1e5))
	if d := diagnose(t, fresh, slopedFeed(1)); d.Cause != ampc.ForwardOverflow || !strings.Contains(d.String(), "one step cannot tell") {
		t.Errorf("%s", d)
	} else {
		said["fresh"] = d
	}
	said.golden(t, "training-that-diverges")
}

// sayings are diagnoses of a scenario, by name.
type sayings map[string]*ampc.Diagnosis

// golden compares the reports with a file.
func (s sayings) golden(t *testing.T, name string) {
	t.Helper()
	var reports strings.Builder
	for _, which := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&reports, "-- %s --\n%s\n", which, steady(s[which].String()))
	}
	golden.File(t, "../../testdata/doctor/"+name+".txtar", reports.String())
}

// A mean over labels that are all ignored is called that, with one micro-batch
// and with several.
func TestDiagnoseNoTarget(t *testing.T) {
	said := sayings{}
	for _, micro := range []int{1, 2} {
		m, loss := small(8)
		s := train(t, m, loss, ampc.TrainConfig{Policy: ampc.MixedF16(), Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Micro: micro})
		feed := points(1, 8)
		for i := range feed["y"].([]int32) {
			feed["y"].([]int32)[i] = -100
		}
		feeds := []ampc.Feed{feed, feed}[:micro]
		d := diagnose(t, s, feeds...)
		if d.Cause != ampc.NotPrecision || !strings.Contains(d.Why, "the mean over no valid target: every label of y is ignored") {
			t.Errorf("%d micro-batches: %s", micro, d)
		}
		said[fmt.Sprintf("%d micro-batches", micro)] = d
		if v, err := m.Variable("amp.scale"); err != nil || v.At(0) != 65536 {
			t.Errorf("%d micro-batches: the scale went to %g (%v)", micro, v.At(0), err)
		}
	}
	said.golden(t, "labels-that-are-all-ignored")
}

// A mean over a mask that hides everything is called that; another divisor of 0 is named with what it
// is reduced from.
func TestDiagnoseZeroDivisor(t *testing.T) {
	build := map[string]func(m *ampc.Model, x, mask ampc.Tensor) ampc.Tensor{
		"a mean": func(m *ampc.Model, x, mask ampc.Tensor) ampc.Tensor {
			return m.Div(m.ReduceSum(m.Mul(m.Square(m.Linear("fc", x, 1)), mask)), m.Named("count").ReduceSum(mask))
		},
		"means of rows": func(m *ampc.Model, x, mask ampc.Tensor) ampc.Tensor {
			rows := ampc.ReduceOptions{Axes: []int{1}, Keep: true}
			sum := m.ReduceSum(m.Mul(m.Linear("fc", x, 1), mask), rows)
			return m.ReduceMean(m.Div(sum, m.Named("count").ReduceSum(mask, rows)))
		},
		"a length": func(m *ampc.Model, x, mask ampc.Tensor) ampc.Tensor {
			return m.ReduceMean(m.Div(m.Linear("fc", x, 1), m.Named("length").ReduceL2(mask)))
		},
	}
	said := sayings{}
	for what, of := range build {
		for _, p := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16()} {
			m := ampc.New("masked")
			x, mask := m.Input("x", ampc.F32, 4, 8), m.Input("mask", ampc.F32, 4, 1)
			s := train(t, m, of(m, x, mask), ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1)})
			ones := make([]float32, 32)
			for i := range ones {
				ones[i] = 1
			}
			hidden := make([]float32, 4)
			if what == "means of rows" {
				hidden[1] = 1
			}
			said[what+", "+p.Name] = diagnose(t, s, ampc.Feed{"x": ones, "mask": hidden})
		}
	}
	said.golden(t, "divisors-of-zero")
}

// The root of a difference that f32 does not resolve either is traced to that.
func TestDiagnoseCancellation(t *testing.T) {
	said := sayings{}
	for _, p := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16()} {
		m := ampc.New("variance")
		x := m.Input("x", ampc.F32, 64, 8)
		second, first := m.ReduceMean(m.Square(x), ampc.ReduceOptions{Axes: []int{-1}, Keep: true}), m.ReduceMean(x, ampc.ReduceOptions{Axes: []int{-1}, Keep: true})
		variance := m.Named("variance").Sub(second, m.Square(first))
		dev := m.Named("dev").Sqrt(m.Affine(variance, 1, 1e-6))
		loss := m.ReduceSum(m.Square(m.Linear("fc", m.Div(m.Sub(x, first), dev), 2)))
		s := train(t, m, loss, ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Compile: ampc.CompileOptions{Disable: []string{"recognize"}}})
		v := make([]float32, 64*8)
		for i := range v {
			v[i] = 3000.1 + 7.3*float32(i/8) + float32(i%8)*1e-3
		}
		d := diagnose(t, s, ampc.Feed{"x": v})
		if d.Cause != ampc.NotPrecision || d.Node != "dev" || d.From != "variance" || !strings.Contains(d.Why, "the rounding before it is larger") {
			t.Errorf("%s: %s", p.Name, d)
		}
		said[p.Name] = d
		m.Close()
	}
	said.golden(t, "variance-that-f32-does-not-resolve")
}

// A scaler that has halvings to go is never blamed for them, and says how many.
func TestLongScaleSearch(t *testing.T) {
	s := ampc.Dynamic()
	s.Init = 1 << 24
	_, step := deep(t, ampc.TrainConfig{Policy: ampc.MixedF16(), Scaler: s}, func(b *ampc.Model, i int, x ampc.Tensor) ampc.Tensor {
		if i == 2 {
			x = b.Affine(x, 64, 0)
		}
		return x
	})
	left, said := -1, sayings{}
	for i := range 24 {
		if !metrics(t, run(t, step, ampc.Feed{"x": all(32, 2)})).Skipped {
			said.golden(t, "a-long-search-for-the-scale")
			if left != 0 {
				t.Errorf("the step is taken with %d more to be skipped", left)
			}
			return
		}
		d := ask(t, step)
		wait := 0
		if len(d.Remedies) > 0 {
			wait = d.Remedies[0].Wait
		}
		if d.Cause != ampc.NoFault || left >= 0 && wait != left-1 || strings.Contains(d.String(), " 1 more skipped steps") {
			t.Fatalf("%d steps were left:\n%s", left, d)
		}
		left, said[fmt.Sprintf("step %02d", i)] = wait, d
	}
	t.Error("the search does not end")
}

// Where f16 overflows first, in forward or in the gradients, and the step is not finite in f32 either, there is no
// remedy to name.
func TestDiagnoseAlsoInF32(t *testing.T) {
	said := sayings{}
	for _, tall := range []bool{true, false} {
		m := ampc.New("both")
		t.Cleanup(func() { m.Close() })
		x := m.Input("x", ampc.F32, 8, 4)
		h, scaler := m.Linear("fc", x, 4), ampc.Static(1<<24)
		if tall {
			h, scaler = m.Named("tall").Relu(m.Affine(h, 1e6, 1e6)), ampc.Scaler{}
		}
		zero := m.Affine(m.Linear("flat", x, 4), 0, 0)
		loss := m.Add(m.ReduceSum(h), m.ReduceSum(m.Named("root").Sqrt(m.Square(zero)))) // 0/0 in its derivative
		s := train(t, m, loss, ampc.TrainConfig{Policy: ampc.MixedF16(), Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Scaler: scaler, RestoreScale: ampc.RestoreNever})
		d := diagnose(t, s, ampc.Feed{"x": all(32, 3)})
		if want := map[bool]ampc.Cause{true: ampc.ForwardOverflow, false: ampc.ScaleTooHigh}[tall]; d.Cause != want {
			t.Errorf("want %s:\n%s", want, d)
		}
		if len(d.Remedies) > 0 || !strings.Contains(d.Advice, "not finite in f32 either") {
			t.Errorf("%s", d)
		}
		said[fmt.Sprintf("forward %t", tall)] = d
	}
	said.golden(t, "a-step-that-f32-does-not-hold-either")
}

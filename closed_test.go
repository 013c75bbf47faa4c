package ampc_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/x448/float16"

	"ampc"
)

// tiny is a model of one layer with a step that was run once.
func tiny(t *testing.T, c ampc.TrainConfig) (*ampc.Model, *ampc.Step, *ampc.Result) {
	t.Helper()
	m := ampc.New("tiny")
	x, y := m.Input("x", ampc.F32, 2, 3), m.Input("y", ampc.I32, 2)
	loss := m.CrossEntropy(m.Linear("fc", x, 2), y)
	c.Optimizer, c.LR = ampc.SGD(0), ampc.Constant(0.1)
	step, err := m.Train(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Run(t.Context(), tinyFeed())
	if err != nil {
		t.Fatal(err)
	}
	return m, step, r
}

func tinyFeed() ampc.Feed {
	return ampc.Feed{"x": []float32{1, 2, 3, 4, 5, 6}, "y": []int32{0, 1}}
}

// A step that was closed, or whose model was, says so; so does the result of a step that did not run.
func TestClosedStepsSaySo(t *testing.T) {
	for name, end := range map[string]func(*ampc.Model, *ampc.Step) error{
		"step":  func(_ *ampc.Model, s *ampc.Step) error { return s.Close() },
		"model": func(m *ampc.Model, _ *ampc.Step) error { return m.Close() },
	} {
		m, step, _ := tiny(t, ampc.TrainConfig{})
		if err := end(m, step); err != nil {
			t.Fatal(err)
		}
		for call, f := range map[string]func() error{
			"Run":        func() error { _, err := step.Run(t.Context(), tinyFeed()); return err },
			"Accumulate": func() error { return step.Accumulate(t.Context(), tinyFeed()) },
			"Apply":      func() error { _, err := step.Apply(t.Context()); return err },
			"Eval":       func() error { _, err := step.Eval(ampc.Tensor{}); return err },
			"SetLR":      func() error { return step.SetLR(1) },
			"Diagnose":   func() error { _, err := step.Diagnose(t.Context()); return err },
			"SaveReplay": func() error { return step.SaveReplay(filepath.Join(t.TempDir(), "a.ampc")) },
			"Stuck":      step.Stuck,
		} {
			if err := f(); err == nil || err.Error() != "the step is closed" {
				t.Errorf("%s closed: %s gives %v", name, call, err)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	var none *ampc.Result
	_, waited := none.Wait(t.Context())
	_, value := none.Value(ampc.Tensor{})
	_, grad := none.Grad(ampc.Tensor{})
	for call, err := range map[string]error{"Wait": waited, "Value": value, "Grad": grad} {
		if err == nil {
			t.Errorf("a step that did not run: %s gives no error", call)
		}
	}
}

// What a closed model refuses says that it is closed, not that it has no step yet.
func TestClosedModelsSaySo(t *testing.T) {
	m, _, _ := tiny(t, ampc.TrainConfig{})
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	path, loss := filepath.Join(t.TempDir(), "a.safetensors"), m.Lookup("cross_entropy")
	loss = m.ReduceSum(loss)
	for call, f := range map[string]func() error{
		"SaveFile":    func() error { return m.SaveFile(path) },
		"LoadFile":    func() error { return m.LoadFile(path) },
		"Snapshot":    func() error { _, err := m.Snapshot(); return err },
		"SetMeta":     func() error { return m.SetMeta("a", "b") },
		"Variable":    func() error { _, err := m.Variable("fc.w"); return err },
		"SetVariable": func() error { return m.SetVariable("fc.w", 1) },
		"Train": func() error {
			_, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Name: "b"}, ampc.Loss{Value: loss})
			return err
		},
		"Infer": func() error { _, err := m.Infer(ampc.InferConfig{}, loss); return err },
		"Calibrate": func() error {
			_, err := m.Calibrate(t.Context(), ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, nil, ampc.Loss{Value: loss})
			return err
		},
		"Set": func() error { return m.Set(ampc.Seed(1)) },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "the model is closed") || strings.Contains(err.Error(), "compile") {
			t.Errorf("%s gives %v", call, err)
		}
	}
}

// A context that ended does not lose what was accumulated.
func TestApplyKeepsMicroBatchesForAnotherCall(t *testing.T) {
	m, step, first := tiny(t, ampc.TrainConfig{})
	defer m.Close()
	if err := step.Accumulate(t.Context(), tinyFeed()); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := step.Apply(ended); err != context.Canceled {
		t.Fatalf("error %v", err)
	}
	r, err := step.Apply(t.Context())
	if err != nil || !(metrics(t, r).Loss < metrics(t, first).Loss) {
		t.Errorf("loss %g after %g (%v)", metrics(t, r).Loss, metrics(t, first).Loss, err)
	}
}

// Halves are taken for f32 as they are for f16.
func TestHalvesFedForF32(t *testing.T) {
	m, step, r := tiny(t, ampc.TrainConfig{})
	defer m.Close()
	half := tinyFeed()
	half["x"] = []float16.Float16{float16.Fromfloat32(1), float16.Fromfloat32(2), float16.Fromfloat32(3), float16.Fromfloat32(4), float16.Fromfloat32(5), float16.Fromfloat32(6)}
	again, err := step.Run(t.Context(), half)
	if err != nil || !(metrics(t, again).Loss < metrics(t, r).Loss) {
		t.Errorf("halves fed for f32: loss %g after %g (%v)", metrics(t, again).Loss, metrics(t, r).Loss, err)
	}
}

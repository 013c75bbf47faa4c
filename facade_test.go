package ampc_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"ampc"
)

// Schedules give the rates that their comments promise.
func TestSchedulesOverSteps(t *testing.T) {
	for name, c := range map[string]struct {
		lr   ampc.Schedule
		want []float64
	}{
		"linear": {ampc.LinearDecay(1, 2, 6), []float64{0.5, 1, 1, 0.75, 0.5, 0.25, 0, 0}},
		"step":   {ampc.StepDecay(1, 0.5, 3), []float64{1, 1, 1, 0.5, 0.5, 0.5, 0.25}},
		"cosine": {ampc.Cosine(1, 1, 5), []float64{1, 1, 0.8535534, 0.5, 0.1464466, 0}},
	} {
		m := ampc.New("rate")
		x := m.Input("x", ampc.F32, 2, 3)
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: c.lr}, ampc.Loss{Value: m.ReduceMean(m.Linear("fc", x, 2))})
		if err != nil {
			t.Fatal(err)
		}
		var got []float64
		for range c.want {
			r, err := step.Run(t.Context(), ampc.Feed{"x": make([]float32, 6)})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, metrics(t, r).LR)
		}
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }) {
			t.Errorf("%s: rates %v, want %v", name, got, c.want)
		}
		m.Close()
	}
}

// Cross entropy of logits (0, ln 3) and (ln 3, 0), labels 1 and 0: both right with probability 3/4.
func TestCrossEntropyOptions(t *testing.T) {
	right, wrong := -math.Log(0.75), -math.Log(0.25)
	for name, c := range map[string]struct {
		labels []int32
		opts   []ampc.CrossEntropyOptions
		want   float64
	}{
		"plain":      {[]int32{1, 1}, nil, (right + wrong) / 2},
		"ignore":     {[]int32{1, 1}, []ampc.CrossEntropyOptions{{Ignore: new(1)}}, math.NaN()},
		"ignore one": {[]int32{1, 0}, []ampc.CrossEntropyOptions{{Ignore: new(0)}}, right},
		"smoothing":  {[]int32{1, 0}, []ampc.CrossEntropyOptions{{Smoothing: 0.2}}, 0.9*right + 0.1*wrong},
	} {
		m := ampc.New("loss")
		x, y := m.Input("x", ampc.F32, 2, 2), m.Input("y", ampc.I32, 2)
		loss := m.CrossEntropy(x, y, c.opts...)
		step, err := m.Infer(ampc.InferConfig{}, loss)
		if err != nil {
			t.Fatal(err)
		}
		three := float32(math.Log(3))
		r, err := step.Run(t.Context(), ampc.Feed{"x": []float32{0, three, three, 0}, "y": c.labels})
		if err != nil {
			t.Fatal(err)
		}
		h, err := r.Value(loss)
		if got := h.At(0); err != nil || !(math.Abs(got-c.want) < 1e-6) && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: loss %g (%v), want %g", name, got, err, c.want)
		}
		m.Close()
	}
}

// A report's cause reads back from JSON by its name.
func TestCausesReadBack(t *testing.T) {
	for c := ampc.NoFault; c <= ampc.NotPrecision; c++ {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var back ampc.Cause
		if err := json.Unmarshal(text, &back); err != nil || back != c {
			t.Errorf("%s reads back as %s (%v)", text, back, err)
		}
	}
	var c ampc.Cause
	if err := json.Unmarshal([]byte(`"bad luck"`), &c); err == nil {
		t.Error("a cause that there is not was read")
	}
}

// A policy by its name is the one that its function makes; manual casts nothing but what the model casts.
func TestPoliciesByName(t *testing.T) {
	for name, want := range map[string]ampc.Policy{"f32": ampc.F32Only(), "tf32": ampc.TF32(), "mixed-f16": ampc.MixedF16(), "mixed-bf16": ampc.MixedBF16(),
		"o1-f16": ampc.O1(ampc.F16), "o2-bf16": ampc.O2(ampc.BF16), "o3-f16": ampc.O3(ampc.F16), "torch-f16": ampc.Torch(ampc.F16), "manual": ampc.Manual()} {
		if p, err := ampc.PolicyNamed(name); err != nil || p.String() != want.String() {
			t.Errorf("%s (%v):\n%s\nwant\n%s", name, err, p, want)
		}
	}
	m := ampc.New("manual")
	defer m.Close()
	x := m.Input("x", ampc.F32, 2, 3)
	y := m.Linear("b", m.Cast(m.Relu(m.Cast(m.Linear("a", x, 3), ampc.F16)), ampc.F32), 2)
	step, err := m.Infer(ampc.InferConfig{Policy: ampc.Manual()}, y)
	if err != nil {
		t.Fatal(err)
	}
	if text := step.Graph().String(); strings.Count(text, "f16") == 0 || strings.Contains(text, ".w.f16") {
		t.Errorf("a cast that was written is gone, or one was added:\n%s", text)
	}
}

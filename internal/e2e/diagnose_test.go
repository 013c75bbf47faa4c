package e2e_test

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/safetensors"
)

// deep compiles three equal layers l0, l1, l2 whose activations edit changes.
func deep(t *testing.T, c ampc.TrainConfig, edit func(b *ampc.Model, layer int, x ampc.Tensor) ampc.Tensor, o ...ampc.ModelOption) (*ampc.Model, *ampc.Step) {
	t.Helper()
	m := ampc.New("deep", o...)
	x := m.Input("x", ampc.F32, 4, 8)
	for i, name := range []string{"l0", "l1", "l2"} {
		b := m.Scope(name)
		x = edit(b, i, b.Named("act").Relu(b.Linear("fc", x, 8)))
	}
	loss := m.Named("loss").ReduceMean(m.Square(x))
	c.Optimizer, c.LR = ampc.SGD(0), ampc.Constant(0.01)
	step, err := m.Train(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, step
}

func plain(_ *ampc.Model, _ int, x ampc.Tensor) ampc.Tensor { return x }

func diagnose(t *testing.T, step *ampc.Step, f ...ampc.Feed) *ampc.Diagnosis {
	t.Helper()
	if _, err := step.Run(context.Background(), f...); err != nil {
		t.Fatal(err)
	}
	return ask(t, step)
}

// ask diagnoses the step that was run last, and checks that the compiled graph stays as it was.
func ask(t testing.TB, step *ampc.Step) *ampc.Diagnosis {
	t.Helper()
	was := printed(t, step)
	d, err := step.Diagnose(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if is := printed(t, step); is != was {
		t.Errorf("the diagnosis changed the compiled graph from\n%s\nto\n%s", was, is)
	}
	return d
}

// printed is the compiled graph with reasons and positions.
func printed(t testing.TB, step *ampc.Step) string {
	t.Helper()
	var b strings.Builder
	if err := step.WriteIR(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func all(n int, x float32) []float32 {
	v := make([]float32, n)
	fill(v, x)
	return v
}

func set(t *testing.T, m *ampc.Model, name string, value any) {
	t.Helper()
	if err := m.SetVariable(name, value); err != nil {
		t.Fatal(err)
	}
}

// The doctor looks and touches nothing: a step that was diagnosed continues with
// the bits of one that was not, on the same program.
func TestDiagnoseTouchesNothing(t *testing.T) {
	var state [2][][]byte
	var program [2]string
	for k := range 2 {
		m, step := deep(t, ampc.TrainConfig{Policy: ampc.MixedF16()}, func(b *ampc.Model, _ int, x ampc.Tensor) ampc.Tensor { return b.Dropout("drop", x, 0.2) }, ampc.Seed(3))
		for i := range 6 {
			x := all(32, 0.5)
			if i == 2 {
				x[3] = nan
			}
			if k == 0 {
				if _, err := step.Run(context.Background(), ampc.Feed{"x": x}); err != nil {
					t.Fatal(err)
				}
			} else if d := diagnose(t, step, ampc.Feed{"x": x}); (d.Cause == ampc.BadInput) != (i == 2) {
				t.Errorf("step %d: %s", i, d)
			}
		}
		for _, name := range m.Variables() {
			h, err := m.Variable(name)
			if err != nil {
				t.Fatal(err)
			}
			state[k] = append(state[k], h.Bytes)
		}
		var b strings.Builder
		if err := step.Program().Print(&b); err != nil {
			t.Fatal(err)
		}
		program[k] = b.String()
	}
	if program[0] != program[1] {
		t.Error("the programs differ")
	}
	for i := range state[0] {
		if !bytes.Equal(state[0][i], state[1][i]) {
			t.Errorf("variable %d differs", i)
		}
	}
}

// A replay is the step that was run: its micro-batch, its random draws and its
// loss scale. What the step returned is what the doctor saw.
func TestDiagnoseReplaysTheStep(t *testing.T) {
	m, step := deep(t, ampc.TrainConfig{Policy: ampc.MixedF16(), Micro: 3}, func(b *ampc.Model, _ int, x ampc.Tensor) ampc.Tensor {
		return b.Dropout("drop", x, 0.5)
	})
	feed := func(x float32) ampc.Feed {
		v := all(32, x)
		v[9] *= 1.5
		return ampc.Feed{"x": v}
	}
	for range 3 { // the draws of step 3 are not those of step 0
		if _, err := step.Run(context.Background(), feed(1), feed(1), feed(1)); err != nil {
			t.Fatal(err)
		}
	}
	set(t, m, "l0.fc.b", all(8, 0))
	set(t, m, "l1.fc.w", all(64, 30000))
	d := diagnose(t, step, feed(0), feed(16), feed(1))
	if d.Cause != ampc.ForwardOverflow || d.Micro != 1 || d.Scope != "l1" {
		t.Fatalf("%+v", d)
	}
	if same, err := step.Diagnose(context.Background()); err != nil || same.String() != d.String() {
		t.Errorf("the same step a second time: %v, %v", same, err)
	}
	if got := streamed(t, step); got != d.String() {
		t.Errorf("without memory for all values:\n%s", got)
	}
	if again := diagnose(t, step, feed(0), feed(16), feed(1)); again.Inputs[0] == d.Inputs[0] {
		t.Errorf("another step draws the same numbers: %s", again)
	}
}

// A saved step says elsewhere what it says here; a damaged file says so.
func TestSaveReplay(t *testing.T) {
	m, step := deep(t, ampc.TrainConfig{Policy: ampc.MixedF16(), Scaler: ampc.Static(1 << 14)}, plain)
	path := filepath.Join(t.TempDir(), "bad.ampc")
	if err := step.SaveReplay(path); err == nil {
		t.Error("a step that was not run was saved")
	}
	set(t, m, "l2.fc.w", all(64, 3000))
	here := diagnose(t, step, ampc.Feed{"x": all(32, 8)})
	if here.Cause == ampc.NoFault {
		t.Fatal(here)
	}
	if err := step.SaveReplay(path); err != nil {
		t.Fatal(err)
	}
	there, err := ampc.DiagnoseFile(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	if here.String() != there.String() {
		t.Errorf("here:\n%s\nthere:\n%s", here, there)
	}
	other := filepath.Join(t.TempDir(), "other.safetensors")
	if err := safetensors.WriteFile(other, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ampc.DiagnoseFile(context.Background(), other); err == nil || !strings.Contains(err.Error(), "not a replay") {
		t.Errorf("another file: %v", err)
	}
}

// Twenty runs without a fault, the search for a loss scale at their start included:
// nothing is reported.
func TestCleanRuns(t *testing.T) {
	for seed := range int64(20) {
		p := []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16(), ampc.F32Only(), ampc.MixedF16().Keep("l1")}[seed%4]
		_, step := deep(t, ampc.TrainConfig{Policy: p}, func(b *ampc.Model, i int, x ampc.Tensor) ampc.Tensor {
			if seed%3 == 0 {
				x = b.LayerNorm("ln", x)
			}
			return b.Dropout("drop", b.Softmax(x, -1), 0.1)
		})
		for i := range 3 {
			x := make([]float32, 32)
			for k := range x {
				x[k] = float32(math.Sin(float64(k*(i+1)) + float64(seed)))
			}
			if d := diagnose(t, step, ampc.Feed{"x": x}); d.Cause != ampc.NoFault {
				t.Errorf("seed %d, policy %s, step %d: %s", seed, p.Name, i, d)
			}
		}
	}
}

// A dynamic scale that finds its place in a few steps is not a fault; one that
// has far to go, or does not get there, is.
func TestScaleSearch(t *testing.T) {
	for _, c := range []struct {
		init, floor float64
		steps       int
		want        ampc.Cause
	}{
		{1 << 22, 1, 1, ampc.NoFault},
		{1 << 24, 1, 1, ampc.NoFault},
		{1 << 24, 1 << 23, 1, ampc.ScaleTooHigh},
		{1 << 24, 1 << 24, 4, ampc.ScaleTooHigh},
	} {
		s := ampc.Dynamic()
		s.Init, s.Floor, s.Cap = c.init, c.floor, 1<<24
		_, step := deep(t, ampc.TrainConfig{Policy: ampc.MixedF16(), Scaler: s}, plain)
		var d *ampc.Diagnosis
		for range c.steps {
			d = diagnose(t, step, ampc.Feed{"x": all(32, 2)})
		}
		t.Logf("%+v:\n%s", c, d)
		if d.Cause != c.want {
			t.Errorf("%+v: %s", c, d)
		}
	}
}

// What is not finite in a step without checks reaches the weights, and the
// state before it is gone. From the variables as they started the same batch
// shows where it began.
func TestDiagnoseUnchecked(t *testing.T) {
	_, step := deep(t, ampc.TrainConfig{Policy: ampc.MixedF16(), Scaler: ampc.Unscaled(), NoSkip: true}, func(b *ampc.Model, i int, x ampc.Tensor) ampc.Tensor {
		if i == 1 {
			x = b.Precision(ampc.PinLow).Affine(x, 1e6, 0)
		}
		return x
	})
	d := diagnose(t, step, ampc.Feed{"x": all(32, 1)})
	if d.Cause != ampc.BadState || d.Before == nil || d.Before.Cause != ampc.ForwardOverflow || d.Before.Scope != "l1" {
		t.Errorf("%s", d)
	}
}

// An inference that is not finite changes nothing, so its replay is exact.
func TestDiagnoseInference(t *testing.T) {
	m := ampc.New("infer")
	defer m.Close()
	x := m.Input("x", ampc.F32, 2, 4)
	y := m.Named("y").Sqrt(m.Named("shifted").Affine(x, 1, -1))
	step, err := m.Infer(ampc.InferConfig{}, y)
	if err != nil {
		t.Fatal(err)
	}
	if d := diagnose(t, step, ampc.Feed{"x": all(8, 0.5)}); d.Cause != ampc.NotPrecision || d.Node != "y" {
		t.Errorf("%s", d)
	}
	masked, err := m.Infer(ampc.InferConfig{}, m.Named("masked").Add(x, m.Full(ampc.F32, math.Inf(-1), 2, 4)))
	if err != nil {
		t.Fatal(err)
	}
	if d := diagnose(t, masked, ampc.Feed{"x": all(8, 0.5)}); d.Cause != ampc.NoFault {
		t.Errorf("a mask that is returned: %s", d)
	}
}

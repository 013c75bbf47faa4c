package e2e_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/trial"
	"ampc/runtime/doctor"
)

// Of two losses with a scale each, the one whose gradients overflow is named
// with the scale it had, also after its scaler went down; the other's is left.
func TestDiagnoseTwoScalers(t *testing.T) {
	for faulty := range 2 {
		t.Run(fmt.Sprint("loss ", faulty), func(t *testing.T) {
			m := ampc.New("two")
			defer m.Close()
			x := m.Input("x", ampc.F32, 4, 8)
			trunk := m.Named("trunk").Tanh(m.Linear("fc", x, 8))
			var losses []ampc.Loss
			for i := range 2 {
				s := ampc.Dynamic()
				s.Init = []float64{1 << 9, 1 << 10}[i]
				head := m.Scope(fmt.Sprintf("head%d", i))
				loss := head.Named("loss").ReduceMean(head.Square(head.Linear("fc", trunk, 8)))
				losses = append(losses, ampc.Loss{Value: loss, Scaler: &s})
			}
			step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.01), Policy: ampc.MixedF16()}, losses...)
			if err != nil {
				t.Fatal(err)
			}
			set(t, m, fmt.Sprintf("head%d.fc.w", faulty), all(64, 600))
			d := diagnose(t, step, ampc.Feed{"x": all(32, 1)})
			if want := []float64{1 << 9, 1 << 10}[faulty]; d.Scale != want || d.Direction != "backward" || d.Cause == ampc.ForwardOverflow {
				t.Errorf("scale %g, want %g:\n%s", d.Scale, want, d)
			}
			if again, err := step.Diagnose(context.Background()); err != nil || again.String() != d.String() {
				t.Errorf("again: %v\n%s", err, again)
			}
		})
	}
}

// Micro-batches that are dropped are diagnosed as those that skip a step.
func TestDiagnoseDroppedMicro(t *testing.T) {
	_, step := deep(t, ampc.TrainConfig{Policy: ampc.MixedF16(), Micro: 3, BadMicro: ampc.DropMicro}, plain)
	good, bad := ampc.Feed{"x": all(32, 1)}, ampc.Feed{"x": all(32, nan)}
	for range 2 { // the accumulators of the first step must not be taken for state
		if d := diagnose(t, step, good, good, bad); d.Cause != ampc.BadInput || d.Micro != 2 {
			t.Errorf("%s", d)
		}
	}
	if d := diagnose(t, step, good, good, good); d.Cause != ampc.NoFault {
		t.Errorf("%s", d)
	}
}

// The 16-bit copies that an update keeps are what the replay reads.
func TestDiagnoseWeightCopies(t *testing.T) {
	m, step := deep(t, ampc.TrainConfig{Policy: ampc.MixedF16(), Compile: ampc.CompileOptions{WeightCopies: true}}, plain)
	feed := ampc.Feed{"x": all(32, 8)}
	if d := diagnose(t, step, feed); d.Cause != ampc.NoFault {
		t.Errorf("%s", d)
	}
	set(t, m, "l1.fc.w", all(64, 60000))
	if d := diagnose(t, step, feed); d.Cause != ampc.ForwardOverflow || d.Scope != "l1" {
		t.Errorf("%s", d)
	}
}

// A step of another program over the same variables is mentioned: they are not
// what they were.
func TestDiagnoseAfterAnotherStep(t *testing.T) {
	_, dis, gen := ganSteps(t, ampc.MixedF16(), nil)
	bad := ganFeed(1)
	bad["sample"].([]float32)[3] = nan
	if _, err := dis.Run(context.Background(), bad); err != nil {
		t.Fatal(err)
	}
	if d := diagnose(t, gen, ganFeed(2)); d.Cause != ampc.NoFault || len(d.Notes) != 0 {
		t.Errorf("%s", d)
	}
	d := ask(t, dis)
	if d.Cause != ampc.BadInput || d.Node != "sample" || len(d.Notes) != 1 {
		t.Errorf("%s", d)
	}
}

// Where a step's values do not fit into memory together, the doctor says the
// same of them.
func TestDiagnoseStreamed(t *testing.T) {
	for _, i := range faults() {
		t.Run(i.name, func(t *testing.T) {
			w := i.open(t, ampc.MixedF16(), 3)
			w.run()
			d := ask(t, w.step)
			if got := streamed(t, w.step); got != d.String() {
				t.Errorf("with memory:\n%s\nwithout:\n%s", d, got)
			}
		})
	}
}

// streamed is what the doctor says of a step whose values it cannot hold at once.
func streamed(t *testing.T, step *ampc.Step) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bad.ampc")
	if err := step.SaveReplay(path); err != nil {
		t.Fatal(err)
	}
	c, err := doctor.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	c.Memory = 1
	d, err := doctor.Diagnose(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// A custom op is replayed by its kernel; a file wants it given.
func TestDiagnoseCustomOp(t *testing.T) {
	op := trial.Boost()
	_, step := deep(t, ampc.TrainConfig{Policy: ampc.MixedF16()}, func(b *ampc.Model, i int, x ampc.Tensor) ampc.Tensor {
		if i == 1 {
			x = b.Named("boosted").Precision(ampc.PinLow).Apply(op, x)
		}
		return x
	})
	d := diagnose(t, step, ampc.Feed{"x": all(32, 8)})
	if d.Cause != ampc.ForwardOverflow || d.Node != "l1.boosted" || d.Op != "boost" {
		t.Errorf("%s", d)
	}
	path := filepath.Join(t.TempDir(), "bad.ampc")
	if err := step.SaveReplay(path); err != nil {
		t.Fatal(err)
	}
	if _, err := ampc.DiagnoseFile(context.Background(), path); err == nil || !strings.Contains(err.Error(), "bad.ampc: @boost is a custom op, whose definition is in a Go program: diagnose the step there") {
		t.Errorf("an op that is not given: %v", err)
	}
	if again, err := ampc.DiagnoseFile(context.Background(), path, op); err != nil || again.String() != d.String() {
		t.Errorf("%v\n%s", err, again)
	}
}

// A step that was skipped and is finite when replayed is not the step that was
// run: something it was fed has changed.
func TestDiagnoseChangedFeed(t *testing.T) {
	_, step := deep(t, ampc.TrainConfig{Policy: ampc.MixedF16()}, plain)
	host := ampc.HostTensor{Type: ampc.TypeOf(ampc.F32, 4, 8), Bytes: make([]byte, 4*32)}
	host.Bytes[2], host.Bytes[3] = 0xc0, 0x7f // NaN
	if _, err := step.Run(context.Background(), ampc.Feed{"x": host}); err != nil {
		t.Fatal(err)
	}
	clear(host.Bytes)
	d := ask(t, step)
	if d.Cause != ampc.NoFault || len(d.Notes) != 1 {
		t.Errorf("%s", d)
	}
}

// length is |x| by way of x², in the dtype of x: what it stores fits, what it
// computes on the way does not.
func length() *ampc.CustomOp {
	op := trial.Boost()
	op.Name, op.Doc = "length", "The magnitude of x by its square."
	op.Kernel = func(c *ampc.CustomCall, in, out []any) error {
		x, y := in[0].([]float32), out[0].([]float32)
		for i, v := range x {
			y[i] = v
			if c.Operand(0).DType() == ampc.F16 && v*v > 65504 {
				y[i] = float32(math.Inf(1))
			}
		}
		return nil
	}
	return op
}

// An op that overflows inside is not said to have a result that does.
func TestDiagnoseInside(t *testing.T) {
	op := length()
	m, step := deep(t, ampc.TrainConfig{Policy: ampc.MixedF16()}, func(b *ampc.Model, i int, x ampc.Tensor) ampc.Tensor {
		if i == 1 {
			x = b.Named("length").Precision(ampc.PinLow).Apply(op, b.Precision(ampc.PinLow).Affine(x, 1, 0))
		}
		return x
	})
	set(t, m, "l1.fc.b", all(8, 1000))
	d := diagnose(t, step, ampc.Feed{"x": all(32, 1)})
	if d.Cause != ampc.ForwardOverflow || d.Node != "l1.length" || d.SafeScale != 0 || !strings.Contains(d.Why, "an intermediate value of length overflows") {
		t.Errorf("%s", d)
	}
}

// While the scale of an inner gradient is searched for, the loss scale stands still. A diagnosis counts
// the steps that the search for it skips afterwards.
func TestSearchesOneAfterTheOther(t *testing.T) {
	m := ampc.New("penalty", ampc.Seed(1))
	defer m.Close()
	x := m.Input("x", ampc.F32, 8, 16)
	h := m.Tanh(m.Linear("b", m.Tanh(m.Linear("a", x, 64)), 64))
	y := m.ReduceSum(m.Linear("c", h, 1))
	slope := m.ScaledGrad(1<<20, y, x)[0]
	loss := m.Add(m.ReduceMean(m.Square(y)), m.ReduceMean(m.Square(slope)))
	step, err := m.Train(ampc.TrainConfig{Policy: ampc.MixedF16(), Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-4)}, ampc.Loss{Value: loss, Weight: 256})
	if err != nil {
		t.Fatal(err)
	}
	feed := make([]float32, 8*16)
	for i := range feed {
		feed[i] = float32(i%7) - 3
	}
	wait, inner := -1, 0
	for skips := 0; ; skips++ {
		r, err := step.Run(t.Context(), ampc.Feed{"x": feed})
		if err != nil {
			t.Fatal(err)
		}
		got := trial.Metrics(t, r)
		switch {
		case !got.Skipped && skips-1 == wait && inner < skips:
			return
		case !got.Skipped || skips > 30:
			t.Fatalf("%d steps were skipped behind the first, %d of them for the inner gradient; the diagnosis says %d", skips-1, inner-1, wait)
		}
		if math.IsNaN(got.Loss) || math.IsInf(got.Loss, 0) {
			inner++
		}
		if skips > 0 {
			continue
		}
		d, err := step.Diagnose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.Cause != ampc.NoFault || len(d.Remedies) != 1 {
			t.Fatal(d)
		}
		wait = d.Remedies[0].Wait
	}
}

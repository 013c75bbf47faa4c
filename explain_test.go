package ampc_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/trial"
	"ampc/ir"
	"ampc/passes"
)

// A compiled step explains itself in the user's program, with the user's own lines.
func TestStepExplainsItself(t *testing.T) {
	m := ampc.New("explained")
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.I32, 8)
	h := m.Linear("fc1", x, 16)
	out := m.Linear("fc2", m.Relu(h), 3)
	step := train(t, m, m.CrossEntropy(out, y), adam())

	why, err := step.Why(h)
	if err != nil || len(why) == 0 || why[0].Value != "%fc1" || why[0].Op != "linear" || why[0].Class != "low" || why[0].Pos != "explain_test.go:22" {
		t.Errorf("why %+v (%v)", why, err)
	}
	if text := why.String(); !strings.Contains(text, "%fc1 : f") || !strings.Contains(text, "(explain_test.go:22)") {
		t.Errorf("reasons print as %q", text)
	}
	if _, err := step.Why(ampc.Tensor{}); err == nil || !strings.HasPrefix(err.Error(), "explain_test.go:") {
		t.Errorf("why no tensor: %v", err)
	}

	var b bytes.Buffer
	if err := step.WriteIR(&b); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, "explain_test.go:22") || !strings.Contains(text, "explain_test.go:23") {
		t.Errorf("the step has no positions:\n%s", text)
	}
	if g, err := ir.Parse("back", b.Bytes()); err != nil || ir.Equal(g, step.Graph()) != nil {
		t.Errorf("the step does not read back: %v", err)
	}

	b.Reset()
	if err := step.Report(&b); err != nil || !strings.Contains(b.String(), "casts: ") || strings.Contains(b.String(), "casts: 0 inserted") {
		t.Errorf("report %q (%v)", b.String(), err)
	}
	first := b.String()
	b.Reset()
	if err := step.Report(&b); err != nil || b.String() != first {
		t.Errorf("the second report is %q, the first %q (%v)", b.String(), first, err)
	}

	for _, s := range []func() (*ampc.Step, error){
		func() (*ampc.Step, error) { return step, nil },
		func() (*ampc.Step, error) { return step.Eval(out) },
		func() (*ampc.Step, error) { return m.Infer(ampc.InferConfig{Policy: ampc.MixedBF16()}, out) },
	} {
		s, err := s()
		if err != nil {
			t.Fatal(err)
		}
		if found, err := s.Prove(); err != nil || len(found) > 0 {
			t.Errorf("findings %v (%v)", found, err)
		}
	}
}

// A finding has the line of the update that breaks the rule.
func TestProveFindsAnUnguardedWrite(t *testing.T) {
	m, loss := small(8)
	c := adam()
	c.Compile.NoProof = true
	c.Gradients = func(u *ampc.Update, g []ampc.Grad) []ampc.Grad {
		last := u.IR().Declare(ir.State, "last", g[0].Param.IR().Type, nil, nil)
		u.IR().EmitWrite(ir.OpAffine, []*ir.Value{g[0].Value.IR()}, nil, last)
		return g
	}
	step := train(t, m, loss, c)
	found, err := step.Prove()
	if err != nil || len(found) == 0 || !found[0].User || !strings.HasPrefix(found[0].String(), "explain_test.go:") {
		t.Errorf("findings %v (%v)", found, err)
	}
}

// A compiled step with a custom op is text that tools read without its definition.
func TestStepWithACustomOpReadsBack(t *testing.T) {
	m := ampc.New("custom")
	x := m.Input("x", ampc.F32, 4, 8)
	y := m.Apply(trial.Boost(), m.Linear("fc", x, 8))
	step := train(t, m, m.ReduceMean(m.Square(y)), adam())
	var b, again bytes.Buffer
	if err := step.WriteIR(&b); err != nil || !strings.Contains(b.String(), "@boost") {
		t.Fatalf("no custom op in the step (%v)\n%s", err, b.String())
	}
	g, err := ir.ParseOpaque("step.ir", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Print(&again, ir.Canonical); err != nil {
		t.Fatal(err)
	}
	if want := step.Graph().String(); again.String() != want {
		t.Errorf("read back\n%s\nwritten\n%s", again.String(), want)
	}
}

// picked is a custom op with an attribute, an operand of ints, one that may be
// absent, and two results of which one follows the operand's dtype.
func picked() *ampc.CustomOp {
	return &ampc.CustomOp{
		Name: "picked", Doc: "x times k, and x in f32.",
		Operands: []ampc.CustomOperand{{Name: "x"}, {Name: "at", Kind: ampc.KindInt}, {Name: "bias", Class: ampc.ClassFixed, Optional: true}},
		Results:  []ampc.CustomResult{{Name: "y", StoresLow: true}, {Name: "sum"}},
		Attrs:    []ampc.CustomAttr{{Name: "k", Default: 1.0}},
		Class:    ampc.ClassKeep, Why: "sums", Scaling: ampc.ScaleProduct,
		Infer: func(c *ampc.CustomCall) ([]ampc.Type, error) {
			x := c.Operand(0).Type()
			return []ampc.Type{x, x.With(ampc.F32)}, nil
		},
		Grad: func(b *ampc.Backward, c *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor {
			return []ampc.Tensor{b.Add(b.Affine(d[0], c.Float("k"), 0), d[1]), {}, {}}[:c.Operands()]
		},
		Kernel: func(*ampc.CustomCall, []any, []any) error { return nil },
	}
}

// A model with custom ops is text that the compiler takes without their
// definitions: the step is the same under every policy, gradients included.
func TestModelWithCustomOpsReadsBack(t *testing.T) {
	m := ampc.New("custom")
	x, at := m.Input("x", ampc.F32, ampc.Dim("N"), 8), m.Input("at", ampc.I64, ampc.Dim("N"))
	h := m.Apply(trial.Boost(), m.Linear("fc", x, 8))
	both := m.ApplyAll(picked(), map[string]any{"k": 2.5}, h, at)
	alone := m.ApplyAll(picked(), nil, m.Linear("other", h, 8), at, m.Input("bias", ampc.F32, 8))
	loss := m.Add(m.ReduceMean(m.Square(m.Linear("out", m.Add(both[0], alone[0]), 4))), m.ReduceMean(m.Add(both[1], alone[1])))
	m.IR().Return(loss.IR())
	var b bytes.Buffer
	if err := m.WriteIR(&b); err != nil {
		t.Fatal(err)
	}
	g, err := ir.ParseOpaque("custom.ir", b.Bytes())
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	read := ampc.FromGraph(g)
	for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16", "o2-f16", "torch-f16", "torch-cpu-bf16", "tensorflow-f16"} {
		p, err := ampc.PolicyNamed(policy)
		if err != nil {
			t.Fatal(err)
		}
		var text [2]string
		for i, m := range []*ampc.Model{m, read} {
			l := loss
			if i == 1 {
				l = read.FromIR(g.Return[0])
			}
			c := adam()
			c.Policy, c.Sizes = p, ampc.Sizes{"N": 4}
			source, config, err := m.Source(c, ampc.Loss{Value: l})
			if err != nil {
				t.Fatal(err)
			}
			if err := passes.Run(source, config); err != nil {
				t.Fatalf("%s, %d: %v", policy, i, err)
			}
			text[i] = source.String()
		}
		if text[0] != text[1] {
			t.Errorf("%s: compiled with the definitions\n%s\nfrom text\n%s", policy, text[0], text[1])
		}
	}
}

// A step tells what the compiler rewrote, and still calls the config's After.
func TestStepNotes(t *testing.T) {
	m := ampc.New("notes")
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.F32, 8, 1)
	h := m.Linear("fc", x, 1)
	loss := m.Named("loss").BCE(m.Sigmoid(h), y)
	c := adam()
	var seen []string
	c.Compile.After = func(e ampc.PassEvent) { seen = append(seen, e.Notes...) }
	s := train(t, m, loss, c)
	want := "%bce: sigmoid and bce become bce_with_logits"
	if got := s.Notes(); !slices.Contains(got, want) || !slices.Equal(got, seen) {
		t.Errorf("notes %q, After saw %q, want %q among both", got, seen, want)
	}
	if s.Notes()[0] = ""; s.Notes()[0] == "" {
		t.Error("notes are not copied")
	}
}

// A padded step learns what the plain one learns, keeps the shapes of its
// variables, and its evaluation has its loss, to the bit.
func TestPaddedStep(t *testing.T) {
	build := func(pad bool) (*ampc.Model, ampc.Tensor, *ampc.Step, *ampc.Step) {
		m, loss := small(8)
		c := adam()
		c.Compile.Pad = pad
		s := train(t, m, loss, c)
		e, err := s.Eval(loss)
		if err != nil {
			t.Fatal(err)
		}
		return m, loss, s, e
	}
	padded, loss, s, e := build(true)
	plain, _, p, _ := build(false)
	if len(s.Program().Misaligned()) >= len(p.Program().Misaligned()) {
		t.Errorf("%v is left of %v", s.Program().Misaligned(), p.Program().Misaligned())
	}
	for i := range 5 {
		f := points(uint64(i), 8)
		before := run(t, e, f)
		h, err := before.Value(loss)
		if err != nil {
			t.Fatal(err)
		}
		if r := run(t, s, f); metrics(t, r).Loss != h.At(0) || metrics(t, r).Skipped {
			t.Errorf("step %d: loss %g, evaluated %g, skipped %t", i, metrics(t, r).Loss, h.At(0), metrics(t, r).Skipped)
		}
		run(t, p, f)
	}
	followsF32(t, padded, plain, 5, "fc1.w", "fc2.w", "fc2.b")
}

// A guard with ranges from calibration steps keeps what came near the largest
// f16 in f32, and the step then runs where it would have overflowed.
func TestCalibratedGuard(t *testing.T) {
	build := func() (*ampc.Model, ampc.Tensor) {
		m := ampc.New("tall")
		x := m.Input("x", ampc.F32, 8, 16)
		h := m.Linear("h", x, 16, ampc.LinearOptions{Init: ampc.Uniform(0.5, 1)})
		s := m.Named("s").ReduceMean(h, ampc.ReduceOptions{Axes: []int{1}, Keep: true})
		return m, m.Named("loss").ReduceMean(m.Named("log").Log(s), ampc.Axes(0, 1))
	}
	x := make([]float32, 8*16)
	for i := range x {
		x[i] = 6000 + float32(i)
	}
	feed := ampc.Feed{"x": x}
	for _, guard := range []float64{0, 4} {
		m, loss := build()
		c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3), Policy: ampc.MixedF16()}
		seen, err := m.Calibrate(t.Context(), c, []ampc.Feed{feed}, ampc.Loss{Value: loss})
		if err != nil {
			t.Fatal(err)
		}
		if r := seen.Recorded["h"]; r.Hi < 65504 {
			t.Fatalf("h reaches %g: the test says nothing", r.Hi)
		}
		c.Compile.Ranges, c.Policy.Guard = seen, guard
		step, err := m.Train(c, ampc.Loss{Value: loss})
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, step, feed)
		h := step.Graph().Value("h")
		if low := h.Type.DType == ir.F16; low != (guard == 0) || math.IsInf(metrics(t, r).Loss, 0) != (guard == 0) {
			t.Errorf("guard %g: h is stored as %s, the loss is %g", guard, h.Type.DType, metrics(t, r).Loss)
		}
		m.Close()
	}
	m, loss := build()
	if _, err := m.Calibrate(t.Context(), ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, []ampc.Feed{{}}, ampc.Loss{Value: loss}); err == nil || !strings.Contains(err.Error(), `input "x" is missing`) {
		t.Errorf("a feed without an input: %v", err)
	}
}

// The end of the context ends a calibration.
func TestCalibrateIsInterrupted(t *testing.T) {
	m := ampc.New("net")
	x := m.Input("x", ampc.F32, 2, 2)
	loss := m.ReduceMean(m.Linear("fc", x, 2), ampc.Axes(0, 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Calibrate(ctx, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, []ampc.Feed{{"x": []float32{1, 2, 3, 4}}}, ampc.Loss{Value: loss})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// Watch reports the 16-bit values of a step as they are stored, and nothing after its end.
func TestWatch(t *testing.T) {
	m := ampc.New("watched")
	x := m.Input("x", ampc.F32, 2, 4)
	h := m.Linear("a", x, 4)
	loss := m.ReduceMean(m.Square(m.Linear("b", h, 1)))
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16()}, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	seen := map[string]ampc.StoredRange{}
	if !step.Watch(func(r ampc.StoredRange) { seen[r.Value] = r }) {
		t.Fatal("the CPU cannot watch")
	}
	run := func(scale float32) {
		t.Helper()
		in := make([]float32, 8)
		for i := range in {
			in[i] = scale * float32(i-3)
		}
		r, err := step.Run(context.Background(), ampc.Feed{"x": in})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	run(0.5)
	if r := seen["x.f16"]; r.AbsMax != 2 || !r.Finite || r.DType != ampc.F16 || r.High != 2/65504. || r.Low != 1<<25 {
		t.Errorf("x.f16 in %v", seen)
	}
	for name, r := range seen {
		if r.DType != ampc.F16 || math.IsInf(r.AbsMax, 0) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	run(1e6)
	if r := seen["x.f16"]; r.Finite {
		t.Errorf("x.f16 of 4e6 is finite: %+v", r)
	}
	clear(seen)
	step.Watch(nil)
	if run(1); len(seen) != 0 {
		t.Errorf("after its end: %v", seen)
	}
}

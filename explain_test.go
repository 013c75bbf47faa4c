package ampc_test

import (
	"bytes"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/trial"
	"ampc/ir"
)

// A compiled step explains itself in the user's program, with the user's own lines.
func TestStepExplainsItself(t *testing.T) {
	m := ampc.New("explained")
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.I32, 8)
	h := m.Linear("fc1", x, 16)
	out := m.Linear("fc2", m.Relu(h), 3)
	step := train(t, m, m.CrossEntropy(out, y), adam())

	why, err := step.Why(h)
	if err != nil || len(why) == 0 || why[0].Value != "%fc1" || why[0].Op != "linear" || why[0].Class != "low" || why[0].Pos != "explain_test.go:17" {
		t.Errorf("why %+v (%v)", why, err)
	}
	if text := why.String(); !strings.Contains(text, "%fc1 : f") || !strings.Contains(text, "(explain_test.go:17)") {
		t.Errorf("reasons print as %q", text)
	}
	if _, err := step.Why(ampc.Tensor{}); err == nil || !strings.HasPrefix(err.Error(), "explain_test.go:") {
		t.Errorf("why no tensor: %v", err)
	}

	var b bytes.Buffer
	if err := step.WriteIR(&b); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, "explain_test.go:17") || !strings.Contains(text, "explain_test.go:18") {
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

package ampc_test

import (
	"bytes"
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
	if err != nil || len(why) == 0 || why[0].Value != "%fc1" || why[0].Op != "linear" || why[0].Class != "low" || why[0].Pos != "explain_test.go:18" {
		t.Errorf("why %+v (%v)", why, err)
	}
	if text := why.String(); !strings.Contains(text, "%fc1 : f") || !strings.Contains(text, "(explain_test.go:18)") {
		t.Errorf("reasons print as %q", text)
	}
	if _, err := step.Why(ampc.Tensor{}); err == nil || !strings.HasPrefix(err.Error(), "explain_test.go:") {
		t.Errorf("why no tensor: %v", err)
	}

	var b bytes.Buffer
	if err := step.WriteIR(&b); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, "explain_test.go:18") || !strings.Contains(text, "explain_test.go:19") {
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

package e2e_test

import (
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
)

// An evaluation stores what the training step stores, though others read it.
func TestEvalIsProved(t *testing.T) {
	for _, p := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16(), ampc.O2(ampc.F16)} {
		m := ampc.New("m")
		h := m.Linear("a", m.Input("x", ampc.F32, 4, 8), 8)
		y := m.Linear("b", m.LayerNorm("n", m.Relu(h)), 8)
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: p}, ampc.Loss{Value: m.ReduceMean(m.Square(y), false)})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []ampc.Tensor{h, y} {
			if _, err := step.Eval(v); err != nil {
				t.Errorf("%s under %s: %v", v, p.Name, err)
			}
		}
	}
}

// unguarded writes a state of its own whether or not the step is skipped.
func unguarded(u *ampc.Update, gs []ampc.Grad) []ampc.Grad {
	v := u.IR().Declare(ir.State, "last", gs[0].Param.IR().Type, ampc.Fill(0), nil)
	u.IR().EmitWrite(ir.OpAffine, []*ir.Value{gs[0].Value.IR()}, nil, v)
	return gs
}

// Train proves every step. What the user's own edit of gradients breaks is his
// error, at his line; NoProof leaves the check out.
func TestTrainProves(t *testing.T) {
	train := func(change func(*ampc.TrainConfig)) error {
		m := ampc.New("m")
		x := m.Input("x", ampc.F32, 4, 8)
		c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16()}
		change(&c)
		_, err := m.Train(c, ampc.Loss{Value: m.ReduceMean(m.Square(m.Linear("fc", x, 8)), false)})
		return err
	}
	if err := train(func(*ampc.TrainConfig) {}); err != nil {
		t.Error(err)
	}
	err := train(func(c *ampc.TrainConfig) { c.Gradients = unguarded })
	if err == nil || !strings.HasPrefix(err.Error(), "proof_test.go:32: select: %last'") {
		t.Errorf("an unguarded write: %v, want the user's line", err)
	}
	if err := train(func(c *ampc.TrainConfig) { c.Gradients, c.Compile.NoProof = unguarded, true }); err != nil {
		t.Error(err)
	}
}

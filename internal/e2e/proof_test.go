package e2e_test

import (
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/passes"
)

// unguarded writes a state of its own whether or not the step is skipped.
func unguarded(u *ampc.Update, gs []ampc.Grad) []ampc.Grad {
	v := u.IR().Declare(ir.State, "last", gs[0].Param.IR().Type, &ir.Init{Args: []float64{0}}, nil)
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
		_, err := m.Train(c, ampc.Loss{Value: m.ReduceMean(m.Square(m.Linear("fc", x, 8)))})
		return err
	}
	if err := train(func(*ampc.TrainConfig) {}); err != nil {
		t.Error(err)
	}
	err := train(func(c *ampc.TrainConfig) { c.Gradients = unguarded })
	if err == nil || !strings.HasPrefix(err.Error(), "proof_test.go:15: select: %last'") {
		t.Errorf("an unguarded write: %v, want the user's line", err)
	}
	if err := train(func(c *ampc.TrainConfig) { c.Gradients, c.Compile.NoProof = unguarded, true }); err != nil {
		t.Error(err)
	}
}

// What a pass breaks is the compiler's fault, and the error says so beside the
// line of the node.
func TestFaultsOfTheCompiler(t *testing.T) {
	m := ampc.New("m")
	x := m.Input("x", ampc.F32, 4, 8)
	loss := ampc.Loss{Value: m.ReduceMean(m.Named("sq").Square(m.Linear("fc", x, 8)))}
	g, c, err := m.Source(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16()}, loss)
	if err != nil {
		t.Fatal(err)
	}
	c.After = func(e passes.Event) {
		if e.Pass == "order" { // the last one before the proof
			e.Graph.Value("sq").Def.Op = ir.OpAbs
		}
	}
	err = passes.Run(g, c)
	if err == nil || !strings.Contains(err.Error(), "this is a fault of the compiler, please report it") || !strings.Contains(err.Error(), "proof_test.go:") {
		t.Errorf("a square that became an absolute value: %v", err)
	}
}

// Losses of one shape, which differ in the start values of their sweeps alone, are told apart.
func TestLossesOfOneShapeAreProved(t *testing.T) {
	own := ampc.Dynamic()
	for name, second := range map[string]ampc.Loss{"alike": {}, "weighted": {Weight: 0.5}, "scaled apart": {Scaler: &own}} {
		for _, p := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16()} {
			m := ampc.New("losses")
			x, w := m.Input("x", ampc.F32, 4, 4), m.Param("w", ampc.Fill(1), 4, 4)
			first := ampc.Loss{Value: m.ReduceSum(m.Square(m.Matmul(x, w)))}
			second.Value = m.ReduceSum(w)
			proved(t, name+" under "+p.Name, m, ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}, first, second)
		}
	}
}

// Losses of unlike terms, each with its own start value, are told apart where the gradients of their
// terms are alike, and where a term is part of both.
func TestLossesOfAlikeTermsAreProved(t *testing.T) {
	for _, kind := range []string{"counted", "alike", "shared"} {
		for _, p := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16()} {
			m := ampc.New("terms")
			v, w := m.Param("v", ampc.Fill(1), 1, 4), m.Param("w", ampc.Fill(1), 3)
			mean := m.ReduceMean(m.Square(v))
			c := ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3), Micro: 2}
			term := map[string]ampc.Tensor{"counted": m.CrossEntropy(v, m.Input("y", ampc.I32, 1)), "alike": m.ReduceMean(m.Exp(v)), "shared": mean}[kind]
			first := ampc.Loss{Value: m.Add(term, m.ReduceSum(m.Square(w)))}
			second := ampc.Loss{Value: m.Add(mean, m.ReduceSum(w)), Weight: 0.5}
			proved(t, kind+" under "+p.Name, m, c, first, second)
		}
	}
}

// A loss that adds a term twice starts with its seed for each time.
func TestLossesOfRepeatedTermsAreProved(t *testing.T) {
	for _, p := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16()} {
		m := ampc.New("repeated")
		v, w := m.Param("v", ampc.Fill(1), 1, 4), m.Param("w", ampc.Fill(1), 3)
		mean := m.ReduceMean(m.Square(v))
		loss := m.Add(m.Add(m.ReduceSum(w), m.ReduceMean(m.Square(v))), m.Add(mean, mean))
		proved(t, "repeated under "+p.Name, m, ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}, ampc.Loss{Value: loss})
	}
}

// A metric whose gradient would be that of the loss is no loss.
func TestMetricsAreNoLosses(t *testing.T) {
	m := ampc.New("metric")
	w := m.Param("w", ampc.Fill(1), 4)
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3), Outputs: []ampc.Output{{Tensor: m.ReduceMean(w)}}}
	proved(t, "metric", m, c, ampc.Loss{Value: m.ReduceMean(m.Square(w))})
}

// What a pinned op moves back to its operand is as wide as the pin says, whatever computed it.
func TestGradientsOfPinnedMovesAreProved(t *testing.T) {
	for name, op := range map[string]func(m, low *ampc.Model, x, w ampc.Tensor) ampc.Tensor{
		"concat": func(m, low *ampc.Model, x, w ampc.Tensor) ampc.Tensor { return m.Square(low.Concat(0, x, w)) },
		"sum": func(m, low *ampc.Model, x, w ampc.Tensor) ampc.Tensor {
			return m.MSE(low.ReduceSum(w, ampc.ReduceOptions{Axes: []int{1, 2}}), m.Input("y", ampc.F32, 2))
		},
		"lstm": func(m, low *ampc.Model, x, w ampc.Tensor) ampc.Tensor {
			return m.Square(m.GatherElements(low.LSTM("l", x, 4), m.Input("i", ampc.I32, 2, 2, 4), 1))
		},
	} {
		for _, p := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16()} {
			m := ampc.New(name)
			loss := m.ReduceSum(op(m, m.Precision(ampc.PinLow), m.Input("x", ampc.F32, 2, 3, 4), m.Param("w", ampc.Fill(1), 2, 3, 4)))
			proved(t, name+" under "+p.Name, m, ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}, ampc.Loss{Value: loss})
		}
	}
}

// What backward recomputes of a norm pinned to 16 bits reads its operand as the norm does.
func TestPinnedNormsAreProved(t *testing.T) {
	for name, norm := range map[string]func(low *ampc.Model, w ampc.Tensor) ampc.Tensor{
		"rms":   func(low *ampc.Model, w ampc.Tensor) ampc.Tensor { return low.RMSNorm("n", w) },
		"layer": func(low *ampc.Model, w ampc.Tensor) ampc.Tensor { return low.LayerNorm("n", w) },
		"instance": func(low *ampc.Model, w ampc.Tensor) ampc.Tensor {
			return low.InstanceNormWith(w, ampc.Tensor{}, ampc.Tensor{})
		},
	} {
		m := ampc.New(name)
		loss := m.ReduceSum(m.Square(norm(m.Precision(ampc.PinLow), m.Param("w", ampc.Fill(1), 2, 3, 4))))
		proved(t, name, m, ampc.TrainConfig{Policy: ampc.MixedF16(), Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}, ampc.Loss{Value: loss})
	}
}

// A step with a bound on its memory is proved as any other.
func TestBoundedStepsAreProved(t *testing.T) {
	m := ampc.New("bounded")
	loss := m.ReduceSum(m.Square(m.Linear("fc", m.Input("x", ampc.F32, 4, 4), 4)))
	proved(t, "bounded", m, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3), Memory: 1 << 20}, ampc.Loss{Value: loss})
}

// A pool whose positions backward searches again may run again as a whole, too, where memory is short.
func TestPoolsUnderBounds(t *testing.T) {
	full := pooled(t, 0)
	bounded := 0
	for percent := int64(99); percent >= 60; percent -= 3 {
		if pooled(t, full*percent/100) > 0 {
			bounded++
		}
	}
	if bounded == 0 {
		t.Error("no bound is met")
	}
}

// pooled trains a model with max pools within a bound and returns the bytes of its program; 0 where the bound is too small.
func pooled(t *testing.T, bound int64) (size int64) {
	t.Helper()
	m := ampc.New("pooled", ampc.Seed(1))
	defer m.Close()
	h := m.Input("x", ampc.F32, 4, 3, 32, 32)
	for _, name := range []string{"a", "b", "c"} {
		h = m.Conv2d(name, h, 8, 3, ampc.Conv2dOptions{Padding: 1})
		h = m.MaxPool2d(m.Tanh(h), 3, ampc.Pool2dOptions{Stride: 1, Padding: 1})
	}
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3), Memory: bound}, ampc.Loss{Value: m.ReduceMean(m.Square(h))})
	if err != nil {
		if !strings.Contains(err.Error(), "at least") {
			t.Errorf("within %d bytes: %v", bound, err)
		}
		return 0
	}
	for _, arena := range step.Program().Arenas {
		size += arena
	}
	return size
}

// proved trains m and wants a proof without findings.
func proved(t *testing.T, name string, m *ampc.Model, c ampc.TrainConfig, losses ...ampc.Loss) {
	t.Helper()
	defer m.Close()
	step, err := m.Train(c, losses...)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if findings, err := step.Prove(); err != nil || len(findings) > 0 {
		t.Errorf("%s: %v, %v", name, findings, err)
	}
}

package ampc_test

import (
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
)

// A tensor that is called like a result of the compiler is the user's.
func TestResultsAreNotFoundByName(t *testing.T) {
	for _, name := range []string{"scale", "skip", "grad_norm", "lr", "found_inf", "never", "zero", "one", "unscaled", "d.fc.w"} {
		m := ampc.New("named")
		x, y := m.Input("x", ampc.F32, 4, 3), m.Input("y", ampc.I32, 4)
		mine := m.Named(name).ReduceSum(x)
		loss := m.CrossEntropy(m.Linear("fc", x, 2), y)
		s := train(t, m, loss, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.25), Policy: ampc.MixedF16(), Outputs: []ampc.Output{{Tensor: mine}}, Micro: 2, BadMicro: ampc.DropMicro,
			Grads: []ampc.Tensor{m.Lookup("fc.w")}, Clip: ampc.ClipNorm(1)})
		r := run(t, s, ampc.Feed{"x": []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "y": []int32{0, 1, 0, 1}})
		if h, err := r.Value(mine); err != nil || h.At(0) != 78 {
			t.Errorf("%s: %v, want 78 (%v)", name, h, err)
		}
		if metrics(t, r).LR != 0.25 || metrics(t, r).Scale != 65536 || metrics(t, r).Skipped {
			t.Errorf("%s: rate %g, scale %g, skipped %t", name, metrics(t, r).LR, metrics(t, r).Scale, metrics(t, r).Skipped)
		}
		if g, err := r.Grad(m.Lookup("fc.w")); err != nil || g.Len() != 6 {
			t.Errorf("%s: gradient %v (%v)", name, g, err)
		}
		m.Close()
	}
}

// An input called seed, attempt or micro is not what dropout draws by.
func TestInputsAreNotDropoutsSeed(t *testing.T) {
	draw := func(names ...string) float64 {
		m := ampc.New("drop")
		x := m.Input("x", ampc.F32, 64)
		f := ampc.Feed{"x": ramp(64)}
		for _, name := range names {
			x = m.Add(x, m.Cast(m.Input(name, ampc.I32), ampc.F32))
			f[name] = 0
		}
		loss := m.ReduceSum(m.Mul(m.Dropout("drop", x, 0.5), m.Param("w", ampc.Fill(1), 64)))
		s := train(t, m, loss, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0), Micro: 2})
		defer m.Close()
		return metrics(t, run(t, s, f)).Loss
	}
	if plain, taken := draw(), draw("seed", "attempt", "micro", "step"); plain != taken {
		t.Errorf("the loss is %g, and %g with inputs called seed, attempt and micro", plain, taken)
	}
}

func ramp(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i + 1)
	}
	return x
}

// What belongs to another model is refused where it is used, with that line.
func TestTensorsOfAnotherModelAreRefused(t *testing.T) {
	build := func() (*ampc.Model, ampc.Tensor, ampc.Tensor) {
		m := ampc.New("mine")
		x, y := m.Input("x", ampc.F32, 4, 3), m.Input("y", ampc.I32, 4)
		return m, x, m.CrossEntropy(m.Linear("fc", x, 2), y)
	}
	_, x, foreign := build()
	config := func(f func(*ampc.TrainConfig)) ampc.TrainConfig {
		c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}
		f(&c)
		return c
	}
	for what, f := range map[string]func(m *ampc.Model, own ampc.Tensor) error{
		"loss": func(m *ampc.Model, _ ampc.Tensor) error {
			_, err := m.Train(config(func(*ampc.TrainConfig) {}), ampc.Loss{Value: foreign})
			return err
		},
		"output": func(m *ampc.Model, own ampc.Tensor) error {
			_, err := m.Train(config(func(c *ampc.TrainConfig) { c.Outputs = []ampc.Output{{Tensor: foreign}} }), ampc.Loss{Value: own})
			return err
		},
		"gradient": func(m *ampc.Model, own ampc.Tensor) error {
			_, err := m.Train(config(func(c *ampc.TrainConfig) { c.Grads = []ampc.Tensor{x} }), ampc.Loss{Value: own})
			return err
		},
		"infer":   func(m *ampc.Model, _ ampc.Tensor) error { _, err := m.Infer(ampc.InferConfig{}, foreign); return err },
		"operand": func(m *ampc.Model, own ampc.Tensor) error { m.Add(own, foreign); return m.Err() },
		"layer":   func(m *ampc.Model, _ ampc.Tensor) error { m.Linear("other", x, 2); return m.Err() },
		"grad":    func(m *ampc.Model, own ampc.Tensor) error { m.Grad(own, x); return m.Err() },
		"return":  func(m *ampc.Model, _ ampc.Tensor) error { m.IR().Return(x.IR()); return m.Err() },
	} {
		m, _, own := build()
		err := f(m, own)
		if err == nil || !strings.HasPrefix(err.Error(), "identity_test.go:") || !strings.Contains(err.Error(), "is a tensor of another model than") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Users take no name of the compiler's.
func TestReservedNames(t *testing.T) {
	for what, f := range map[string]func(m *ampc.Model, x ampc.Tensor){
		"param":   func(m *ampc.Model, _ ampc.Tensor) { m.Param("amp.lr", ampc.Zeros(), 2) },
		"input":   func(m *ampc.Model, _ ampc.Tensor) { m.Input("amp.micro", ampc.I32) },
		"scope":   func(m *ampc.Model, x ampc.Tensor) { m.Scope("amp").Relu(x) },
		"results": func(m *ampc.Model, x ampc.Tensor) { m.Named("amp").TopK(x, 1, 1) },
		"named":   func(m *ampc.Model, x ampc.Tensor) { m.Named("amp.scale").Relu(x) },
		"layer":   func(m *ampc.Model, x ampc.Tensor) { m.Linear("amp.fc", x, 2) },
	} {
		m := ampc.New("mine")
		f(m, m.Input("x", ampc.F32, 4, 3))
		if err := m.Err(); err == nil || !strings.HasPrefix(err.Error(), "identity_test.go:") || !strings.Contains(err.Error(), `names that begin with "amp." are the compiler's own`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, text := range []string{
		"  param %amp.lr : f32[2] = 1\nforward:\n  %l = reduce_sum %amp.lr {axes=[0]} : f32[]\n",
		"  input %amp.micro : f32[2]\nforward:\n  %l = reduce_sum %amp.micro {axes=[0]} : f32[]\n",
		"  state %amp.s : f32[2] = 1\nforward:\n  %l = reduce_sum %amp.s {axes=[0]} : f32[]\n",
		"  const %amp.c : f32[2] = 1\nforward:\n  %l = reduce_sum %amp.c {axes=[0]} : f32[]\n",
		"  param %w : f32[2] = 1\nforward:\n  %amp.scale = relu %w : f32[2]\n  %l = reduce_sum %amp.scale {axes=[0]} : f32[]\n",
		"  param %w : f32[2] = 1\nforward:\n  %amp.l, %amp.k = topk %w {k=1} : f32[1], i64[1]\n  %l = reduce_sum %amp.l {axes=[0]} : f32[]\n",
	} {
		g, err := ir.Parse("t.ir", []byte("graph @t {\n"+text+"  return %l\n}"))
		if err != nil {
			t.Fatal(err)
		}
		if err := ampc.FromGraph(g).Err(); err == nil || !strings.Contains(err.Error(), "the compiler's own") {
			t.Errorf("a parsed graph: %v\n%s", err, text)
		}
	}
}

// The name of a step is TrainConfig.Name, whatever was compiled before, and two open
// steps have two.
func TestStepNamesAreTheirOwn(t *testing.T) {
	m, loss := small(4)
	defer m.Close()
	if _, err := m.Infer(ampc.InferConfig{}, loss); err != nil {
		t.Fatal(err)
	}
	first := ampc.TrainConfig{Optimizer: ampc.SGD(0.9), LR: ampc.Constant(0.1)}
	s, err := m.Train(first, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, points(1, 4))
	if _, err := m.Variable("amp.step"); err != nil {
		t.Errorf("%v; there are %q", err, m.Variables())
	}
	second := ampc.TrainConfig{Optimizer: ampc.Adam(), LR: ampc.Constant(0.1)}
	if _, err := m.Train(second, ampc.Loss{Value: loss}); err == nil || !strings.HasPrefix(err.Error(), "identity_test.go:") || !strings.Contains(err.Error(), "Step.For") {
		t.Errorf("a second step without a name: %v", err)
	}
	second.Name = "late"
	if _, err := m.Train(second, ampc.Loss{Value: loss}); err != nil {
		t.Fatal(err)
	}
	sgd, err := m.Variable("amp.sgd.m/fc1.w")
	if err != nil {
		t.Fatal(err)
	}
	adam, err := m.Variable("amp.late.adam.m/fc1.w")
	if err != nil || sgd.At(0) == 0 || adam.At(0) != 0 {
		t.Errorf("momentum %g, Adam's moment %g before its first step (%v)", sgd.At(0), adam.At(0), err)
	}
	if _, err := m.Train(second, ampc.Loss{Value: loss}); err == nil || !strings.Contains(err.Error(), `a training step "late" already`) {
		t.Errorf("two steps of one name: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Train(first, ampc.Loss{Value: loss}); err != nil { // it is there no more
		t.Error(err)
	}
}

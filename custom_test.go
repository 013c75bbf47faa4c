package ampc_test

import (
	"context"
	"strings"
	"testing"

	"ampc"
)

// sum2 is the custom op x + y, with an edit.
func sum2(edit func(op *ampc.CustomOp)) *ampc.CustomOp {
	op := &ampc.CustomOp{
		Name: "sum2", Doc: "x + y.", Operands: []ampc.CustomOperand{{Name: "x"}, {Name: "y"}}, Results: []ampc.CustomResult{{Name: "z"}},
		Attrs: []ampc.CustomAttr{{Name: "beta", Default: 1.0, Doc: "nothing"}},
		Infer: func(c *ampc.CustomCall) ([]ampc.Type, error) { return []ampc.Type{c.Operand(0).Type()}, nil },
		Grad: func(_ *ampc.Backward, _ *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor {
			return []ampc.Tensor{d[0], d[0]}
		},
		Kernel: func(_ *ampc.CustomCall, in, out []any) error {
			for i, x := range in[0].([]float32) {
				out[0].([]float32)[i] = x + in[1].([]float32)[i]
			}
			return nil
		},
	}
	if edit != nil {
		edit(op)
	}
	return op
}

// trainSum2 compiles a training step through op and runs it once.
func trainSum2(op *ampc.CustomOp) error {
	m := ampc.New("custom")
	defer m.Close()
	x := m.Input("x", ampc.F32, 2, 2)
	w, v := m.Param("w", ampc.Fill(1), 2, 2), m.Param("v", ampc.Fill(1), 2, 2)
	z := m.Apply(op, m.Mul(x, w), v)
	s, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, ampc.Loss{Value: m.ReduceSum(z)})
	if err != nil {
		return err
	}
	_, err = s.Run(context.Background(), ampc.Feed{"x": []float32{1, 2, 3, 4}})
	return err
}

// What is wrong in the functions and fields of a custom op is an error that names the op; it carries the line of the
// application and, for a panic, the line of that.
func TestCustomOpMistakes(t *testing.T) {
	type grads = func(b *ampc.Backward, c *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor
	grad := func(f grads) func(*ampc.CustomOp) { return func(op *ampc.CustomOp) { op.Grad = f } }
	infer := func(f func(c *ampc.CustomCall) ([]ampc.Type, error)) func(*ampc.CustomOp) {
		return func(op *ampc.CustomOp) { op.Infer = f }
	}
	kernel := func(f func(c *ampc.CustomCall, in, out []any) error) func(*ampc.CustomOp) {
		return func(op *ampc.CustomOp) { op.Kernel = f }
	}
	for name, c := range map[string]struct {
		edit func(op *ampc.CustomOp)
		want []string
	}{
		"scalar gradient": {grad(func(b *ampc.Backward, _ *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor {
			return []ampc.Tensor{b.ReduceSum(d[0]), d[0]}
		}), []string{"sum2: Grad returns", "f32[] as the gradient of operand x", "f32[2,2]"}},
		"one gradient": {grad(func(_ *ampc.Backward, _ *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor { return d }),
			[]string{"sum2: Grad returns 1 gradients, want 2"}},
		"three gradients": {grad(func(_ *ampc.Backward, _ *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor {
			return []ampc.Tensor{d[0], d[0], d[0]}
		}), []string{"sum2: Grad returns 3 gradients, want 2"}},
		"attribute in Grad": {grad(func(b *ampc.Backward, c *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor {
			return []ampc.Tensor{b.Affine(d[0], c.Float("gamma"), 0), d[0]}
		}), []string{`sum2: Grad: attribute "gamma"`, "custom_test.go:", "does not declare"}},
		"panic in Grad": {grad(func(_ *ampc.Backward, _ *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor { return d[:3] }),
			[]string{"sum2: Grad panics at custom_test.go:"}},
		"no types": {infer(func(*ampc.CustomCall) ([]ampc.Type, error) { return nil, nil }),
			[]string{"sum2: Infer returns 0 types, want 1"}},
		"two types": {infer(func(c *ampc.CustomCall) ([]ampc.Type, error) { return make([]ampc.Type, 2), nil }),
			[]string{"sum2: Infer returns 2 types, want 1"}},
		"zero type": {infer(func(c *ampc.CustomCall) ([]ampc.Type, error) { return make([]ampc.Type, 1), nil }),
			[]string{"sum2: Infer returns the zero Type for result z"}},
		"panic in Infer": {infer(func(c *ampc.CustomCall) ([]ampc.Type, error) { return []ampc.Type{c.Operand(5).Type()}, nil }),
			[]string{"sum2: Infer panics at custom_test.go:", "index out of range [5]"}},
		"attribute in Infer": {infer(func(c *ampc.CustomCall) ([]ampc.Type, error) {
			return []ampc.Type{ampc.TypeOf(ampc.F32, max(2, c.Int("beta")), 2)}, nil
		}), []string{`sum2: Infer: attribute "beta"`, "with this type"}},
		"panic in Kernel": {kernel(func(_ *ampc.CustomCall, _, out []any) error { out[0].([]float64)[0] = 1; return nil }),
			[]string{"sum2", "Kernel panics at custom_test.go:", "[]float32, not []float64"}},
		"attribute in Kernel": {kernel(func(c *ampc.CustomCall, _, _ []any) error { c.Text("gamma"); return nil }),
			[]string{"sum2", `Kernel: attribute "gamma"`}},
		"class":          {func(op *ampc.CustomOp) { op.Class = "lo" }, []string{`apply "sum2": its Class "lo" is none of low`}},
		"operand class":  {func(op *ampc.CustomOp) { op.Operands[1].Class = "lo" }, []string{`its Class "lo" is none of low`}},
		"name of words":  {func(op *ampc.CustomOp) { op.Name = "a b" }, []string{`apply "a b": its Name is not a word`}},
		"name, a number": {func(op *ampc.CustomOp) { op.Name = "12" }, []string{`apply "12": its Name is not a word`}},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, trainSum2(sum2(c.edit)), append(c.want, "custom_test.go:")...)
		})
	}
	if err := trainSum2(sum2(nil)); err != nil {
		t.Error(err)
	}
}

// A copy of an op that was used is another op: what is changed in it counts.
func TestCopiedCustomOp(t *testing.T) {
	op := sum2(nil)
	run := func(op *ampc.CustomOp) float64 {
		m := ampc.New("copy")
		defer m.Close()
		x := m.Input("x", ampc.F32, 1)
		z := m.Apply(op, x, x)
		s, err := m.Infer(ampc.InferConfig{}, z)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(context.Background(), ampc.Feed{"x": []float32{2}})
		if err != nil {
			t.Fatal(err)
		}
		v, err := r.Value(z)
		if err != nil {
			t.Fatal(err)
		}
		return v.At(0)
	}
	if got := run(op); got != 4 {
		t.Errorf("sum2 of 2 and 2 is %g", got)
	}
	triple := *op
	triple.Kernel = func(_ *ampc.CustomCall, in, out []any) error {
		out[0].([]float32)[0] = 3 * in[0].([]float32)[0]
		return nil
	}
	if got := run(&triple); got != 6 {
		t.Errorf("the copy's kernel is not used: %g, want 6", got)
	}
	if row := op.IR(); row != op.IR() || row == triple.IR() {
		t.Error("want one row per op")
	}
}

// A custom op that keeps f32 may read 16 bits, and its Infer follow the operand: its result
// is f32, or 16 bits where StoresLow says so and a product alone reads it.
func TestKeptCustomOpReadsLow(t *testing.T) {
	for _, name := range []string{"f32", "mixed-f16", "mixed-bf16", "o1-f16", "o2-f16", "torch-f16"} {
		p, err := ampc.PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ reads, stores, follows, product bool }{
			{true, false, true, false}, {true, true, true, false}, {true, true, true, true}, {true, true, false, true}, {true, false, true, true}, {false, true, true, true},
		} {
			op := cube(c.reads, c.stores, c.follows)
			m := ampc.New("kept")
			h := m.Relu(m.Linear("fc1", m.Input("x", ampc.F32, 4, 8), 8))
			z := m.Apply(op, h)
			y := m.Exp(z)
			if c.product {
				y = m.Linear("fc2", z, 8)
			}
			s, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Policy: p}, ampc.Loss{Value: m.ReduceMean(y)})
			if err != nil {
				t.Errorf("%s, %+v: %v", name, c, err)
				continue
			}
			want := ampc.F32
			if c.product && c.stores && strings.HasPrefix(name, "mixed") {
				want = p.Low
			}
			for _, n := range s.Graph().Nodes {
				kept := !c.stores || strings.HasPrefix(name, "mixed") // else casts may be part of the kernel
				if n.Custom != nil && kept && ampc.DType(n.Out[0].Type.DType) != want {
					t.Errorf("%s, %+v: the result is %s, want %s", name, c, n.Out[0].Type.DType, want)
				}
			}
			if _, err := s.Run(context.Background(), ampc.Feed{"x": make([]float32, 32)}); err != nil {
				t.Errorf("%s, %+v: %v", name, c, err)
			}
			m.Close()
		}
	}
}

// cube is the custom op x³.
func cube(reads, stores, follows bool) *ampc.CustomOp {
	return &ampc.CustomOp{
		Name: "cube", Doc: "x³.", Class: ampc.ClassKeep, Why: "a power needs range",
		Operands: []ampc.CustomOperand{{Name: "x", ReadsLow: reads}}, Results: []ampc.CustomResult{{Name: "y", StoresLow: stores}},
		Infer: func(c *ampc.CustomCall) ([]ampc.Type, error) {
			if follows {
				return []ampc.Type{c.Operand(0).Type()}, nil
			}
			return []ampc.Type{c.Operand(0).Type().With(ampc.F32)}, nil
		},
		Grad: func(b *ampc.Backward, c *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor {
			return []ampc.Tensor{b.Mul(d[0], b.Affine(b.Square(c.Operand(0)), 3, 0))}
		},
		Kernel: func(_ *ampc.CustomCall, in, out []any) error {
			for i, x := range in[0].([]float32) {
				out[0].([]float32)[i] = x * x * x
			}
			return nil
		},
	}
}

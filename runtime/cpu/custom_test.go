package cpu

import (
	"context"
	"errors"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/runtime/runtimetest"
)

// swish is a user's op, as a Go kernel or in simpler rows.
func swish(kernel ir.CustomKernel, expand func(b *ir.Builder, n *ir.Node) []*ir.Value) *ir.Def {
	return &ir.Def{
		Name: "swish", Doc: "x·sigmoid(x)", In: []ir.Operand{{Name: "x"}}, Out: []ir.Result{{Name: "y"}}, Class: ir.Keep, Why: "exp",
		Infer:  func(n *ir.Node) ([]ir.Type, error) { return []ir.Type{n.In[0].Type}, nil },
		Kernel: kernel, Expand: expand, NoGrad: "a test",
	}
}

func customGraph(t *testing.T, d *ir.Def, dt ir.DType) *ir.Graph {
	t.Helper()
	b := ir.NewBuilder("custom")
	x := b.Declare(ir.Input, "x", ir.T(dt, 3), nil, nil)
	b.Return(b.Neg(b.EmitCustom(d, []*ir.Value{x}, nil)[0]))
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	return b.Graph()
}

func TestCustomOps(t *testing.T) {
	double := func(_ *ir.Node, in, out []any) error {
		for i, x := range in[0].([]float32) {
			out[0].([]float32)[i] = 2 * x
		}
		return nil
	}
	inRows := func(b *ir.Builder, n *ir.Node) []*ir.Value { return []*ir.Value{b.Add(n.In[0], n.In[0])} }
	for _, d := range []*ir.Def{swish(double, nil), swish(nil, inRows)} {
		for _, dt := range []ir.DType{ir.F32, ir.F16, ir.F64} {
			l := runtimetest.Load(t, open(t, 1), customGraph(t, d, dt), 1)
			x := eval.Floats(dt, []ir.Dim{3}, 1, -2, 0.5)
			got := l.Step(t, map[string]*eval.Tensor{"x": x})["%neg"]
			for i, v := range x.F {
				if got.F[i] != -2*v {
					t.Errorf("%s element %d is %g, want %g", dt, i, got.F[i], -2*v)
				}
			}
		}
	}
}

func TestCustomOpsReportErrors(t *testing.T) {
	fails := func(*ir.Node, []any, []any) error { return errors.New("no luck") }
	l := runtimetest.Load(t, open(t, 1), customGraph(t, swish(fails, nil), ir.F32), 1)
	x := eval.Floats(ir.F32, []ir.Dim{3}, 1, 2, 3)
	_, err := l.Exec.Step(context.Background(), runtimetest.Feeds(map[string]*eval.Tensor{"x": x}))
	if err == nil || err.Error() != "custom: swish %swish: no luck" {
		t.Error(err)
	}
	p, err := lower.Lower(customGraph(t, swish(nil, nil), ir.F32), lower.CPU)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, 1).Load(p, mustStore(t)); err == nil || !strings.Contains(err.Error(), "the custom op swish has no Go kernel") {
		t.Error(err)
	}
}

func mustStore(t *testing.T) *store {
	t.Helper()
	s, err := open(t, 1).NewStore(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*store)
}

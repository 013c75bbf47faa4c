package passes

import (
	"path/filepath"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"

	"golang.org/x/tools/txtar"
)

// rowCases are the graphs of testdata/ops: one node of every row and variant.
func rowCases(t *testing.T, f func(t *testing.T, name, text string)) {
	paths, err := filepath.Glob("../testdata/ops/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases in testdata/ops: %v", err)
	}
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range a.Files {
			t.Run(file.Name, func(t *testing.T) { f(t, file.Name, string(file.Data)) })
		}
	}
}

// trainable turns a row's case into a model: its float operands that have a
// gradient are parameters, the loss is half the sum of squares of what it yields, and with inner set,
// that of the gradients of this sum instead.
func trainable(t *testing.T, text string, inner float64) *ir.Graph {
	t.Helper()
	g, err := ir.Parse("row.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var params []*ir.Value
	closed := map[*ir.Value]bool{}
	for _, n := range g.Nodes {
		for i, v := range n.In {
			closed[v] = closed[v] || n.OperandDef(i).NoGrad != ""
		}
	}
	for _, v := range g.Vars {
		if v.Kind == ir.Input && v.Type.DType == ir.F32 && !closed[v] {
			v.Kind = ir.Param
			params = append(params, v)
		}
	}
	b := ir.Edit(g)
	loss := halfSquares(b, g.Return)
	if loss == nil || len(params) == 0 {
		t.Skip("no float operand or result")
	}
	if inner != 0 {
		ds, _, err := Gradients(b, loss, params, GradScale{Scale: inner})
		if err != nil {
			t.Fatal(err)
		}
		if loss = halfSquares(b, ds); loss == nil {
			t.Skip("no gradient flows")
		}
	}
	loss = b.Rename(loss, "loss")
	g.Return = []*ir.Value{loss}
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	return g
}

// halfSquares is Σ v²/2 over the f32 values among vs.
func halfSquares(b *ir.Builder, vs []*ir.Value) *ir.Value {
	var sum *ir.Value
	for _, v := range vs {
		if v == nil || v.Type.DType != ir.F32 {
			continue
		}
		term := b.Affine(b.Mul(v, v), 0.5, 0)
		if v.Type.Shape.Rank() > 0 {
			term = b.ReduceSum(term, false)
		}
		if sum != nil {
			term = b.Add(sum, term)
		}
		sum = term
	}
	return sum
}

// moves trains one step and returns how far each parameter went.
func moves(t *testing.T, g *ir.Graph, s Scaler) map[string][]float64 {
	t.Helper()
	cfg := Config{Training: Training{Losses: []Loss{{Value: named("loss")}}, Groups: oneGroup(SGD(0), Constant(1)), Scaler: s, NoSkip: s.Mode != DynamicScale}}
	h, _, err := compileStep(g.String(), cfg)
	if err != nil {
		if strings.Contains(err.Error(), "no loss depends on any trained parameter") {
			t.Skip("no gradient flows")
		}
		t.Fatal(err)
	}
	r, err := eval.Step(h, map[string]*eval.Tensor{}, []map[string]*eval.Tensor{nil}, eval.Options{Float64: true})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]float64{}
	for _, v := range h.Vars {
		if v.Kind == ir.Param && r.Next[v.Name] != nil {
			start, err := eval.InitVar(v, 0)
			if err != nil {
				t.Fatal(err)
			}
			d := make([]float64, len(start.F))
			for i, x := range r.Next[v.Name].F {
				d[i] = start.F[i] - x
			}
			out[v.Name] = d
		}
	}
	return out
}

func equalMoves(t *testing.T, got, want map[string][]float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d parameters moved, want %d", len(got), len(want))
	}
	for name, w := range want {
		for i, x := range got[name] {
			if !close64(x, w[i], 1e-9) && x == x && x != w[i] { // x != w[i]: both may be infinite
				t.Errorf("%s[%d] moved %g with a scale, %g without", name, i, x, w[i])
				return
			}
		}
	}
}

// Every row that has a gradient trains under a loss scale: units fit all the
// way, and the scale changes nothing.
func TestEveryRowTrainsScaled(t *testing.T) {
	rowCases(t, func(t *testing.T, name, text string) {
		want := moves(t, trainable(t, text, 0), Unscaled())
		equalMoves(t, moves(t, trainable(t, text, 0), Static(1024)), want)
	})
}

// The same for a gradient of a gradient, with a scale inside and one outside.
func TestEveryGradientTrainsScaled(t *testing.T) {
	if testing.Short() {
		t.Skip("gradients of gradients of all rows run without -short")
	}
	rowCases(t, func(t *testing.T, name, text string) {
		want := moves(t, trainable(t, text, 1), Unscaled())
		equalMoves(t, moves(t, trainable(t, text, 64), Static(1024)), want)
	})
}

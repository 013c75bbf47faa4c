package cpu

import (
	"math"
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/runtime/runtimetest"
)

// TestOpCases runs every node of testdata/ops, among them the edges of each
// row's domain, and compares with the evaluator: exact rows bit for bit, the
// others to 1e-4 of the largest element among operands and result (the
// conformance suite holds them to their bounds).
func TestOpCases(t *testing.T) {
	paths, err := filepath.Glob("../../testdata/ops/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases in testdata/ops: %v", err)
	}
	b, err := Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, p := range paths {
		a, err := txtar.ParseFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			g, err := ir.Parse(f.Name, f.Data)
			if err != nil {
				t.Fatal(err)
			}
			if g.Body[ir.Forward][0].Def().Is(ir.Collective) {
				continue // no rule for one device
			}
			t.Run(f.Name, func(t *testing.T) { runCase(t, b, g) })
		}
	}
}

func runCase(t *testing.T, b *Backend, g *ir.Graph) {
	feed := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		x, err := eval.InitVar(v, 0)
		if err != nil {
			t.Fatal(err)
		}
		feed[v.Name] = x
	}
	l := runtimetest.Load(t, b, g, 0)
	defer l.Close(t)
	if _, err := PlanMemory(l.Program, 2); err != nil { // it runs kernels on zeros
		t.Errorf("its memory is not planned: %v", err)
	}
	got, want := l.Step(t, feed), l.Want(t, feed)
	inputs := 0.0
	for _, x := range feed {
		inputs = max(inputs, largest(x))
	}
	for i, v := range g.Return {
		exact := exactRow(v.Def)
		w := want[v.String()]
		if w == nil {
			t.Fatalf("result %d is missing", i)
		}
		top := max(inputs, largest(w))
		for e := range w.Len() {
			x, y := got[v.String()].At(e), w.At(e)
			same := x == y && math.Signbit(x) == math.Signbit(y) || x != x && y != y
			if !same && (exact || !(math.Abs(x-y) <= 1e-4*top)) {
				t.Errorf("%s element %d is %v, want %v\n%s", v, e, x, y, g)
				break
			}
		}
	}
}

// largest is the magnitude of the largest finite element.
func largest(x *eval.Tensor) float64 {
	top := 0.0
	for e := range x.Len() {
		if v := math.Abs(x.At(e)); v-v == 0 {
			top = max(top, v)
		}
	}
	return top
}

// exactRow reports whether a node gives the same bits everywhere.
func exactRow(n *ir.Node) bool {
	if n.Def().Elem != nil {
		code, _ := ir.NodeCode(n)
		exact, _ := code.Exact()
		return exact
	}
	return n.Def().Is(ir.Moves) || n.Def().Bound != nil && n.Def().Bound(n) == (ir.Bound{})
}

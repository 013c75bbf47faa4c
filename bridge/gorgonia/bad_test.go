package bridge

import (
	"fmt"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"ampc"
)

// vectorGraph is tanh of an input x of three elements, with a parameter w.
func vectorGraph() (g *G.ExprGraph, x, w, y *G.Node) {
	g = G.NewGraph()
	x = G.NewVector(g, G.Float32, G.WithShape(3), G.WithName("x"))
	w = G.NewVector(g, G.Float32, G.WithShape(3), G.WithName("w"))
	return g, x, w, must(G.Sum(must(G.Tanh(must(G.HadamardProd(x, w))))))
}

func floats(n int) *tensor.Dense {
	return tensor.New(tensor.WithShape(n), tensor.WithBacking(make([]float32, n)))
}

// Graphs that cannot be compiled are one clear error that names the node.
func TestRefusedGraphs(t *testing.T) {
	for _, c := range []struct {
		name string
		make func() *G.ExprGraph
		says []string
	}{
		{"a cycle among nodes that nothing reads", func() *G.ExprGraph {
			g, x, _, _ := vectorGraph()
			y := must(G.Exp(x))
			g.SetEdge(edge{y, must(G.Cos(must(G.Sin(y))))})
			return g
		}, []string{"cycle", "node "}},
		{"a constant alone", func() *G.ExprGraph {
			g := G.NewGraph()
			g.AddNode(G.NewConstant(float32(2)))
			return g
		}, []string{"computes nothing"}},
		{"complex numbers", func() *G.ExprGraph {
			g := G.NewGraph()
			x := G.NewVector(g, tensor.Complex64, G.WithShape(3), G.WithName("z"))
			must(G.Slice(x, G.S(1)))
			return g
		}, []string{`input "z"`, "complex64"}},
		{"too many dimensions", func() *G.ExprGraph {
			g := G.NewGraph()
			x := G.NewTensor(g, G.Float32, 10, G.WithShape(1, 1, 1, 1, 1, 1, 1, 1, 1, 1), G.WithName("deep"))
			must(G.Neg(x))
			return g
		}, []string{`input "deep"`, "rank 10"}},
		{"gorgonia.Set", func() *G.ExprGraph {
			g, x, _, _ := vectorGraph()
			G.Set(x, must(G.Neg(x)))
			return g
		}, []string{"gorgonia.letOp", "gorgonia.Let"}},
	} {
		_, err := NewMachine(c.make())
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		t.Logf("%s: %v", c.name, err)
		wantError(t, err, c.says...)
	}
}

// Values that do not fit are one clear error at the run, which the next run
// with right ones forgets. Let refuses most of them; a tensor that changes in
// its place passes it by.
func TestRefusedValues(t *testing.T) {
	g, x, w, cost := vectorGraph()
	if _, err := G.Grad(cost, w); err != nil {
		t.Fatal(err)
	}
	vm := machine(t, g)
	values := map[*G.Node]*tensor.Dense{x: floats(3), w: floats(3)}
	for _, n := range []*G.Node{x, w} {
		wantError(t, vm.RunAll(), `input "`+n.Name()+`"`, "no value", "gorgonia.Let")
		if err := G.Let(n, values[n]); err != nil {
			t.Fatal(err)
		}
	}
	for n, v := range values {
		for _, shape := range [][]int{{3, 1}, {1, 3}} {
			if err := v.Reshape(shape...); err != nil {
				t.Fatal(err)
			}
			wantError(t, vm.RunAll(), `input "`+n.Name()+`"`, fmt.Sprint(v.Shape()), "(3)", "each shape")
		}
		if err := v.Reshape(3); err != nil {
			t.Fatal(err)
		}
		if err := vm.RunAll(); err != nil {
			t.Errorf("after an error: %v", err)
		}
	}
}

// Options that name nothing are errors, not panics.
func TestRefusedOptions(t *testing.T) {
	g, _, w, y := vectorGraph()
	for _, opts := range [][]Option{
		{WithFetch(nil)}, {WithParams(nil)}, {WithCost(must(G.Exp(w)))}, {WithParams(w)},
		{WithOptimizer(ampc.SGD(0), ampc.Constant(1))}, {WithCost(y), WithOptimizer(ampc.SGD(0), ampc.Constant(1))},
	} {
		if _, err := NewMachine(g, opts...); err == nil {
			t.Errorf("%d options: no error", len(opts))
		} else {
			t.Log(err)
		}
	}
	if _, err := NewMachine(g, nil); err != nil {
		t.Errorf("no option: %v", err)
	}
	if _, err := Import(g, nil); err == nil {
		t.Error("a nil root was imported")
	}
}

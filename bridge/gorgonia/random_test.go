package bridge

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
)

// Random nodes have the moments that their constructors promise, and draw anew
// at every run. The generator is not Gorgonia's.
func TestRandomNodes(t *testing.T) {
	const n = 20000
	for _, c := range []struct {
		name           string
		make           func(g *G.ExprGraph) *G.Node
		mean, variance float64
		lo, hi         float64
	}{
		{"uniform", func(g *G.ExprGraph) *G.Node { return G.UniformRandomNode(g, G.Float32, -1, 3, n) }, 1, 16. / 12, -1, 3},
		{"uniform f64", func(g *G.ExprGraph) *G.Node { return G.UniformRandomNode(g, G.Float64, -1, 3, n/4, 4) }, 1, 16. / 12, -1, 3},
		{"gaussian", func(g *G.ExprGraph) *G.Node { return G.GaussianRandomNode(g, G.Float32, 2, 0.5, n) }, 2, 0.25, -2, 6},
		{"one trial", func(g *G.ExprGraph) *G.Node { return G.BinomialRandomNode(g, G.Float32, 1, 0.3, n) }, 0.3, 0.21, 0, 1},
		{"binomial", func(g *G.ExprGraph) *G.Node { return G.BinomialRandomNode(g, G.Float32, 7.9, 0.3, 2, n/2) }, 2.1, 1.47, 0, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := G.NewGraph()
			x := c.make(g)
			must(G.Neg(x))
			vm := machine(t, g, WithFetch(x))
			first := vector(t, vm, x)
			var sum, squares float64
			for i, v := range first {
				sum += v
				squares += (v - c.mean) * (v - c.mean)
				if v < c.lo || v > c.hi {
					t.Fatalf("element %d is %g, outside %g..%g", i, v, c.lo, c.hi)
				}
			}
			// Six standard deviations of a mean of n.
			if mean := sum / n; math.Abs(mean-c.mean) > 6*math.Sqrt(c.variance/n) {
				t.Errorf("mean is %g, want %g", mean, c.mean)
			}
			if v := squares / n; math.Abs(v-c.variance) > 0.1*c.variance {
				t.Errorf("variance is %g, want %g", v, c.variance)
			}
			if slices.Equal(first, vector(t, vm, x)) {
				t.Error("two runs draw the same numbers")
			}
		})
	}
}

// vector runs vm and copies what n then holds.
func vector(t *testing.T, vm *Machine, n *G.Node) []float64 {
	t.Helper()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	h, err := hostOf(n.Value())
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float64, h.Len())
	for i := range x {
		x[i] = h.At(i)
	}
	return x
}

// One run draws each random node once, whatever reads it. Two nodes differ, where
// Gorgonia does not merge them: those of equal shape and parameters are one.
func TestRandomNodesAreDrawnOnce(t *testing.T) {
	g := G.NewGraph()
	x, y := G.GaussianRandomNode(g, G.Float32, 0, 1, 64), G.GaussianRandomNode(g, G.Float32, 0, 2, 64)
	same, other := must(G.Sub(must(G.Neg(x)), must(G.Neg(x)))), must(G.Sub(must(G.Add(x, x)), y))
	vm := machine(t, g, WithFetch(same, other))
	for i, v := range vector(t, vm, same) {
		if v != 0 {
			t.Fatalf("element %d of x-x is %g", i, v)
		}
	}
	equal := 0
	for _, v := range vector(t, vm, other) {
		if v == 0 {
			equal++
		}
	}
	if equal > 1 {
		t.Errorf("two nodes draw %d equal numbers of 64", equal)
	}
}

func TestRandomNodeErrors(t *testing.T) {
	for _, c := range []struct {
		trials float64
		says   string
	}{{0, "0 trials"}, {1e6, "1000000 trials"}} {
		g := G.NewGraph()
		must(G.Neg(G.BinomialRandomNode(g, G.Float32, c.trials, 0.5, 8)))
		_, err := NewMachine(g)
		wantError(t, err, "gorgonia.randomOp", "node ", c.says)
	}
}

// No function of Gorgonia's API makes a clampOp, so the rule gets a struct with its fields.
func TestClamp(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float32, G.WithShape(5), G.WithName("x"))
	y := must(G.Neg(x))
	w, err := read(g)
	if err != nil {
		t.Fatal(err)
	}
	i := newImporter(w, []*G.Node{y}, nil, false)
	op := reflect.ValueOf(struct{ min, max G.Scalar }{G.NewF32(-2), G.NewF32(1)})
	v := i.rules["clampOp"](&call{importer: i, n: y, in: w.in[y], op: op})
	if i.b.Return(v); i.err != nil || i.b.Err() != nil {
		t.Fatal(i.err, i.b.Err())
	}
	if text := i.out.Graph.String(); !strings.Contains(text, "clip %x {hi=1 lo=-2}") {
		t.Errorf("a clamp becomes\n%s", text)
	}
}

package bridge

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/chewxy/hm"
	"gonum.org/v1/gonum/graph"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"ampc"
	"ampc/internal/trial"
)

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one about %v", parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has several lines", err)
	}
}

// userOp is an op of a program's own.
type userOp struct{ G.Iop }

func (userOp) Arity() int     { return 1 }
func (userOp) Type() hm.Type  { a := hm.TypeVariable('a'); return hm.NewFnType(a, a) }
func (userOp) String() string { return "mine" }

func TestBadGraphs(t *testing.T) {
	_, err := NewMachine(nil)
	wantError(t, err, "empty")
	_, err = NewMachine(G.NewGraph())
	wantError(t, err, "empty")
	_, err = Import(G.NewGraph())
	wantError(t, err, "empty")

	g := G.NewGraph()
	x := G.NewVector(g, G.Float32, G.WithShape(3), G.WithName("x"))
	_, err = NewMachine(g)
	wantError(t, err, "computes nothing")

	y := must(G.ApplyOp(userOp{}, x))
	_, err = NewMachine(g)
	wantError(t, err, "bridge.userOp", fmt.Sprint("node ", y.ID()), "no rule")

	g = G.NewGraph()
	x = G.NewVector(g, G.Float32, G.WithShape(3), G.WithName("x"))
	y = must(G.Tanh(must(G.Exp(x))))
	g.SetEdge(edge{x, y})
	_, err = NewMachine(g)
	wantError(t, err, "cycle")
	other := G.NewScalar(G.NewGraph(), G.Float32)
	_, err = Import(G.NewGraph(), other)
	wantError(t, err, "empty")

	m := mlp(2, 3, 2)
	_, err = NewMachine(m.g, WithCost(other))
	wantError(t, err, "cost")
	_, err = NewMachine(m.g, WithParams(m.cost))
	wantError(t, err, "input")
	_, err = NewMachine(m.g, WithFetch(other))
	wantError(t, err, "root")
	_, err = NewMachine(m.g, WithOptimizer(ampc.Optimizer{}, ampc.Constant(1)))
	wantError(t, err, "WithOptimizer")
}

func TestBadRuns(t *testing.T) {
	m := mlp(2, 3, 2)
	vm := machine(t, m.g)
	wantError(t, vm.RunAll(), `input "x"`, "no value", "Let")
	m.run(t, vm)
	// Let checks shapes; a tensor that is reshaped in its place passes it by.
	for n, v := range m.feed {
		if n.Name() == "x" {
			if err := v.Reshape(3, 2); err != nil {
				t.Fatal(err)
			}
			wantError(t, vm.RunAll(), `input "x"`, "(3, 2)", "(2, 3)", "each shape")
			if err := v.Reshape(2, 3); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.run(t, vm)
	if err := vm.Close(); err != nil {
		t.Fatal(err)
	}
	wantError(t, vm.RunAll(), "closed")
	wantError(t, vm.Sync(), "closed")
	if err := vm.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

// edge is one that no operand stands for.
type edge struct{ from, to *G.Node }

func (e edge) From() graph.Node         { return e.from }
func (e edge) To() graph.Node           { return e.to }
func (e edge) ReversedEdge() graph.Edge { return edge{e.to, e.from} }

// A float64 graph computes in f32 and gets float64 values.
func TestFloat64(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float64, G.WithShape(3), G.WithName("x"), G.WithValue(tensor.New(tensor.WithBacking([]float64{0.1, -2, 3}))))
	cost := must(G.Sum(must(G.Square(x))))
	if _, err := G.Grad(cost, x); err != nil {
		t.Fatal(err)
	}
	vm := machine(t, g)
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	if v, ok := cost.Value().Data().(float64); !ok || math.Abs(v-13.01) > 1e-5 {
		t.Errorf("cost is %v", cost.Value())
	}
	d, err := x.Grad()
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := d.Data().([]float64); !ok || math.Abs(v[1]+4) > 1e-6 {
		t.Errorf("gradient is %v", d)
	}
}

// An overflow is told to a solver on the host, and binds zeros.
func TestSkipped(t *testing.T) {
	m := mlp(4, 8, 6, 3)
	vm := machine(t, m.g, WithPolicy(ampc.MixedF16()), WithConfig(func(c *ampc.TrainConfig) { c.Scaler.Init = 1 << 24 }))
	skipped, taken := 0, 0
	for range 12 {
		m.run(t, vm)
		largest := 0.0
		for _, g := range m.grads(t) {
			for _, x := range g {
				largest = max(largest, math.Abs(x))
			}
		}
		if vm.Skipped() {
			skipped++
			if largest != 0 {
				t.Errorf("a skipped step binds gradients up to %g", largest)
			}
		} else if taken++; largest == 0 || largest > 10 {
			t.Errorf("a step at scale %g binds gradients up to %g", trial.Metrics(t, vm.Result()).Scale, largest)
		}
	}
	if skipped == 0 || taken == 0 {
		t.Errorf("%d steps skipped, %d taken: want some of both", skipped, taken)
	}
}

// Gradients that the user reads, and values fetched by name.
func TestReadsAndFetches(t *testing.T) {
	m := mlp(4, 8, 6, 3)
	var read G.Value
	w := m.params[0]
	G.Read(w.Deriv(), &read)
	hidden := m.g.AllNodes()[5]
	vm := machine(t, m.g, WithFetch(hidden))
	m.run(t, vm)
	g, err := w.Grad()
	if err != nil {
		t.Fatal(err)
	}
	if read == nil || read.Data().([]float32)[3] != g.Data().([]float32)[3] {
		t.Errorf("read %v, bound %v", read, g)
	}
	if hidden.Value() == nil {
		t.Errorf("%s was not fetched", hidden.Name())
	}
	_, err = NewMachine(m.g, WithOptimizer(ampc.SGD(0), ampc.Constant(1)))
	wantError(t, err, "inside")
}

// Without Grad: the machine differentiates by itself and steps by itself.
func TestWithoutGrad(t *testing.T) {
	g := G.NewGraph()
	w := G.NewVector(g, G.Float32, G.WithShape(2), G.WithName("w"), G.WithValue(tensor.New(tensor.WithBacking([]float32{4, -2}))))
	cost := must(G.Sum(must(G.Square(w))))
	vm := machine(t, g, WithCost(cost), WithParams(w), WithOptimizer(ampc.SGD(0), ampc.Constant(0.25)))
	for range 3 {
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
	}
	if err := vm.Sync(); err != nil {
		t.Fatal(err)
	}
	if v := w.Value().Data().([]float32); v[0] != 0.5 || v[1] != -0.25 {
		t.Errorf("w is %v, want [0.5 -0.25]", v)
	}
}

// What random ops draw with has names of its own, beside nodes of any name.
func TestNamesOfDraws(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithShape(2, 3), G.WithName("seed"), G.WithInit(G.Ones()))
	y := must(G.Add(must(G.Dropout(x, 0.5)), G.NewMatrix(g, tensor.Float32, G.WithShape(2, 3), G.WithName("amp.micro"), G.WithInit(G.Ones()))))
	imp, err := Import(g, y)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, v := range imp.Graph.Vars {
		if role, _ := v.Attr.Get("role").(string); role != "" {
			names[role] = v.Name
		} else if v.Name == "seed" {
			names["node"] = v.Name
		}
	}
	want := map[string]string{"node": "seed", "seed": "amp.seed", "attempt": "amp.attempt", "micro": "amp.micro_2"}
	if !maps.Equal(names, want) {
		t.Errorf("names %v, want %v", names, want)
	}
}

// Dropout scales its gradient as it scales its value, which Gorgonia does not.
func TestDropoutGradient(t *testing.T) {
	const p, n = 0.2, 2000
	g := G.NewGraph()
	ones := tensor.New(tensor.WithShape(n), tensor.WithBacking(tensor.Range(tensor.Float32, 0, n)))
	if err := ones.Memset(float32(1)); err != nil {
		t.Fatal(err)
	}
	x := G.NewVector(g, G.Float32, G.WithShape(n), G.WithName("x"), G.WithValue(ones))
	y := must(G.Dropout(x, p))
	cost := must(G.Sum(y))
	if _, err := G.Grad(cost, x); err != nil {
		t.Fatal(err)
	}
	vm := machine(t, g, WithFetch(y))
	var last []float32
	for range 2 {
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		d, err := x.Grad()
		if err != nil {
			t.Fatal(err)
		}
		kept, same := 0, 0
		v, dx := y.Value().Data().([]float32), d.Data().([]float32)
		for i := range v {
			if v[i] != dx[i] || v[i] != 0 && v[i] != 1.25 {
				t.Fatalf("element %d is %g, its gradient %g", i, v[i], dx[i])
			}
			if v[i] != 0 {
				kept++
			}
			if last != nil && last[i] == v[i] {
				same++
			}
		}
		if share := float64(kept) / n; math.Abs(share-(1-p)) > 0.05 {
			t.Errorf("a share of %g is kept", share)
		}
		if same == n {
			t.Error("two runs drop the same elements")
		}
		last = v
	}
}

// A batch norm's running statistics come back to its op.
func TestBatchNormStats(t *testing.T) {
	m := newNet()
	x := m.input("x", m.random(2, 4, 3, 5, 5))
	y, _, _, op, err := G.BatchNorm(m.weightsLike(x), nil, nil, 0.1, 1e-5)
	if err != nil {
		t.Fatal(err)
	}
	m.finish(must(G.Mean(must(G.Square(y)))))
	vm := machine(t, m.g)
	m.run(t, vm)
	first := append([]float32(nil), statsOf(op)...)
	m.run(t, vm)
	second := statsOf(op)
	if first[0] == 0 || math.Abs(float64(second[0]/first[0])-1.9) > 1e-4 {
		t.Errorf("the running mean went to %g, then %g: want 1.9 times as much", first[0], second[0])
	}
}

func statsOf(op *G.BatchNormOp) []float32 {
	mean, _ := op.Stats()
	return mean.Data().([]float32)
}

// weightsLike is x times a parameter, so that there is something to train.
func (m *net) weightsLike(x *G.Node) *G.Node {
	return must(G.HadamardProd(x, m.param("w", m.random(1, x.Shape()...))))
}

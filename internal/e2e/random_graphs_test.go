package e2e_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/optim"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

var (
	randomGraphs    = flag.Int("graphs", 120, "how many random graphs to compile and run")
	randomGraphSeed = flag.Uint64("graphs-seed", 1, "what random graphs are drawn from")
	randomGraph     = flag.Int("graph", -1, "the number of the one random graph to print, compile and run")
)

// Random graphs of all rows compile under every policy to steps that are proved and verified. They give
// the same bits with several workers as with one, in composed kernels, in passes and node by node, and
// every node agrees with the evaluator within its row's bound.
func TestRandomGraphs(t *testing.T) {
	n := *randomGraphs
	if testing.Short() {
		n = min(n, 25)
	}
	first, end := 0, n
	if *randomGraph >= 0 {
		first, end = *randomGraph, *randomGraph+1
	}
	backends := graphBackends(t)
	trained, inferred, compared, ops := 0, 0, 0, map[string]bool{}
	for i := first; i < end; i++ {
		x := growStep(t, *randomGraphSeed, i)
		x.check(t, backends)
		switch {
		case x.step == nil:
		case x.trains:
			trained++
		default:
			inferred++
		}
		compared += x.compared
		for _, n := range x.m.Graph().Nodes {
			ops[n.Op.String()] = true
		}
		x.m.Close()
	}
	t.Logf("%d trained, %d inferred, of %d ops; %d nodes compared", trained, inferred, len(ops), compared)
	if *randomGraph < 0 && (trained < n/4 || inferred < n/4 || compared < 5*n) {
		t.Errorf("of %d graphs only %d train and %d infer, with %d nodes compared", n, trained, inferred, compared)
	}
}

// graphBackends are the backends on which steps must give the same bits.
func graphBackends(t *testing.T) (list []*cpu.Backend) {
	for _, x := range []struct {
		workers int
		compose string
	}{{1, "on"}, {3, "on"}, {2, "off"}} {
		p, err := kern.Detect(func(name string) string {
			return map[string]string{"AMPC_COMPOSE": x.compose, "AMPC_CPU": os.Getenv("AMPC_CPU")}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		b := cpu.OpenPath(p, x.workers)
		t.Cleanup(func() { b.Close() })
		list = append(list, b)
	}
	return list
}

// grownStep is a random graph and how it is compiled.
type grownStep struct {
	name   string // of the test's messages
	m      *ampc.Model
	feeds  []map[string]*eval.Tensor
	trains bool
	step   *ampc.Step // nil: the graph is not one that can be compiled
	err    error

	compared int // nodes
}

// growStep draws and compiles graph i of a seed.
func growStep(t *testing.T, seed uint64, i int) *grownStep {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	w := runtimetest.NewGrower(r)
	for k := 2 + r.IntN(10); k > 0 || len(w.Values) < 4; k-- {
		w.Grow()
	}
	x := &grownStep{m: ampc.FromGraph(w.Graph, ampc.Seed(1)), trains: r.IntN(3) > 0, feeds: []map[string]*eval.Tensor{w.Feed(), w.Feed()}}
	values := make([]ampc.Tensor, len(w.Values))
	for k, v := range w.Values {
		values[k] = x.m.Lookup(v.Name)
	}
	loss := lossOver(x.m, r, values)
	c, losses, err := drawStep(x.m, r, values, loss)
	if err != nil {
		t.Fatal(err)
	}
	if r.IntN(4) == 0 {
		c.Optimizer = optim.Lion(optim.LionOptions{})
	}
	if x.trains {
		x.feeds = x.feeds[:min(c.Micro, 2)]
		c.Micro = len(x.feeds)
		if *randomGraph >= 0 {
			printModel(t, x.m, c, losses)
		}
		x.step, x.err = x.m.Train(c, losses...)
	} else {
		x.feeds = x.feeds[:1]
		outs := slices.Compact([]ampc.Tensor{values[len(values)-1], values[r.IntN(len(values))]})
		x.step, x.err = x.m.Infer(ampc.InferConfig{Policy: c.Policy}, outs...)
	}
	if x.err == nil {
		x.dropUnread()
	}
	x.name = fmt.Sprintf("graph %d of -graphs-seed %d under %s, trained %t", i, seed, c.Policy.Name, x.trains)
	return x
}

// dropUnread drops what is fed to inputs that the step does not read.
func (x *grownStep) dropUnread() {
	g := x.step.Graph()
	for _, feed := range x.feeds {
		maps.DeleteFunc(feed, func(name string, _ *eval.Tensor) bool {
			return !slices.ContainsFunc(g.Vars, func(v *ir.Value) bool { return v.Name == name })
		})
	}
}

// lossOver is a loss over the last value and two others.
func lossOver(m *ampc.Model, r *rand.Rand, values []ampc.Tensor) ampc.Tensor {
	mean := func(x ampc.Tensor) ampc.Tensor { return m.ReduceMean(m.Square(m.Cast(x, ampc.F32))) }
	loss := mean(values[len(values)-1])
	for range 2 {
		loss = m.Add(loss, mean(values[r.IntN(len(values))]))
	}
	return loss
}

// refusals lists the errors for graphs that do not compile because of the source.
var refusals = []string{
	"no trained parameter is in the loss",
	"no loss depends on any trained parameter",
	"needs a gradient, and none flows",
	"keeps weights in 16 bits alone",
	"operand dtypes differ", // under manual
}

func (x *grownStep) check(t *testing.T, backends []*cpu.Backend) {
	t.Helper()
	if *randomGraph >= 0 && x.step != nil {
		fmt.Println(x.step.Graph())
	}
	if x.err != nil {
		if !slices.ContainsFunc(refusals, func(s string) bool { return strings.Contains(x.err.Error(), s) }) {
			t.Errorf("%s: %v", x.name, x.err)
		}
		return
	}
	found, err := x.step.Prove()
	if err != nil || len(found) > 0 {
		t.Errorf("%s: %v, %v", x.name, found, err)
	}
	var want map[string]*eval.Tensor
	for k, b := range backends {
		got := x.run(t, b)
		if want == nil {
			want = got
		}
		for name, w := range want {
			if !sameNumbers(w, got[name]) {
				t.Errorf("%s: %s differs on backend %d", x.name, name, k)
			}
		}
	}
	x.checkNodes(t, backends[len(x.name)%len(backends)], want)
}

// run gives the results of two steps, and the variables that they leave.
func (x *grownStep) run(t *testing.T, b *cpu.Backend) map[string]*eval.Tensor {
	l := runtimetest.Load(t, b, x.step.Graph(), 1)
	defer l.Close(t)
	all := map[string]*eval.Tensor{}
	for k := range 2 {
		for name, y := range l.Step(t, x.feeds...) {
			all[fmt.Sprint(name, " of step ", k)] = y
		}
	}
	for name, y := range l.Variables(t) {
		all[name] = y
	}
	return all
}

// checkNodes compares each node of the step with the evaluator, and the results of nodes that run alone with want.
func (x *grownStep) checkNodes(t *testing.T, b *cpu.Backend, want map[string]*eval.Tensor) {
	l := runtimetest.Load(t, b, runtimetest.WithAllReturned(x.step.Graph()), 1)
	defer l.Close(t)
	got := l.Step(t, x.feeds[0])
	for name, y := range got {
		if w := want[name+" of step 0"]; len(x.feeds) == 1 && w != nil && !sameNumbers(y, w) {
			t.Errorf("%s: %s differs where all nodes run alone", x.name, name)
		}
	}
	problems, compared := l.CheckNodes(x.feeds[0], got)
	x.compared += compared
	for _, p := range problems {
		t.Errorf("%s: %s", x.name, p)
	}
}

// sameNumbers reports whether x and y have the same bits, all NaN being alike.
func sameNumbers(x, y *eval.Tensor) bool {
	if x == nil || y == nil || x.Type != y.Type {
		return false
	}
	for i, v := range x.F {
		if w := y.F[i]; !(v != v && w != w) && math.Float64bits(v) != math.Float64bits(w) {
			return false
		}
	}
	return x.F != nil || bytes.Equal(x.Bytes(), y.Bytes())
}

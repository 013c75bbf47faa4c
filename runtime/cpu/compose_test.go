package cpu_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

// composing are the paths of this process that compose kernels, the first and the last of them: those of AVX-512 compose the
// same. It skips the test if there are none.
func composing(tb testing.TB) (names []string) {
	tb.Helper()
	why := ""
	for _, p := range kern.Paths() {
		ok, refused := p.Composes()
		if why += refused; ok {
			names = append(names[:min(len(names), 1)], p.Name())
		}
	}
	if len(names) == 0 {
		tb.Skip("this process composes no kernels: " + why)
	}
	return names
}

// pathWith is the path of a name with AMPC_COMPOSE set to what is given.
func pathWith(tb testing.TB, name, compose string) *kern.Path {
	tb.Helper()
	p, err := kern.Detect(func(variable string) string {
		return map[string]string{"AMPC_CPU": name, "AMPC_COMPOSE": compose}[variable]
	})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// more is a chain of n nodes behind %y0.
func more(op string, n int) (chain string) {
	for i := range n {
		chain += fmt.Sprintf("  %%y%d = %s %%y%d\n", i+1, op, i)
	}
	return chain
}

// composedGraphs are elementwise clusters.
var composedGraphs = map[string]string{
	"mish": `graph @mish {
  input %x : f32[ROWS,DIM]
forward:
  %y = mish %x
  return %y
}
`,
	"sixteen tanhs": "graph @sixteen {\n  input %x : f32[ROWS,DIM]\nforward:\n  %y0 = tanh %x\n" + more("tanh", 15) + "  return %y15\n}\n",
	"chain": `graph @chain {
  input %x : f32[ROWS,DIM]
  input %z : f32[ROWS,DIM]
forward:
  %a = mul %x, %z
  %b = sigmoid %a
  %c = sub %b, %x
  %d = abs %c
  %e = sqrt %d
  %f = max %e, %z
  return %f, %c
}
`,
	"arithmetic": `graph @arithmetic {
  input %x : f32[ROWS,DIM]
  input %z : f32[ROWS,DIM]
forward:
  %a = mul %x, %z
  %b = affine %a {scale=0.5 shift=1}
  %c = max %b, %x
  %d = sub %c, %z
  %e = mul %d, %d
  %f = clip %e {lo=0.1 hi=6}
  return %f
}
`,
	"rows": `graph @rows {
  input %x : f32[ROWS,DIM]
  input %m : f32[ROWS,1]
forward:
  %c = sub %x, %m
  %e = exp %c
  %y = softplus %e
  return %y
}
`,
	"dropout": `graph @dropout {
  input %x : f32[ROWS,DIM]
  input %b : f32[DIM]
  state %seed : i64[] = 7
  state %attempt : i32[] = 3
forward:
  %h = add %x, %b
  %y = dropout %h {seed=%seed attempt=%attempt p=0.3 rng=1}
  %z = silu %y
  return %z
}
`,
	"adamw with bounded steps": `graph @adamw {
  input %p : f32[ROWS,DIM]
  input %g : f32[ROWS,DIM]
  input %m : f32[ROWS,DIM]
  input %v : f32[ROWS,DIM]
forward:
  %m1 = affine %m {scale=0.9}
  %g1 = affine %g {scale=0.1}
  %mn = add %m1, %g1
  %gg = mul %g, %g
  %v1 = affine %v {scale=0.999}
  %g2 = affine %gg {scale=0.001}
  %vs = add %v1, %g2
  %vn = abs %vs
  %r = sqrt %vn
  %d = affine %r {shift=1e-08}
  %u = div %mn, %d
  %c = clip %u {lo=-1 hi=1}
  %s = affine %c {scale=0.001}
  %w = affine %p {scale=0.9999}
  %pn = sub %w, %s
  return %pn, %mn, %vn
}
`,
	"rule of a user": `graph @rule {
  input %x : f32[ROWS,DIM]
  input %z : f32[ROWS,DIM]
forward:
  %a = affine %x {scale=1.702}
  %g = sigmoid %a
  %h = mul %x, %g
  %d = sub %h, %z
  %q = mul %d, %d
  %l = affine %q {scale=0.5}
  return %l, %d
}
`,
	"bools": `graph @bools {
  input %x : f32[ROWS,DIM]
  input %z : f32[ROWS,DIM]
forward:
  %n = neg %z
  %lt = lt %x, %n
  %eq = le %z, %x
  %or = or %lt, %eq
  %no = not %lt
  %y = where %or, %x, %n
  %w = where %no, %y, %z
  return %or, %w
}
`,
	"powers": `graph @powers {
  input %x : f32[ROWS,DIM]
  input %s : f32[DIM]
forward:
  %a = abs %x
  %p = pow %a, %s
  %q = mul %p, %x
  %r = sub %q, %a
  %t = sin %r
  %u = mul %t, %t
  %v = add %u, %s
  %w = sqrt %v
  return %w, %r
}
`,
	"product": `graph @product {
  input %x : f32[ROWS,DIM]
  input %w : f32[DIM,WIDE]
forward:
  %h = matmul %x, %w
  %y = mish %h
  return %y
}
`,
}

// composedStep runs one step of text on a path and returns its results and how many kernels were composed.
func composedStep(t *testing.T, p *kern.Path, text string, policy passes.Policy, sizes [3]int) (map[string]*eval.Tensor, int) {
	t.Helper()
	b := cpu.OpenPath(p, 2)
	defer b.Close()
	g := fusedGraph(t, text, policy, lower.CPU.Caps(), sizes[0], sizes[1], sizes[2])
	l := runtimetest.Load(t, b, g, 1)
	got := l.Step(t, composedFeeds(g))
	n := cpu.ComposedKernels(l.Exec)
	if err := l.Exec.Close(); err != nil {
		t.Fatal(err)
	}
	return got, n
}

// composedFeeds draws the inputs of a graph.
func composedFeeds(g *ir.Graph) map[string]*eval.Tensor {
	r := rand.New(rand.NewPCG(1, 2))
	feeds := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		if v.Kind == ir.Input {
			x := make([]float64, v.Type.Shape.Elements())
			for i := range x {
				x[i] = float64(float32(3 * r.NormFloat64()))
			}
			feeds[v.Name] = eval.Floats(v.Type.DType, v.Type.Shape.Dims(), x...)
		}
	}
	return feeds
}

// sameBits compares tensors; a NaN is like any other.
func sameBits(a, b *eval.Tensor) bool {
	return slices.Equal(a.I, b.I) && slices.EqualFunc(a.F, b.F, func(x, y float64) bool {
		return math.Float64bits(x) == math.Float64bits(y) || x != x && y != y
	})
}

// randomGroup is a graph of elementwise nodes over operands of several shapes; exact says that each node rounds once.
func randomGroup(r *rand.Rand) (text string, exact bool) {
	var b strings.Builder
	b.WriteString("graph @random {\n  input %x0 : f32[ROWS,DIM]\n  input %x1 : f32[ROWS,DIM]\n  input %x2 : f32[DIM]\n  input %x3 : f32[ROWS,1]\n")
	b.WriteString("  state %seed : i64[] = 7\n  state %attempt : i32[] = 3\nforward:\n")
	unary, binary := []string{"neg", "abs", "relu", "floor", "sqrt", "exp", "tanh", "mish", "erf", "log", "sin", "cos"}, []string{"add", "sub", "mul", "div", "max", "min", "pow"}
	allExact, exact := []int{5, 6}, r.IntN(2) == 0
	if !exact {
		allExact = []int{len(unary), len(binary)}
	}
	values := 4
	value := func() string { return fmt.Sprintf("%%x%d", max(r.IntN(values), r.IntN(values))) }
	node := func(format string, args ...any) {
		fmt.Fprintf(&b, "  %%x%d = ", values)
		fmt.Fprintf(&b, format+"\n", args...)
		values++
	}
	node("add %%x0, %%x1")
	for range 3 + r.IntN(12) {
		switch r.IntN(8) {
		case 0, 1:
			node("%s %s", unary[r.IntN(allExact[0])], value())
		case 2:
			fmt.Fprintf(&b, "  %%c%d = %s %s, %s\n", values, []string{"lt", "le", "eq", "ne"}[r.IntN(4)], value(), value())
			node("where %%c%d, %s, %s", values, value(), value())
		case 3:
			node("dropout %s {seed=%%seed attempt=%%attempt p=0.25 rng=%d}", value(), values)
		default:
			node("%s %s, %s", binary[r.IntN(allExact[1])], value(), value())
		}
	}
	fmt.Fprintf(&b, "  %%last = add %%x%d, %%x0\n  return %%last, %%x%d\n}\n", values-1, 4+r.IntN(values-4))
	return b.String(), exact
}

// TestRandomClusters compares clusters of random nodes with the passes over blocks to the bit, and with the evaluator where
// all nodes are exact.
func TestRandomClusters(t *testing.T) {
	for _, name := range composing(t) {
		with, without, composed := pathWith(t, name, ""), pathWith(t, name, "off"), 0
		for seed := range uint64(*randomClusters) {
			composed += tryRandomGroup(t, seed, with, without)
		}
		if composed < *randomClusters/2 {
			t.Errorf("%s: %d of %d random graphs have composed kernels", name, composed, *randomClusters)
		}
	}
}

// tryRandomGroup runs a random graph on both paths and returns how many kernels were composed.
func tryRandomGroup(t *testing.T, seed uint64, with, without *kern.Path) int {
	t.Helper()
	policies := []passes.Policy{passes.F32(), passes.MixedF16(), passes.MixedBF16()}
	r := rand.New(rand.NewPCG(seed, 3))
	text, exact := randomGroup(r)
	policy, sizes := policies[r.IntN(3)], [3]int{1 + r.IntN(40), 1 + r.IntN(60), 1}
	got, n := composedStep(t, with, text, policy, sizes)
	want, _ := composedStep(t, without, text, policy, sizes)
	for key, w := range want {
		if !sameBits(got[key], w) {
			t.Fatalf("%s: seed %d under %s, %v: %s differs from the passes over blocks\n%s", with.Name(), seed, policy.Name, sizes, key, text)
		}
	}
	if exact && policy.Name == passes.F32().Name {
		l := runtimetest.Load(t, cpu.OpenPath(without, 1), fusedGraph(t, text, policy, lower.CPU.Caps(), sizes[0], sizes[1], sizes[2]), 1)
		for key, w := range l.Want(t, composedFeeds(l.Graph)) {
			if !sameBits(got[key], w) {
				t.Fatalf("%s: seed %d, %v: %s differs from the evaluator\n%s", with.Name(), seed, sizes, key, text)
			}
		}
	}
	return n
}

var randomClusters = flag.Int("random-clusters", 40, "graphs that TestRandomClusters tries")

// TestComposedClusters compares clusters whose kernels are composed at load with the passes over blocks, to the bit.
func TestComposedClusters(t *testing.T) {
	for _, path := range composing(t) {
		with, without := pathWith(t, path, ""), pathWith(t, path, "off")
		for name, text := range composedGraphs {
			for _, policy := range []passes.Policy{passes.F32(), passes.MixedF16(), passes.MixedBF16()} {
				for _, sizes := range [][3]int{{75, 40, 136}, {3, 900, 300}, {1, 1, 2}, {45, 48, 16}, {2, 9008, 64}} {
					got, n := composedStep(t, with, text, policy, sizes)
					want, none := composedStep(t, without, text, policy, sizes)
					if none != 0 || n == 0 && sizes[1] > 16 {
						t.Errorf("%s: %s under %s: %d kernels are composed, and %d with AMPC_COMPOSE=off", path, name, policy.Name, n, none)
					}
					for key, w := range want {
						if !sameBits(got[key], w) {
							t.Errorf("%s: %s under %s, %v: %s differs from the passes over blocks", path, name, policy.Name, sizes, key)
						}
					}
				}
			}
		}
	}
}

// TestPassesArePlanned: the memory of passes that complete a kernel is scratch memory, which the plan counts.
func TestPassesArePlanned(t *testing.T) {
	for _, path := range composing(t) {
		b := cpu.OpenPath(pathWith(t, path, ""), 1)
		defer b.Close()
		g := fusedGraph(t, composedGraphs["powers"], passes.F32(), lower.CPU.Caps(), 32, 1024, 64)
		l := runtimetest.Load(t, b, g, 1)
		plan, err := cpu.PlanOn(pathWith(t, path, ""), l.Program, 1)
		if err != nil {
			t.Fatal(err)
		}
		if n := cpu.ScratchOf(b); n > 0 {
			t.Errorf("%s: kernels hold %d bytes before the first step", path, n)
		}
		l.Step(t, composedFeeds(g))
		const values, elements = 3, 512 // as few values as the passes can have, of a block of floats
		held := cpu.ScratchOf(b)
		if held < 4*values*elements {
			t.Errorf("%s: kernels hold %d bytes", path, held)
		}
		if held += cpu.TemporaryOf(l.Exec); held != plan.Scratch {
			t.Errorf("%s: a step holds %d bytes, planned are %d", path, held, plan.Scratch)
		}
	}
}

// TestFewRowsArePlanned: the plan counts what the last columns of a product of few rows ask for, which fill no vector.
func TestFewRowsArePlanned(t *testing.T) {
	const workers = 3
	for _, path := range kern.Paths() {
		b := cpu.OpenPath(path, workers)
		defer b.Close()
		g := fusedGraph(t, composedGraphs["product"], passes.F32(), lower.CPU.Caps(), 3, 700, 1005)
		l := runtimetest.Load(t, b, g, 1)
		plan, err := cpu.PlanOn(path, l.Program, workers)
		if err != nil {
			t.Fatal(err)
		}
		l.Step(t, composedFeeds(g))
		if held := cpu.ScratchOf(b) + cpu.TemporaryOf(l.Exec); held == 0 || held > plan.Scratch {
			t.Errorf("%s: a step holds %d bytes, planned are %d", path.Name(), held, plan.Scratch)
		}
	}
}

// BenchmarkComposed times the elementwise clusters of steps, composed and in passes over blocks, turn by turn.
func BenchmarkComposed(b *testing.B) {
	for _, path := range composing(b) {
		for _, name := range slices.Sorted(maps.Keys(composedGraphs)) {
			for _, policy := range []passes.Policy{passes.F32(), passes.MixedBF16()} {
				b.Run(path+"/"+name+"/"+policy.Name, func(b *testing.B) { benchmarkComposed(b, path, composedGraphs[name], policy) })
			}
		}
	}
}

func benchmarkComposed(b *testing.B, path, text string, policy passes.Policy) {
	var steps [2]func() time.Duration
	for i, compose := range []string{"", "off"} {
		backend := cpu.OpenPath(pathWith(b, path, compose), 1)
		defer backend.Close()
		l := runtimetest.Load(b, backend, fusedGraph(b, text, policy, lower.CPU.Caps(), 32, 1024, 64), 1)
		steps[i] = clusterTime(b, l)
	}
	best := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for b.Loop() {
		for i, step := range steps {
			best[i] = min(best[i], step())
		}
	}
	b.ReportMetric(float64(best[1])/float64(best[0]), "of-passes")
	b.ReportMetric(float64(best[0].Nanoseconds())/32/1024, "ns/element")
}

// clusterTime runs a step and returns the time of its clusters.
func clusterTime(tb testing.TB, l *runtimetest.Loaded) func() time.Duration {
	tb.Helper()
	feeds := runtimetest.Feeds(composedFeeds(l.Graph))
	var took time.Duration
	l.Exec.(runtime.Profiled).Profile(func(part lower.Part, step int, timing runtime.Timing) {
		if s := &l.Program.Parts[part][step]; s.Kind == lower.KindCluster || s.Epilogue != nil {
			took += timing.Took
		}
	})
	return func() time.Duration {
		took = 0
		if _, err := l.Exec.Step(context.Background(), feeds); err != nil {
			tb.Fatal(err)
		}
		return took
	}
}

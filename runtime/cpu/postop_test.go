package cpu_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

// ffn is two layers with an activation between them, and the gradients that come of dy.
const ffn = `graph @ffn {
  input %x : f32[ROWS,DIM]
  input %dy : f32[ROWS,DIM]
  param %w : f32[DIM,WIDE] = normal(0, 0.06)
  param %b : f32[WIDE] = normal(0, 0.1)
  param %v : f32[WIDE,DIM] = normal(0, 0.03)
forward:
  %h = linear %x, %w, %b
  %a = ACT %h
  %y = linear %a, %v
  %s = reduce_sum %y {axes=[0]}
backward:
  %d.a = matmul %dy, %v {tb}
  %d.h = ACT_grad %d.a, %h
  %d.x = matmul %d.h, %w {tb}
  %t = reduce_sum %d.x {axes=[0]}
  return %s, %t
}
`

func ffnGraph(tb testing.TB, act string, policy passes.Policy, caps ir.Caps, rows, dim, wide int) *ir.Graph {
	name, attrs, _ := strings.Cut(act, " ")
	text := strings.NewReplacer("%a = ACT %h", "%a = "+name+" %h "+attrs, "ACT_grad %d.a, %h", name+"_grad %d.a, %h "+attrs).Replace(ffn)
	if name == "relu" { // as autodiff has it
		text = strings.Replace(text, "relu_grad %d.a, %h", "relu_grad %d.a, %a", 1)
	}
	return fusedGraph(tb, text, policy, caps, rows, dim, wide)
}

// fusedGraph is a graph of the given sizes as a step that is ready to lower.
func fusedGraph(tb testing.TB, text string, policy passes.Policy, caps ir.Caps, rows, dim, wide int) *ir.Graph {
	tb.Helper()
	text = strings.NewReplacer("ROWS", fmt.Sprint(rows), "DIM", fmt.Sprint(dim), "WIDE", fmt.Sprint(wide)).Replace(text)
	g, err := ir.Parse("ffn.ir", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	c := passes.Config{Policy: policy, Compiling: passes.Compiling{Caps: caps}, Debugging: passes.Debugging{Only: []string{"cluster", "amp", "castcache", "castelim", "castfold", "fuse", "dce", "order"}}}
	if err := passes.Run(g, c); err != nil {
		tb.Fatal(err)
	}
	return g
}

// A product with fused elementwise work leaves the bits of the steps
// apart behind, on every path and any number of threads, and moves fewer bytes.
func TestProductEpilogues(t *testing.T) {
	for _, act := range []string{"relu", "gelu", "gelu {approx=tanh}", "silu", "sigmoid", "tanh"} {
		for _, policy := range []passes.Policy{passes.F32(), passes.MixedF16(), passes.MixedBF16()} {
			sameAsApart(t, act+" under "+policy.Name, func(caps ir.Caps) *ir.Graph { return ffnGraph(t, act, policy, caps, 75, 40, 136) })
		}
	}
}

// gated is a layer whose gate and value are products, and the gradients of both.
const gated = `graph @gated {
  input %x : f32[ROWS,DIM]
  input %dh : f32[ROWS,WIDE]
  param %w : f32[DIM,WIDE] = normal(0, 0.06)
  param %v : f32[DIM,WIDE] = normal(0, 0.06)
forward:
  %g = linear %x, %w
  %u = linear %x, %v
  %s = silu %g
  %h = mul %s, %u
  %y = reduce_sum %h {axes=[0]}
backward:
  %d.s = mul %dh, %u
  %d.g = silu_grad %d.s, %g
  %d.u = mul %dh, %s
  %d.w = matmul %x, %d.g {ta}
  %d.v = matmul %x, %d.u {ta}
  return %y, %d.w, %d.v
}
`

// An elementwise node that reads two products is fused into the later one and reads the result of the other.
func TestProductEpilogueReadsAnother(t *testing.T) {
	for _, policy := range []passes.Policy{passes.F32(), passes.MixedF16(), passes.MixedBF16()} {
		g := func(caps ir.Caps) *ir.Graph { return fusedGraph(t, gated, policy, caps, 75, 40, 136) }
		if ends := count(lowered(t, g(ir.Caps{}))); ends != 2 {
			t.Errorf("%s: %d products with an epilogue, want the gate's and the value's", policy.Name, ends)
		}
		sameAsApart(t, policy.Name, g)
	}
}

// residual is a block of a residual network.
const residual = `graph @residual {
  input %x : f32[2,ROWS,DIM,DIM]
  param %v : f32[WIDE,ROWS,1,1] = normal(0, 0.3)
  param %w : f32[WIDE,WIDE,TAPS] = normal(0, 0.1)
  param %b : f32[WIDE] = normal(0, 0.1)
forward:
  %h = conv %x, %v
  %a = relu %h
  %y = conv %a, %w, %b {pads=PADS}
  %s = add SUM
  %z = relu %s
  %o = conv %z, %w, %b {pads=PADS}
  %p = add %o, %z
  %m = reduce_mean %p {axes=[2,3]}
  return %m
}
`

// A sum with what goes past a convolution, and its ReLU, are computed with the convolution, by the definition and by
// transforms.
func TestConvolutionEndsInSum(t *testing.T) {
	for taps, pads := range map[string]string{"1,1": "[0,0,0,0]", "3,3": "[1,1,1,1]"} {
		for _, sum := range []string{"%y, %a", "%a, %y"} {
			text := strings.NewReplacer("TAPS", taps, "PADS", pads, "SUM", sum).Replace(residual)
			for _, policy := range []passes.Policy{passes.F32(), passes.MixedF16(), passes.MixedBF16()} {
				sameAsApart(t, fmt.Sprintf("%s taps, %s, %s", taps, sum, policy.Name), func(caps ir.Caps) *ir.Graph { return fusedGraph(t, text, policy, caps, 16, 7, 64) })
			}
		}
	}
}

// sameAsApart compares a step whose products have epilogues with its nodes one by one, on
// every path and any number of threads, and its bytes against those of a step whose
// products do not.
func sameAsApart(t *testing.T, what string, graph func(caps ir.Caps) *ir.Graph) {
	t.Helper()
	g := graph(ir.Caps{})
	p, apart := lowered(t, g), lowered(t, graph(ir.Caps{SingleStore: true}))
	if ends := count(p); ends == 0 || moved(p) >= moved(apart) {
		t.Errorf("%s: %d products with an epilogue, %d bytes for %d apart", what, ends, moved(p), moved(apart))
	}
	single, err := lower.LowerReplay(g, lower.Replay{Nodes: true, Spread: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range kern.Paths() {
		want := outputs(t, single, path, 1)
		for _, threads := range []int{1, 3} {
			if got := outputs(t, p, path, threads); !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%s, %s with %d threads: other bits than step by step", what, path.Name(), threads)
			}
		}
	}
}

// count counts the products of p with an epilogue cluster.
func count(p *lower.Program) (n int) {
	for i := range p.Parts[lower.Micro] {
		if p.Parts[lower.Micro][i].Epilogue != nil {
			n++
		}
	}
	return n
}

func moved(p *lower.Program) (n int64) {
	for i := range p.Parts[lower.Micro] {
		n += p.Parts[lower.Micro][i].Bytes
	}
	return n
}

// loaded prepares a program on a new store, whose variables are zero.
func loaded(tb testing.TB, b *cpu.Backend, p *lower.Program) runtime.Exec {
	tb.Helper()
	return load(tb, b, p, func(runtime.Store) error { return nil })
}

// initialized prepares a program on a new store, whose variables have their initial values.
func initialized(tb testing.TB, b *cpu.Backend, p *lower.Program) runtime.Exec {
	tb.Helper()
	return load(tb, b, p, func(s runtime.Store) error { return runtimetest.Initialize(s, p.Vars, 1) })
}

func load(tb testing.TB, b *cpu.Backend, p *lower.Program, fill func(runtime.Store) error) runtime.Exec {
	tb.Helper()
	s, err := b.NewStore(p.Vars)
	if err != nil {
		tb.Fatal(err)
	}
	if err := fill(s); err != nil {
		tb.Fatal(err)
	}
	e, err := b.Load(p, s)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// outputs runs a step of p on a path.
func outputs(t *testing.T, p *lower.Program, path *kern.Path, threads int) [][]byte {
	t.Helper()
	b := cpu.OpenPath(path, threads)
	defer b.Close()
	return results(t, b, p)
}

// results are what a step of p returns on b.
func results(t *testing.T, b *cpu.Backend, p *lower.Program) (all [][]byte) {
	t.Helper()
	future, err := initialized(t, b, p).Step(context.Background(), []runtime.Feed{feed(p, rand.New(rand.NewPCG(3, 4)))})
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range p.Outputs {
		out := make([]byte, o.Type.Bytes())
		if err := future.Read(i, out); err != nil {
			t.Fatal(err)
		}
		all = append(all, out)
	}
	return all
}

// BenchmarkProductEpilogues times a step whose products fuse the activation
// and its gradient against one where those are steps of their own.
func BenchmarkProductEpilogues(b *testing.B) {
	for _, act := range []string{"relu", "gelu", "gelu {approx=tanh}", "silu"} {
		for _, policy := range []passes.Policy{passes.F32(), passes.MixedF16(), passes.MixedBF16()} {
			b.Run(act+"/"+policy.Name, func(b *testing.B) {
				againstApart(b, func(caps ir.Caps) *ir.Graph { return ffnGraph(b, act, policy, caps, 1024, 256, 1024) })
			})
		}
	}
}

// againstApart times the step of a graph that fuses all that the CPU's kernels run, and its ratio to the
// step of a graph with epilogues of a single store.
func againstApart(b *testing.B, graph func(ir.Caps) *ir.Graph) {
	inTurn(b, 1, graph, ir.Caps{SingleStore: true}, ir.Caps{})
}

// inTurn times the step of a graph for some capabilities, and its ratio to that for those apart.
func inTurn(b *testing.B, threads int, graph func(ir.Caps) *ir.Graph, apart, caps ir.Caps) {
	var steps [2]func()
	for i, c := range []ir.Caps{apart, caps} {
		p, err := lower.Lower(graph(c), lower.CPU)
		if err != nil {
			b.Fatal(err)
		}
		steps[i] = stepOf(b, p, threads)
	}
	var took [2][]float64
	for b.Loop() {
		for i, step := range steps {
			start := time.Now()
			step()
			took[i] = append(took[i], float64(time.Since(start)))
		}
	}
	b.ReportMetric(median(took[1])/1e6, "ms")
	b.ReportMetric(median(took[1])/median(took[0]), "of-apart")
	b.ReportMetric(0, "ns/op")
}

// stepOf loads p on a backend of its own and returns what runs a step of it.
func stepOf(tb testing.TB, p *lower.Program, threads int) func() {
	tb.Helper()
	be, err := cpu.Open(threads)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { be.Close() })
	e, f := initialized(tb, be, p), feed(p, rand.New(rand.NewPCG(1, 2)))
	return func() {
		if _, err := e.Step(context.Background(), []runtime.Feed{f}); err != nil {
			tb.Fatal(err)
		}
	}
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

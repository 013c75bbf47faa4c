package passes

import (
	"math/rand/v2"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// gpus are the targets whose plans are compared on random graphs.
var gpus = []string{"sm_70", "sm_80", "sm_90", "sm_70/nodnn", "sm_80/nodnn", "sm_90/nodnn"}

// On GPUs, too, the cut says what the clusters of random graphs move, with and
// without cuDNN, with and without casts written by hand, with layers and their gradients.
func TestCutBytesOnGPUs(t *testing.T) {
	var n fusions
	compared, drawn := 0, *graphs
	if testing.Short() {
		drawn /= 6
	}
	for seed := range uint64(5 * drawn) {
		compared += compareOnGPU(t, *firstSeed+seed, &n)
	}
	if compared < 16*drawn || n.expanded < drawn || n.joined < drawn || n.apart < drawn/10 {
		t.Errorf("%d graphs compared with %d expansions, %d products with another node, %d products left apart", compared, n.expanded, n.joined, n.apart)
	}
	t.Logf("%d graphs compared, %d expansions, %d products with another node, %d left apart by their dtypes", compared, n.expanded, n.joined, n.apart)
}

// A second kernel that takes the 16-bit form of an f32 product reads that form.
func TestSecondKernelReadsItsForm(t *testing.T) {
	const text = `graph @forms {
  input %h : f16[8,8]
  param %w : f32[8,8] = normal(0, 0.5)
  param %v : f32[8] = normal(0, 0.5)
backward:
  %b = relu %v : f32[8]
  %m = matmul %h, %w : f32[8,8]
  %s = add %m, %b : f32[8,8]
  %g = gelu %s {pin=low approx=tanh} : f32[8,8]
  %n = matmul %h, %w : f32[8,8]
  %d = gelu_grad %n, %s {approx=tanh} : f32[8,8]
  %r = reshape %d {shape=[8,8]} : f32[8,8]
  %y = matmul %g, %r {ta} : f32[8,8]
  return %y, %d
}`
	g, err := ir.Parse("forms.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cut, moved, n, ok := countedUnder(t, g, MixedBF16(), sm.Must("sm_90"))
	if !ok || n.apart != 1 || cut != moved {
		t.Errorf("the cut says %d bytes, the program moves %d, with %d launches apart\n%s", cut, moved, n.apart, g)
	}
}

// A norm whose scale is bf16 runs as its expansion, and the ReLU that reads it as a step of its own.
func TestExpandedNormHasNoEpilogue(t *testing.T) {
	const text = `graph @norm {
  param %w : f32[1,4,4,4] = normal(0, 0.5)
  input %a : bf16[4]
  input %b : bf16[4]
forward:
  %n, %mean, %rstd = instance_norm %w, %a, %b : f32[1,4,4,4], f32[1,4], f32[1,4]
  %r = relu %n : f32[1,4,4,4]
  %c = cos %r : f32[1,4,4,4]
  %s = slice %r {axes=[1] ends=[2] starts=[0]} : f32[1,2,4,4]
  return %c, %s
}`
	g, err := ir.Parse("norm.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cut, moved, n, ok := countedUnder(t, g, MixedBF16(), sm.Must("sm_70/nodnn"))
	if !ok || n.expanded != 1 || cut != moved {
		t.Errorf("the cut says %d bytes, the program moves %d, with %d expansions\n%s", cut, moved, n.expanded, g)
	}
}

// compareOnGPU compares cut and program of seven random graphs on the target of a seed. It adds up
// what is fused and returns the number of graphs that the target runs.
func compareOnGPU(t *testing.T, seed uint64, sum *fusions) (compared int) {
	t.Helper()
	target, pins := sm.Must(gpus[seed%6]), seed/6%2 == 1
	r := func(k uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, k)) }
	a, b, c, d, e, x, y := r(13), r(13), r(19), r(23), r(31), r(37), r(43)
	for i, g := range []*ir.Graph{
		randomGraph(a, 4+a.IntN(30), pins, without(target, ir.OpCast)...), randomGraph(b, 4+b.IntN(30), pins, without(target)...),
		randomLayers(c, 4+c.IntN(30), pins, without(target, ir.OpCast)...), randomLayers(d, 4+d.IntN(30), pins, without(target)...),
		randomRecurrences(e, 4+e.IntN(30), pins, without(target)...),
		randomImages(x, 4+x.IntN(30), pins, without(target, ir.OpCast)...), randomImages(y, 4+y.IntN(30), pins, without(target)...),
	} {
		source := g.String()
		cut, moved, n, ok := countedUnder(t, g, cutPolicies()[(seed/12+*phase)%4], target)
		if !ok {
			continue
		}
		compared++
		*sum = fusions{sum.expanded + n.expanded, sum.joined + n.joined, sum.apart + n.apart}
		if cut != moved {
			t.Errorf("seed %d, graph %d on %s: the cut says %d bytes, the program moves %d: %+d\n%s\nfrom\n%s", seed, i, target, cut, moved, cut-moved, g, source)
		}
	}
	return compared
}

// fusions counts the nodes of a graph that run as their expansions, the products that run with another
// node, and those that do not because of their dtypes.
type fusions struct{ expanded, joined, apart int }

// countedUnder compiles g under policy p for a GPU and gives the bytes that the cut reports, those of
// the clusters as launches, and what is fused; not ok where the target does not run an op: of f64,
// or without an expansion.
func countedUnder(t *testing.T, g *ir.Graph, p Policy, target lower.Target) (cut, moved int, n fusions, ok bool) {
	t.Helper()
	cfg := Config{Policy: p, Debugging: Debugging{Only: precisionPasses}, Compiling: Compiling{Caps: target.Caps()}}
	cfg.After = func(e Event) {
		cut += e.Counters["cut_bytes"]
		noCastsLeft(t, cfg, e)
		n.joined += e.Counters["product_launches"]
		n.apart += e.Counters["launches_left_apart"]
	}
	mustRun(t, g, cfg)
	if lower.Check(g, target) != nil {
		return 0, 0, n, false
	}
	n.joined -= n.apart
	for _, m := range g.Nodes {
		if target.Expands(m) {
			n.expanded++
		}
	}
	program, err := lower.Lower(g, target)
	if err != nil {
		t.Errorf("%s: %v\n%s", target, err, g)
		return 0, 0, n, false
	}
	return cut, int(program.ClusterBytes(1)), n, true
}

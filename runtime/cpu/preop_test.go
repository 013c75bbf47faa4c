package cpu_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

// preOps are chains that one kernel over rows reads.
var preOps = map[string]string{
	"sum of squares": `graph @squares {
  input %x : f32[ROWS,DIM]
forward:
  %q = mul %x, %x
  %s = reduce_sum %q
  return %s
}
`,
	"norm of a gradient": `graph @norm {
  input %g : f32[ROWS,DIM]
  input %w : f32[ROWS,DIM]
forward:
  %d = affine %w {scale=0.01}
  %s = add %g, %d
  %n = reduce_l2 %s
  return %n
}
`,
	"softmax of masked scores": `graph @softmax {
  input %x : f32[ROWS,DIM]
  input %m : f32[DIM]
forward:
  %s = affine %x {scale=0.125}
  %k = add %s, %m
  %y = softmax %k
  return %y
}
`,
	"mean of six nodes": `graph @mean {
  input %x : f32[ROWS,DIM]
  input %z : f32[ROWS,DIM]
forward:
  %a = sub %x, %z
  %b = mul %a, %a
  %c = affine %b {scale=0.5 shift=1}
  %d = sqrt %c
  %e = affine %d {shift=-1}
  %f = mul %e, %e
  %m = reduce_mean %f {axes=[-1]}
  return %m
}
`,
}

// randomRows adds to a random elementwise graph what reads rows of some of its values. largest are the results that the
// evaluator computes exactly where exact is set.
func randomRows(r *rand.Rand) (text string, exact bool, largest []string) {
	text, exact = randomGroup(r)
	text, _, _ = strings.Cut(text, "  return ")
	ops := []string{"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_l1", "reduce_l2", "reduce_var", "reduce_prod", "logsumexp", "softmax", "log_softmax"}
	var names []string
	for k, n := 0, 1+r.IntN(3); k < n; k++ {
		op, name, of := ops[r.IntN(len(ops))], fmt.Sprintf("%%rows%d", k), []string{"%last", "%x4", "%wide"}[r.IntN(3)]
		if of == "%wide" && !strings.Contains(text, "%wide = ") {
			text += "  %wide = mul %last, %last\n"
		}
		attrs := ""
		if strings.HasPrefix(op, "reduce") || op == "logsumexp" {
			attrs = []string{"", " {axes=[-1]}", " {axes=[1] keep}", " {axes=[0,1]}", " {axes=[0]}"}[r.IntN(5)]
		}
		text += fmt.Sprintf("  %s = %s %s%s\n", name, op, of, attrs)
		if names = append(names, name); op == "reduce_max" || op == "reduce_min" {
			largest = append(largest, name[1:])
		}
	}
	if r.IntN(2) == 0 {
		names = append(names, "%last")
	}
	return text + "  return " + strings.Join(names, ", ") + "\n}\n", exact, largest
}

// rowsOf runs a step of a graph on a path and returns its results, and how many of its kernels have a pre-op. With apart set
// chains and the kernels that read them are steps of their own, in the same dtypes.
func rowsOf(t *testing.T, path *kern.Path, text string, policy passes.Policy, sizes [2]int, threads int, apart bool) (map[string]*eval.Tensor, *runtimetest.Loaded, int) {
	t.Helper()
	b := cpu.OpenPath(path, threads)
	defer b.Close()
	g := fusedGraph(t, text, policy, lower.CPU.Caps(), sizes[0], sizes[1], 1)
	if apart {
		for _, n := range g.Nodes {
			n.Why.Launch = 0
		}
	}
	l := runtimetest.Load(t, b, g, 1)
	defer l.Exec.Close()
	fused := 0
	for _, s := range l.Program.Parts[lower.Micro] {
		if s.Kernel != nil && s.Kernel.Fusion.Prologue != nil {
			fused++
		}
	}
	return l.Step(t, composedFeeds(g)), l, fused
}

// TestRandomPreOps compares kernels over rows, each in one step with the random chain that computes its operand, with the same
// chain and kernel as two steps: on every path, composed or not, for any number of threads, to the bit. Where all nodes are
// exact they are compared with the evaluator as well.
func TestRandomPreOps(t *testing.T) {
	policies := []passes.Policy{passes.F32(), passes.MixedF16(), passes.MixedBF16()}
	shapes := [][2]int{{1, 2}, {5, 3}, {40, 17}, {7, 64}, {33, 100}, {3, 5000}, {2, 9001}, {1, 40000}}
	fused := 0
	for seed := range uint64(*randomClusters) {
		r := rand.New(rand.NewPCG(seed, 5))
		text, exact, largest := randomRows(r)
		policy, sizes := policies[r.IntN(3)], shapes[r.IntN(len(shapes))]
		for _, path := range kern.Paths() {
			for _, compose := range []string{"", "off"} {
				if compose == "" != (seed%3 > 0) {
					continue
				}
				p := pathWith(t, path.Name(), compose)
				want, apart, none := rowsOf(t, p, text, policy, sizes, 1, true)
				got, l, n := rowsOf(t, p, text, policy, sizes, 1+int(seed%3), false)
				if fused += n; none > 0 || n > 0 && moved(l.Program) >= moved(apart.Program) {
					t.Fatalf("seed %d: %d kernels have pre-ops, %d of the steps apart; %d bytes for %d", seed, n, none, moved(l.Program), moved(apart.Program))
				}
				evaluated := map[string]*eval.Tensor{}
				if exact && policy.Name == passes.F32().Name {
					evaluated = l.Want(t, composedFeeds(l.Graph))
				}
				for key, w := range want {
					if !sameBits(got[key], w) {
						t.Fatalf("%s %s: seed %d under %s, %v: %s differs from the steps apart\n%s", path.Name(), compose, seed, policy.Name, sizes, key, text)
					}
					if e := evaluated[key]; e != nil && (key == "last" || slices.Contains(largest, key)) && !sameBits(w, e) {
						t.Fatalf("%s %s: seed %d, %v: %s differs from the evaluator\n%s", path.Name(), compose, seed, sizes, key, text)
					}
				}
			}
		}
	}
	if fused < *randomClusters/2 {
		t.Errorf("%d kernels have pre-ops in %d random graphs", fused, *randomClusters)
	}
}

// TestLongRowIsSplit: a norm of long rows has the bits of any number of threads, with its chain or apart, and is that of
// the evaluator.
func TestLongRowIsSplit(t *testing.T) {
	const text = `graph @long {
  input %x : f32[ROWS,DIM]
forward:
  %y = mul %x, %x
  %n = reduce_l2 %y {axes=[1]}
  %m = reduce_l2 %x {axes=[0]}
  return %n, %m
}
`
	p := kern.Paths()[0]
	for _, sizes := range [][2]int{{1, 3<<16 + 5}, {2, 1<<16 + 1}, {1<<16 + 9, 2}} {
		want, l, _ := rowsOf(t, p, text, passes.F32(), sizes, 1, true)
		evaluated := l.Want(t, composedFeeds(l.Graph))
		for name := range want {
			for i, x := range want[name].F {
				if e := evaluated[name].F[i]; math.Abs(x-e) > 1e-6*e {
					t.Errorf("%v: %s %d is %g, want %g", sizes, name, i, x, e)
				}
			}
		}
		for _, threads := range []int{1, 3} {
			got, _, fused := rowsOf(t, p, text, passes.F32(), sizes, threads, false)
			for name := range want {
				if fused == 0 || !slices.Equal(got[name].F, want[name].F) {
					t.Errorf("%v, %d threads: %s has other bits, or no kernel has a chain", sizes, threads, name)
				}
			}
		}
	}
}

// BenchmarkPreOps times chains that run in the kernel that reads them, and their ratio to the chain and the kernel as two
// steps.
func BenchmarkPreOps(b *testing.B) {
	apart := lower.CPU.Caps()
	apart.Rows = nil
	for _, name := range slices.Sorted(maps.Keys(preOps)) {
		for _, policy := range []passes.Policy{passes.F32(), passes.MixedBF16()} {
			for _, rows := range []int{256, 16384} { // 1 MB and 64 MB of f32
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("%s/%s/%dMB/%d", name, policy.Name, rows/256, threads), func(b *testing.B) {
						inTurn(b, threads, func(caps ir.Caps) *ir.Graph { return fusedGraph(b, preOps[name], policy, caps, rows, 1024, 1) }, apart, lower.CPU.Caps())
					})
				}
			}
		}
	}
}

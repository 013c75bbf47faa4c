package cpu_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
)

// kernelPostOps are graphs, by op, in which elementwise work follows a kernel with post-ops:
// one result of it is read again, one is not.
var kernelPostOps = map[string]string{
	"embedding": `graph @embedding {
  input %ids : i32[ROWS]
  input %x : f32[ROWS,DIM]
  input %table : f32[WIDE,DIM]
  input %w : f32[DIM,WIDE]
forward:
  %tok = embedding %table, %ids
  %half = affine %tok {scale=0.5}
  %sum = add %half, %x
  %y = matmul %sum, %w
  %again = embedding %table, %ids
  %z = silu %again
  %s = reduce_sum %y {axes=[0]}
  %t = reduce_sum %again {axes=[0]}
  %u = reduce_sum %z {axes=[0]}
  return %s, %t, %u
}
`,
}

// Every kernel that a plan gives post-ops runs them, and leaves the bits of the nodes apart.
func TestKernelPostOps(t *testing.T) {
	var ops []string
	for op := range lower.CPU.Caps().PostOps {
		ops = append(ops, op.String())
	}
	slices.Sort(ops)
	if tested := slices.Sorted(maps.Keys(kernelPostOps)); !slices.Equal(ops, tested) {
		t.Fatalf("the target says %v, tested are %v", ops, tested)
	}
	for _, op := range ops {
		for _, policy := range []passes.Policy{passes.F32(), passes.MixedF16(), passes.MixedBF16()} {
			for _, sizes := range [][3]int{{75, 40, 136}, {3, 9000, 5}, {1, 1, 2}} {
				sameAsApart(t, op+" under "+policy.Name, func(caps ir.Caps) *ir.Graph {
					return withPostOps(t, kernelPostOps[op], policy, caps, sizes)
				})
			}
		}
	}
}

// withPostOps is a graph of kernelPostOps; where products store once, kernels have no post-ops.
func withPostOps(tb testing.TB, text string, policy passes.Policy, caps ir.Caps, sizes [3]int) *ir.Graph {
	tb.Helper()
	if !caps.SingleStore {
		caps.PostOps = lower.CPU.Caps().PostOps
	}
	return fusedGraph(tb, text, policy, caps, sizes[0], sizes[1], sizes[2])
}

// BenchmarkKernelPostOps times kernels with post-ops, and the largest elements of rows of what
// these store, against the steps apart.
func BenchmarkKernelPostOps(b *testing.B) {
	for op, text := range kernelPostOps {
		text, _, _ = strings.Cut(text, "  %y = ")
		text += "  %y = reduce_max %sum {axes=[1]}\n  return %y\n}\n"
		for _, policy := range []passes.Policy{passes.F32(), passes.MixedF16()} {
			b.Run(op+"/"+policy.Name, func(b *testing.B) {
				againstApart(b, func(caps ir.Caps) *ir.Graph { return withPostOps(b, text, policy, caps, [3]int{8192, 768, 768}) })
			})
		}
	}
}

package cpu_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

// pathWith is the default path with AMPC_COMPOSE set to what is given. It skips the test if this process composes nothing.
func pathWith(tb testing.TB, compose string) *kern.Path {
	tb.Helper()
	if ok, refused := kern.Composes(); !ok {
		tb.Skip("this process composes no kernels: " + refused)
	}
	p, err := kern.Detect(func(name string) string {
		if name == "AMPC_COMPOSE" {
			return compose
		}
		return ""
	})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// composedGraphs are elementwise clusters without a static kernel.
var composedGraphs = map[string]string{
	"mish": `graph @mish {
  input %x : f32[ROWS,DIM]
forward:
  %y = mish %x
  return %y
}
`,
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
	got := l.Step(t, feeds)
	n := cpu.ComposedKernels(l.Exec)
	if err := l.Exec.Close(); err != nil {
		t.Fatal(err)
	}
	return got, n
}

// TestComposedClusters compares clusters whose kernels are composed at load with the passes over blocks, to the bit.
func TestComposedClusters(t *testing.T) {
	with, without := pathWith(t, ""), pathWith(t, "off")
	for name, text := range composedGraphs {
		for _, policy := range []passes.Policy{passes.F32(), passes.MixedF16(), passes.MixedBF16()} {
			for _, sizes := range [][3]int{{75, 40, 136}, {3, 9000, 500}, {1, 1, 2}} {
				got, n := composedStep(t, with, text, policy, sizes)
				want, none := composedStep(t, without, text, policy, sizes)
				if none != 0 || n == 0 && sizes[1] > 16 {
					t.Errorf("%s under %s: %d kernels are composed, and %d with AMPC_COMPOSE=off", name, policy.Name, n, none)
				}
				for key, w := range want {
					if !slices.EqualFunc(got[key].F, w.F, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }) {
						t.Errorf("%s under %s, %v: %s differs from the passes over blocks", name, policy.Name, sizes, key)
					}
				}
			}
		}
	}
}

package runtimetest

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/runtime"
)

// poolSource pools an image twice, the second time for the gradient alone, as
// the pass recompute leaves it. A backend may then look for the positions in
// the gradient itself.
const poolSource = `graph @pool {
  input %x : T[IMAGE]
  input %d : T[POOLED]
forward:
  %y, %kept = max_pool %x {ATTRS}
backward:
  %again, %index = max_pool %x {ATTRS}
  %dx = max_pool_grad %d, %index {size=[9,8]LAYOUT}
  return %y, %dx
}
`

// testPools wants the evaluator's bits, which fall on the first of equal
// elements and on NaN: images are full of both, windows overlap, sums are exact.
func testPools(t *testing.T, open func(t *testing.T, threads int) runtime.Backend) {
	b := open(t, 2)
	for _, d := range []string{"f32", "f16", "bf16"} {
		for _, layout := range []string{"", " layout=NHWC"} {
			image, pooled := "3,5,9,8", "3,5,5,4"
			if layout != "" {
				image, pooled = "3,9,8,5", "3,5,4,5"
			}
			text := strings.NewReplacer("T[", d+"[", "IMAGE", image, "POOLED", pooled, "ATTRS", "kernel=[3,2] strides=[2,2] pads=[1,0,1,0]"+layout, "LAYOUT", layout).Replace(poolSource)
			g, err := ir.Parse("pool.ir", []byte(text))
			if err == nil {
				err = ir.Verify(g, ir.Training)
			}
			if err != nil {
				t.Fatal(err)
			}
			l := Load(t, b, g, 1)
			r := rand.New(rand.NewPCG(7, 8))
			feed := map[string]*eval.Tensor{}
			for _, v := range g.Vars {
				x := eval.New(v.Type)
				for i := range x.F {
					if x.F[i] = float64(r.IntN(4) - 2); v.Name == "x" && r.IntN(20) == 0 {
						x.F[i] = math.NaN()
					}
				}
				feed[v.Name] = x
			}
			l.same(t, d+layout, l.Step(t, feed), l.Want(t, feed))
			l.Close(t)
		}
	}
}

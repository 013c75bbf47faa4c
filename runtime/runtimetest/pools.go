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
  %dx = max_pool_grad %d, %index {size=[SIZE]LAYOUT}
  return %y, %dx
}
`

// poolShapes are the sizes of poolSource: windows that overlap, and ones of 2 x 2 elements side by side in rows of less than
// a vector, more, and with elements left over.
var poolShapes = []struct{ planes, in, out, attrs, layout string }{
	{"3,5", "9,8", "5,4", "kernel=[3,2] strides=[2,2] pads=[1,0,1,0]", ""},
	{"3,5", "9,8", "5,4", "kernel=[3,2] strides=[2,2] pads=[1,0,1,0]", " layout=NHWC"},
	{"7,5", "24,24", "12,12", "kernel=[2,2] strides=[2,2]", ""},
	{"3,40", "8,8", "4,4", "kernel=[2,2] strides=[2,2]", ""},
	{"2,3", "5,85", "2,42", "kernel=[2,2] strides=[2,2]", ""},
	{"2,3", "4,64", "2,32", "kernel=[2,2] strides=[2,2]", " layout=NHWC"},
}

// testPools wants the evaluator's bits, which fall on the first of equal
// elements and on NaN: images are full of both, windows overlap, sums are exact.
func testPools(t *testing.T, open func(t *testing.T, threads int) runtime.Backend) {
	b := open(t, 2)
	for _, d := range []string{"f32", "f16", "bf16"} {
		for _, s := range poolShapes {
			place := func(size string) string {
				if planes := strings.Split(s.planes, ","); s.layout != "" {
					return planes[0] + "," + size + "," + planes[1]
				}
				return s.planes + "," + size
			}
			text := strings.NewReplacer("T[", d+"[", "IMAGE", place(s.in), "POOLED", place(s.out), "ATTRS", s.attrs+s.layout, "SIZE", s.in, "LAYOUT", s.layout).Replace(poolSource)
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
					} else if x.F[i] == 0 {
						x.F[i] = math.Copysign(0, r.Float64()-0.5)
					}
				}
				feed[v.Name] = x
			}
			l.same(t, d+" "+s.in+s.layout, l.Step(t, feed), l.Want(t, feed))
			l.Close(t)
		}
	}
}

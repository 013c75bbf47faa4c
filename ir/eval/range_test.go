package eval

import (
	"math"
	"testing"

	"ampc/ir"
)

// ranges holds the results of a case against what the row says of their range,
// given the tightest ranges of the operands.
func (k *bench) ranges(t *testing.T) {
	if k.node.Def().Range == nil {
		return
	}
	in := make([]ir.Interval, len(k.node.In))
	for i, x := range k.c.in {
		if x != nil {
			in[i] = hull(x)
		}
	}
	got, err := Node(k.node, k.c.in, Options{Float64: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range k.node.Def().Range(k.node, in) {
		for e := range got[i].Len() {
			x := got[i].At(e)
			slack := 0x1p-23 * math.Abs(x) // attributes are rounded to f32 where they are used
			if x != x && !r.NaN || x < r.Lo-slack || x > r.Hi+slack {
				t.Errorf("range: result %d holds %g, the row says %g to %g", i, x, r.Lo, r.Hi)
				break
			}
		}
	}
}

func hull(x *Tensor) ir.Interval {
	r := ir.Interval{Lo: math.Inf(1), Hi: math.Inf(-1)}
	for i := range x.Len() {
		v := x.At(i)
		r.NaN = r.NaN || v != v
		r.Lo, r.Hi = math.Min(r.Lo, v), math.Max(r.Hi, v)
	}
	return r
}

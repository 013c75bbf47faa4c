package cpu

import (
	"context"
	"math"
	"slices"
	"testing"

	"ampc/runtime"
)

// Lines that are searched piece by piece give the first k elements, and the largest and the least, of the whole line: the first one
// among equals, and NaN before all others where the largest are asked for.
func TestLongLines(t *testing.T) {
	const outer, n, inner, k = 2, 9001, 3, 50
	for _, workers := range []int{1, 3} {
		b := open(t, workers)
		p, _, e := loaded(t, b, `graph @infer {
  input %x : f32[2,9001,3]
forward:
  %v, %i = topk %x {axis=1 k=50} : f32[2,50,3], i64[2,50,3]
  %max = argmax %x {axis=1} : i64[2,3]
  %min = argmin %x {axis=1} : i64[2,3]
  return %v, %i, %max, %min
}
`)
		feed := feedFor(p)
		x := slice[float32](feed["x"].Data)
		for i := range x {
			x[i] = float32(i * 7919 % 1009)
		}
		nan := float32(math.NaN())
		x[(n+8000)*inner], x[(n+5000)*inner], x[(n+5000)*inner+1] = nan, nan, nan
		f, err := e.Step(context.Background(), []runtime.Feed{feed})
		if err != nil {
			t.Fatal(err)
		}
		out := make([][]byte, len(p.Outputs))
		for i := range out {
			out[i] = make([]byte, p.Outputs[i].Type.Bytes())
			if err := f.Read(i, out[i]); err != nil {
				t.Fatal(err)
			}
		}
		values, index, most, least := slice[float32](out[0]), slice[int64](out[1]), slice[int64](out[2]), slice[int64](out[3])
		for line := range outer * inner {
			at := func(i int) float32 { return x[(line/inner*n+i)*inner+line%inner] }
			above := func(a, b float32) bool { return b == b && (a != a || a > b) }
			order, low := make([]int, n), 0
			for i := range order {
				order[i] = i
				if v := at(low); v == v && (at(i) != at(i) || at(i) < v) {
					low = i
				}
			}
			slices.SortStableFunc(order, func(a, b int) int {
				switch {
				case above(at(a), at(b)):
					return -1
				case above(at(b), at(a)):
					return 1
				}
				return 0
			})
			if int(most[line]) != order[0] || int(least[line]) != low {
				t.Errorf("%d workers, line %d: the largest is at %d, not %d, the least at %d, not %d", workers, line, most[line], order[0], least[line], low)
			}
			for i := range k {
				to := (line/inner*k+i)*inner + line%inner
				if want := at(order[i]); int(index[to]) != order[i] || math.Float32bits(values[to]) != math.Float32bits(want) {
					t.Fatalf("%d workers, line %d: element %d is %v at %d, not %v at %d", workers, line, i, values[to], index[to], want, order[i])
				}
			}
		}
	}
}

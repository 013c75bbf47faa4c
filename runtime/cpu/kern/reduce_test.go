package kern

import (
	"fmt"
	"math"
	"testing"
)

// TestReduceAnywhere: a sum along an axis has the bits of the sum of the transposed tensor along its last axis, on every path, and
// these are the same on all paths.
func TestReduceAnywhere(t *testing.T) {
	results := map[string]string{}
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(41)
		for round := range 60 {
			outer, n, inner := 1+d.IntN(3), 1+d.IntN(1+d.IntN(600)), 2+d.IntN(2)*d.IntN(1300)
			if round%10 == 0 {
				outer, n, inner = 1, 1+d.IntN(3*sumRun), 2+d.IntN(20)
			}
			op := []Reduction{ReduceSum, ReduceMean, ReduceSumSq}[round%3]
			src := d.buf(d.typ(), outer*n*inner)
			if round%5 == 0 { // -0 alone
				for i := range src.Len() {
					src.set(i, float32(math.Copysign(0, -1)))
				}
			}
			turned := zeros(src.Type, src.Len())
			for i := range src.Len() {
				o, k, j := i/(n*inner), i/inner%n, i%inner
				turned.set((o*inner+j)*n+k, src.get(i))
			}
			got, want := zeros(F32, outer*inner), zeros(F32, outer*inner)
			m.Reduce(op, got, src, outer, n, inner)
			m.Reduce(op, want, turned, outer*inner, n, 1)
			what := fmt.Sprintf("round %d: op %d [%d %d %d] %v", round, op, outer, n, inner, src.Type)
			if string(got.Data) != string(want.Data) {
				t.Fatalf("%s: %v, transposed %v", what, got.f32(), want.f32())
			}
			if first, ok := results[what]; !ok {
				results[what] = string(got.Data)
			} else if first != string(got.Data) {
				t.Fatalf("%s: not the bits of another path", what)
			}
		}
	})
}

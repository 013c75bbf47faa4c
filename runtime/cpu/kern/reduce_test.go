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
	// Few rows in memory, more in memory, many in caches, of few columns, in registers, in sums.
	ways := [][3]int{{1, 300, 15003}, {2, 515, 4200}, {1, 2100, 77}, {2, 700, 19}, {1, 1500, 200}, {3, 450, 133}}
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(41)
		for round := range rounds(60) {
			outer, n, inner := 1+d.IntN(3), 1+d.IntN(1+d.IntN(600)), 2+d.IntN(2)*d.IntN(1300)
			if round%10 == 0 {
				outer, n, inner = 1, 1+d.IntN(3*sumRun), 2+d.IntN(20)
			}
			typ := d.typ()
			if i := round / 3; round%3 == 1 && i < len(ways) {
				outer, n, inner, typ = ways[i][0], ways[i][1], ways[i][2], F32
			}
			op := []Reduction{ReduceSum, ReduceMean, ReduceSumSq}[round%3]
			src := d.buf(typ, outer*n*inner)
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

// TestSumsOverRows: how many columns there are changes neither the gradients of a norm's scale and bias nor the sum of losses.
func TestSumsOverRows(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(43)
		for _, rows := range []int{1, 7, 40, 200, 1500} {
			const few, many = 24, 700
			grads, losses := map[int]string{}, map[int]float64{}
			wide := [2]Buf{d.buf(F32, rows*many), d.buf(F32, rows*many)}
			rstd := d.buf(F32, rows).f32()
			labels := make([]int32, rows)
			for i := range labels {
				labels[i] = int32(d.IntN(few))
			}
			for _, cols := range []int{few, many} {
				n := &Norm{Rows: rows, Cols: cols, RMS: true, Rstd: rstd, X: zeros(F32, rows*cols), DY: zeros(F32, rows*cols), DX: zeros(F32, rows*cols),
					DGamma: zeros(F32, cols), DBeta: zeros(F32, cols)}
				logits := zeros(F32, rows*cols) // those of the others are -Inf
				m.Fill(logits.f32(), negInf)
				for r := range rows {
					copy(n.X.f32()[r*cols:][:cols], wide[0].f32()[r*many:])
					copy(n.DY.f32()[r*cols:][:cols], wide[1].f32()[r*many:])
					copy(logits.f32()[r*cols:][:few], wide[0].f32()[r*many:])
				}
				m.NormGrad(n)
				grads[cols] = string(n.DGamma.Data[:4*few]) + string(n.DBeta.Data[:4*few])
				losses[cols], _ = m.CrossEntropy(&CrossEntropy{Rows: rows, Cols: cols, X: logits, Labels: ints32(labels), Ignore: -1})
			}
			if grads[few] != grads[many] {
				t.Errorf("%d rows: gradients of scale and bias depend on the number of columns", rows)
			}
			if losses[few] != losses[many] {
				t.Errorf("%d rows: losses are %v with %d columns, %v with %d", rows, losses[few], few, losses[many], many)
			}
		}
	})
}

package ptxtest

import (
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

// colSumsCases add up the rows of several matrices, whose sizes are rows and columns in turn.
func colSumsCases() []Case {
	var cases []Case
	for _, n := range sizes {
		cases = append(cases, colSums(n, 33, 45, 7), colSums(35, n))
	}
	return append(cases, colSums(528, 768, 72, 64, 5, 132), colSums(264, 2048, 264, 128))
}

func colSums(n ...int) Case {
	s := ptx.ColSums{Name: identifier(caseName("col_sums%d", n))}
	for i := 0; i < len(n); i += 2 {
		s.Matrices = append(s.Matrices, ptx.Matrix{Rows: int64(n[i]), Cols: int64(n[i+1])})
	}
	return Case{
		Name: s.Name, Kernel: "ColSums.Build", Size: along(n...), Build: s.Build, Streams: n[len(n)-1] == 128,
		Link: func(bufs []Tensor, at []uint64) {
			for i, w := range s.Table() {
				v := uint64(w.Value)
				if w.Access >= 0 {
					v = at[1+2*w.Tensor+w.Access]
				}
				bufs[0].setBits(i, v)
			}
		},
		Fill: func(r *rand.Rand) []Tensor {
			bufs := []Tensor{New(ptx.Int64, len(s.Table()))}
			for _, m := range s.Matrices {
				x := fill(r, ptx.Float32, int(m.Rows*m.Cols), 1)
				for c, v := range []float64{math.Inf(1), math.NaN(), math.Inf(-1), subnormal(ptx.Float32)} { // a column each
					if c < int(m.Cols)-1 {
						x.Set(r.IntN(int(m.Rows))*int(m.Cols)+c, v)
					}
				}
				bufs = append(bufs, x, New(ptx.Float32, int(m.Cols)))
			}
			return bufs
		},
		Check: func(in, out []Tensor) error {
			for i, m := range s.Matrices {
				ref := func(c int) (sum, bound float64) {
					return reference("sum", int(m.Rows), 8, func(k int) float64 { return in[1+2*i].At(k*int(m.Cols) + c) })
				}
				if err := near(caseName("matrix %d", i), out[2+2*i], func(c int) float64 { v, _ := ref(c); return v }, func(c int) float64 { _, e := ref(c); return e }); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

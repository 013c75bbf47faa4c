package ptxtest

import (
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

// eps32 is the unit roundoff of f32.
const eps32 = 0x1p-24

func reduceCases() []Case {
	var cases []Case
	for _, n := range sizes {
		cases = append(cases, rowReduce("sum", 3, n, 1, ptx.Float32), rowReduce("max", 5, n, 1, ptx.Float16), colReduce("sum", 1, n, 37, 1))
	}
	return append(cases,
		rowReduce("sum", 1, 1<<15, 16, ptx.Float16), rowReduce("prod", 2, 40, 1, ptx.Float32), rowReduce("min", 3, 1000, 3, ptx.BFloat16),
		rowReduce("l1", 2, 513, 1, ptx.Float32), rowReduce("sumsq", 2, 513, 2, ptx.Float16),
		colReduce("sum", 3, 129, 65, 4), colReduce("max", 2, 17, 5, 1), colReduce("sum", 1, 1000, 1, 7),
		argMax(9, 1000, false), argMax(3, 5, true), argMax(1, 33, false))
}

// reference folds values in float64 and bounds the f32 error of any order of the same fold.
func reference(op string, n int, at func(k int) float64) (value, slack float64) {
	acc, mass := 0.0, 0.0
	switch op {
	case "prod":
		acc = 1
	case "max":
		acc = math.Inf(-1)
	case "min":
		acc = math.Inf(1)
	}
	for k := range n {
		x := at(k)
		switch op {
		case "sum":
			acc += x
			mass += math.Abs(x)
		case "l1":
			acc += math.Abs(x)
			mass = acc
		case "sumsq":
			acc += x * x
			mass = acc
		case "prod":
			acc *= x
			mass = math.Abs(acc)
		case "max":
			acc = nanOr(acc, x, math.Max)
		case "min":
			acc = nanOr(acc, x, math.Min)
		}
	}
	return acc, mass * eps32 * float64(n)
}

func nanOr(a, b float64, f func(x, y float64) float64) float64 {
	if a != a || b != b {
		return math.NaN()
	}
	return f(a, b)
}

func rowReduce(op string, rows, cols, split int, d ptx.DType) Case {
	s := ptx.RowReduce{Name: caseName("row_%s_%dx%d_%s_split%d", op, rows, cols, d, split), Op: op, Rows: rows, Cols: cols, Split: split, In: d, Out: ptx.Float32}
	spread := 1.0
	return Case{
		Name: s.Name, Build: s.Build,
		Fill: func(r *rand.Rand) []Tensor {
			x := fill(r, d, rows*cols, spread)
			if op == "max" || op == "min" {
				x = special(r, d, rows*cols, spread)
				for i := range cols { // the first row without NaN
					if x.isNaN(i) {
						x.Set(i, 7)
					}
				}
			}
			return []Tensor{x, New(ptx.Float32, rows*split)}
		},
		Check: func(in, out []Tensor) error {
			vec := 1 // parts are whole vectors
			for _, v := range []int{8, 4, 2} {
				if cols%v == 0 && v*d.Size() <= 16 {
					vec = v
					break
				}
			}
			part := (cols/vec + split - 1) / split * vec
			ref := func(i int) (float64, float64) {
				lo := i % split * part
				return reference(op, max(0, min(part, cols-lo)), func(k int) float64 { return in[0].At(i/split*cols + lo + k) })
			}
			return near("y", out[1], func(i int) float64 { v, _ := ref(i); return v }, func(i int) float64 { _, s := ref(i); return s })
		},
	}
}

func colReduce(op string, outer, n, inner, split int) Case {
	s := ptx.ColReduce{Name: caseName("col_%s_%dx%dx%d_split%d", op, outer, n, inner, split), Op: op, Outer: outer, N: n, Inner: inner, Split: split, In: ptx.BFloat16, Out: ptx.Float32, Scale: 0.5}
	return Case{
		Name: s.Name, Build: s.Build,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{fill(r, ptx.BFloat16, outer*n*inner, 1), New(ptx.Float32, outer*split*inner)}
		},
		Check: func(in, out []Tensor) error {
			part := (n + split - 1) / split
			ref := func(i int) (float64, float64) {
				o, sl, c := i/inner/split, i/inner%split, i%inner
				lo := sl * part
				v, e := reference(op, max(0, min(part, n-lo)), func(k int) float64 { return in[0].At((o*n+lo+k)*inner + c) })
				return v / 2, e
			}
			return near("y", out[1], func(i int) float64 { v, _ := ref(i); return v }, func(i int) float64 { _, s := ref(i); return s })
		},
	}
}

func argMax(rows, cols int, least bool) Case {
	s := ptx.ArgMax{Name: caseName("argmax_%dx%d_%v", rows, cols, least), Rows: rows, Cols: cols, In: ptx.Float16, Min: least}
	return Case{
		Name: s.Name, Build: s.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			x := special(r, ptx.Float16, rows*cols, 1)
			for i := range cols { // the first row: finite, with ties; the second: no ties to speak of
				x.Set(i, float64(r.IntN(5)))
				if rows > 2 {
					x.Set(cols+i, r.NormFloat64())
					x.Set(2*cols+i, r.NormFloat64())
				}
			}
			return []Tensor{x, New(ptx.Int64, rows)}
		},
		Check: func(in, out []Tensor) error {
			want := New(ptx.Int64, rows)
			for row := range rows {
				best := 0
				for c := range cols {
					x, y := in[0].At(row*cols+c), in[0].At(row*cols+best)
					if least {
						x, y = -x, -y
					}
					if y == y && (x != x || x > y) {
						best = c
					}
				}
				want.SetBits(row, uint64(best))
			}
			return same("index", out[1], want)
		},
	}
}

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
		cases = append(cases, rowReduce("sum", 6, n, 1, ptx.Float32), rowReduce("max", 9, n, 1, ptx.Float16), colReduce("sum", 1, n, 37, 1))
	}
	return append(cases,
		rowReduce("sum", 1, 1<<15, 16, ptx.Float16), rowReduce("sum", 5, 8192, 1, ptx.BFloat16), rowReduce("sum", 2, 1<<14, 9, ptx.Float32),
		rowReduce("prod", 6, 40, 1, ptx.Float32), rowReduce("min", 9, 1000, 3, ptx.BFloat16),
		rowReduce("l1", 2, 513, 1, ptx.Float32), rowReduce("max", 9, 60, 4, ptx.Float32), rowReduce("sumsq", 2, 513, 2, ptx.Float16), root(rowReduce("sumsq", 2, 512, 1, ptx.Float32)),
		colReduce("sum", 3, 129, 65, 4), colReduce("max", 2, 17, 5, 1), colReduce("sum", 1, 1000, 1, 7), colReduce("sum", 2, 64, 64, 8), colReduce("min", 1, 40, 264, 2), colReduce("sum", 1, 300, 512, 3))
}

// reference folds values in float64 and bounds the f32 error of the same fold by so many lanes, whose
// results meet in a tree.
func reference(op string, n, lanes int, at func(k int) float64) (value, slack float64) {
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
	return acc, mass * eps32 * float64(n/lanes+16)
}

func nanOr(a, b float64, f func(x, y float64) float64) float64 {
	if a != a || b != b {
		return math.NaN()
	}
	return f(a, b)
}

func rowReduce(op string, rows, cols, split int, d ptx.DType) Case {
	s := ptx.RowReduce{Name: caseName("row_%s_%dx%d_%s_split%d", op, rows, cols, d, split), Op: op, Rows: rows, Cols: cols, Split: split, In: d, Out: ptx.Float32}
	return Case{
		Name: s.Name, Kernel: "RowReduce.Build", Size: cols, Build: s.Build, Trials: 3, Streams: cols == 8192 || cols == 1<<15,
		Fill: func(r *rand.Rand) []Tensor {
			x := rare(r, d, rows, cols, 1)
			if top := map[string]float64{"max": 9, "min": -9}[op]; top != 0 {
				for i, c := range []int{0, cols / 2, cols - 1} {
					x.Set((i+5)*cols+c, top)
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
				return reference(op, max(0, min(part, cols-lo)), 32, func(k int) float64 { return in[0].At(i/split*cols + lo + k) })
			}
			return near("y", out[1], func(i int) float64 { v, _ := ref(i); return v }, func(i int) float64 { _, s := ref(i); return s })
		},
	}
}

// root takes half the square root of what the case reduces to.
func root(c Case) Case {
	plain := c.Check
	c.Name += "_root"
	c.Build = func(fl ptx.Flavour) (*ptx.Launch, error) {
		return ptx.RowReduce{Name: c.Name, Op: "sumsq", Rows: 2, Cols: c.Size, In: ptx.Float32, Out: ptx.Float32, Root: true, Scale: 0.5}.Build(fl)
	}
	c.Check = func(in, out []Tensor) error {
		squares := copyOf(out)
		for i := range squares[1].Len() {
			squares[1].Set(i, 4*out[1].At(i)*out[1].At(i))
		}
		return plain(in, squares)
	}
	return c
}

func colReduce(op string, outer, n, inner, split int) Case {
	s := ptx.ColReduce{Name: caseName("col_%s_%dx%dx%d_split%d", op, outer, n, inner, split), Op: op, Outer: outer, N: n, Inner: inner, Split: split, In: ptx.BFloat16, Out: ptx.Float32, Scale: 0.5}
	return Case{
		Name: s.Name, Kernel: "ColReduce.Build", Size: n, Build: s.Build, Streams: inner == 512,
		Fill: func(r *rand.Rand) []Tensor {
			x := fill(r, ptx.BFloat16, outer*n*inner, 1)
			for c, v := range []float64{math.Inf(1), math.NaN(), math.Inf(-1), subnormal(ptx.BFloat16)} { // a column each
				if c < inner-1 {
					x.Set(r.IntN(outer*n)*inner+c, v)
				}
			}
			return []Tensor{x, New(ptx.Float32, outer*split*inner)}
		},
		Check: func(in, out []Tensor) error {
			part := (n + split - 1) / split
			ref := func(i int) (float64, float64) {
				o, sl, c := i/inner/split, i/inner%split, i%inner
				lo := sl * part
				v, e := reference(op, max(0, min(part, n-lo)), 8, func(k int) float64 { return in[0].At((o*n+lo+k)*inner + c) })
				return v / 2, e
			}
			return near("y", out[1], func(i int) float64 { v, _ := ref(i); return v }, func(i int) float64 { _, s := ref(i); return s })
		},
	}
}

package ptxtest

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"ampc/ptx"
)

func orderCases() []Case {
	var cases []Case
	for i, n := range sizes {
		cases = append(cases, cumMax(2, n, 3, n == 33, ptx.Float32), argMax(7, n, i%2 == 0, ptx.Float16), topK(6, n, min(n, 5), i%2 == 0, ptx.Float32), intReduce("sum", 3, n, 2, ptx.Int32))
	}
	return append(cases,
		argMax(9, 1000, false, ptx.Float32), argMax(1, 33, false, ptx.BFloat16), argMax(4, 32, true, ptx.Int64), argMax(5, 40, false, ptx.Int32), argMax(4, 70, true, ptx.Uint8),
		topK(8, 30, 3, false, ptx.BFloat16), topK(8, 32, 3, false, ptx.Uint8), topK(7, 70, 1, false, ptx.Float16), topK(6, 32, 1, true, ptx.Float32), topK(3, 50, 50, true, ptx.Int64), topK(5, 37, 2, false, ptx.Int32),
		cumMax(3, 33, 5, false, ptx.Float16), cumMax(2, 40, 70, true, ptx.Float32), cumMax(1, 32, 3, true, ptx.Int64), cumMax(2, 9, 1, false, ptx.Uint8),
		intReduce("max", 2, 33, 3, ptx.Int64), intReduce("min", 4, 32, 1, ptx.Int32), intReduce("max", 3, 9, 2, ptx.Int32), intReduce("sum", 1, 100, 5, ptx.Uint8))
}

// ordered draws rows of every kind that an order may stumble over: ties, one value throughout, distinct
// values, a NaN among them, infinities and zeros of both signs.
func ordered(r *rand.Rand, d ptx.DType, rows, cols int) Tensor {
	t := New(d, rows*cols)
	for row := range rows {
		kind := (row + r.IntN(6)) % 6
		odd := special(r, ptx.Float32, cols, 1)
		for c := range cols {
			x := r.NormFloat64() * 50
			switch kind {
			case 0:
				x = float64(r.IntN(5))
			case 1:
				x = 3
			case 2:
				x = math.Copysign(0, r.NormFloat64())
			case 3:
				x = odd.At(c)
			}
			t.Set(row*cols+c, within(d, x))
		}
		switch {
		case kind == 4 && isFloat(d):
			t.Set(row*cols+r.IntN(cols), math.NaN())
		case kind == 5: // the last leads
			t.Set((row+1)*cols-1, within(d, math.Copysign(1000, r.NormFloat64())))
		}
	}
	return t
}

// within is x, or for an integer type a number that it has.
func within(d ptx.DType, x float64) float64 {
	switch {
	case isFloat(d):
		return x
	case x != x:
		return 9
	case d == ptx.Uint8 && (x == 0 || x <= -1000):
		return 0
	case d == ptx.Uint8:
		return min(1+math.Abs(x), 255)
	}
	return min(max(x, math.MinInt32), math.MaxInt32)
}

// before orders x before y: the larger first, or the smaller; NaN where nan says, equal ones not at all.
func before(x, y float64, least, nanFirst bool) int {
	switch {
	case x != x && y != y:
		return 0
	case x != x || y != y:
		if (x != x) == nanFirst {
			return -1
		}
		return 1
	case least:
		return cmp.Compare(x, y)
	}
	return cmp.Compare(y, x)
}

// ranking is the columns of a row in order, the first of equal ones first.
func ranking(x Tensor, row, cols int, least, nanFirst bool) []int {
	order := make([]int, cols)
	for c := range order {
		order[c] = c
	}
	slices.SortStableFunc(order, func(a, b int) int {
		u, v := x.At(row*cols+a)+0, x.At(row*cols+b)+0
		if u == v {
			return 0
		}
		return before(u, v, least, nanFirst)
	})
	return order
}

func argMax(rows, cols int, least bool, d ptx.DType) Case {
	s := ptx.ArgMax{Name: caseName("argmax_%dx%d_%v_%s", rows, cols, least, d), Rows: rows, Cols: cols, In: d, Min: least}
	return Case{
		Name: s.Name, Kernel: "ArgMax.Build", Size: cols, Build: s.Build, Exact: true, Trials: 8 + 24/rows,
		Fill: func(r *rand.Rand) []Tensor { return []Tensor{ordered(r, d, rows, cols), New(ptx.Int64, rows)} },
		Check: func(in, out []Tensor) error {
			want := New(ptx.Int64, rows)
			for row := range rows {
				want.setBits(row, uint64(ranking(in[0], row, cols, least, true)[0]))
			}
			return same("index", out[1], want)
		},
	}
}

func topK(rows, cols, k int, least bool, d ptx.DType) Case {
	s := ptx.TopK{Name: caseName("topk_%d_of_%dx%d_%v_%s", k, rows, cols, least, d), Rows: rows, Cols: cols, K: k, In: d, Smallest: least}
	return Case{
		Name: s.Name, Kernel: "TopK.Build", Size: cols, Build: s.Build, Exact: true, Trials: 8 + 24/rows,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{ordered(r, d, rows, cols), New(d, rows*k), New(ptx.Int64, rows*k)}
		},
		Check: func(in, out []Tensor) error {
			values, index := New(d, rows*k), New(ptx.Int64, rows*k)
			for row := range rows {
				for i, c := range ranking(in[0], row, cols, least, !least)[:k] {
					values.setBits(row*k+i, in[0].Bits(row*cols+c))
					index.setBits(row*k+i, uint64(c))
				}
			}
			if err := same("values", out[1], values); err != nil {
				return err
			}
			return same("index", out[2], index)
		},
	}
}

func cumMax(outer, n, inner int, least bool, d ptx.DType) Case {
	s := ptx.CumMax{Name: caseName("cummax_%dx%dx%d_%v_%s", outer, n, inner, least, d), Outer: outer, N: n, Inner: inner, In: d, Min: least}
	return Case{
		Name: s.Name, Kernel: "CumMax.Build", Size: n, Build: s.Build, Exact: true, Trials: 4,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{ordered(r, d, outer, n*inner), New(d, outer*n*inner), New(ptx.Int64, outer*n*inner)}
		},
		Check: func(in, out []Tensor) error {
			values, index := New(d, outer*n*inner), New(ptx.Int64, outer*n*inner)
			for line := range outer * inner {
				at := func(i int) int { return (line/inner*n+i)*inner + line%inner }
				best := 0
				for i := range n {
					two := New(d, 2) // equal ones: the later one
					two.setBits(0, in[0].Bits(at(i)))
					two.setBits(1, in[0].Bits(at(best)))
					if ranking(two, 0, 2, least, true)[0] == 0 {
						best = i
					}
					values.setBits(at(i), in[0].Bits(at(best)))
					index.setBits(at(i), uint64(best))
				}
			}
			if err := same("values", out[1], values); err != nil {
				return err
			}
			return same("index", out[2], index)
		},
	}
}

func intReduce(op string, outer, n, inner int, d ptx.DType) Case {
	s := ptx.IntReduce{Name: caseName("int_%s_%dx%dx%d_%s", op, outer, n, inner, d), Op: op, Outer: outer, N: n, Inner: inner, DType: d}
	return Case{
		Name: s.Name, Kernel: "IntReduce.Build", Size: n, Build: s.Build, Exact: true, Trials: 3,
		Fill: func(r *rand.Rand) []Tensor {
			x := New(d, outer*n*inner)
			for i := range x.Len() {
				x.setBits(i, r.Uint64())
			}
			if k := r.IntN(n) * inner; op != "sum" { // the one
				x.setBits(k, map[string]uint64{"max": 1<<(8*d.Size()-1) - 1, "min": 1 << (8*d.Size() - 1)}[op])
				x.setBits((n-1)*inner+inner-1, x.Bits(k))
			}
			return []Tensor{x, New(d, outer*inner)}
		},
		Check: func(in, out []Tensor) error {
			want := New(d, outer*inner)
			for i := range want.Len() {
				at := func(k int) int64 { return in[0].integer((i/inner*n+k)*inner + i%inner) }
				acc := at(0)
				for k := 1; k < n; k++ {
					switch op {
					case "sum":
						acc += at(k)
					case "max":
						acc = max(acc, at(k))
					default:
						acc = min(acc, at(k))
					}
				}
				want.setBits(i, uint64(acc))
			}
			return same("y", out[1], want)
		},
	}
}

// integer is element i of an integer type, without a detour through float64.
func (t Tensor) integer(i int) int64 {
	v := t.Bits(i)
	if t.DType == ptx.Int32 {
		return int64(int32(v))
	}
	return int64(v)
}

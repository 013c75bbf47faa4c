package ptxtest

import (
	"cmp"
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

func softmaxCases() []Case {
	var cases []Case
	for _, n := range sizes {
		cases = append(cases, softmax(ptx.Softmax{Rows: 21, Cols: n, In: ptx.Float16, Out: ptx.Float16}),
			softmaxBack(ptx.Softmax{Rows: 6, Cols: n, In: ptx.Float32, Out: ptx.Float32}))
	}
	return append(cases,
		softmax(ptx.Softmax{Rows: 20, Cols: 1024, In: ptx.BFloat16, Out: ptx.BFloat16, Scale: 0.125}),
		softmax(ptx.Softmax{Rows: 2 * 96, Cols: 96, In: ptx.Float16, Out: ptx.Float16, Causal: true, Queries: 96}),
		softmax(ptx.Softmax{Rows: 7, Cols: 80, In: ptx.Float32, Out: ptx.Float32, Log: true}),
		softmaxBack(ptx.Softmax{Rows: 4, Cols: 1024, In: ptx.Float32, Out: ptx.Float32, Log: true}),
		softmaxBack(ptx.Softmax{Rows: 2, Cols: 20000, In: ptx.Float32, Out: ptx.BFloat16}),
		softmaxBack(ptx.Softmax{Rows: 2, Cols: 17001, In: ptx.Float32, Out: ptx.Float32, Log: true}),
		softmaxBack(ptx.Softmax{Rows: 9, Cols: 640, In: ptx.BFloat16, Out: ptx.BFloat16, Scale: 0.25}),
		softmaxBack(ptx.Softmax{Rows: 5, Cols: 72, In: ptx.Float16, Out: ptx.BFloat16, DX: ptx.Float32}),
		softmaxBack(ptx.Softmax{Rows: 4, Cols: 200, In: ptx.Float32, Out: ptx.Float32, DX: ptx.BFloat16, Log: true}),
		softmaxBack(ptx.Softmax{Rows: 3, Cols: 100, In: ptx.Float32, Out: ptx.Float32, Log: true}))
}

func softmaxName(kind string, s ptx.Softmax) string {
	if s.Log {
		kind += "_log"
	}
	if s.Causal {
		kind += "_causal"
	}
	if s.DX != "" {
		kind += "_" + string(s.DX)
	}
	return caseName("softmax_%s_%dx%d_%s", kind, s.Rows, s.Cols, s.In)
}

// visible is how many columns a row attends to.
func visible(s ptx.Softmax, row int) int {
	if !s.Causal {
		return s.Cols
	}
	return row%s.Queries + s.Cols - s.Queries + 1
}

func scaleOf(s ptx.Softmax) float64 {
	if s.Scale == 0 {
		return 1
	}
	return float64(s.Scale)
}

// peaks is rare with rows after the fourth that each have one element far above the others, at places
// spread over the columns: a kernel that misses it overflows.
func peaks(r *rand.Rand, d ptx.DType, rows, cols int) Tensor {
	x := rare(r, d, rows, cols, 3)
	for i := range rows - 5 {
		x.Set((i+5)*cols+i*(cols-1)/max(rows-6, 1), 1000)
	}
	return x
}

func softmax(s ptx.Softmax) Case {
	s.Name = softmaxName("fwd", s)
	n := s.Rows * s.Cols
	return Case{
		Name: s.Name, Kernel: "Softmax.Forward", Size: s.Cols, Build: s.Forward, Streams: s.Cols == 1024,
		Fill: func(r *rand.Rand) []Tensor { return []Tensor{peaks(r, s.In, s.Rows, s.Cols), New(s.Out, n)} },
		Check: func(in, out []Tensor) error {
			want := make([]float64, n)
			for row := range s.Rows {
				top, sum := math.Inf(-1), 0.0
				seen := visible(s, row)
				at := func(c int) float64 { return in[0].At(row*s.Cols+c) * scaleOf(s) }
				for c := range seen {
					top = nanOr(top, at(c), math.Max)
				}
				for c := range seen {
					sum += math.Exp(at(c) - top)
				}
				for c := range s.Cols {
					y := 0.0
					if c < seen {
						y = math.Exp(at(c)-top) / sum
					} else if top != top {
						y = math.NaN()
					}
					if s.Log {
						y = at(c) - top - math.Log(sum)
					}
					want[row*s.Cols+c] = y
				}
			}
			return near("y", out[1], func(i int) float64 { return want[i] }, func(i int) float64 {
				if s.Log {
					return 1e-5
				}
				return want[i] * eps32 * (40 + math.Sqrt(float64(s.Cols)))
			})
		},
	}
}

func softmaxBack(s ptx.Softmax) Case {
	s.Name = softmaxName("bwd", s)
	n := s.Rows * s.Cols
	return Case{
		Name: s.Name, Kernel: "Softmax.Backward", Size: s.Cols, Build: s.Backward, Streams: s.Cols%8 == 0 && s.Cols >= 640,
		Fill: func(r *rand.Rand) []Tensor {
			y := New(s.Out, n)
			for i := range n {
				y.Set(i, r.Float64()/float64(s.Cols))
				if s.Log {
					y.Set(i, -r.ExpFloat64()-math.Log(float64(s.Cols)))
				}
			}
			return []Tensor{rare(r, s.In, s.Rows, s.Cols, 2), y, New(cmp.Or(s.DX, s.In), n)}
		},
		Check: func(in, out []Tensor) error {
			want, slack := make([]float64, n), make([]float64, n)
			for row := range s.Rows {
				dot, mass := 0.0, 0.0
				for c := range s.Cols {
					i := row*s.Cols + c
					y := in[1].At(i)
					if s.Log {
						y = 1
					}
					dot += in[0].At(i) * y
					mass += math.Abs(in[0].At(i) * y)
				}
				for c := range s.Cols {
					i := row*s.Cols + c
					g, y := in[0].At(i), in[1].At(i)
					if s.Log {
						want[i] = (g - math.Exp(y)*dot) * scaleOf(s)
						slack[i] = eps32 * (math.Abs(g) + math.Exp(y)*mass*float64(s.Cols/32+16))
					} else {
						want[i] = y * (g - dot) * scaleOf(s)
						slack[i] = eps32 * math.Abs(y) * (math.Abs(g)*4 + mass*float64(s.Cols/32+16))
					}
				}
			}
			return near("dx", out[2], func(i int) float64 { return want[i] }, func(i int) float64 { return slack[i] })
		},
	}
}

package ptxtest

import (
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

func unfoldCases() []Case {
	image := ptx.Pool{N: 2, C: 6, Size: [3]int{1, 7, 5}, Kernel: [3]int{1, 3, 2}, Stride: [3]int{1, 2, 1}, Dilation: [3]int{1, 1, 2}, Begin: [3]int{0, 1, 1}, To: [3]int{1, 4, 5}, In: ptx.Float16, Out: ptx.Float16}
	solid := ptx.Pool{N: 1, C: 2, Size: [3]int{3, 4, 5}, Kernel: [3]int{2, 2, 3}, Stride: [3]int{1, 2, 1}, Begin: [3]int{1, 0, 1}, To: [3]int{3, 2, 5}, In: ptx.BFloat16, Out: ptx.Float32}
	point := ptx.Pool{N: 3, C: 31, Size: [3]int{1, 1, 1}, Kernel: [3]int{1, 1, 1}, To: [3]int{1, 1, 1}, In: ptx.Float32, Out: ptx.Float32}
	wide := image
	wide.NHWC, wide.In, wide.Out = true, ptx.Float32, ptx.Float32
	cases := []Case{
		unfold(ptx.Unfold{Pool: solid}), foldBack(ptx.Unfold{Pool: solid}), unfold(ptx.Unfold{Pool: point}),
		unfold(ptx.Unfold{Pool: image}), unfold(ptx.Unfold{Pool: wide, Groups: 2, Group: 1}),
		foldBack(ptx.Unfold{Pool: image}), foldBack(ptx.Unfold{Pool: wide, Groups: 2, Group: 1}),
		scan(ptx.Scan{Outer: 3, N: 33, Inner: 5, In: ptx.Float16, Out: ptx.Float32}),
		scan(ptx.Scan{Outer: 1, N: 70, Inner: 3, Exclusive: true, Reverse: true, In: ptx.Float32, Out: ptx.Float32}),
		scan(ptx.Scan{Outer: 2, N: 32, Inner: 2, Exclusive: true, In: ptx.BFloat16, Out: ptx.BFloat16}),
		linearScan(ptx.LinearScan{Outer: 3, N: 33, Inner: 5, In: ptx.Float16, Factor: ptx.Float32, Out: ptx.Float32}),
		linearScan(ptx.LinearScan{Outer: 2, N: 32, Inner: 200, Reverse: true, In: ptx.BFloat16, Factor: ptx.BFloat16, Out: ptx.BFloat16}),
		rowStat(ptx.RowStat{Rows: 4, Cols: 1024, In: ptx.BFloat16, Out: ptx.BFloat16}),
	}
	for _, n := range sizes {
		row := ptx.Pool{N: 2, C: 2, Size: [3]int{1, 1, n}, Kernel: [3]int{1, 1, 3}, Begin: [3]int{0, 0, 1}, To: [3]int{1, 1, n}, In: ptx.Float32, Out: ptx.Float16}
		cases = append(cases, rowStat(ptx.RowStat{Rows: 21, Cols: n, LogSumExp: true, In: ptx.Float16, Out: ptx.Float32}),
			rowStat(ptx.RowStat{Rows: 8, Cols: n + 1, Correction: 1, In: ptx.Float32, Out: ptx.Float32}),
			scan(ptx.Scan{Outer: 2, N: n, Inner: 3, Reverse: n == 33, In: ptx.Float32, Out: ptx.Float16}),
			linearScan(ptx.LinearScan{Outer: 2, N: n, Inner: 3, Reverse: n == 33, In: ptx.Float32, Factor: ptx.Float16, Out: ptx.Float32}),
			unfold(ptx.Unfold{Pool: row}), foldBack(ptx.Unfold{Pool: row}))
	}
	return cases
}

func unfoldName(kind string, s ptx.Unfold) string {
	name := poolName(kind, s.Pool)
	if s.Groups > 1 {
		name += caseName("_group%d", s.Group)
	}
	return name
}

// taps calls f for every element of cols with the element of x it comes from, or -1 for padding.
func taps(s ptx.Unfold, f func(col, from int)) {
	cg := s.C / max(s.Groups, 1)
	taps, outs := volume(s.Kernel), volume(s.To)
	for i := range s.N * outs * cg * taps {
		row, col := i/(cg*taps), i%(cg*taps)
		c, tap := col/taps, col%taps
		if s.NHWC {
			c, tap = col%cg, col/cg
		}
		var at [3]int
		o, k, from := coords(row%outs, s.To), coords(tap, s.Kernel), -1
		inside := true
		for d := range at {
			at[d] = reached(s.Pool, d, o[d], k[d])
			inside = inside && at[d] >= 0 && at[d] < s.Size[d]
		}
		if inside {
			from = index(s.Pool, row/outs, c+cg*s.Group, at, s.Size)
		}
		f(i, from)
	}
}

func unfold(s ptx.Unfold) Case {
	s.Name = unfoldName("im2col", s)
	n := s.N * volume(s.To) * s.C / max(s.Groups, 1) * volume(s.Kernel)
	return Case{
		Name: s.Name, Kernel: "Unfold.Forward", Size: s.Size[2], Build: s.Forward, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{special(r, s.In, s.N*s.C*volume(s.Size), 1), New(s.Out, n)}
		},
		Check: func(in, out []Tensor) error {
			want := New(s.Out, n)
			taps(s, func(col, from int) {
				if from >= 0 {
					want.Set(col, in[0].At(from))
				}
			})
			return same("cols", out[1], want)
		},
	}
}

func foldBack(s ptx.Unfold) Case {
	s.Name = unfoldName("col2im", s)
	n := s.N * volume(s.To) * s.C / max(s.Groups, 1) * volume(s.Kernel)
	return Case{
		Name: s.Name, Kernel: "Unfold.Backward", Size: s.Size[2], Build: s.Backward, Partial: true,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{strew(r, fill(r, s.In, n, 1), 23), fill(r, s.Out, s.N*s.C*volume(s.Size), 1)}
		},
		Check: func(in, out []Tensor) error {
			cg := s.C / max(s.Groups, 1)
			want, mine := make([]float64, out[1].Len()), make([]bool, out[1].Len())
			for i := range want {
				c := i / volume(s.Size) % s.C
				if s.NHWC {
					c = i % s.C
				}
				if mine[i] = c/cg == s.Group; !mine[i] {
					want[i] = in[1].At(i) // left as it was
				}
			}
			taps(s, func(col, from int) {
				if from >= 0 {
					want[from] += in[0].At(col)
				}
			})
			return near("dx", out[1], func(i int) float64 { return want[i] }, func(i int) float64 {
				if mine[i] {
					return 1e-5
				}
				return 0
			})
		},
	}
}

func scan(s ptx.Scan) Case {
	s.Name = caseName("scan_%dx%dx%d_%s", s.Outer, s.N, s.Inner, s.Out)
	n := s.Outer * s.N * s.Inner
	return Case{
		Name: s.Name, Kernel: "Scan.Build", Size: s.N, Build: s.Build,
		Fill: func(r *rand.Rand) []Tensor {
			x := fill(r, s.In, n, 1)
			for c, v := range []float64{math.Inf(1), math.NaN(), subnormal(s.In), math.Inf(-1)} { // a column each
				if c < s.Outer*s.Inner-1 {
					x.Set((c/s.Inner*s.N+r.IntN(s.N))*s.Inner+c%s.Inner, v)
				}
			}
			return []Tensor{x, New(s.Out, n)}
		},
		Check: func(in, out []Tensor) error {
			want := make([]float64, n)
			for o := range s.Outer * s.Inner {
				sum := 0.0
				for k := range s.N {
					if s.Reverse {
						k = s.N - 1 - k
					}
					i := (o/s.Inner*s.N+k)*s.Inner + o%s.Inner
					want[i] = sum
					if sum += in[0].At(i); !s.Exclusive {
						want[i] = sum
					}
				}
			}
			return near("y", out[1], func(i int) float64 { return want[i] }, func(i int) float64 { return eps32 * 16 * math.Sqrt(float64(s.N)) * (4 + math.Abs(want[i])) })
		},
	}
}

func linearScan(s ptx.LinearScan) Case {
	s.Name = caseName("linear_scan_%dx%dx%d_%s_%s", s.Outer, s.N, s.Inner, s.Factor, s.Out)
	n := s.Outer * s.N * s.Inner
	return Case{
		Name: s.Name, Kernel: "LinearScan.Build", Size: s.N, Build: s.Build,
		Fill: func(r *rand.Rand) []Tensor {
			x, a := fill(r, s.In, n, 1), fill(r, s.Factor, n, 0.5)
			x.Set(r.IntN(s.N)*s.Inner, math.Inf(1))
			a.Set(r.IntN(s.N)*s.Inner+1, math.Inf(-1))
			x.Set(r.IntN(s.N)*s.Inner+2, math.NaN())
			return []Tensor{x, a, New(s.Out, n)}
		},
		Check: func(in, out []Tensor) error {
			want, sizes := make([]float64, n), make([]float64, n) // sizes: of all terms' magnitudes
			for o := range s.Outer * s.Inner {
				y, size := 0.0, 0.0
				for k := range s.N {
					if s.Reverse {
						k = s.N - 1 - k
					}
					i := (o/s.Inner*s.N+k)*s.Inner + o%s.Inner
					y = in[1].At(i)*y + in[0].At(i)
					size = math.Abs(in[1].At(i))*size + math.Abs(in[0].At(i))
					want[i], sizes[i] = y, size
				}
			}
			return near("y", out[2], func(i int) float64 { return want[i] }, func(i int) float64 { return eps32 * 2 * float64(s.N) * sizes[i] })
		},
	}
}

func rowStat(s ptx.RowStat) Case {
	s.Name = caseName("rowvar_%dx%d", s.Rows, s.Cols)
	if s.LogSumExp {
		s.Name = caseName("logsumexp_%dx%d", s.Rows, s.Cols)
	}
	return Case{
		Name: s.Name, Kernel: "RowStat.Build", Size: s.Cols, Build: s.Build, Streams: s.Cols == 1024,
		Fill: func(r *rand.Rand) []Tensor {
			x := peaks(r, s.In, s.Rows, s.Cols)
			if s.LogSumExp {
				for c := range s.Cols {
					x.Set(3*s.Cols+c, math.Inf(-1))
				}
			}
			return []Tensor{x, New(s.Out, s.Rows)}
		},
		Check: func(in, out []Tensor) error {
			want := make([]float64, s.Rows)
			for row := range s.Rows {
				at := func(c int) float64 { return in[0].At(row*s.Cols + c) }
				want[row] = variance(s, at)
				if s.LogSumExp {
					want[row] = logSumExp(s, at)
				}
			}
			return near("y", out[1], func(i int) float64 { return want[i] }, func(i int) float64 { return eps32 * (64 + float64(s.Cols/32+16)*math.Abs(want[i])) })
		},
	}
}

func variance(s ptx.RowStat, at func(c int) float64) float64 {
	mean, sq := 0.0, 0.0
	for c := range s.Cols {
		mean += at(c) / float64(s.Cols)
	}
	for c := range s.Cols {
		sq += (at(c) - mean) * (at(c) - mean)
	}
	return sq / float64(s.Cols-s.Correction)
}

func logSumExp(s ptx.RowStat, at func(c int) float64) float64 {
	top, sum := math.Inf(-1), 0.0
	for c := range s.Cols {
		top = nanOr(top, at(c), math.Max)
	}
	if math.IsInf(top, 0) {
		return top
	}
	for c := range s.Cols {
		sum += math.Exp(at(c) - top)
	}
	return top + math.Log(sum)
}

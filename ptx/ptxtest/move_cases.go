package ptxtest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

func moveCases() []Case {
	cases := []Case{
		transpose(1, 33, 31, ptx.Float16), transpose(3, 64, 96, ptx.Float32), transpose(2, 1, 70, ptx.Float64), transpose(1, 100, 7, ptx.Uint8),
		transpose(1, 64, 64, ptx.BFloat16), transpose(4, 20, 32, ptx.Int64), statsFinish(300), statsFinish(256),
	}
	for _, n := range sizes {
		cases = append(cases, stats(n, ptx.Float16), stats(n, ptx.Float32), statsFinish(n), transpose(1, n, 33, ptx.Float16), transpose(2, 6, n, ptx.Float32))
	}
	return append(cases, stats(1<<17, ptx.BFloat16))
}

func transpose(batch, rows, cols int, d ptx.DType) Case {
	s := ptx.Transpose{Name: caseName("transpose_%dx%dx%d_%s", batch, rows, cols, d), Batch: batch, Rows: rows, Cols: cols, DType: d}
	return Case{
		Name: s.Name, Kernel: "Transpose.Build", Size: along(cols, rows), Build: s.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			x := New(d, batch*rows*cols)
			for i := range x.Len() {
				x.SetBits(i, r.Uint64())
			}
			if isFloat(d) {
				strew(r, x, 9)
			}
			return []Tensor{x, New(d, batch*rows*cols)}
		},
		Check: func(in, out []Tensor) error {
			want := New(d, batch*rows*cols)
			for i := range want.Len() {
				b, r, c := i/(rows*cols), i/cols%rows, i%cols
				want.SetBits(b*rows*cols+c*rows+r, in[0].Bits(i))
			}
			return same("y", out[1], want)
		},
	}
}

// stats checks the one-read gradient pass: square sum of g·inv and the overflow flag.
func stats(n int, d ptx.DType) Case {
	s := ptx.GradStats{Name: caseName("gradstats_%d_%s", n, d), N: n, In: d, Blocks: min(4, (n+2047)/2048)}
	return Case{
		Name: s.Name, Kernel: "GradStats.Build", Size: n, Build: s.Build, Streams: n >= 1<<17, Trials: 16,
		Fill: func(r *rand.Rand) []Tensor {
			g := fill(r, d, n, 100)
			if r.IntN(2) == 0 { // one element decides
				g.Set([]int{n - 1, r.IntN(n)}[r.IntN(2)], []float64{math.Inf(1), math.NaN(), subnormal(d), math.Inf(-1)}[r.IntN(4)])
			}
			inv := New(ptx.Float32, 1)
			inv.Set(0, 0x1p-12)
			return []Tensor{g, inv, New(ptx.Float32, s.Blocks), New(ptx.Uint8, s.Blocks)}
		},
		Check: func(in, out []Tensor) error {
			sum, bad := 0.0, false
			for i := range n {
				u := in[0].At(i) * 0x1p-12
				sum += u * u
				bad = bad || math.IsInf(u, 0) || u != u
			}
			got, flag := 0.0, false
			for b := range s.Blocks {
				got += out[2].At(b)
				flag = flag || out[3].Bits(b) != 0
			}
			if flag != bad {
				return fmt.Errorf("bad = %v, want %v", flag, bad)
			}
			if finite := !math.IsInf(got, 0) && got == got; finite == bad || finite && math.Abs(got-sum) > sum*eps32*float64(n/256+24)+0x1p-149 {
				return fmt.Errorf("sumsq = %g, want %g", got, sum)
			}
			return nil
		},
	}
}

func statsFinish(parts int) Case {
	s := ptx.GradStats{Name: caseName("gradstats_finish_%d", parts), Parts: parts}
	return Case{
		Name: s.Name, Kernel: "GradStats.Finish", Size: parts, Build: s.Finish, Trials: 8,
		Fill: func(r *rand.Rand) []Tensor {
			sums, flags := New(ptx.Float32, parts), New(ptx.Uint8, parts)
			for i := range parts {
				sums.Set(i, r.Float64())
			}
			switch r.IntN(4) {
			case 0:
				flags.SetBits(r.IntN(parts), 1)
			case 1: // the norm itself has no value
				sums.Set(r.IntN(parts), []float64{math.Inf(1), math.NaN(), math.Inf(-1)}[r.IntN(3)])
			case 2:
				sums.Set(r.IntN(parts), subnormal(ptx.Float32))
			}
			return []Tensor{sums, flags, New(ptx.Float32, 1), New(ptx.Bool, 1)}
		},
		Check: func(in, out []Tensor) error {
			v, slack := reference("sum", parts, 256, in[0].At)
			found := uint64(0)
			for i := range parts {
				found |= in[1].Bits(i)
			}
			if v != v || math.IsInf(v, 0) {
				found = 1
			}
			if out[3].Bits(0) != found {
				return fmt.Errorf("found = %d, want %d", out[3].Bits(0), found)
			}
			return near("norm", out[2], func(int) float64 { return math.Sqrt(v) }, func(int) float64 { return slack / math.Sqrt(v) })
		},
	}
}

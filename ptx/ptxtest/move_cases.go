package ptxtest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

func embedCases() []Case {
	return []Case{
		gather(100, 768, 33, ptx.BFloat16, ptx.Int32), gather(7, 5, 31, ptx.Float32, ptx.Int64), gather(3, 1, 1, ptx.Float16, ptx.Int32),
		scatter(9, 768, 65, ptx.BFloat16, ptx.Int32), scatter(5, 33, 1023, ptx.Float32, ptx.Int64), scatter(40, 8, 31, ptx.Float16, ptx.Int32),
	}
}

func gather(vocab, cols, tokens int, d, idType ptx.DType) Case {
	s := ptx.Embedding{Name: caseName("embed_fwd_%dx%d_%d", vocab, cols, tokens), Vocab: vocab, Cols: cols, Tokens: tokens, IDs: idType, In: d, Out: d}
	return Case{
		Name: s.Name, Build: s.Forward, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			id := ids(r, idType, tokens, vocab)
			if tokens > 4 {
				id.Set(2, float64(vocab))
				id.Set(3, -1)
			}
			return []Tensor{special(r, d, vocab*cols, 1), id, New(d, tokens*cols)}
		},
		Check: func(in, out []Tensor) error {
			want := New(d, tokens*cols)
			for i := range want.Len() {
				id := int(in[1].At(i / cols))
				if id < 0 || id >= vocab {
					want.Set(i, math.NaN())
					continue
				}
				want.SetBits(i, in[0].Bits(id*cols+i%cols))
			}
			return same("y", out[2], want)
		},
	}
}

// scatter checks the sums bit for bit: rows are added in order of the tokens.
func scatter(vocab, cols, tokens int, d, idType ptx.DType) Case {
	s := ptx.Embedding{Name: caseName("embed_bwd_%dx%d_%d", vocab, cols, tokens), Vocab: vocab, Cols: cols, Tokens: tokens, IDs: idType, In: d, Out: ptx.Float32}
	return Case{
		Name: s.Name, Build: s.Backward, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			id := ids(r, idType, tokens, vocab)
			id.Set(tokens-1, -1)
			return []Tensor{fill(r, d, tokens*cols, 1), id, New(ptx.Float32, vocab*cols)}
		},
		Check: func(in, out []Tensor) error {
			sums := make([]float32, vocab*cols)
			for t := range tokens {
				id := int(in[1].At(t))
				if id < 0 {
					continue
				}
				for c := range cols {
					sums[id*cols+c] += in[0].F32(t*cols + c)
				}
			}
			want := New(ptx.Float32, vocab*cols)
			for i, v := range sums {
				want.Set(i, float64(v))
			}
			return same("dtable", out[2], want)
		},
	}
}

func moveCases() []Case {
	cases := []Case{
		transpose(1, 33, 31, ptx.Float16), transpose(3, 64, 96, ptx.Float32), transpose(2, 1, 70, ptx.Float64), transpose(1, 100, 7, ptx.Uint8),
		statsFinish(1, false), statsFinish(1023, true), statsFinish(300, false),
	}
	for _, n := range sizes {
		cases = append(cases, stats(n, ptx.Float16), stats(n, ptx.Float32))
	}
	return append(cases, stats(1<<17, ptx.BFloat16))
}

func transpose(batch, rows, cols int, d ptx.DType) Case {
	s := ptx.Transpose{Name: caseName("transpose_%dx%dx%d_%s", batch, rows, cols, d), Batch: batch, Rows: rows, Cols: cols, DType: d}
	return Case{
		Name: s.Name, Build: s.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			x := New(d, batch*rows*cols)
			for i := range x.Len() {
				x.SetBits(i, r.Uint64())
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
		Name: s.Name, Build: s.Build, Streams: n >= 1<<17,
		Fill: func(r *rand.Rand) []Tensor {
			g := fill(r, d, n, 100)
			if n == 31 || n == 4097 {
				g.Set(n/3, []float64{math.Inf(1), math.Inf(-1), math.NaN()}[n%3])
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
			if !bad && math.Abs(got-sum) > sum*eps32*float64(n+8) {
				return fmt.Errorf("sumsq = %g, want %g", got, sum)
			}
			return nil
		},
	}
}

func statsFinish(parts int, bad bool) Case {
	s := ptx.GradStats{Name: caseName("gradstats_finish_%d", parts), Parts: parts}
	return Case{
		Name: s.Name, Build: s.Finish,
		Fill: func(r *rand.Rand) []Tensor {
			sums, flags := New(ptx.Float32, parts), New(ptx.Uint8, parts)
			for i := range parts {
				sums.Set(i, r.Float64())
			}
			if bad {
				flags.SetBits(parts/2, 1)
			}
			if parts == 300 {
				sums.Set(7, math.Inf(1)) // the norm itself overflows
			}
			return []Tensor{sums, flags, New(ptx.Float32, 1), New(ptx.Bool, 1)}
		},
		Check: func(in, out []Tensor) error {
			v, slack := reference("sum", parts, in[0].At)
			found := uint64(0)
			if bad || math.IsInf(v, 0) {
				found = 1
			}
			if out[3].Bits(0) != found {
				return fmt.Errorf("found = %d, want %d", out[3].Bits(0), found)
			}
			return near("norm", out[2], func(int) float64 { return math.Sqrt(v) }, func(int) float64 { return slack + 1e-6 })
		},
	}
}

package ptxtest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

func embedCases() []Case {
	cases := []Case{
		gather(100, 768, 33, ptx.BFloat16, ptx.Int32), gather(7, 5, 31, ptx.Float32, ptx.Int64), gather(3, 1, 1, ptx.Float16, ptx.Int32),
		gather(9, 128, 1023, ptx.Float32, ptx.Int32), gather(4, 64, 4097, ptx.Int32, ptx.Int64), gather(3, 6, 33, ptx.Float64, ptx.Int32),
		scatter(9, 768, 65, ptx.BFloat16, ptx.Int32), scatter(5, 33, 1023, ptx.Float32, ptx.Int64), scatter(40, 8, 31, ptx.Float16, ptx.Int32),
	}
	for _, n := range sizes {
		cases = append(cases, gather(5, n, 9, ptx.Float16, ptx.Int64), scatter(3, n, 41, ptx.Float16, ptx.Int32), scatter(4, 40, n, ptx.Float32, ptx.Int32))
	}
	return cases
}

func gather(vocab, cols, tokens int, d, idType ptx.DType) Case {
	s := ptx.Embedding{Name: caseName("embed_fwd_%dx%d_%d_%s", vocab, cols, tokens, d), Vocab: vocab, Cols: cols, Tokens: tokens, IDs: idType, In: d, Out: d}
	return Case{
		Name: s.Name, Kernel: "Embedding.Forward", Size: cols, Build: s.Forward, Exact: true, Trials: 4, Streams: cols == 768,
		Least: (2*tokens*cols)*d.Size() + tokens*idType.Size(),
		Fill: func(r *rand.Rand) []Tensor {
			id := ids(r, idType, tokens, vocab)
			id.Set(r.IntN(tokens), float64(vocab))
			if tokens > 4 {
				id.Set(3, -1)
			}
			if r.IntN(2) == 0 {
				id.Set(tokens-1, float64(vocab-1))
			}
			if !isFloat(d) {
				return []Tensor{ids(r, d, vocab*cols, 1<<20), id, New(d, tokens*cols)}
			}
			return []Tensor{special(r, d, vocab*cols, 1), id, New(d, tokens*cols)}
		},
		Check: func(in, out []Tensor) error {
			want := New(d, tokens*cols)
			for i := range want.Len() {
				id := int(in[1].At(i / cols))
				if id < 0 || id >= vocab {
					want.SetBits(i, missing(d))
					continue
				}
				want.SetBits(i, in[0].Bits(id*cols+i%cols))
			}
			return same("y", out[2], want)
		},
	}
}

// missing is what stands where an id named nothing: NaN, or 0 for integers.
func missing(d ptx.DType) uint64 {
	if isFloat(d) {
		return encode(d, math.NaN())
	}
	return 0
}

// scatter checks the sums bit for bit: rows are added in order of the tokens.
func scatter(vocab, cols, tokens int, d, idType ptx.DType) Case {
	s := ptx.Embedding{Name: caseName("embed_bwd_%dx%d_%d_%s", vocab, cols, tokens, d), Vocab: vocab, Cols: cols, Tokens: tokens, IDs: idType, In: d, Out: ptx.Float32}
	return Case{
		Name: s.Name, Kernel: "Embedding.Backward", Size: cols, Build: s.Backward, Exact: true, Trials: 2,
		Fill: func(r *rand.Rand) []Tensor {
			id := ids(r, idType, tokens, vocab)
			id.Set(0, -1)
			id.Set(tokens-1, float64(r.IntN(vocab)))
			return []Tensor{rare(r, d, tokens, cols, 1), id, New(ptx.Float32, vocab*cols)}
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

package ptxtest

import (
	"math"
	"math/rand/v2"
	"slices"

	"ampc/ptx"
)

func embedCases() []Case {
	cases := []Case{
		gather(100, 768, 33, ptx.BFloat16, ptx.Int32), gather(7, 5, 31, ptx.Float32, ptx.Int64), gather(3, 1, 1, ptx.Float16, ptx.Int32),
		gather(9, 128, 1023, ptx.Float32, ptx.Int32), gather(4, 64, 4097, ptx.Int32, ptx.Int64), gather(3, 6, 33, ptx.Float64, ptx.Int32),
		embedSums(9, 768, 65, ptx.BFloat16), embedSums(5, 33, 1023, ptx.Float32), embedSums(40, 8, 31, ptx.Float16),
		embedSums(1030, 4, 33, ptx.Float32), embedSums(1024, 2, 31, ptx.BFloat16),
		embedOrder(300, 65, ptx.Int32), embedOrder(50257, 33, ptx.Int64), embedOrder(70000, 96, ptx.Int32), embedOrder(31, 128, ptx.Int64),
	}
	for _, n := range sizes {
		cases = append(cases, gather(5, n, 9, ptx.Float16, ptx.Int64), embedSums(3, n, 41, ptx.Float16), embedSums(20, 40, n, ptx.Float32), embedOrder(1000, n, ptx.Int32))
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

// someIDs draws ids: one over and over, or one frequent, one outside, the last any.
func someIDs(r *rand.Rand, d ptx.DType, tokens, vocab int) Tensor {
	id := ids(r, d, tokens, vocab)
	often, alone := float64(r.IntN(vocab)), r.IntN(3) == 0
	for i := range tokens {
		if alone || r.IntN(8) > 0 {
			id.Set(i, often)
		}
	}
	if alone {
		return id
	}
	id.Set(0, -1)
	id.Set(tokens-1, float64(r.IntN(vocab)))
	return id
}

// inOrder is the list that sorts ids: words of id and position.
func inOrder(id Tensor, vocab int) Tensor {
	words := make([]uint64, id.Len())
	for i := range words {
		words[i] = 0xffffffff<<32 | uint64(i)
		if v := id.At(i); v >= 0 && v < float64(vocab) {
			words[i] = uint64(v)<<32 | uint64(i)
		}
	}
	slices.Sort(words)
	t := New(ptx.Int64, len(words))
	for i, w := range words {
		t.SetBits(i, w)
	}
	return t
}

func embedOrder(vocab, tokens int, d ptx.DType) Case {
	s := ptx.Embedding{Name: caseName("embed_order_%d_of_%d_%s", tokens, vocab, d), Vocab: vocab, Cols: 1, Tokens: tokens, IDs: d, In: ptx.Float32, Out: ptx.Float32}
	return Case{
		Name: s.Name, Kernel: "Embedding.Order", Size: tokens, Build: s.Order, Exact: true, Trials: 4, Least: tokens * (d.Size() + 8),
		Fill: func(r *rand.Rand) []Tensor {
			bufs := []Tensor{someIDs(r, d, tokens, vocab), New(ptx.Int64, tokens)}
			if s.Passes() > 1 {
				bufs = append(bufs, New(ptx.Int64, tokens))
			}
			return bufs
		},
		Check: func(in, out []Tensor) error { return same("order", out[1], inOrder(in[0], vocab)) },
	}
}

// embedSums checks the sums bit for bit: rows are added in order of the tokens.
func embedSums(vocab, cols, tokens int, d ptx.DType) Case {
	s := ptx.Embedding{Name: caseName("embed_bwd_%dx%d_%d_%s", vocab, cols, tokens, d), Vocab: vocab, Cols: cols, Tokens: tokens, IDs: ptx.Int32, In: d, Out: ptx.Float32}
	return Case{
		Name: s.Name, Kernel: "Embedding.Backward", Size: along(cols, tokens), Build: s.Backward, Exact: true, Trials: 16,
		Fill: func(r *rand.Rand) []Tensor {
			dy := rare(r, d, tokens, cols, 1)
			if r.IntN(2) == 0 {
				dy = fill(r, d, tokens*cols, 1)
			}
			return []Tensor{dy, inOrder(someIDs(r, ptx.Int32, tokens, vocab), vocab), New(ptx.Float32, vocab*cols)}
		},
		Check: func(in, out []Tensor) error {
			want := New(ptx.Float32, vocab*cols)
			for i := range tokens {
				word := in[1].Bits(i)
				id, token := int(word>>32), int(word&0xffffffff)
				if id >= vocab {
					continue
				}
				for c := range cols {
					at := id*cols + c
					want.Set(at, float64(want.F32(at)+in[0].F32(token*cols+c)))
				}
			}
			return same("dtable", out[2], want)
		},
	}
}

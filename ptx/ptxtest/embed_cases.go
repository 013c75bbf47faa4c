package ptxtest

import (
	"errors"
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
		gatherAdd(100, 768, 33, ptx.BFloat16), gatherAdd(7, 5, 31, ptx.Float32), gatherAdd(3, 1, 1, ptx.Float16), gatherAdd(9, 128, 1023, ptx.Float32),
		embedSumsAdd(9, 768, 65, ptx.BFloat16), embedSumsAdd(40, 8, 31, ptx.Float16), embedSumsAdd(1030, 4, 33, ptx.Float32), embedSumsAdd(5, 33, 1023, ptx.Float32),
		embedSumsTo(90, 768, 65, ptx.BFloat16), embedSumsTo(40, 8, 31, ptx.Float16), embedSumsTo(1030, 4, 33, ptx.Float32), embedSumsTo(5, 33, 1023, ptx.Float32),
		embedOrder(300, 65, ptx.Int32), embedOrder(50257, 33, ptx.Int64), embedOrder(70000, 96, ptx.Int32), embedOrder(31, 128, ptx.Int64),
	}
	for _, n := range sizes {
		cases = append(cases, gather(5, n, 9, ptx.Float16, ptx.Int64), embedSums(3, n, 41, ptx.Float16), embedSums(20, 40, n, ptx.Float32), embedOrder(1000, n, ptx.Int32),
			gatherAdd(5, n, 9, ptx.Float16), embedSumsAdd(3, n, 41, ptx.Float16), embedSumsTo(3, n, 41, ptx.Float16))
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
					want.setBits(i, missing(d))
					continue
				}
				want.setBits(i, in[0].Bits(id*cols+i%cols))
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
		t.setBits(i, w)
	}
	return t
}

func embedOrder(vocab, tokens int, d ptx.DType) Case {
	s := ptx.Embedding{Name: caseName("embed_order_%d_of_%d_%s", tokens, vocab, d), Vocab: vocab, Cols: 1, Tokens: tokens, IDs: d, In: ptx.Float32, Out: ptx.Float32}
	return Case{
		Name: s.Name, Kernel: "Embedding.Order", Size: tokens, Build: s.Order, Exact: true, Trials: 4, Least: tokens * (d.Size() + 8),
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{someIDs(r, d, tokens, vocab), New(ptx.Int64, s.Ordered())}
		},
		Check: func(in, out []Tensor) error {
			return same("order", Tensor{ptx.Int64, out[1].Bytes[:8*tokens]}, inOrder(in[0], vocab))
		},
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
			return same("dtable", out[2], addedRows(vocab, cols, in[0], in[1]))
		},
	}
}

// addedRows adds the rows of dy to those of a table, in order.
func addedRows(vocab, cols int, dy, order Tensor) Tensor {
	table := New(ptx.Float32, vocab*cols)
	for i := range order.Len() {
		word := order.Bits(i)
		id, token := int(word>>32), int(word&0xffffffff)
		if id >= vocab {
			continue
		}
		for c := range cols {
			at := id*cols + c
			table.Set(at, float64(table.F32(at)+dy.F32(token*cols+c)))
		}
	}
	return table
}

// adding is code behind n rows: it adds a tensor and one of d, and stores the sum in f32 and d.
func adding(n, cols int, d ptx.DType) *ptx.Elementwise {
	e := &expr{ins: code(ptx.Float32, ptx.Float32, d)}
	sum := e.f("add", e.f("add", 0, 1), 2)
	return &ptx.Elementwise{Shape: []int64{int64(n), int64(cols)}, Code: e.ins,
		Loads:  []ptx.Access{load("rows", ptx.Float32), load("more", ptx.Float32), load("low", d)},
		Stores: []ptx.Output{output("sum", ptx.Float32, sum), output("sum16", d, sum)}}
}

// fillAdded are the tensors of adding.
func fillAdded(r *rand.Rand, n, cols int, d ptx.DType) []Tensor {
	return []Tensor{fill(r, ptx.Float32, n*cols, 1), fill(r, d, n*cols, 1), New(ptx.Float32, n*cols), New(d, n*cols)}
}

// checkAdded compares what adding stores of the given rows, bit for bit.
func checkAdded(rows Tensor, in, out []Tensor) error {
	sum, low := New(ptx.Float32, rows.Len()), New(out[3].DType, rows.Len())
	for i := range rows.Len() {
		x := rows.F32(i) + in[0].F32(i)
		x += in[1].F32(i)
		sum.Set(i, float64(x))
		low.Set(i, float64(x))
	}
	return errors.Join(same("sum", out[2], sum), same("sum16", out[3], low))
}

// gatherAdd is a gather with adding behind it.
func gatherAdd(vocab, cols, tokens int, d ptx.DType) Case {
	plain := gather(vocab, cols, tokens, d, ptx.Int32)
	s := ptx.Embedding{Name: plain.Name + "_add", Vocab: vocab, Cols: cols, Tokens: tokens, IDs: ptx.Int32, In: d, Out: d, After: adding(tokens, cols, d)}
	return Case{
		Name: s.Name, Kernel: "Embedding.Forward", Size: cols, Build: s.Forward, Exact: true, Trials: 4, Streams: cols == 768,
		Least: tokens*cols*(3*d.Size()+2*ptx.Float32.Size()) + tokens*ptx.Int32.Size(),
		Fill:  func(r *rand.Rand) []Tensor { return append(plain.Fill(r)[:2], fillAdded(r, tokens, cols, d)...) },
		Check: func(in, out []Tensor) error {
			rows := New(ptx.Float32, tokens*cols)
			for i := range rows.Len() {
				x := math.NaN()
				if id := int(in[1].At(i / cols)); id >= 0 && id < vocab {
					x = in[0].At(id*cols + i%cols)
				}
				rows.Set(i, x)
			}
			return checkAdded(rows, in[2:], out[2:])
		},
	}
}

// embedSumsAdd is the sums of an embedding's gradient with adding behind them.
func embedSumsAdd(vocab, cols, tokens int, d ptx.DType) Case {
	plain := embedSums(vocab, cols, tokens, d)
	s := ptx.Embedding{Name: plain.Name + "_add", Vocab: vocab, Cols: cols, Tokens: tokens, IDs: ptx.Int32, In: d, Out: ptx.Float32, After: adding(vocab, cols, d)}
	return Case{
		Name: s.Name, Kernel: "Embedding.Backward", Size: along(cols, tokens), Build: s.Backward, Exact: true, Trials: 16,
		Fill: func(r *rand.Rand) []Tensor { return append(plain.Fill(r)[:2], fillAdded(r, vocab, cols, d)...) },
		Check: func(in, out []Tensor) error {
			return checkAdded(addedRows(vocab, cols, in[0], in[1]), in[2:], out[2:])
		},
	}
}

// embedSumsTo is the sums of an embedding's gradient, added to what the table holds. Rows without an
// id keep their bits.
func embedSumsTo(vocab, cols, tokens int, d ptx.DType) Case {
	plain := embedSums(vocab, cols, tokens, d)
	s := ptx.Embedding{Name: plain.Name + "_to", Vocab: vocab, Cols: cols, Tokens: tokens, IDs: ptx.Int32, In: d, Out: ptx.Float32, Adds: true}
	return Case{
		Name: s.Name, Kernel: "Embedding.Backward", Size: along(cols, tokens), Build: s.Backward, Exact: true, Trials: 16, Partial: true,
		Least: tokens*(cols*d.Size()+ptx.Int64.Size()) + 2*min(vocab, tokens)*cols*ptx.Float32.Size(),
		Fill: func(r *rand.Rand) []Tensor {
			table := fill(r, ptx.Float32, vocab*cols, 1)
			for i := 0; i < table.Len(); i += 5 {
				table.Set(i, math.Copysign(0, -1)) // plus zero it is another number
			}
			return append([]Tensor{table}, plain.Fill(r)[:2]...)
		},
		Check: func(in, out []Tensor) error {
			table, dy, order := in[0], in[1], in[2]
			named := make([]bool, vocab)
			for i := range order.Len() {
				if id := order.Bits(i) >> 32; id < uint64(vocab) {
					named[id] = true
				}
			}
			want, sums := New(ptx.Float32, vocab*cols), addedRows(vocab, cols, dy, order)
			for i := range want.Len() {
				want.setBits(i, table.Bits(i))
				if named[i/cols] {
					want.Set(i, float64(sums.F32(i)+table.F32(i)))
				}
			}
			return same("dtable", out[0], want)
		},
	}
}

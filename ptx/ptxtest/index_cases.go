package ptxtest

import (
	"math/rand/v2"

	"ampc/ptx"
)

func indexCases() []Case {
	plain := ptx.Gather{Outer: 3, N: 7, M: 31, Inner: 5, IDs: ptx.Int64, In: ptx.BFloat16, Out: ptx.BFloat16}
	each := ptx.Gather{Outer: 2, N: 33, M: 9, Inner: 17, Elementwise: true, IDs: ptx.Int32, In: ptx.Float32, Out: ptx.Float32}
	cases := []Case{gatherAxis(plain), gatherAxis(each)}
	for _, n := range sizes {
		some := ptx.Gather{Outer: 2, N: 5, M: n, Inner: 3, IDs: ptx.Int32, In: ptx.Float16, Out: ptx.Float16}
		wide := ptx.Gather{Outer: 1, N: n, M: 4, Inner: 2, Elementwise: true, IDs: ptx.Int64, In: ptx.Float32, Out: ptx.Float32}
		cases = append(cases, gatherAxis(some), gatherAxis(wide))
		for i, add := range []bool{false, true} {
			s := ptx.Scatter{Outer: 2, N: 7, M: n, Inner: 3, Add: add, IDs: ptx.Int32, In: ptx.Float32, Out: ptx.Float32}
			cases = append(cases, scatterInto(s))
			s.N, s.M, s.Inner, s.IDs = n, 9, 33+i*31, ptx.Int64
			cases = append(cases, scatterInto(s))
		}
	}
	cases = append(cases,
		scatterInto(ptx.Scatter{Outer: 1, N: 5, M: 70, Inner: 1, IDs: ptx.Int64, In: ptx.BFloat16, Out: ptx.BFloat16}),
		scatterInto(ptx.Scatter{Outer: 8, N: 4, M: 6, Inner: 32, Add: true, IDs: ptx.Int32, In: ptx.Float16, Out: ptx.Float32}),
		gatherAxis(ptx.Gather{Outer: 2, N: 5, M: 4, Inner: 32, IDs: ptx.Int64, In: ptx.Int32, Out: ptx.Int32}))
	return cases
}

func gatherName(kind string, s ptx.Gather) string {
	if s.Elementwise {
		kind += "_elements"
	}
	return caseName("%s_%dx%dx%d_of_%d_%s", kind, s.Outer, s.M, s.Inner, s.N, s.In)
}

// idsOf draws ids, some negative.
func idsOf(r *rand.Rand, s ptx.Gather) Tensor {
	n := s.M
	if s.Elementwise {
		n = s.Outer * s.M * s.Inner
	}
	t := New(s.IDs, n)
	for i := range n {
		t.Set(i, float64(r.IntN(2*s.N)-s.N))
	}
	t.Set(r.IntN(n), float64(s.N)) // outside
	if r.IntN(2) == 0 {
		t.Set(r.IntN(n), float64(s.N-1))
	}
	return t
}

// rowOf is the row that element i of the gathered tensor comes from, or -1.
func rowOf(s ptx.Gather, ids Tensor, i int) int {
	at := i / s.Inner % s.M
	if s.Elementwise {
		at = i
	}
	id := int(ids.At(at))
	if id < 0 {
		id += s.N
	}
	if id < 0 || id >= s.N {
		return -1
	}
	return id
}

func gatherAxis(s ptx.Gather) Case {
	s.Name = gatherName("gather", s)
	return Case{
		Name: s.Name, Kernel: "Gather.Forward", Size: along(s.M, s.N), Build: s.Forward, Exact: true, Trials: 4,
		Least: s.Outer*s.M*s.Inner*2*s.In.Size() + s.Outer*s.M*s.Inner*s.IDs.Size(),
		Fill: func(r *rand.Rand) []Tensor {
			x := ids(r, s.In, s.Outer*s.N*s.Inner, 1<<20)
			if isFloat(s.In) {
				x = special(r, s.In, s.Outer*s.N*s.Inner, 1)
			}
			return []Tensor{x, idsOf(r, s), New(s.In, s.Outer*s.M*s.Inner)}
		},
		Check: func(in, out []Tensor) error {
			want := New(s.In, out[2].Len())
			for i := range want.Len() {
				row := rowOf(s, in[1], i)
				if row < 0 {
					want.setBits(i, missing(s.In))
					continue
				}
				want.setBits(i, in[0].Bits((i/(s.M*s.Inner)*s.N+row)*s.Inner+i%s.Inner))
			}
			return same("y", out[2], want)
		},
	}
}

// scatterInto keeps the order of M: of two elements with one id the later stays, sums add up in order.
func scatterInto(s ptx.Scatter) Case {
	s.Name = caseName("put_%v_%dx%dx%d_into_%d_%s", s.Add, s.Outer, s.M, s.Inner, s.N, s.In)
	n := s.Outer * s.M * s.Inner
	return Case{
		Name: s.Name, Kernel: "Scatter.Build", Size: along(s.M, s.N), Build: s.Build, Exact: true, Trials: 4,
		Fill: func(r *rand.Rand) []Tensor {
			id := ids(r, s.IDs, n, s.N)
			for range 1 + n/9 {
				id.Set(r.IntN(n), []float64{-1, float64(s.N), float64(s.N - 1)}[r.IntN(3)])
			}
			return []Tensor{fill(r, s.Out, s.Outer*s.N*s.Inner, 1), strew(r, fill(r, s.In, n, 1), 37), id}
		},
		Check: func(in, out []Tensor) error {
			want := copyOf(in)[0]
			for i := range n {
				id := int(in[2].At(i))
				if id < 0 || id >= s.N {
					continue
				}
				at := (i/(s.M*s.Inner)*s.N+id)*s.Inner + i%s.Inner
				if s.Add {
					want.Set(at, float64(want.F32(at)+in[1].F32(i)))
				} else {
					want.setBits(at, in[1].Bits(i))
				}
			}
			return same("y", out[0], want)
		},
	}
}

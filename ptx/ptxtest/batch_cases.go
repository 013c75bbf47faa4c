package ptxtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"ampc/ptx"
)

// Cases of kernels over many tensors, found by a table of addresses. Their buffers are the arguments
// and then, for each tensor, what the walking accesses reach.

func batchCases() []Case {
	var cases []Case
	for _, n := range sizes {
		cases = append(cases, batchUpdate(n, 33, 2*n), batchSum(n, 1000, 31))
	}
	return append(cases, batchUpdate(1024, 32), batchUpdate(33000, 32775), batchSum(40000, 33001), batchSum(8, 64),
		batchUpdate(1<<14, 1<<13), batchSum(1<<15, 1<<16), batchCast(ptx.Float32, ptx.BFloat16, 1<<14, 104), batchCast(ptx.Float32, ptx.Float16, 31, 1<<14))
}

// tensors is a batch's table as a buffer, and the buffers that its addresses lead to.
type tensors struct {
	ptx.Batch
	params int // buffers that are arguments
}

// walks lists the accesses that walk the tensors: loads, then stores.
func (b tensors) walks() (list []int) {
	for i, a := range b.Loads {
		if a.Stride == nil {
			list = append(list, i)
		}
	}
	for i := range b.Stores {
		list = append(list, len(b.Loads)+i)
	}
	return list
}

// at is the buffer that an access walks for a tensor.
func (b tensors) at(tensor, access int) int {
	return b.params + tensor*len(b.walks()) + slices.Index(b.walks(), access)
}

func (b tensors) table() Tensor { return New(ptx.Int64, len(b.Table())) }

func (b tensors) link(bufs []Tensor, at []uint64) {
	for i, w := range b.Table() {
		v := uint64(w.Value)
		if w.Access >= 0 {
			v = at[b.at(w.Tensor, w.Access)]
		}
		bufs[0].setBits(i, v)
	}
}

func sizesOf(n []int) (out []int64) {
	for _, x := range n {
		out = append(out, int64(x))
	}
	return out
}

// batchUpdate is AdamW over several tensors.
func batchUpdate(n ...int) Case {
	b := tensors{Batch: ptx.Batch{Elementwise: AdamW(n[0]), Sizes: sizesOf(n)}, params: 4}
	b.Name = caseName("batch_adamw%d", n)
	b.Name = identifier(b.Name)
	return Case{
		Name: b.Name, Kernel: "Batch.Build", Size: n[0], Build: b.Build, Exact: true, Link: b.link, Streams: n[0] == 1<<14, Trials: 2,
		Fill: func(r *rand.Rand) []Tensor {
			var skip, rest []Tensor
			for _, k := range n {
				t := adamState(r, k)
				skip = t[4:7]
				rest = append(append(rest, t[:4]...), t[7:]...)
			}
			skip[2].setBits(0, uint64(r.IntN(4)/3))
			return append(append([]Tensor{b.table()}, skip...), rest...)
		},
		Check: func(in, out []Tensor) error {
			for i := range n {
				at := func(t []Tensor) []Tensor { // in the order of one tensor's own kernel
					own := t[b.at(i, 0):][:8]
					return slices.Concat(own[:4], t[1:4], own[4:])
				}
				if err := checkAdam(at(in), at(out)); err != nil {
					return fmt.Errorf("tensor %d: %w", i, err)
				}
			}
			return nil
		},
	}
}

// identifier makes a name of what is printed of a list.
func identifier(s string) string {
	out := []byte(s)
	for i, c := range out {
		if c == '[' || c == ' ' {
			out[i] = '_'
		}
	}
	return string(slices.DeleteFunc(out, func(c byte) bool { return c == ']' }))
}

// batchCast converts several tensors.
func batchCast(from, to ptx.DType, n ...int) Case {
	b := tensors{Batch: ptx.Batch{Elementwise: Cast(from, to, n[0]), Sizes: sizesOf(n)}, params: 1}
	b.Name = identifier(caseName("batch_cast_%s%d", to, n))
	return Case{
		Name: b.Name, Kernel: "Batch.Build", Size: n[0], Build: b.Build, Exact: true, Link: b.link, Streams: true,
		Fill: func(r *rand.Rand) []Tensor {
			bufs := []Tensor{b.table()}
			for _, k := range n {
				bufs = append(bufs, special(r, from, k, 100), New(to, k))
			}
			return bufs
		},
		Check: func(in, out []Tensor) error {
			for i, k := range n {
				want := New(to, k)
				for j := range k {
					want.setBits(j, convert(in[b.at(i, 0)].At(j), to))
				}
				if err := same(caseName("tensor %d", i), out[b.at(i, 1)], want); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// batchSum is the norm of unscaled gradients and how many of them are not finite.
func batchSum(n ...int) Case {
	const g, mult = 0, 1
	e := &expr{code(ptx.Float16, ptx.Float32)}
	u := e.f("mul", g, mult)
	square := e.f("mul", u, u)
	bad := e.op("or", ptx.Bool, e.op("isnan", ptx.Bool, u), e.op("isinf", ptx.Bool, u))
	count := e.f("select", bad, e.num(1), e.num(0))
	b := tensors{params: 3, Batch: ptx.Batch{Sizes: sizesOf(n), Elementwise: ptx.Elementwise{
		Loads: []ptx.Access{load("g", ptx.Float16), load("mult", ptx.Float32, 0)}, Code: e.ins,
	}}}
	b.Name = identifier(caseName("batch_sum%d", n))
	blocks := b.Blocks()
	return Case{
		Name: b.Name, Kernel: "Batch.Sum", Size: n[0], Link: b.link, Trials: 8, Streams: n[0] == 1<<15,
		Build: func(fl ptx.Flavour) (*ptx.Launch, error) { return b.Sum(fl, square, count) },
		Fill: func(r *rand.Rand) []Tensor {
			one := New(ptx.Float32, 1)
			one.Set(0, 0x1p-6)
			bufs := []Tensor{b.table(), one, New(ptx.Float32, 2*blocks)}
			for _, k := range n {
				bufs = append(bufs, fill(r, ptx.Float16, k, 100))
			}
			if r.IntN(2) == 0 {
				for _, b := range bufs[3:] {
					strew(r, b, 5).Set(b.Len()-1, math.Inf(1))
				}
			}
			return bufs
		},
		Check: func(in, out []Tensor) error {
			var want, got [2]float64
			for i, k := range n {
				for j := range k {
					u := in[3+i].At(j) * 0x1p-6
					want[0] += u * u
					if math.IsInf(u, 0) || u != u {
						want[1]++
					}
				}
			}
			for i := range 2 * blocks {
				got[i/blocks] += out[2].At(i)
			}
			if got[1] != want[1] {
				return fmt.Errorf("%g are not finite, want %g", got[1], want[1])
			}
			total := New(ptx.Float64, 1)
			total.Set(0, got[0])
			return near("squares", total, func(int) float64 { return want[0] }, func(int) float64 { return want[0] * eps32 * 160 })
		},
	}
}

package cpu

import (
	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// updateKernels read all gradients in one step.
var updateKernels = map[string]binder{
	"any_nonfinite": bindAnyNonfinite,
	"global_norm":   bindGlobalNorm,
}

// A task of these kernels reads updateChunk elements of one tensor, a block of
// updateBlock after the other.
const (
	updateChunk = 1 << 14
	updateBlock = 1 << 10
)

// overChunks runs f over all tensors of list in chunks and sums up what it
// gives for the blocks of each: x is a block in f32, tmp as long.
func (c *call) overChunks(list []view, f func(x, tmp []float32) float64) (run func(), sums []float64) {
	type place struct {
		v    view
		from int
	}
	var places []place
	for _, v := range list {
		for at := 0; at < v.len(); at += updateChunk {
			places = append(places, place{v, at})
		}
	}
	scratch := c.scratch(2 * updateBlock)
	sums = make([]float64, len(places))
	return c.parallel(len(places), updateChunk, func(w, k int) {
		v, from := places[k].v, places[k].from
		end := min(from+updateChunk, v.len())
		sum := 0.0
		for at := from; at < end; at += updateBlock {
			n := min(updateBlock, end-at)
			x := scratch[w][:n]
			if v.t.DType == ir.F32 {
				x = v.f32()[at : at+n]
			} else {
				c.m.Load(x, v.buf().From(at))
			}
			sum += f(x, scratch[w][updateBlock:updateBlock+n])
		}
		sums[k] = sum
	}), sums
}

// bindAnyNonfinite multiplies by zero: what is not finite becomes NaN, and so
// does the sum.
func bindAnyNonfinite(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	zeros := make([]float32, updateBlock)
	run, sums := c.overChunks(c.in, func(x, _ []float32) float64 { return float64(c.m.Dot(x, zeros[:len(x)])) })
	flag := c.out[0]
	return func() {
		run()
		s := sum64(sums)
		flag.setInt(0, int64(truth(s != s)))
	}, nil
}

// or1 is element i of v, 1 where v is absent.
func or1(v view, i int) float32 {
	if v.absent() {
		return 1
	}
	return v.float(i)
}

func bindGlobalNorm(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	mul := make([]float32, updateBlock)
	run, sums := c.overChunks(c.in[1:], func(x, tmp []float32) float64 {
		c.m.Binary(kern.Mul, tmp, x, mul[:len(x)])
		return float64(c.m.SumSq(tmp))
	})
	by, out := c.arg(0), c.out[0]
	return func() {
		c.m.Fill(mul, or1(by, 0))
		run()
		out.set(0, sqrt32(sum64(sums)))
	}, nil
}

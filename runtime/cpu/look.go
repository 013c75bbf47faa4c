package cpu

import (
	"math"

	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// Each calls f for every i in [0,n) on the workers, and returns when all calls
// have. A function of a Watch calls it on Inside.
func (b *Backend) Each(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.m.Pool().For(n, func(_, i int) { f(i) })
}

// AbsMax is the largest magnitude among f32 elements, +Inf where one is not
// finite, 0 where there is none. It may be called while steps run.
func (b *Backend) AbsMax(data []byte) float64 {
	x := slice[float32](data)
	if len(x) == 0 {
		return 0
	}
	top := max(float64(b.m.MaxOf(x)), -float64(b.m.MinOf(x)))
	if math.IsNaN(top) {
		return math.Inf(1)
	}
	return top
}

// LookAt is how many elements Ends and Squares take at most.
const LookAt = 1 << 10

// Ends are the least and the largest of some elements of d, f32 or a 16-bit
// dtype, NaN where one is; and how many are 0, where the others are finite. It may be
// called while steps run.
func (b *Backend) Ends(d ir.DType, data []byte) (lo, hi float32, zeros int) {
	var space [LookAt]float32
	x := space[:len(data)/int(d.Size())]
	if len(x) == 0 {
		return
	}
	b.m.Load(x, kern.Buf{Data: data, Type: kernTypes[d]})
	lo, hi = b.m.MinOf(x), b.m.MaxOf(x)
	if lo > 0 || hi < 0 || !(float64(hi)-float64(lo) <= 2*math.MaxFloat32) {
		return lo, hi, 0
	}
	b.m.Unary(kern.Not, x, x)
	return lo + 0, hi + 0, int(b.m.Sum(x)) // no -0
}

// Squares are the squared norms of x−y and of y, both f32. It may be called while steps run.
func (b *Backend) Squares(x, y []byte) (off, norm float64) {
	var space [LookAt]float32
	is, want := slice[float32](x), slice[float32](y)
	if len(is) == 0 {
		return 0, 0
	}
	diff := space[:len(is)]
	b.m.Binary(kern.Sub, diff, is, want)
	off, norm = float64(b.m.SumSq(diff)), float64(b.m.SumSq(want))
	const least, most = 1e-25, 1e35 // beyond these a square may have left f32
	if off > least && norm > least && off+norm < most {
		return off, norm
	}
	if max(b.m.MaxOf(diff), -b.m.MinOf(diff), b.m.MaxOf(want), -b.m.MinOf(want)) == 0 {
		return 0, 0
	}
	off, norm = 0, 0
	for i, w := range want {
		d := float64(is[i]) - float64(w)
		off, norm = off+d*d, norm+float64(w)*float64(w)
	}
	return off, norm
}

// Widen writes 16-bit elements of d as f32. It may be called while steps run.
func (b *Backend) Widen(to []byte, d ir.DType, from []byte) {
	b.m.Load(slice[float32](to), kern.Buf{Data: from, Type: kernTypes[d]})
}

// Narrow writes f32 elements in the 16-bit dtype d. It may be called while steps run.
func (b *Backend) Narrow(to []byte, d ir.DType, from []byte) {
	b.m.Store(kern.Buf{Data: to, Type: kernTypes[d]}, slice[float32](from))
}

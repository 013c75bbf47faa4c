package cpu

import (
	"math"
	"sync"

	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// Each calls f for every i in [0,n) on the workers, and returns when all calls
// have. It waits for its turn as an inference step does. A function of a Tracer
// calls it on Inside.
func (b *Backend) Each(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	c, err := b.acquire(neverDone, false)
	if err != nil { // b is closed and has no workers
		for i := range n {
			f(i)
		}
		return
	}
	defer b.release(c, false)
	c.m.Pool().For(n, func(_, i int) { f(i) })
}

// AbsMax is the largest magnitude among f32 elements, +Inf where one is not
// finite, 0 where there is none. It may be called while steps run.
func (b *Backend) AbsMax(data []byte) float64 {
	c := b.m.Count(slice[float32](data))
	if c.NaN+c.Inf > 0 {
		return math.Inf(1)
	}
	return max(0, float64(c.Hi), -float64(c.Lo))
}

// ScanBlock is how many elements Squares takes at most.
const ScanBlock = 1 << 10

// blocks is scratch memory for scans.
type blocks [ScanBlock]float32

var blockPool = sync.Pool{New: func() any { return new(blocks) }}

// floats returns elements as f32.
func (b *Backend) floats(s *blocks, d ir.DType, data []byte) []float32 {
	if d == ir.F32 {
		return slice[float32](data)
	}
	x := s[:int64(len(data))/d.Size()]
	b.m.Load(x, kern.Buf{Data: data, Type: kernTypes[d]})
	return x
}

// Counts are what Count finds.
type Counts = kern.Counts

// Count looks at every element of d, f32 or a 16-bit dtype. It may be called while steps
// run.
func (b *Backend) Count(d ir.DType, data []byte) Counts {
	if d == ir.F32 {
		return b.m.Count(slice[float32](data))
	}
	s := blockPool.Get().(*blocks)
	defer blockPool.Put(s)
	c := b.m.Count(nil)
	for size := int(d.Size()) * ScanBlock; len(data) > 0; data = data[min(size, len(data)):] {
		c.Join(b.m.Count(b.floats(s, d, data[:min(size, len(data))])))
	}
	return c
}

// Squares are the squared norms of x−y and of y, both f32. It may be called while steps run.
func (b *Backend) Squares(x, y []byte) (off, norm float64) {
	s := blockPool.Get().(*blocks)
	defer blockPool.Put(s)
	is, want := slice[float32](x), slice[float32](y)
	if len(is) == 0 {
		return 0, 0
	}
	diff := s[:len(is)]
	b.m.Binary(kern.Sub, diff, is, want)
	off, norm = float64(b.m.SumSq(diff)), float64(b.m.SumSq(want))
	const least, most = 1e-25, 1e35 // the square of a larger number may overflow f32
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

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
	if err != nil {
		panic(err) // neverDone cannot end
	}
	defer b.release(c, false)
	c.m.Pool().For(n, func(_, i int) { f(i) })
}

// AbsMax is the largest magnitude among f32 elements, +Inf where one is not
// finite, 0 where there is none. It may be called while steps run.
func (b *Backend) AbsMax(data []byte) float64 {
	top := 0.0
	for x := slice[float32](data); len(x) > 0; x = x[min(ScanBlock, len(x)):] {
		head := x[:min(ScanBlock, len(x))]
		top = max(top, float64(b.m.MaxOf(head)), -float64(b.m.MinOf(head)))
	}
	if math.IsNaN(top) {
		return math.Inf(1)
	}
	return top
}

// ScanBlock is how many elements MinMax, Count and Squares take at most.
const ScanBlock = 1 << 10

// MinMax is the least and the largest of some elements of d, f32 or a 16-bit
// dtype, NaN where one is. It may be called while steps run.
func (b *Backend) MinMax(d ir.DType, data []byte) (lo, hi float32) {
	s := blockPool.Get().(*blocks)
	defer blockPool.Put(s)
	x := b.floats(s, d, data)
	return b.m.MinOf(x), b.m.MaxOf(x)
}

// blocks is scratch memory for scans.
type blocks [3][ScanBlock]float32

var blockPool = sync.Pool{New: func() any { return new(blocks) }}

// floats returns elements as f32.
func (b *Backend) floats(s *blocks, d ir.DType, data []byte) []float32 {
	if d == ir.F32 {
		return slice[float32](data)
	}
	x := s[0][:int64(len(data))/d.Size()]
	b.m.Load(x, kern.Buf{Data: data, Type: kernTypes[d]})
	return x
}

// Counts are what Count finds. Lo and Hi are over the finite elements, +Inf and −Inf
// where there is none.
type Counts struct {
	Lo, Hi                  float32
	NaN, Inf, NegInf, Zeros int // Inf counts infinities of either sign
}

// Count looks at some elements of d, f32 or a 16-bit dtype. It may be called while
// steps run.
func (b *Backend) Count(d ir.DType, data []byte) Counts {
	s := blockPool.Get().(*blocks)
	defer blockPool.Put(s)
	x := b.floats(s, d, data)
	more, third := s[1][:len(x)], s[2][:len(x)]
	c := Counts{Lo: b.m.MinOf(x), Hi: b.m.MaxOf(x)}
	count := func(op kern.Unary, of []float32) int {
		b.m.Unary(op, more, of)
		return int(b.m.Sum(more))
	}
	if c.Lo <= 0 && c.Hi >= 0 || c.Lo != c.Lo {
		c.Zeros = count(kern.Not, x)
	}
	if wide := float64(c.Hi) - float64(c.Lo); wide <= 2*math.MaxFloat32 {
		c.Lo, c.Hi = c.Lo+0, c.Hi+0 // no -0
		return c
	}
	c.NaN, c.Inf = count(kern.IsNaN, x), count(kern.IsInf, x)
	if c.Inf > 0 {
		b.m.Fill(third, float32(math.Inf(-1)))
		b.m.Binary(kern.Eq, more, x, third)
		c.NegInf = int(b.m.Sum(more))
	}
	b.m.Binary(kern.Sub, third, x, x) // NaN if an element of x is not finite
	b.m.Unary(kern.IsNaN, more, third)
	end := func(instead float32) []float32 {
		b.m.Fill(third, instead)
		b.m.Ternary(kern.Select, third, more, third, x)
		return third
	}
	c.Lo = b.m.MinOf(end(float32(math.Inf(1)))) + 0
	c.Hi = b.m.MaxOf(end(float32(math.Inf(-1)))) + 0
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
	diff := s[0][:len(is)]
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

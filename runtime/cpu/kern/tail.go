//go:build amd64 || arm64

package kern

import (
	"math"
	"math/bits"
	"unsafe"
)

// ranges completes kernels that do not cover all operands.
func (p *Path) ranges() {
	for _, op := range []Unary{Sin, Cos} {
		p.unary[op] = p.reduced(op, p.unary[op])
	}
	p.binary[Pow] = p.power(p.binary[Pow])
}

// others are elements of a block that Go code computes, because a kernel does not cover their operands. What an element gives
// does not depend on the others.
type others struct {
	n      int
	at     [othersBlock]uint8
	result [othersBlock]float32
}

const othersBlock = 256

// add adds those of elements i and i+1 for whose halves outside is set.
func (o *others) add(i int, outside uint64) {
	for ; outside != 0; outside &= outside - 1 {
		o.at[o.n] = uint8(i + bits.TrailingZeros64(outside)/32)
		o.n++
	}
}

// store sets them.
func (o *others) store(dst []float32) {
	for k, i := range o.at[:o.n] {
		dst[i] = o.result[k]
	}
}

// Two f32 by their bits in a word: their signs, the other bits, and what sets the sign of a sum with these from infinity on, and
// from the limit of sines on.
const (
	both      = 1<<32 + 1
	signs     = both << 31
	magnitude = signs - both
	fromInf   = signs - both*0x7f800000
	fromLimit = signs - both*0x47c35000
	fromOne   = magnitude // from the smallest number that is not zero on
)

// twoOf is elements i and i+1 of x, the second one zero if there is none.
func twoOf(x []float32, i int) uint64 {
	if i+1 < len(x) {
		return *(*uint64)(unsafe.Pointer(&x[i]))
	}
	return uint64(math.Float32bits(x[i]))
}

// inside are the signs of elements of which n are left.
func inside(n int) uint64 {
	if n > 1 {
		return signs
	}
	return signs >> 32
}

// powerOutside has the signs of two elements set where a power's kernel does not cover base and exponent: where the base is not
// positive and finite, the exponent is not finite, or is 2 or 3. These differ in one bit.
func powerOutside(x, y uint64) uint64 {
	const two, three = both * 0x40000000, both * 0x40400000
	z := y&^(two^three) ^ two
	base := x | (x&magnitude + fromInf) | ^(x&magnitude + fromOne)
	return (base | (y&magnitude + fromInf) | ^(z | (z&magnitude + fromOne))) & signs
}

// sineOutside is the same for sines and cosines: where x is not within the range of the argument's reduction.
func sineOutside(x uint64) uint64 { return (x&magnitude + fromLimit) & signs }

// power is the power kernel for any operands. Squares and cubes need no logarithm. Go code computes elements whose base is
// not positive and finite, or whose exponent is not finite.
func (p *Path) power(kernel func(n int, dst, a, b *float32)) func(n int, dst, a, b *float32) {
	return func(n int, dst, a, b *float32) {
		lo, hi := p.min(n, b), p.max(n, b)
		switch {
		case lo == 2 && hi == 2:
			p.binary[Mul](n, dst, a, a)
			return
		case lo == 3 && hi == 3:
			for i, x := range unsafe.Slice(a, n) {
				unsafe.Slice(dst, n)[i] = powerOf(x, 3)
			}
			return
		case !(hi >= 2 && lo <= 3) && p.min(n, a) > 0 && p.max(n, a) <= math.MaxFloat32 && lo >= -math.MaxFloat32 && hi <= math.MaxFloat32:
			kernel(n, dst, a, b)
			return
		}
		for ; n > 0; n -= othersBlock {
			m := min(othersBlock, n)
			powers(kernel, unsafe.Slice(dst, m), unsafe.Slice(a, m), unsafe.Slice(b, m))
			dst, a, b = after(dst, m), after(a, m), after(b, m)
		}
	}
}

// powers computes a block with a kernel, others apart.
func powers(kernel func(n int, dst, a, b *float32), dst, a, b []float32) {
	var o others
	for i := 0; i < len(a); i += 2 {
		if outside := powerOutside(twoOf(a, i), twoOf(b, i)) & inside(len(a)-i); outside != 0 {
			o.add(i, outside)
		}
	}
	for k, i := range o.at[:o.n] {
		o.result[k] = powerOf(a[i], b[i])
	}
	kernel(len(a), &dst[0], &a[0], &b[0])
	o.store(dst)
}

// powerOf is a power of any operands.
func powerOf(a, b float32) float32 {
	switch b {
	case 2:
		return a * a
	case 3:
		x := float64(a)
		return float32(x * x * x)
	}
	return binaryRows[Pow].f(a, b)
}

// reduced is a sine or cosine kernel for any argument. Go code computes elements beyond the range of the kernel's argument
// reduction.
func (p *Path) reduced(op Unary, kernel func(n int, dst, src *float32)) func(n int, dst, src *float32) {
	const limit = 1e5
	return func(n int, dst, src *float32) {
		if p.max(n, src) < limit && p.min(n, src) > -limit {
			kernel(n, dst, src)
			return
		}
		for ; n > 0; n -= othersBlock {
			m := min(othersBlock, n)
			sines(kernel, unaryRows[op].f, unsafe.Slice(dst, m), unsafe.Slice(src, m))
			dst, src = after(dst, m), after(src, m)
		}
	}
}

// sines computes a block of sines or cosines with a kernel, others apart by f.
func sines(kernel func(n int, dst, src *float32), f func(float32) float32, dst, src []float32) {
	var o others
	for i := 0; i < len(src); i += 2 {
		if outside := sineOutside(twoOf(src, i)); outside != 0 {
			o.add(i, outside)
		}
	}
	for k, i := range o.at[:o.n] {
		o.result[k] = f(src[i])
	}
	kernel(len(src), &dst[0], &src[0])
	o.store(dst)
}

//go:build amd64 || arm64

package kern

import (
	"math"
	"unsafe"
)

// ranges completes kernels that do not cover all operands.
func (p *Path) ranges() {
	for _, op := range []Unary{Sin, Cos} {
		p.unary[op] = p.reduced(op, p.unary[op])
	}
	p.binary[Pow] = p.power(p.binary[Pow])
}

// power is the power kernel for any operands. Squares and cubes need no logarithm. Go code computes elements whose base is
// not positive and finite, or whose exponent is not finite. What an element gives does not depend on the others.
func (p *Path) power(kernel func(n int, dst, a, b *float32)) func(n int, dst, a, b *float32) {
	return func(n int, dst, a, b *float32) {
		lo, hi := p.min(n, b), p.max(n, b)
		if lo == 2 && hi == 2 {
			p.binary[Mul](n, dst, a, a)
			return
		}
		products := hi >= 2 && lo <= 3
		if !products && p.min(n, a) > 0 && p.max(n, a) <= math.MaxFloat32 && lo >= -math.MaxFloat32 && hi <= math.MaxFloat32 {
			kernel(n, dst, a, b)
			return
		}
		d, x, y := unsafe.Slice(dst, n), unsafe.Slice(a, n), unsafe.Slice(b, n)
		split(n, func(i int) bool {
			return y[i] != 2 && y[i] != 3 && x[i] > 0 && x[i] <= math.MaxFloat32 && math.Abs(float64(y[i])) <= math.MaxFloat32
		}, func(i, n int) { kernel(n, &d[i], &x[i], &y[i]) }, func(i int) { d[i] = powerOf(x[i], y[i]) })
	}
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

// split calls run for the longest runs of elements that are ordinary, and single for each of the others.
func split(n int, ordinary func(i int) bool, run func(i, n int), single func(i int)) {
	for i := 0; i < n; {
		from := i
		for i < n && ordinary(i) {
			i++
		}
		if i > from {
			run(from, i-from)
		}
		for ; i < n && !ordinary(i); i++ {
			single(i)
		}
	}
}

// reduced is a sine or cosine kernel for any argument. Go code computes elements beyond the range of the kernel's argument
// reduction. What an element gives does not depend on the others.
func (p *Path) reduced(op Unary, kernel func(n int, dst, src *float32)) func(n int, dst, src *float32) {
	const limit = 1e5
	return func(n int, dst, src *float32) {
		if p.max(n, src) < limit && p.min(n, src) > -limit {
			kernel(n, dst, src)
			return
		}
		d, x := unsafe.Slice(dst, n), unsafe.Slice(src, n)
		split(n, func(i int) bool { return x[i] < limit && x[i] > -limit }, func(i, n int) { kernel(n, &d[i], &x[i]) }, func(i int) { d[i] = unaryRows[op].f(x[i]) })
	}
}

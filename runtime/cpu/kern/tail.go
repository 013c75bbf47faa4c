//go:build amd64 || arm64

package kern

import "math"

// ranges completes kernels that do not cover all operands.
func (p *Path) ranges() {
	for _, op := range []Unary{Sin, Cos} {
		p.unary[op] = p.reduced(op, p.unary[op])
	}
	p.binary[Pow] = p.power(p.binary[Pow])
}

// power is the power kernel for any operands. Squares and cubes need no logarithm. Go code computes blocks with a base
// that is not positive and finite, or with an exponent that is not finite.
func (p *Path) power(kernel func(n int, dst, a, b *float32)) func(n int, dst, a, b *float32) {
	return func(n int, dst, a, b *float32) {
		lo, hi := p.min(n, b), p.max(n, b)
		switch {
		case lo == 2 && hi == 2:
			p.binary[Mul](n, dst, a, a)
		case lo == 3 && hi == 3:
			binaryGo(func(a, _ float32) float32 { x := float64(a); return float32(x * x * x) }, n, dst, a, b)
		case p.min(n, a) > 0 && p.max(n, a) <= math.MaxFloat32 && lo >= -math.MaxFloat32 && hi <= math.MaxFloat32:
			kernel(n, dst, a, b)
		default:
			binaryGo(binaryRows[Pow].f, n, dst, a, b)
		}
	}
}

// reduced is a sine or cosine kernel for any argument. Go code computes blocks beyond the range of the kernel's
// argument reduction.
func (p *Path) reduced(op Unary, kernel func(n int, dst, src *float32)) func(n int, dst, src *float32) {
	const limit = 1e5
	return func(n int, dst, src *float32) {
		if p.max(n, src) < limit && p.min(n, src) > -limit {
			kernel(n, dst, src)
		} else {
			unaryGo(unaryRows[op].f, n, dst, src)
		}
	}
}

// Package fp converts between float32 and the 16-bit formats, bit for bit:
// round to nearest even, overflow to Inf, subnormals kept, NaN stays NaN (quieted).
package fp

import "math"

// F16 returns the IEEE binary16 pattern nearest to x, ties to even.
func F16(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b>>16) & 0x8000
	abs := b & 0x7fffffff
	switch {
	case abs > 0x7f800000: // NaN: keep the top payload bits, force quiet
		return sign | 0x7e00 | uint16(abs>>13)&0x1ff
	case abs >= 0x477ff000: // 65520 and above rounds to Inf
		return sign | 0x7c00
	case abs >= 0x38800000: // normal half: rebias, add half an ulp minus the even bit
		abs += 0x0fff + (abs>>13)&1
		return sign | uint16((abs-0x38000000)>>13)
	}
	// Subnormal half: adding 0.5 aligns the mantissa at 2^-24 and the FPU rounds to even.
	f := math.Float32frombits(abs) + 0.5
	return sign | uint16(math.Float32bits(f)-0x3f000000)
}

// F16ToF32 widens a binary16 pattern; every half has an exact float32.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp, man := uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exp {
	case 0x1f:
		if man != 0 {
			return math.Float32frombits(sign | 0x7fc00000 | man<<13)
		}
		return math.Float32frombits(sign | 0x7f800000)
	case 0: // man * 2^-24, exact
		f := float32(man) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

// BF16 returns the bfloat16 pattern nearest to x, ties to even.
func BF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}

// BF16ToF32 widens a bfloat16 pattern, exactly.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// TF32 rounds x to a 10-bit mantissa, ties to even, keeping float32's exponent range.
func TF32(x float32) float32 {
	b := math.Float32bits(x)
	if b&0x7f800000 == 0x7f800000 {
		return x
	}
	return math.Float32frombits((b + 0x0fff + (b>>13)&1) &^ 0x1fff)
}

package ptx

import (
	"math"
	"math/bits"

	"ampc/internal/fp"
)

// The functions here define the meaning of instructions, one lane at a time. Arithmetic that
// produces NaN gives the canonical one (0x7fffffff for f32), as on NVIDIA hardware.

func width(t string) (n uint, signed bool) { return uint(typeInfo[t].bytes * 8), t[0] == 's' }

// extend reads the low n bits of x as an integer.
func extend(x uint64, n uint, signed bool) int64 {
	if n == 0 || n >= 64 {
		return int64(x)
	}
	if signed {
		return int64(x<<(64-n)) >> (64 - n)
	}
	return int64(x & (1<<n - 1))
}

func trim(x uint64, n uint) uint64 {
	if n >= 64 {
		return x
	}
	return x & (1<<n - 1)
}

func f32of(x uint64) float32 { return math.Float32frombits(uint32(x)) }

func bits32(f float32) uint64 {
	if f != f {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(f))
}

func bits64(f float64) uint64 {
	if f != f {
		return 0x7fffffffffffffff
	}
	return math.Float64bits(f)
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func evalSame([]string) Eval { return func(a, _, _, _ uint64) uint64 { return a } }

func evalSelect([]string) Eval {
	return func(a, b, p, _ uint64) uint64 {
		if p != 0 {
			return a
		}
		return b
	}
}

func evalPermute([]string) Eval {
	return func(a, b, sel, _ uint64) uint64 {
		pool := a&0xffffffff | b<<32
		var out uint64
		for i := uint(0); i < 4; i++ {
			s := sel >> (4 * i)
			v := pool >> (8 * (s & 7)) & 0xff
			if s&8 != 0 { // replicates the sign bit
				v = 0xff * (v >> 7)
			}
			out |= v << (8 * i)
		}
		return out
	}
}

// mask keeps the bits of the type that the last alternative names. Sums and products wrap under it,
// signed or not.
func mask(alt []string) uint64 {
	n, _ := width(alt[len(alt)-1])
	return trim(^uint64(0), n)
}

func evalAdd(alt []string) Eval {
	m := mask(alt)
	return func(a, b, _, _ uint64) uint64 { return (a + b) & m }
}

func evalSub(alt []string) Eval {
	m := mask(alt)
	return func(a, b, _, _ uint64) uint64 { return (a - b) & m }
}

func evalMul(alt []string) Eval {
	m := mask(alt)
	return func(a, b, _, _ uint64) uint64 { return a * b & m }
}

// evalInt restricts a 64-bit function to the type of the last alternative.
func evalInt(f func(a, b int64) int64) func([]string) Eval {
	return func(alt []string) Eval {
		n, signed := width(alt[len(alt)-1])
		return func(a, b, _, _ uint64) uint64 {
			return trim(uint64(f(extend(a, n, signed), extend(b, n, signed))), n)
		}
	}
}

// evalOrder is integer min or max.
func evalOrder(larger bool) func([]string) Eval {
	return func(alt []string) Eval {
		n, signed := width(alt[len(alt)-1])
		return func(a, b, _, _ uint64) uint64 {
			a, b = trim(a, n), trim(b, n)
			less := a < b
			if signed {
				less = extend(a, n, true) < extend(b, n, true)
			}
			if less != larger {
				return a
			}
			return b
		}
	}
}

func evalBits(f func(a, b uint64) uint64) func([]string) Eval {
	return func(alt []string) Eval {
		n := uint(typeInfo[alt[0]].class.bitCount())
		return func(a, b, _, _ uint64) uint64 { return trim(f(a, b), n) }
	}
}

func evalMulHi(alt []string) Eval {
	n, signed := width(alt[0])
	if n == 32 {
		return func(a, b, _, _ uint64) uint64 {
			return trim(uint64(extend(a, 32, signed)*extend(b, 32, signed))>>32, 32)
		}
	}
	return func(a, b, _, _ uint64) uint64 {
		hi, _ := bits.Mul64(a, b)
		if signed {
			hi -= a*uint64(int64(b)>>63&1) + b*uint64(int64(a)>>63&1)
		}
		return hi
	}
}

func evalMulWide(alt []string) Eval {
	n, signed := width(alt[0])
	return func(a, b, _, _ uint64) uint64 {
		return trim(uint64(extend(a, n, signed)*extend(b, n, signed)), 2*n)
	}
}

func evalMad(alt []string) Eval {
	n, _ := width(alt[0])
	return func(a, b, c, _ uint64) uint64 { return trim(a*b+c, n) }
}

func evalMadWide(alt []string) Eval {
	n, signed := width(alt[0])
	return func(a, b, c, _ uint64) uint64 {
		return trim(uint64(extend(a, n, signed)*extend(b, n, signed))+c, 2*n)
	}
}

// evalDiv divides. A division by zero gives a number with all bits set, as the hardware sequence
// does.
func evalDiv(alt []string) Eval {
	n, signed := width(alt[0])
	return func(a, b, _, _ uint64) uint64 {
		if trim(b, n) == 0 {
			return trim(^uint64(0), n)
		}
		if !signed {
			return trim(a, n) / trim(b, n)
		}
		return trim(uint64(extend(a, n, true)/extend(b, n, true)), n)
	}
}

func evalRem(alt []string) Eval {
	n, signed := width(alt[0])
	return func(a, b, _, _ uint64) uint64 {
		if trim(b, n) == 0 {
			return trim(a, n)
		}
		if !signed {
			return trim(a, n) % trim(b, n)
		}
		return trim(uint64(extend(a, n, true)%extend(b, n, true)), n)
	}
}

func evalShl(alt []string) Eval {
	n, _ := width(alt[0])
	return func(a, s, _, _ uint64) uint64 { return trim(a<<min(s&0xffffffff, 64), n) }
}

func evalShr(alt []string) Eval {
	n, signed := width(alt[0])
	return func(a, s, _, _ uint64) uint64 {
		s = min(s&0xffffffff, uint64(n))
		if signed {
			return trim(uint64(extend(a, n, true)>>min(s, 63)), n)
		}
		return trim(a, n) >> s
	}
}

func evalFunnel(alt []string) Eval {
	left := alt[0] == "l"
	return func(lo, hi, s, _ uint64) uint64 {
		w := lo&0xffffffff | hi<<32
		if left {
			return w << (s & 31) >> 32 & 0xffffffff
		}
		return w >> (s & 31) & 0xffffffff
	}
}

func evalExtract(alt []string) Eval {
	_, signed := width(alt[0])
	return func(a, pos, n, _ uint64) uint64 {
		pos, n = pos&0xff, n&0xff
		if n == 0 || pos > 31 {
			return 0
		}
		n = min(n, 32-pos)
		return trim(uint64(extend(a>>pos, uint(n), signed)), 32)
	}
}

func evalPopc([]string) Eval {
	return func(a, _, _, _ uint64) uint64 { return uint64(bits.OnesCount32(uint32(a))) }
}

func evalClz([]string) Eval {
	return func(a, _, _, _ uint64) uint64 { return uint64(bits.LeadingZeros32(uint32(a))) }
}

func evalBrev([]string) Eval {
	return func(a, _, _, _ uint64) uint64 { return uint64(bits.Reverse32(uint32(a))) }
}

func evalCompare(alt []string) Eval {
	n, signed := width(alt[1])
	return func(a, b, _, _ uint64) uint64 {
		x, y := extend(a, n, signed), extend(b, n, signed)
		if n == 64 && !signed {
			x, y = x^math.MinInt64, y^math.MinInt64
		}
		return truth(ordered(alt[0], x < y, x == y))
	}
}

// ordered derives a comparison from "less" and "equal".
func ordered(rel string, less, equal bool) bool {
	switch rel[:2] {
	case "eq":
		return equal
	case "ne":
		return !equal
	case "lt":
		return less
	case "le":
		return less || equal
	case "gt":
		return !less && !equal
	}
	return !less // ge
}

// evalCompareF compares floats: plain relations are false on NaN, the u forms true.
func evalCompareF(alt []string) Eval {
	rel, unordered := alt[0], len(alt[0]) == 3 && alt[0][2] == 'u'
	read := readFloat(alt[1])
	return func(a, b, _, _ uint64) uint64 {
		x, y := read(a), read(b)
		nan := x != x || y != y
		switch {
		case rel == "nan" || rel == "num":
			return truth(nan == (rel == "nan"))
		case nan:
			return truth(unordered)
		}
		return truth(ordered(rel, x < y, x == y))
	}
}

func evalCvtInt(alt []string) Eval {
	n, signed := width(alt[1])
	to, _ := width(alt[0])
	return func(a, _, _, _ uint64) uint64 { return trim(uint64(extend(a, n, signed)), to) }
}

func evalIntToFloat(alt []string) Eval {
	n, signed := width(alt[1])
	wide := alt[0] == "f64"
	return func(a, _, _, _ uint64) uint64 {
		x := extend(a, n, signed)
		switch {
		case wide && n == 64 && !signed:
			return bits64(float64(uint64(x)))
		case wide:
			return bits64(float64(x))
		case n == 64 && !signed:
			return bits32(float32(uint64(x)))
		}
		return bits32(float32(x))
	}
}

// evalFloatToInt rounds as the instruction names and saturates. NaN gives 0, or only the sign bit
// if source or result has 64 bits.
func evalFloatToInt(alt []string) Eval {
	round, read := rounders[alt[0]], readFloat(alt[2])
	n, signed := width(alt[1])
	lo, hi := 0.0, math.Ldexp(1, int(n))
	if signed {
		lo, hi = -hi/2, hi/2
	}
	nan := uint64(0)
	if n == 64 || alt[2] == "f64" {
		nan = 1 << (n - 1)
	}
	return func(a, _, _, _ uint64) uint64 {
		x := round(read(a))
		switch {
		case x != x:
			return nan
		case x <= lo:
			return trim(uint64(int64(lo)), n)
		case x >= hi && signed:
			return 1<<(n-1) - 1
		case x >= hi:
			return trim(^uint64(0), n)
		case signed:
			return trim(uint64(int64(x)), n)
		}
		return uint64(x)
	}
}

var rounders = map[string]func(float64) float64{
	"rzi": math.Trunc, "rni": math.RoundToEven, "rmi": math.Floor, "rpi": math.Ceil,
}

func evalRoundInt(alt []string) Eval {
	round := rounders[alt[0]]
	return func(a, _, _, _ uint64) uint64 { return bits32(float32(round(float64(f32of(a))))) }
}

func evalWiden([]string) Eval {
	return func(a, _, _, _ uint64) uint64 { return bits64(float64(f32of(a))) }
}

func evalNarrow([]string) Eval {
	return func(a, _, _, _ uint64) uint64 { return bits32(float32(math.Float64frombits(a))) }
}

// half and brain round like cvt.rn: a NaN becomes the canonical 0x7fff.
func half(x uint64) uint64 {
	if f := f32of(x); f != f {
		return 0x7fff
	}
	return uint64(fp.F16(f32of(x)))
}

func brain(x uint64) uint64 {
	if f := f32of(x); f != f {
		return 0x7fff
	}
	return uint64(fp.BF16(f32of(x)))
}

func evalToHalf([]string) Eval { return func(a, _, _, _ uint64) uint64 { return half(a) } }

func evalToBrain([]string) Eval { return func(a, _, _, _ uint64) uint64 { return brain(a) } }

func evalFromHalf([]string) Eval {
	return func(a, _, _, _ uint64) uint64 { return bits32(fp.F16ToF32(uint16(a))) }
}

// the first source of a pair conversion goes to the upper half
func evalPairHalf([]string) Eval {
	return func(a, b, _, _ uint64) uint64 { return half(a)<<16 | half(b) }
}

func evalPairBrain([]string) Eval {
	return func(a, b, _, _ uint64) uint64 { return brain(a)<<16 | brain(b) }
}

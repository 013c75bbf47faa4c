package ptx

import "math"

func readFloat(t string) func(uint64) float64 {
	if t == "f64" {
		return math.Float64frombits
	}
	return func(a uint64) float64 { return float64(f32of(a)) }
}

// floatFn is one operation in both precisions, each rounded once.
type floatFn struct{ f32, f64 Eval }

func f64of(x uint64) float64 { return math.Float64frombits(x) }

var (
	addF = floatFn{
		func(a, b, _, _ uint64) uint64 { return bits32(f32of(a) + f32of(b)) },
		func(a, b, _, _ uint64) uint64 { return bits64(f64of(a) + f64of(b)) },
	}
	subF = floatFn{
		func(a, b, _, _ uint64) uint64 { return bits32(f32of(a) - f32of(b)) },
		func(a, b, _, _ uint64) uint64 { return bits64(f64of(a) - f64of(b)) },
	}
	mulF = floatFn{
		func(a, b, _, _ uint64) uint64 { return bits32(f32of(a) * f32of(b)) },
		func(a, b, _, _ uint64) uint64 { return bits64(f64of(a) * f64of(b)) },
	}
	divF = floatFn{
		func(a, b, _, _ uint64) uint64 { return bits32(f32of(a) / f32of(b)) },
		func(a, b, _, _ uint64) uint64 { return bits64(f64of(a) / f64of(b)) },
	}
	rcpF = floatFn{
		func(a, _, _, _ uint64) uint64 { return bits32(1 / f32of(a)) },
		func(a, _, _, _ uint64) uint64 { return bits64(1 / f64of(a)) },
	}
	sqrtF = floatFn{
		// f64 has more than twice the digits of f32, so rounding its square root again is exact
		func(a, _, _, _ uint64) uint64 { return bits32(float32(math.Sqrt(float64(f32of(a))))) },
		func(a, _, _, _ uint64) uint64 { return bits64(math.Sqrt(f64of(a))) },
	}
)

func evalFloat(f floatFn) func([]string) Eval {
	return func(alt []string) Eval {
		if alt[0] == "f64" {
			return f.f64
		}
		return f.f32
	}
}

// evalExp2 is 2^a rounded to nearest. A GPU's result may differ by Exp2Error units in the last place.
func evalExp2([]string) Eval {
	const tiny = 0x1p-126
	return func(a, _, _, _ uint64) uint64 {
		y := float32(math.Exp2(float64(f32of(a))))
		if y < tiny {
			y = 0
		}
		return bits32(y)
	}
}

// Exp2Error is the error of ex2.approx.f32 that NVIDIA documents, in units in the last place.
const Exp2Error = 2

func evalFMA(alt []string) Eval {
	if alt[0] == "f64" {
		return func(a, b, c, _ uint64) uint64 {
			return bits64(math.FMA(math.Float64frombits(a), math.Float64frombits(b), math.Float64frombits(c)))
		}
	}
	return func(a, b, c, _ uint64) uint64 { return bits32(fma32(f32of(a), f32of(b), f32of(c))) }
}

// fma32 is a*b+c rounded once to f32. The product is exact in f64. The sum is rounded to odd in f64
// (Boldo and Melquiond 2008), so the second rounding gives the correct result.
func fma32(a, b, c float32) float32 {
	p := float64(float64(a) * float64(b))
	x := float64(c)
	s := p + x
	if math.IsInf(s, 0) || s != s {
		return float32(s)
	}
	t := s - p
	err := float64(p-(s-t)) + float64(x-t)
	if err != 0 {
		if u := math.Float64bits(s); u&1 == 0 {
			if (err > 0) == (s > 0) {
				u++
			} else {
				u--
			}
			s = math.Float64frombits(u)
		}
	}
	return float32(s)
}

// evalMinMax selects the smaller or larger operand, with -0 below +0. Without keep a NaN operand is
// ignored; with keep (.NaN) the result is NaN.
func evalMinMax(larger, keep bool) func([]string) Eval {
	return func(alt []string) Eval {
		read, nan := readFloat(alt[0]), bits32(float32(math.NaN()))
		if alt[0] == "f64" {
			nan = bits64(math.NaN())
		}
		return func(a, b, _, _ uint64) uint64 {
			x, y := read(a), read(b)
			switch {
			case x != x && y != y, keep && (x != x || y != y):
				return nan
			case x != x:
				return b
			case y != y:
				return a
			}
			aFirst := x < y || x == y && math.Signbit(x)
			if aFirst != larger {
				return a
			}
			return b
		}
	}
}

func signBit(t string) uint64 {
	if t == "f64" {
		return 1 << 63
	}
	return 1 << 31
}

func evalSign(f func(a, sign uint64) uint64) func([]string) Eval {
	return func(alt []string) Eval {
		s := signBit(alt[0])
		return func(a, _, _, _ uint64) uint64 { return f(a, s) }
	}
}

// evalCopysign gives the second operand the sign of the first.
func evalCopysign(alt []string) Eval {
	s := signBit(alt[0])
	return func(a, b, _, _ uint64) uint64 { return a&s | b&^s }
}

func evalTest(alt []string) Eval {
	return func(a, _, _, _ uint64) uint64 {
		exp, man := a>>23&0xff, a&0x7fffff
		switch alt[0] {
		case "finite":
			return truth(exp != 0xff)
		case "infinite":
			return truth(exp == 0xff && man == 0)
		case "number":
			return truth(exp != 0xff || man == 0)
		}
		return truth(exp == 0xff && man != 0)
	}
}

// evalAtomic combines the stored value (a) with the operand (b); cas compares with b and stores c.
func evalAtomic(alt []string) Eval {
	op, t := alt[1], []string{alt[2]}
	switch op {
	case "exch":
		return func(_, b, _, _ uint64) uint64 { return b }
	case "cas":
		return func(a, b, c, _ uint64) uint64 {
			if a == b {
				return c
			}
			return a
		}
	case "and":
		return func(a, b, _, _ uint64) uint64 { return a & b }
	case "or":
		return func(a, b, _, _ uint64) uint64 { return a | b }
	case "xor":
		return func(a, b, _, _ uint64) uint64 { return a ^ b }
	}
	return evalCombine([]string{op, t[0]})
}

// evalCombine is add, min or max of a type.
func evalCombine(alt []string) Eval {
	t := alt[1:]
	switch {
	case alt[0] == "add" && t[0] == "f32":
		return evalFloat(addF)(t)
	case alt[0] == "add":
		return evalAdd(t)
	case alt[0] == "min":
		return evalOrder(false)(t)
	}
	return evalOrder(true)(t)
}

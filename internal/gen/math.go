package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

const (
	inf = bits(0x7f800000)
	nan = bits(0x7fc00000)
)

// pow2 is x * 2^n for integers n in float form from -150 to 128, rounded once.
func (v *vm) pow2(x, n vec) vec {
	if v.wide() {
		return v.two(inst{plain: VSCALEFPS, op: "VSCALEFPS"}, x, n)
	}
	i := v.toInt(n)
	half := v.sar(i, 1)
	rest := v.subInt(i, half)
	y := v.mul(x, v.shl(v.addInt(half, bits(127)), 23))
	return v.mul(y, v.shl(v.addInt(rest, bits(127)), 23))
}

const (
	ln2Hi = 0.693359375 // few bits, so that n*ln2Hi is exact
	ln2Lo = -2.12194440e-4
)

// exponent splits x = n*ln2 + r with r in about [-ln2/2, ln2/2].
func (v *vm) exponent(x vec) (n, r vec) {
	n = v.round(v.mul(x, f(math.Log2E)), 0)
	r = v.copy(x)
	v.subMul(r, n, f(ln2Hi))
	v.subMul(r, n, f(ln2Lo))
	return n, r
}

// expTail is exp(r) - 1 for a reduced r; polynomial of Cephes expf.
func (v *vm) expTail(r vec) vec {
	p := v.poly(r, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
	v.horner(p, v.mul(r, r), r)
	return p
}

func (v *vm) exp(x vec) vec {
	n, r := v.exponent(v.clamp(x, f(-104), f(89)))
	return v.pow2(v.add(v.expTail(r), f(1)), n)
}

// expm1 is 2*(2^(n-1)*p + 2^(n-1) - 1/2) with p = exp(r)-1, or x where it is so small that p would lose bits.
func (v *vm) expm1(x vec) vec {
	n, r := v.exponent(v.clamp(x, f(-25), f(89)))
	p := v.expTail(r)
	scale := v.pow2(v.reg(f(0.5)), n)
	y := v.sub(scale, f(0.5))
	v.addMul(y, scale, p)
	return v.pick(v.cmp(less, v.abs(x), f(0x1p-24)), x, v.add(y, y))
}

// split gives n and m with x = m*2^n, m in [sqrt(1/2), sqrt(2)), for x > 0, subnormals too; n in float form.
func (v *vm) split(x vec) (n, m vec) {
	small := v.cmp(less, x, f(0x1p-126))
	s := v.pick(small, v.mul(x, f(0x1p23)), x)
	shift := v.only(small, f(-23))
	e := v.exponentOf(s)
	return v.add(v.toFloat(e), shift), v.subInt(s, v.shl(e, 23))
}

// exponentOf is n of split for normal numbers, as an integer.
func (v *vm) exponentOf(x vec) vec { return v.sar(v.subInt(x, bits(0x3f3504f3)), 23) }

// log is log(x) by the polynomial of Cephes logf on [sqrt(1/2), sqrt(2)).
func (v *vm) log(x vec) vec {
	y := v.logOf(v.split(x))
	y = v.pick(v.cmp(equal, x, inf), x, y)
	y = v.pick(v.cmp(notGreaterEq, x, f(0)), nan, y)
	return v.pick(v.cmp(equal, x, f(0)), bits(inf|signBit), y)
}

// logOf is log(m*2^n).
func (v *vm) logOf(n, m vec) vec {
	r := v.sub(m, f(1))
	p := v.poly(r, 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
		-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
	z := v.mul(r, r)
	y := v.mul(v.mul(p, r), z)
	v.addMul(y, n, f(ln2Lo))
	v.subMul(y, z, f(0.5))
	y = v.add(y, r)
	v.addMul(y, n, f(ln2Hi))
	return y
}

// log1p is log(u) + (x-(u-1))/u with u = 1+x rounded.
func (v *vm) log1p(x vec) vec {
	u := v.add(x, f(1))
	c := v.div(v.sub(x, v.sub(u, f(1))), u)
	c = v.only(v.cmp(less, u, f(0x1p24)), c)
	c = v.only(v.cmp(greater, u, f(0)), c)
	y := v.add(v.log(u), c)
	return v.pick(v.cmp(less, v.abs(x), f(0x1p-24)), x, y)
}

// log1pUnit is log1p for x from 0 to 1, where log(u) has no special cases.
func (v *vm) log1pUnit(x vec) vec {
	u := v.add(x, f(1))
	c := v.div(v.sub(x, v.sub(u, f(1))), u)
	e := v.exponentOf(u)
	y := v.logOf(v.toFloat(e), v.subInt(u, v.shl(e, 23)))
	return v.pick(v.cmp(less, x, f(0x1p-24)), x, v.add(y, c))
}

// pow is exp(y*log(x)) for finite x > 0 and finite y, with the logarithm and its product in two floats each: log(m) is
// 2*atanh(s) with s = (m-1)/(m+1).
func (v *vm) pow(x, y vec) vec {
	n, m := v.split(x)
	num, den := v.sub(m, f(1)), v.add(m, f(1))
	denLo := v.sub(m, v.sub(den, f(1)))
	inv := v.div(f(1), den)
	s := v.mul(num, inv)
	rest := v.copy(num) // num - s*(den+denLo)
	v.subMul(rest, s, den)
	v.subMul(rest, s, denLo)
	lo := v.mul(rest, inv)
	z := v.mul(s, s)
	v.addMul(lo, v.mul(s, z), v.poly(z, 1.0/13, 1.0/11, 1.0/9, 1.0/7, 1.0/5, 1.0/3))
	lo = v.add(lo, lo)
	s = v.add(s, s)
	big := v.mul(n, f(ln2Hi))
	hi := v.add(big, s)
	lo = v.add(lo, v.add(v.sub(big, hi), s))
	v.addMul(lo, n, f(ln2Lo))
	sum := v.add(hi, lo)
	lo = v.add(v.sub(hi, sum), lo)
	hi = sum

	p := v.mul(hi, y)
	tail := v.fma(hi, y, v.xor(p, bits(signBit)))
	v.addMul(tail, lo, y)
	tail = v.only(v.cmp(less, v.abs(p), f(200)), tail)
	k, r := v.exponent(v.clamp(p, f(-150), f(130)))
	r = v.add(r, tail)
	return v.pow2(v.add(v.expTail(r), f(1)), v.clamp(k, f(-160), f(160)))
}

// aboveBits is added to the bits of a number that is not negative: the sum has its sign set from limit on.
func aboveBits(limit bits) bits { return signBit - limit }

// baseOutside has its sign set where pow does not cover the base: where it is not positive, or not finite.
func (v *vm) baseOutside(x vec) vec {
	return v.or(v.or(x, v.subInt(x, bits(1))), v.addInt(x, aboveBits(inf)))
}

// exponentOutside has its sign set where y is not finite, or is 2 or 3, whose powers are products. These two differ in a bit.
func (v *vm) exponentOutside(y vec) vec {
	product := v.cmp(equal, v.and(y, ^(f(2)^f(3))), f(2))
	return v.or(v.addInt(v.abs(y), aboveBits(inf)), v.only(product, bits(signBit)))
}

// tanh is an odd polynomial (Cephes tanhf) below 0.625 and 1 - 2/(exp(2|x|)+1) from there on.
func (v *vm) tanh(x vec) vec {
	z := v.mul(x, x)
	p := v.poly(z, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
	low := v.mul(p, z)
	v.horner(low, x, x)
	a := v.abs(x)
	e := v.add(v.exp(v.add(a, a)), f(1))
	high := v.sub(f(1), v.div(f(2), e))
	return v.or(v.pick(v.cmp(less, a, f(0.625)), low, high), v.and(x, bits(signBit))) // also for -0
}

// erfcArg is log(1-erf(t)) for t from 0.92 on, the polynomial of N. Juffa's erff.
func (v *vm) erfcArg(t vec) vec {
	s := v.mul(t, t)
	p := v.poly(t, -1.72853470e-5, 3.83197126e-4)
	q := v.poly(t, -3.88396438e-3, 2.42546219e-2)
	v.horner(p, s, q)
	for _, c := range []float64{-1.06777877e-1, -6.34846687e-1, -1.28717512e-1} {
		v.horner(p, t, f(c))
	}
	v.horner(p, t, v.xor(t, bits(signBit)))
	return p
}

// erfLow is erf(x) for |x| up to 0.92, by N. Juffa's polynomial.
func (v *vm) erfLow(x vec) vec {
	p := v.poly(v.mul(x, x), -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
	v.horner(p, x, x)
	return p
}

const erfSplit = 0.927734375

// erf is 1 - 2^p(t) with p = log2(1-erf(t)) for t = |x| from 0.92 to 4, where erf is 1; its fit is off by 2e-9 in the result.
func (v *vm) erf(x vec) vec {
	t := v.minOf(f(4), v.abs(x))
	p := v.poly(t, 3.0871536e-4, -4.638202954e-3, 3.3023245633e-2, -1.5186074376e-1, -9.1714763641e-1, -1.6281020641)
	high := v.sub(f(1), v.exp2Of(v.mul(p, t), 1.3264718e-3, 9.671512991e-3, 5.550733954e-2, 2.4022242427e-1, 6.931470037e-1, 1))
	high = v.or(high, v.and(x, bits(signBit)))
	return v.pick(v.cmp(greater, t, f(erfSplit)), high, v.erfLow(x))
}

// exp2Of is 2^y for y from -126 to 127, by a polynomial of 2^r for r in [-1/2, 1/2].
func (v *vm) exp2Of(y vec, c ...float64) vec {
	n := v.round(y, 0)
	p := v.poly(v.sub(y, n), c...)
	if v.wide() {
		return v.pow2(p, n)
	}
	return v.mul(p, v.shl(v.addInt(v.toInt(n), bits(127)), 23))
}

// cdf is the normal distribution function, without cancellation for negative x.
func (v *vm) cdf(x vec) vec {
	s := v.mul(x, f(math.Sqrt2/2))
	t := v.abs(s)
	q := v.mul(v.exp(v.erfcArg(t)), f(0.5))
	high := v.pick(v.cmp(less, x, f(0)), q, v.sub(f(1), q))
	low := v.fma(v.erfLow(s), f(0.5), f(0.5))
	return v.pick(v.cmp(greater, t, f(erfSplit)), high, low)
}

// sigmoid is e/(1+e) or 1/(1+e) with e = exp(-|x|).
func (v *vm) sigmoid(x vec) vec {
	e := v.exp(v.or(x, bits(signBit)))
	return v.div(v.pick(v.cmp(less, x, f(0)), e, f(1)), v.add(e, f(1)))
}

// logistic is sigmoid(x) and its derivative e/(1+e)^2, which does not cancel.
func (v *vm) logistic(x vec) (s, slope vec) {
	e := v.exp(v.or(x, bits(signBit)))
	d := v.div(f(1), v.add(e, f(1)))
	low := v.mul(e, d)
	return v.pick(v.cmp(less, x, f(0)), low, d), v.mul(low, d)
}

const (
	geluA = 2 * 0.7978845608028654 // 2*sqrt(2/pi)
	geluB = geluA * 0.044715
)

func (v *vm) geluArg(x vec) vec { return v.mul(v.poly(v.mul(x, x), geluB, geluA), x) }

// geluGate is sigmoid(2*sqrt(2/pi)*(x + 0.044715x^3)), also called (1+tanh(...))/2.
func (v *vm) geluGate(x vec) vec {
	return v.sigmoid(v.geluArg(x))
}

// sinCos is sin(x + quarter*pi/2) for |x| below sinLimit: three-part reduction, polynomials of Cephes sinf and cosf.
func (v *vm) sinCos(x vec, quarter bits) vec {
	j := v.round(v.mul(x, f(2/math.Pi)), 0)
	r := v.copy(x)
	v.subMul(r, j, f(0x1.921fb6p+00))
	v.subMul(r, j, f(-0x1.777a5cp-25))
	v.subMul(r, j, f(-0x1.ee59dap-50))
	z := v.mul(r, r)
	s := v.mul(v.poly(z, -1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1), z)
	v.horner(s, r, r)
	c := v.poly(z, 2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
	c = v.mul(c, v.mul(z, z))
	v.subMul(c, z, f(0.5))
	c = v.add(c, f(1))
	q := v.toInt(j)
	if quarter != 0 {
		q = v.addInt(q, quarter)
	}
	y := v.pick(v.lowBit(q), c, s)
	return v.xor(y, v.shl(v.sar(q, 1), 31))
}

// sinLimit is the least argument that sinCos does not cover.
const sinLimit = 1e5

// sinOutside has its sign set where sinCos does not cover x.
func (v *vm) sinOutside(x vec) vec { return v.addInt(v.abs(x), aboveBits(f(sinLimit))) }

// lowBit is the condition that an integer is odd.
func (v *vm) lowBit(q vec) cond {
	top := v.shl(q, 31)
	if v.arm != nil {
		return v.sar(top, 31)
	} else if !v.wide() {
		return top
	}
	k := v.condition()
	v.do(inst{plain: func(o ...Op) { VPMOVD2M(o[0], o[1]) }, op: "VPMOVD2M"}, top, k)
	return k
}

// softplus is max(x,0) + log1p(exp(-|x|)).
func (v *vm) softplus(x vec) vec {
	e := v.log1p(v.exp(v.or(x, bits(signBit))))
	return v.add(v.maxOf(f(0), x), e)
}

func (v *vm) roundF16(x vec) vec {
	if v.arm != nil {
		return v.arm.set(fcvtl, "FCVTL", v.arm.set(fcvtn, "FCVTN", x, nil), nil)
	}
	if v.tape != nil {
		return v.tape.one("VCVTPH2PS", 0, v.tape.one("VCVTPS2PH", 0, x))
	}
	h, d := YMM(), v.new()
	v.emit(func() {
		if v.wide() {
			VCVTPS2PH(Imm(0), x, h)
			VCVTPH2PS(h, d)
		} else {
			VCVTPS2PH(Imm(0), x, h.AsX())
			VCVTPH2PS(h.AsX(), d)
		}
	})
	return d
}

// roundTF32 rounds to a 10-bit mantissa, to nearest even; Inf and NaN stay.
func (v *vm) roundTF32(x vec) vec {
	up := v.addInt(v.addInt(x, bits(0xfff)), v.and(v.shr(x, 13), bits(1)))
	up = v.and(up, bits(0xffffe000))
	special := v.cmp(notLess, v.abs(x), inf)
	return v.pick(special, x, up)
}

// minimum is NaN if one operand is, and -0 is below +0. Computed in both orders of the operands, it differs
// only in zeros, whose signs a bitwise or joins, and where one is NaN: the bits of a NaN and of another number
// together are a NaN.
func (v *vm) minimum(a, b vec) vec {
	if v.arm != nil {
		return v.minOf(a, b) // NEON orders zeros and passes NaN on
	}
	return v.or(v.minOf(a, b), v.minOf(b, a))
}

// maximum is NaN if one operand is, and +0 is above -0.
func (v *vm) maximum(a, b vec) vec {
	switch {
	case v.arm != nil:
		return v.maxOf(a, b)
	case !v.wide():
		both := v.and(v.maxOf(a, b), v.maxOf(b, a))
		return v.or(both, v.cmp(unordered, a, b).(vec))
	}
	const larger = 5 // with the sign of the larger zero
	y := v.two(inst{plain: func(o ...Op) { VRANGEPS(append([]Op{Imm(larger)}, o...)...) }, op: "VRANGEPS", imm: larger}, a, b)
	v.where(inst{plain: VPORD, op: "VPORD"}, v.cmp(unordered, a, b), b, a, y)
	return y
}

// relu is the larger of x and +0, NaN if x is.
func (v *vm) relu(x vec) vec { return v.add(v.maxOf(f(0), x), f(0)) } // the sum turns -0 to +0

func (v *vm) truth(c cond) vec { return v.only(c, f(1)) }

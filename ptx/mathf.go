package ptx

import "math"

// Transcendental functions in f32 operations. Methods and coefficients follow the widely used
// single-precision routines of N. Juffa (public domain, fma-based). Tests measure the error bounds
// over dense samples.

const (
	log2e = 1.44269502
	magic = 12582912 // 1.5 * 2^23: adding it rounds to an integer in the low bits
)

// poly evaluates c[0]*x^n + … + c[n] by Horner's rule.
func (b *builder) poly(x Reg, c ...float32) Reg {
	r := b.floatConst(c[0])
	for _, k := range c[1:] {
		r = b.fma(r, x, Fl(k))
	}
	return r
}

// exp is e^x, below 1 ulp.
func (b *builder) exp(x Reg) Reg {
	t, p := b.expReduce(b.Do("min.f32", b.Do("max.f32", x, Fl(-104)), Fl(89)))
	// 2^i is split into an exponent that stays in range and one multiplication that may overflow or
	// become subnormal
	up := b.Do("setp.gt.f32", x, Fl(0))
	r := b.mul(b.scaled(p, t, b.Do("selp.b32", I(-64<<23), I(64<<23), up)), b.Do("selp.f32", Fl(0x1p64), Fl(0x1p-64), up))
	return b.Do("selp.f32", x, r, b.Do("setp.nan.f32", x, x))
}

// expDown is e^x for x <= 0 or NaN, below 1 ulp.
func (b *builder) expDown(x Reg) Reg {
	t, p := b.expReduce(b.Do("max.f32", x, Fl(-104)))
	r := b.mul(b.scaled(p, t, I(64<<23)), Fl(0x1p-64))
	return b.Do("selp.f32", x, r, b.Do("setp.nan.f32", x, x))
}

// expTerm is e^x as a term of a sum that contains 1. Its error is 4.3e-7 plus the rounding of
// x·log2(e), which is small relative to the sum. For x below -86 and for NaN it is e^-86, which
// does not change the sum. The polynomial is the minimax one for 2^f on |f| <= 1/2, exact at 0.
func (b *builder) expTerm(x Reg) Reg {
	x = b.Do("max.f32", x, Fl(-86))
	t := b.fma(x, Fl(log2e), Fl(magic))
	f := b.fma(x, Fl(log2e), b.sub(Fl(magic), t))
	p := b.poly(f, 0.00111255073, 0.00966628268, 0.0555740036, 0.240223512, 0.693142831, 1)
	return b.scaled(p, t, I(0))
}

// expReduce writes e^x = 2^i·p with |ln p| <= ln2/2; the low bits of t hold i.
func (b *builder) expReduce(x Reg) (t, p Reg) {
	t = b.fma(x, Fl(log2e), Fl(magic))
	j := b.sub(t, Fl(magic))
	f := b.fma(j, Fl(-6.93145752e-1), x)
	f = b.fma(j, Fl(-1.42860677e-6), f)
	return t, b.poly(f, 1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1, 1)
}

// scaled adds i and more to the exponent of p. The shift discards the bits of the magic number
// above i.
func (b *builder) scaled(p, t Reg, more Arg) Reg {
	w := b.iadd(b.bits(p), b.Do("shl.b32", b.bits(t), I(23)))
	if more != I(0) {
		w = b.iadd(w, more)
	}
	return b.float(w)
}

// log is the natural logarithm, below 1 ulp.
func (b *builder) log(x Reg) Reg {
	small := b.Do("setp.lt.f32", x, Fl(0x1p-126))
	a := b.Do("selp.f32", b.mul(x, Fl(0x1p23)), x, small)
	i := b.Do("selp.f32", Fl(-23), Fl(0), small)
	e := b.Do("and.b32", b.Do("sub.s32", b.bits(a), I(0x3f2aaaab)), I(0xff800000))
	m := b.sub(b.float(b.Do("sub.s32", b.bits(a), e)), Fl(1))
	i = b.fma(b.Do("cvt.rn.f32.s32", e), Fl(0x1p-23), i)
	s := b.mul(m, m)
	r := b.poly(s, -0.130310059, -0.121484190, -0.166846052, -0.249996200)
	t := b.poly(s, 0.140869141, 0.139814854, 0.200120345)
	r = b.fma(t, m, r)
	r = b.fma(r, m, Fl(0.333331972))
	r = b.fma(r, m, Fl(-0.5))
	r = b.fma(r, s, m)
	r = b.fma(i, Fl(0.693147182), r)
	inf := float32(math.Inf(1))
	r = b.Do("selp.f32", x, r, b.Do("setp.equ.f32", x, Fl(inf))) // +Inf and NaN pass through
	r = b.Do("selp.f32", Fl(-inf), r, b.Do("setp.eq.f32", x, Fl(0)))
	return b.Do("selp.f32", Fl(float32(math.NaN())), r, b.Do("setp.lt.f32", x, Fl(0)))
}

// tanh is below 2 ulp: an odd polynomial near zero, 1 - 2/(e^2x + 1) beyond.
func (b *builder) tanh(x Reg) Reg {
	a := b.Do("abs.f32", x)
	e := b.exp(b.add(a, a))
	far := b.fma(b.div(Fl(-2), b.add(e, Fl(1))), Fl(1), Fl(1))
	s := b.mul(x, x)
	near := b.poly(s, 1.57394409e-2, -5.23025580e-2, 1.33152470e-1, -3.33327681e-1)
	near = b.fma(b.mul(near, s), a, a)
	r := b.Do("selp.f32", far, near, b.Do("setp.geu.f32", a, Fl(0.55)))
	return b.Do("copysign.f32", x, r)
}

// erf is below 1 ulp.
func (b *builder) erf(x Reg) Reg {
	t := b.Do("abs.f32", x)
	s := b.mul(x, x)
	r := b.fma(Fl(-1.72853470e-5), t, Fl(3.83197126e-4))
	u := b.fma(Fl(-3.88396438e-3), t, Fl(2.42546219e-2))
	r = b.fma(r, s, u)
	r = b.fma(r, t, Fl(-1.06777877e-1))
	r = b.fma(r, t, Fl(-6.34846687e-1))
	r = b.fma(r, t, Fl(-1.28717512e-1))
	r = b.fma(r, t, b.Do("neg.f32", t))
	far := b.Do("copysign.f32", x, b.sub(Fl(1), b.exp(r)))
	// far from zero the polynomial overflows to NaN, where erf is 1
	far = b.Do("selp.f32", b.Do("copysign.f32", x, b.floatConst(1)), far, b.Do("setp.gt.f32", t, Fl(8)))
	near := b.poly(s, -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
	near = b.fma(near, x, x)
	return b.Do("selp.f32", far, near, b.Do("setp.gt.f32", t, Fl(0.927734375)))
}

// Functions that are rare in hot loops use f64, where plain series reach f32 accuracy.

func (b *builder) dadd(x, y Arg) Reg    { return b.Do("add.rn.f64", x, y) }
func (b *builder) dmul(x, y Arg) Reg    { return b.Do("mul.rn.f64", x, y) }
func (b *builder) dfma(x, y, z Arg) Reg { return b.Do("fma.rn.f64", x, y, z) }

// poly64 evaluates c[0]*x^n + … + c[n] in f64.
func (b *builder) poly64(x Reg, c ...float64) Reg {
	r := b.Do("mov.f64", Db(c[0]))
	for _, k := range c[1:] {
		r = b.dfma(r, x, Db(k))
	}
	return r
}

// taylor lists 1/n! … 1/0!, every step-th term, for poly64.
func taylor(from, to, step int, sign float64) []float64 {
	var c []float64
	for n := from; n >= to; n -= step {
		f := 1.0
		for i := 2; i <= n; i++ {
			f *= float64(i)
		}
		c = append(c, 1/f)
	}
	for i := len(c) - 2; i >= 0; i -= 2 { // signs alternate, starting with the last term
		c[i] *= sign
	}
	return c
}

// exp64 is e^x to about 1e-15, clamped to the range of f32 results and a little beyond.
func (b *builder) exp64(x Reg) Reg {
	x = b.Do("min.f64", b.Do("max.f64", x, Db(-400)), Db(400))
	j := b.Do("cvt.rni.s32.f64", b.dmul(x, Db(math.Log2E)))
	jf := b.Do("cvt.rn.f64.s32", j)
	const ln2hi, ln2lo = 6.93147180369123816490e-01, 1.90821492927058770002e-10
	f := b.dfma(jf, Db(-ln2hi), x)
	f = b.dfma(jf, Db(-ln2lo), f)
	r := b.poly64(f, taylor(13, 0, 1, 1)...)
	e := b.Do("shl.b64", b.Do("cvt.s64.s32", b.Do("add.s32", j, I(1023))), I(52))
	scale := b.reg(F64)
	b.To(scale, "mov.b64", e)
	return b.dmul(r, scale)
}

// log64 is ln x for a positive normal f64, to about 1e-15.
func (b *builder) log64(x Reg) Reg {
	w := b.reg(B64)
	b.To(w, "mov.b64", x)
	const half = 0x3fe6a09e667f3bcd // sqrt(1/2): mantissa in [sqrt(1/2), sqrt(2))
	e := b.Do("shr.s64", b.Do("sub.s64", w, I(half)), I(52))
	m := b.reg(F64)
	b.To(m, "mov.b64", b.Do("sub.s64", w, b.Do("shl.b64", e, I(52))))
	s := b.Do("div.rn.f64", b.dadd(m, Db(-1)), b.dadd(m, Db(1)))
	z := b.dmul(s, s)
	var c []float64
	for n := 21; n >= 1; n -= 2 {
		c = append(c, 2/float64(n))
	}
	r := b.dmul(b.poly64(z, c...), s)
	return b.dfma(b.Do("cvt.rn.f64.s64", e), Db(math.Ln2), r)
}

// viaSeries computes wide(x) in f64 and rounds. For |x| < 2^-12 it uses x times near(x). patch
// handles infinities and NaN.
func (b *builder) viaSeries(x Reg, wide func(d Reg) Reg, near ...float64) Reg {
	d := b.Do("cvt.f64.f32", x)
	r := wide(d)
	close := b.Do("setp.lt.f64", b.Do("abs.f64", d), Db(0x1p-12))
	r = b.Do("selp.f64", b.dmul(b.poly64(d, near...), d), r, close)
	out := b.Do("cvt.rn.f32.f64", r)
	zero := b.Do("setp.equ.f32", x, Fl(0)) // keeps the sign of zero, and NaN
	return b.Do("selp.f32", x, out, zero)
}

// expm1 is e^x - 1.
func (b *builder) expm1(x Reg) Reg {
	return b.viaSeries(x, func(d Reg) Reg { return b.dadd(b.exp64(d), Db(-1)) }, 1./6, 1./2, 1)
}

// log1p is ln(1+x).
func (b *builder) log1p(x Reg) Reg {
	r := b.viaSeries(x, func(d Reg) Reg { return b.log64(b.dadd(d, Db(1))) }, 1./3, -1./2, 1)
	inf := float32(math.Inf(1))
	r = b.Do("selp.f32", x, r, b.Do("setp.eq.f32", x, Fl(inf)))
	r = b.Do("selp.f32", Fl(-inf), r, b.Do("setp.eq.f32", x, Fl(-1)))
	return b.Do("selp.f32", Fl(float32(math.NaN())), r, b.Do("setp.lt.f32", x, Fl(-1)))
}

// turn reduces x to r in [-pi/4, pi/4] and the quadrant. It is accurate for |x| < 2^50.
func (b *builder) turn(x Reg) (r, quadrant Reg) {
	d := b.Do("cvt.f64.f32", x)
	q := b.Do("cvt.rni.s64.f64", b.dmul(d, Db(2/math.Pi)))
	qf := b.Do("cvt.rn.f64.s64", q)
	r = b.dfma(qf, Db(-1.5707963267948966), d)
	r = b.dfma(qf, Db(-6.123233995736766e-17), r)
	return r, b.Do("cvt.u32.u64", q)
}

func (b *builder) sinPoly(r Reg) Reg {
	return b.dmul(b.poly64(b.dmul(r, r), taylor(13, 1, 2, -1)...), r)
}

func (b *builder) cosPoly(r Reg) Reg { return b.poly64(b.dmul(r, r), taylor(14, 0, 2, -1)...) }

// sinCos is sin x shifted by quarter turns: 0 for sin, 1 for cos. Infinite x gives NaN.
func (b *builder) sinCos(x Reg, quarters int) Reg {
	r, q := b.turn(x)
	q = b.iadd(q, I(quarters))
	odd := b.Do("setp.ne.u32", b.Do("and.b32", q, I(1)), I(0))
	v := b.Do("cvt.rn.f32.f64", b.Do("selp.f64", b.cosPoly(r), b.sinPoly(r), odd))
	neg := b.Do("setp.ne.u32", b.Do("and.b32", q, I(2)), I(0))
	v = b.Do("selp.f32", b.Do("neg.f32", v), v, neg)
	if quarters == 0 {
		v = b.Do("selp.f32", x, v, b.Do("setp.eq.f32", x, Fl(0)))
	}
	return b.finiteOr(x, v)
}

// finiteOr is v where x is finite, else NaN.
func (b *builder) finiteOr(x, v Reg) Reg {
	return b.Do("selp.f32", v, Fl(float32(math.NaN())), b.Do("testp.finite.f32", x))
}

func (b *builder) tan(x Reg) Reg {
	r, q := b.turn(x)
	s, c := b.sinPoly(r), b.cosPoly(r)
	odd := b.Do("setp.ne.u32", b.Do("and.b32", q, I(1)), I(0))
	num := b.Do("selp.f64", b.Do("neg.f64", c), s, odd)
	den := b.Do("selp.f64", s, c, odd)
	v := b.Do("cvt.rn.f32.f64", b.Do("div.rn.f64", num, den))
	v = b.Do("selp.f32", x, v, b.Do("setp.eq.f32", x, Fl(0)))
	return b.finiteOr(x, v)
}

// atan reduces |x| > 1 to 1/x. The polynomial is minimax on [0, 1].
func (b *builder) atan(x Reg) Reg {
	a := b.Do("abs.f32", x)
	big := b.Do("setp.gt.f32", a, Fl(1))
	z := b.Do("selp.f32", b.Do("rcp.rn.f32", a), a, big)
	s := b.mul(z, z)
	p := b.poly(s, 2.78569828e-3, -1.58660226e-2, 4.24722321e-2, -7.49753043e-2,
		1.06448799e-1, -1.42070308e-1, 1.99934542e-1, -3.33331466e-1)
	r := b.fma(b.mul(p, s), z, z)
	far := b.fma(Fl(0.93318945), Fl(1.68325555), b.Do("neg.f32", r)) // the product is pi/2
	return b.Do("copysign.f32", x, b.Do("selp.f32", far, r, big))
}

// pow is |x|^y through f64 logarithms, with the special cases of C99 annex F.
func (b *builder) pow(x, y Reg) Reg {
	dx, dy := b.Do("cvt.f64.f32", b.Do("abs.f32", x)), b.Do("cvt.f64.f32", y)
	r := b.Do("cvt.rn.f32.f64", b.exp64(b.dmul(dy, b.log64(dx))))
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	yPos := b.Do("setp.gt.f32", y, Fl(0))
	grow := b.Do("selp.f32", Fl(inf), Fl(0), yPos)
	shrink := b.Do("selp.f32", Fl(0), Fl(inf), yPos)
	ax, ay := b.Do("abs.f32", x), b.Do("abs.f32", y)
	r = b.Do("selp.f32", grow, r, b.Do("setp.eq.f32", ax, Fl(inf)))
	r = b.Do("selp.f32", shrink, r, b.Do("setp.eq.f32", ax, Fl(0)))
	yInf := b.Do("setp.eq.f32", ay, Fl(inf))
	atInf := b.Do("selp.f32", grow, shrink, b.Do("setp.gt.f32", ax, Fl(1)))
	r = b.Do("selp.f32", atInf, r, yInf)
	r = b.Do("selp.f32", Fl(1), r, b.Do("and.pred", yInf, b.Do("setp.eq.f32", ax, Fl(1))))
	// a negative base: odd integer exponents flip the sign, exponents that are not integers give
	// NaN
	whole := b.Do("setp.eq.f32", b.Do("cvt.rzi.f32.f32", y), y)
	halfY := b.mul(y, Fl(0.5))
	odd := b.Do("and.pred", whole, b.Do("setp.ne.f32", b.Do("cvt.rzi.f32.f32", halfY), halfY))
	negX := b.Do("setp.ne.u32", b.Do("shr.u32", b.bits(x), I(31)), I(0))
	r = b.Do("selp.f32", b.Do("neg.f32", r), r, b.Do("and.pred", negX, odd))
	finiteNeg := b.Do("and.pred", b.Do("setp.lt.f32", x, Fl(0)), b.Do("testp.finite.f32", x))
	r = b.Do("selp.f32", Fl(nan), r, b.Do("and.pred", finiteNeg, b.Do("not.pred", whole)))
	r = b.Do("selp.f32", Fl(nan), r, b.Do("setp.nan.f32", x, y))
	one := b.Do("or.pred", b.Do("setp.eq.f32", y, Fl(0)), b.Do("setp.eq.f32", x, Fl(1)))
	return b.Do("selp.f32", Fl(1), r, one)
}

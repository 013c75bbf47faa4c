package kern

import "unsafe"

// Unary computes dst[i] = op(src[i]). dst and src have the same length, and are the same slice or do not overlap.
func (p *Path) Unary(op Unary, dst, src []float32) {
	if n := len(dst); n > 0 {
		p.unary[op](n, &dst[0], &src[:n][0])
	}
}

// Binary computes dst[i] = op(a[i], b[i]); dst may be a or b.
func (p *Path) Binary(op Binary, dst, a, b []float32) {
	if n := len(dst); n > 0 {
		p.binary[op](n, &dst[0], &a[:n][0], &b[:n][0])
	}
}

// Ternary computes dst[i] = op(a[i], b[i], c[i]); dst may be an operand.
func (p *Path) Ternary(op Ternary, dst, a, b, c []float32) {
	if n := len(dst); n > 0 {
		p.ternary[op](n, &dst[0], &a[:n][0], &b[:n][0], &c[:n][0])
	}
}

// Load widens len(dst) elements of format t at the start of src, exactly.
func (p *Path) Load(dst []float32, src Buf) {
	if n := len(dst); n > 0 {
		_ = src.Data[n*src.Type.Size()-1]
		p.widen[src.Type](n, &dst[0], &src.Data[0])
	}
}

// Store rounds len(src) values to the format of dst, to nearest even.
func (p *Path) Store(dst Buf, src []float32) {
	if n := len(src); n > 0 {
		_ = dst.Data[n*dst.Type.Size()-1]
		p.narrow[dst.Type](n, &dst.Data[0], &src[0])
	}
}

// Fill sets every element of dst to x.
func (p *Path) Fill(dst []float32, x float32) {
	n := min(16, len(dst))
	for i := range dst[:n] {
		dst[i] = x
	}
	for ; n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}

// Axpb computes dst[i] = a*x[i] + b, rounded once; dst may be x.
func (p *Path) Axpb(dst, x []float32, a, b float32) {
	if n := len(dst); n > 0 {
		p.axpb(n, &dst[0], &x[:n][0], a, b)
	}
}

// Axpy computes dst[i] = a*x[i] + y[i], rounded once; dst may be an operand.
func (p *Path) Axpy(dst, x, y []float32, a float32) {
	if n := len(dst); n > 0 {
		p.axpy(n, &dst[0], &x[:n][0], &y[:n][0], a)
	}
}

// sumSqDev is the sum of (x[i]-mean)^2, each rounded together with its addition, partial sums as Sum.
func (p *Path) sumSqDev(x []float32, mean float32) float32 {
	switch h := halve(len(x), sumRun); {
	case len(x) == 0:
		return 0
	case h < len(x):
		return p.sumSqDev(x[:h], mean) + p.sumSqDev(x[h:], mean)
	}
	return p.sumSq(len(x), &x[0], mean)
}

// sumRun is the most elements whose sum is 64 chains of additions.
const sumRun = lanes * sumDepth

// halve is the position at which a sum of n elements is split in two: a whole number of runs of at most run elements.
func halve(n, run int) int { return roundUp(ceilDiv(n, 2), run) }

// Sum is the sum of x over 64 interleaved partial sums, added as a tree. Beyond sumRun elements it is the sum of the sums
// of two halves (pairwise summation, Higham 1993).
func (p *Path) Sum(x []float32) float32 {
	switch h := halve(len(x), sumRun); {
	case len(x) == 0:
		return 0
	case h < len(x):
		return p.Sum(x[:h]) + p.Sum(x[h:])
	}
	return p.sum(len(x), &x[0])
}

// Dot is the sum of a[i]*b[i], partial sums as Sum; the vector paths fuse multiply and add.
func (p *Path) Dot(a, b []float32) float32 {
	switch h := halve(len(a), sumRun); {
	case len(a) == 0:
		return 0
	case h < len(a):
		return p.Dot(a[:h], b[:h]) + p.Dot(a[h:], b[h:])
	}
	return p.dot(len(a), &a[0], &b[:len(a)][0])
}

// MaxOf is the largest element, NaN if there is one, -Inf for none.
func (p *Path) MaxOf(x []float32) float32 {
	if len(x) == 0 {
		return negInf
	}
	return p.max(len(x), &x[0])
}

// MinOf is the smallest element, NaN if there is one, +Inf for none.
func (p *Path) MinOf(x []float32) float32 {
	if len(x) == 0 {
		return -negInf
	}
	return p.min(len(x), &x[0])
}

// Counts are the results of Count. Lo and Hi are the least and the largest finite element, +Inf and
// -Inf if there is none; either zero may stand for both.
type Counts struct {
	Lo, Hi                  float32
	NaN, Inf, NegInf, Zeros int // Inf counts infinities of either sign
}

// countFunc finds the Counts of n elements, a positive multiple of countBlock.
type countFunc func(n int, x *float32) (lo, hi float32, nan, inf, negInf, zeros int32)

const countBlock = 16

// Count reads every element once, at most 2³¹-1 of them.
func (p *Path) Count(x []float32) Counts {
	whole := len(x) / countBlock * countBlock
	c := Counts{Lo: -negInf, Hi: negInf}
	if whole > 0 {
		lo, hi, nan, inf, negInf, zeros := p.count(whole, &x[0])
		c = Counts{lo, hi, int(nan), int(inf), int(negInf), int(zeros)}
	}
	c.add(x[whole:])
	return c
}

// add counts x as well.
func (c *Counts) add(x []float32) {
	for _, v := range x {
		switch {
		case v != v:
			c.NaN++
		case v == negInf:
			c.NegInf++
			c.Inf++
		case v == -negInf:
			c.Inf++
		default:
			c.Lo, c.Hi = min(c.Lo, v), max(c.Hi, v)
			if v == 0 {
				c.Zeros++
			}
		}
	}
}

// Join adds the counts of other elements.
func (c *Counts) Join(d Counts) {
	c.Lo, c.Hi = min(c.Lo, d.Lo), max(c.Hi, d.Hi)
	c.NaN, c.Inf, c.NegInf, c.Zeros = c.NaN+d.NaN, c.Inf+d.Inf, c.NegInf+d.NegInf, c.Zeros+d.Zeros
}

func countGo(n int, x *float32) (lo, hi float32, nan, inf, negativeInf, zeros int32) {
	c := Counts{Lo: -negInf, Hi: negInf}
	c.add(unsafe.Slice(x, n))
	return c.Lo, c.Hi, int32(c.NaN), int32(c.Inf), int32(c.NegInf), int32(c.Zeros)
}

// SumSq is the sum of squares of x, each rounded together with its addition, partial sums as Sum.
func (p *Path) SumSq(x []float32) float32 { return p.sumSqDev(x, 0) }

// expSum sets dst = exp(src-shift) and returns the sum of dst.
func (p *Path) expSum(dst, src []float32, shift float32) float32 {
	p.expAxpb(len(dst), &dst[0], &src[:len(dst)][0], 1, -shift)
	return p.Sum(dst)
}

// Probe runs iters rounds of multiply-adds in registers and returns the floating-point operations done: the peak
// that kernels are measured against.
func (p *Path) Probe(iters int) (flop float64) {
	p.probe(iters)
	return p.probeFlop * float64(iters)
}

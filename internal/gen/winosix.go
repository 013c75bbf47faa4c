package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The transforms of F(4,3) and F(3,4), by the construction of Toom and Cook with the points 0, ±sixA, ±sixB and infinity
// (Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd Convolution", arXiv 1803.10986). The
// coefficients of the input's line and of those of the results are exact in f32.
const (
	sixA, sixB = 0.75, 1.5
	sixA2      = sixA * sixA
	sixB2      = sixB * sixB
	sixSum     = sixA2 + sixB2
	sixProduct = sixA2 * sixB2
	sixOverA   = 1 / (2 * sixA2 * (sixA2 - sixB2)) // divides the values of taps at ±sixA
	sixOverB   = 1 / (2 * sixB2 * (sixB2 - sixA2))
)

// six emits a transform; constants are in registers.
type six struct {
	*vm
	held map[float64]vec
}

// group computes some results of a line together, because they share terms.
type group struct {
	rows []int
	f    func(t *six, x func(int) any) []vec
}

var (
	sixIn     = []group{sixEnd(0, 0), sixPair(1, sixInPart(sixA, sixB2)), sixPair(3, sixInPart(sixB, sixA2)), sixEnd(5, 1)}
	sixThree  = sixTaps(3)
	sixFour   = sixTaps(4)
	sixPixels = []group{sixEven(2, false), {[]int{1, 3}, func(t *six, x func(int) any) []vec {
		d, e := t.minus(x(1), x(2)), t.minus(x(3), x(4))
		high := t.fresh(x(5))
		t.addMul(high, d, t.k(sixA*sixA2))
		t.addMul(high, e, t.k(sixB*sixB2))
		return []vec{t.times([]float64{sixA, sixB}, d, e), high}
	}}}
	sixThreeTaps = []group{sixEven(2, true), {[]int{1}, func(t *six, x func(int) any) []vec {
		return []vec{t.times([]float64{sixA, sixB}, t.minus(x(1), x(2)), t.minus(x(3), x(4)))}
	}}}
)

// sixEnd is a value of the input's line at 0 or at infinity: of three values from first on, two apart.
func sixEnd(at, first int) group {
	return group{[]int{at}, func(t *six, x func(int) any) []vec {
		sum := t.fresh(x(first + 4))
		t.subMul(sum, t.k(sixSum), x(first+2))
		t.addMul(sum, t.k(sixProduct), x(first))
		return []vec{sum}
	}}
}

// sixPair computes the two values of a line at points of both signs, from the even part and the odd part.
func sixPair(at int, parts func(t *six, x func(int) any) (even, odd vec)) group {
	return group{[]int{at, at + 1}, func(t *six, x func(int) any) []vec {
		even, odd := parts(t, x)
		less := t.sub(even, odd)
		VADDPS(odd, even, even)
		return []vec{even, less}
	}}
}

// sixInPart are the parts of the input's line at ±p, where other is the square of the other point.
func sixInPart(p, other float64) func(t *six, x func(int) any) (even, odd vec) {
	return func(t *six, x func(int) any) (even, odd vec) {
		even, odd = t.fresh(x(4)), t.fresh(x(3))
		t.subMul(even, t.k(other), x(2))
		t.subMul(odd, t.k(other), x(1))
		return even, t.mul(t.k(p), odd)
	}
}

// sixTaps is the line of n taps, or gradients.
func sixTaps(n int) []group {
	pair := func(at int, p, over float64) group {
		return sixPair(at, func(t *six, x func(int) any) (even, odd vec) {
			even = t.times([]float64{over, p * p * over}, x(0), x(2))
			if n == 3 {
				return even, t.times([]float64{p * over}, x(1))
			}
			return even, t.times([]float64{p * over, p * p * p * over}, x(1), x(3))
		})
	}
	return []group{
		{[]int{0}, func(t *six, x func(int) any) []vec { return []vec{t.times([]float64{1 / sixProduct}, x(0))} }},
		pair(1, sixA, sixOverA), pair(3, sixB, sixOverB),
		{[]int{5}, func(t *six, x func(int) any) []vec { return []vec{t.fresh(x(n - 1))} }},
	}
}

// sixEven are results 0 and at of the line of results; with last, the value at infinity is part of the latter.
func sixEven(at int, last bool) group {
	return group{[]int{0, at}, func(t *six, x func(int) any) []vec {
		d, e := t.plus(x(1), x(2)), t.plus(x(3), x(4))
		first, high := t.plus(d, x(0)), t.times([]float64{sixA2, sixB2}, d, e)
		VADDPS(e, first, first)
		if last {
			VADDPS(x(5).(Op), high, high)
		}
		return []vec{first, high}
	}}
}

// k is a constant, which a square loads where it is first used.
func (t *six) k(x float64) vec {
	if _, ok := t.held[x]; !ok {
		t.held[x] = t.reg(f(x))
	}
	return t.held[x]
}

// fresh is x in a register of its own.
func (t *six) fresh(x any) vec {
	d := t.new()
	VMOVUPS(x.(Op), d)
	return d
}

func (t *six) plus(x, y any) vec  { return t.add(t.at(x), y) }
func (t *six) minus(x, y any) vec { return t.sub(t.at(x), y) }

// times is the sum of k[i] times x[i].
func (t *six) times(k []float64, x ...any) vec {
	sum := t.mul(t.k(k[0]), x[0])
	for i, c := range k[1:] {
		t.addMul(sum, t.k(c), x[i+1])
	}
	return sum
}

// winoSix emits the transforms of tiles of six by six pixels.
func (v *vm) winoSix() {
	v.sixSquare("sixIn", 6, sixIn)
	v.sixSquare("sixThree", 3, sixThree)
	v.sixSquare("sixFour", 4, sixFour)
	v.sixSquare("sixPixels", 6, sixPixels)
	v.sixSquare("sixTaps", 6, sixThreeTaps)
}

// sixSquare emits a sixFunc of n x n values: columns are transformed first, those rows of all columns together that share
// terms.
func (v *vm) sixSquare(name string, n int, line []group) {
	v.text(name, "count int, dst *float32, dstep, drow, dcol int, src *float32, sstep, srow, scol int", "is a sixFunc.")
	count, dst, src := ptrParam("count"), ptrParam("dst"), ptrParam("src")
	dstep, drow, dcol := ptrParam("dstep"), ptrParam("drow"), ptrParam("dcol")
	sstep, srow, scol := ptrParam("sstep"), ptrParam("srow"), ptrParam("scol")
	for _, r := range []reg.GPVirtual{dstep, drow, dcol, sstep, srow, scol} {
		scaleBy(r, 4)
	}
	t := &six{v, map[float64]vec{}}
	at := newRows(srow, n)
	loop("square", count, func() {
		p, to, row := GP64(), GP64(), GP64()
		for _, g := range line {
			values := make([][]vec, len(g.rows))
			MOVQ(src, p)
			for j := range n {
				at.bases[0] = p
				for i, x := range g.f(t, func(k int) any { return at.row(k) }) {
					values[i] = append(values[i], x)
				}
				if j < n-1 {
					ADDQ(scol, p)
				}
			}
			for i, r := range g.rows {
				IMUL3Q(imm(r), drow, row)
				ADDQ(dst, row)
				for _, g := range line {
					for l, x := range g.f(t, func(k int) any { return values[i][k] }) {
						IMUL3Q(imm(g.rows[l]), dcol, to)
						VMOVUPS(x, Mem{Base: row, Index: to, Scale: 1})
					}
				}
			}
		}
		ADDQ(sstep, src)
		ADDQ(dstep, dst)
	})
	VZEROUPPER()
	RET()
}

package kern

import (
	"math"
	"testing"
)

// TestRowsApart: rows and columns of a product have the same bits as the same rows and columns multiplied alone, however few
// they are, on every path, for every type and layout, packed once or not, and with elements that are subnormal or not finite.
func TestRowsApart(t *testing.T) {
	for _, p := range tested() {
		for _, small := range []bool{false, true} {
			d, p := newDice(uint64(p.lanes)), p
			if small {
				p = smallBlocks(p)
			}
			one, few := New(p, 1), New(p, 3)
			for range rounds(map[bool]int{false: 60, true: 90}[small]) {
				gc := rowsCase(d, p, small)
				g := gc.product(d)
				for range d.IntN(3) * d.IntN(2) {
					strange(d, &g)
				}
				one.Gemm(&g)
				for i := 0; i < g.M && !t.Failed(); {
					rows := min(g.M-i, 1+d.IntN(17))
					rowsAlone(t, few, d, &g, gc, i, rows)
					i += rows
				}
			}
			one.Close()
			few.Close()
			if t.Failed() {
				t.Fatal(p.Name(), small)
			}
		}
	}
}

// rowsCase is a random product of more rows than few. Chains of small paths are short.
func rowsCase(d dice, p *Path, small bool) gemmCase {
	gc := gemmCase{m: 18 + d.IntN(30), n: 33 + d.IntN(130), k: 1 + d.IntN(150), outer: 1, inner: 1 + d.IntN(5)/4, ta: d.IntN(2) == 0, tb: d.IntN(2) == 0,
		a: d.typ(), c: d.typ(), tf32: d.IntN(8) == 0, pad: d.IntN(3) / 2 * d.IntN(7)}
	if gc.b = gc.a; d.IntN(3) == 0 {
		gc.b = d.typ()
	}
	if p.vnni != nil && d.IntN(3) == 0 {
		gc.a, gc.b = BF16, BF16
	}
	if !small && p.lanes > 1 {
		gc.k = 16 + d.extent(3000)
	}
	return gc
}

// product is a product of random operands.
func (g gemmCase) product(d dice) Gemm {
	return Gemm{M: g.m, N: g.n, K: g.k, Batch: [2]int{g.outer, g.inner}, TF32: g.tf32, A: g.operand(d, g.a, g.m, g.k, g.ta),
		B: g.operand(d, g.b, g.k, g.n, g.tb), C: g.operand(d, g.c, g.m, g.n, false)}
}

// strange sets an element of an operand of g to a number that is not finite, or to a subnormal one, and a row or column of the
// other operand so that a subnormal factor counts.
func strange(d dice, g *Gemm) {
	to, other, lanes := &g.A, &g.B, g.M
	if d.IntN(2) == 0 {
		to, other, lanes = &g.B, &g.A, g.N
	}
	lane, k := d.IntN(lanes), d.IntN(g.K)
	at := func(m *Mat, lane int) int {
		if m == &g.A {
			return m.number(0, 1, lane, k)
		}
		return m.number(0, 1, k, lane)
	}
	if d.IntN(4) == 0 {
		to.set(at(to, lane), []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0, float32(math.Copysign(0, -1))}[d.IntN(5)])
		return
	}
	to.set(at(to, lane), []float32{0x1p-130, -0x1p-131}[d.IntN(2)])
	for l := range g.M + g.N - lanes {
		if other.Type != F16 && d.IntN(3) > 0 {
			other.set(at(other, l), 0x1p127)
		}
	}
}

// rowsAlone compares rows of g from i0 on with their product alone, by some or all of the columns.
func rowsAlone(t *testing.T, m *Machine, d dice, g *Gemm, gc gemmCase, i0, rows int) {
	t.Helper()
	part, j0 := *g, 0
	if part.M = rows; d.IntN(3) == 0 {
		j0 = d.IntN(g.N)
		part.N = 1 + d.IntN(g.N-j0)
	}
	part.A.Buf, part.B.Buf = g.A.From(g.A.number(0, gc.inner, i0, 0)), g.B.From(g.B.number(0, gc.inner, 0, j0))
	part.C = Mat{Buf: zeros(gc.c, gc.inner*rows*part.N), LD: part.N, Stride: [2]int{0, rows * part.N}}
	if d.IntN(2) == 0 {
		part.B.Fixed.Weights = NewWeights(nil, NewBlock)
		defer part.B.Fixed.Drop()
	}
	m.Gemm(&part)
	comparePart(t, g, &part, gc, i0, j0)
}

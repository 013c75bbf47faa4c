package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const skinnyDepth = 8

// skinny emits the kernels for few rows of A: B is read once, as it lies.
func (v *vm) skinny() {
	for _, t := range types {
		for _, m := range []int{1, 2, 4, 8} {
			v.stripe(t, m)
		}
		v.dots(t, 1)
		if v.wide() { // two rows need 16 sums of 256 bits
			v.dots(t, 2)
		}
	}
}

// stripe emits y[i][j] += sum over r < 8 of x[r*m+i] * w[r][j], for j < cols, a multiple of the vector.
func (v *vm) stripe(t string, m int) {
	v.text(fmt.Sprintf("stripe%d%s", m, t), "vecs int, y *float32, ldy int, x *float32, w *byte, ldw int",
		fmt.Sprintf("adds the product of %d rows of w to %d rows of y, vecs vectors long; x is packed [%d][%d].", skinnyDepth, m, skinnyDepth, m))
	n, y, x, w := ptrParam("vecs"), ptrParam("y"), ptrParam("x"), ptrParam("w")
	ldy, ldw := ptrParam("ldy"), ptrParam("ldw")
	scaleBy(ldy, 4)
	scaleBy(ldw, typeSize(t))
	w4, ldw3 := GP64(), GP64()
	LEAQ(Mem{Base: w, Index: ldw, Scale: 4}, w4)
	LEAQ(Mem{Base: ldw, Index: ldw, Scale: 2}, ldw3)
	row := func(r int) Mem {
		base := []reg.GPVirtual{w, w4}[r/4]
		switch r % 4 {
		case 0:
			return Mem{Base: base}
		case 3:
			return Mem{Base: base, Index: ldw3, Scale: 1}
		}
		return Mem{Base: base, Index: ldw, Scale: uint8(r % 4)}
	}
	var held []vec // broadcasts that fit the registers
	if m*skinnyDepth+m+2 <= map[bool]int{true: 32, false: 16}[v.wide()] {
		for i := range m * skinnyDepth {
			r := v.new()
			VBROADCASTSS(Mem{Base: x, Disp: 4 * i}, r)
			held = append(held, r)
		}
	}
	loop("loop", n, func() {
		p, sum := GP64(), make([]vec, m)
		MOVQ(y, p)
		for i := range sum {
			sum[i] = v.new()
			VMOVUPS(Mem{Base: p}, sum[i])
			ADDQ(ldy, p)
		}
		for r := range skinnyDepth {
			c := v.new()
			v.load(t, row(r), c)
			for i := range sum {
				at := Mem{Base: x, Disp: 4 * (r*m + i)}
				switch {
				case held != nil:
					VFMADD231PS(held[r*m+i], c, sum[i])
				case v.wide():
					VFMADD231PS_BCST(at, c, sum[i])
				default:
					b := v.new()
					VBROADCASTSS(at, b)
					VFMADD231PS(b, c, sum[i])
				}
			}
		}
		MOVQ(y, p)
		for _, s := range sum {
			VMOVUPS(s, Mem{Base: p})
			ADDQ(ldy, p)
		}
		ADDQ(imm(v.size()), y)
		ADDQ(imm(v.w*typeSize(t)), w)
		ADDQ(imm(v.w*typeSize(t)), w4)
	})
	VZEROUPPER()
	RET()
}

// dots emits out[i*ldo+j] = x[i] . w[j] for m rows of x and four rows of w, k a multiple of 16, in 16 partial sums.
func (v *vm) dots(t string, m int) {
	v.text(fmt.Sprintf("dots%d%s", m, t), "k int, x *float32, ldx int, w *byte, ldw int, out *float32, ldo int",
		fmt.Sprintf("computes the products of %d rows of x with 4 rows of w, k elements each, a multiple of 16.", m))
	k, x, w, out := ptrParam("k"), ptrParam("x"), ptrParam("w"), ptrParam("out")
	ldx, ldw, ldo := ptrParam("ldx"), ptrParam("ldw"), ptrParam("ldo")
	scaleBy(ldx, 4)
	scaleBy(ldw, typeSize(t))
	scaleBy(ldo, 4)
	ldw3 := GP64()
	LEAQ(Mem{Base: ldw, Index: ldw, Scale: 2}, ldw3)
	rows := []Mem{{Base: w}, {Base: w, Index: ldw, Scale: 1}, {Base: w, Index: ldw, Scale: 2}, {Base: w, Index: ldw3, Scale: 1}}
	parts := 16 / v.w // vectors that hold the 16 partial sums
	sum := make([][]vec, m*4)
	for i := range sum {
		for range parts {
			s := v.new()
			v.zero(s)
			sum[i] = append(sum[i], s)
		}
	}
	SHRQ(Imm(4), k)
	loop("loop", k, func() {
		for p := range parts {
			in := make([]vec, m)
			for i := range in {
				in[i] = v.new()
				at := Mem{Base: x, Disp: p * v.size()}
				if i > 0 {
					at.Index, at.Scale = ldx, 1
				}
				VMOVUPS(at, in[i])
			}
			for j, r := range rows {
				c := v.new()
				r.Disp = p * v.w * typeSize(t)
				v.load(t, r, c)
				for i := range in {
					VFMADD231PS(in[i], c, sum[i*4+j][p])
				}
			}
		}
		ADDQ(imm(64), x)
		ADDQ(imm(16*typeSize(t)), w)
	})
	for i := range m {
		for j := range 4 {
			VMOVSS(v.fold(addI, sum[i*4+j]), Mem{Base: out, Disp: 4 * j})
		}
		ADDQ(ldo, out)
	}
	VZEROUPPER()
	RET()
}

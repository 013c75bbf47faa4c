package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const gemvDepth = 8

// smallM emits the kernels for few rows of A: B is read once, without packing.
func (v *vm) smallM() {
	for _, t := range types {
		for _, m := range []int{1, 2, 4, 8} {
			v.gemv(t, m)
		}
		v.dots(t, 1)
		if v.pairsRows(t) {
			v.dots(t, 2)
		}
	}
}

// pairsRows reports whether products of columns in memory process two rows of x at once. AVX2 then
// has registers for two columns; that pays if it saves widening them twice.
func (v *vm) pairsRows(t string) bool { return v.wide() || t != "F32" }

// gemv emits y[i][j] += sum over r < 8 of x[r*m+i] * w[r][j], for j < cols, a multiple of the
// vector. It prefetches the next 8 rows, which the next call reads: rows are too short for the
// processor to prefetch by itself.
func (v *vm) gemv(t string, m int) {
	v.text(fmt.Sprintf("gemv%d%s", m, t), "vecs int, y *float32, ldy int, x *float32, w *byte, ldw int",
		fmt.Sprintf("adds the product of %d rows of w to %d rows of y, vecs vectors long; x is packed [%d][%d].", gemvDepth, m, gemvDepth, m))
	k := &gemvRun{v: v, t: t, m: m, y: ptrParam("y"), ldy: ptrParam("ldy"), x: ptrParam("x"), ldw: ptrParam("ldw"), ldw3: GP64()}
	n, w := ptrParam("vecs"), ptrParam("w")
	scaleBy(k.ldy, 4)
	scaleBy(k.ldw, typeSize(t))
	LEAQ(Mem{Base: k.ldw, Index: k.ldw, Scale: 2}, k.ldw3)
	k.w = []reg.GPVirtual{w, GP64(), GP64(), GP64()}
	for i, p := range k.w[1:] {
		LEAQ(Mem{Base: k.w[i], Index: k.ldw, Scale: 4}, p)
	}
	k.hold()
	line := 64 / (v.w * typeSize(t)) // vectors of a line of w
	SUBQ(imm(line), n)
	JL(LabelRef("few"))
	Label("line")
	for r := range gemvDepth {
		PREFETCHT1(k.row(gemvDepth + r))
	}
	k.vectors(line)
	SUBQ(imm(line), n)
	JGE(LabelRef("line"))
	Label("few")
	if line > 1 {
		ADDQ(imm(line), n)
		JZ(LabelRef("end"))
		loop("vector", n, func() { k.vectors(1) })
		Label("end")
	}
	VZEROUPPER()
	RET()
}

// gemvRun is the emission of one GEMV kernel.
type gemvRun struct {
	v                    *vm
	t                    string
	m                    int
	y, ldy, x, ldw, ldw3 reg.GPVirtual
	w                    []reg.GPVirtual // every fourth row
	held                 []vec           // broadcasts of x, if they fit the registers
}

// row is the address of row r of w.
func (k *gemvRun) row(r int) Mem {
	base := k.w[r/4]
	switch r % 4 {
	case 0:
		return Mem{Base: base}
	case 3:
		return Mem{Base: base, Index: k.ldw3, Scale: 1}
	}
	return Mem{Base: base, Index: k.ldw, Scale: uint8(r % 4)}
}

// hold loads the broadcasts of x if there are registers for them.
func (k *gemvRun) hold() {
	if k.m*gemvDepth+k.m+2 > map[bool]int{true: 32, false: 16}[k.v.wide()] {
		return
	}
	for i := range k.m * gemvDepth {
		r := k.v.new()
		VBROADCASTSS(Mem{Base: k.x, Disp: 4 * i}, r)
		k.held = append(k.held, r)
	}
}

// vectors emits the code of count vectors of columns and advances past them: two at a time if each
// broadcast is loaded again and there are enough registers.
func (k *gemvRun) vectors(count int) {
	v, step := k.v, 1
	if k.held == nil && !v.wide() && k.m <= 4 && count > 1 {
		step = 2
	}
	for i := 0; i < count; i += step {
		k.columns(i, step)
	}
	ADDQ(imm(count*v.size()), k.y)
	for _, p := range k.w {
		ADDQ(imm(count*v.w*typeSize(k.t)), p)
	}
}

// columns emits the code of count vectors of columns, beginning with vector first.
func (k *gemvRun) columns(first, count int) {
	v, sum := k.v, make([][]vec, k.m)
	for i := range sum {
		for range count {
			sum[i] = append(sum[i], v.new())
		}
	}
	k.sums(sum, first, func(m Mem, s vec) { VMOVUPS(m, s) })
	for r := range gemvDepth {
		var col []vec
		for j := range count {
			c, at := v.new(), k.row(r)
			at.Disp = (first + j) * v.w * typeSize(k.t)
			v.load(k.t, at, c)
			col = append(col, c)
		}
		for i := range sum {
			k.multiply(r*k.m+i, col, sum[i])
		}
	}
	k.sums(sum, first, func(m Mem, s vec) { VMOVUPS(s, m) })
}

// sums loads the sums from y or stores them to y.
func (k *gemvRun) sums(sum [][]vec, first int, move func(Mem, vec)) {
	p := GP64()
	MOVQ(k.y, p)
	for _, row := range sum {
		for j, s := range row {
			move(Mem{Base: p, Disp: (first + j) * k.v.size()}, s)
		}
		ADDQ(k.ldy, p)
	}
}

// multiply adds the products of columns with the i-th number of x.
func (k *gemvRun) multiply(i int, col, sum []vec) {
	at := Mem{Base: k.x, Disp: 4 * i}
	switch {
	case k.held != nil:
		for j, c := range col {
			VFMADD231PS(k.held[i], c, sum[j])
		}
	case k.v.wide():
		for j, c := range col {
			VFMADD231PS_BCST(at, c, sum[j])
		}
	default:
		b := k.v.new()
		VBROADCASTSS(at, b)
		for j, c := range col {
			VFMADD231PS(b, c, sum[j])
		}
	}
}

// dots emits out[i*ldo+j] = x[i] . w[j] for m rows of x and four rows of w, k a multiple of 16, in
// 16 partial sums. It processes as many rows of w at once as there are registers for sums, and
// prefetches as many after them.
func (v *vm) dots(t string, m int) {
	v.text(fmt.Sprintf("dots%d%s", m, t), "k int, x *float32, ldx int, w *byte, ldw int, out *float32, ldo int",
		fmt.Sprintf("computes the products of %d rows of x with 4 rows of w, k elements each, a multiple of 16.", m))
	d := &dotsRegs{t: t, m: m, at: 4, k: ptrParam("k"), x: ptrParam("x"), w: ptrParam("w"), out: ptrParam("out"),
		ldx: ptrParam("ldx"), ldw: ptrParam("ldw"), ldo: ptrParam("ldo"), ldw3: GP64()}
	if !v.wide() && m == 2 {
		d.at = 2
	}
	scaleBy(d.ldx, 4)
	scaleBy(d.ldw, typeSize(t))
	scaleBy(d.ldo, 4)
	LEAQ(Mem{Base: d.ldw, Index: d.ldw, Scale: 2}, d.ldw3)
	SHRQ(Imm(4), d.k)
	for j := 0; j < 4; j += d.at {
		v.dotsOf(d, j)
	}
	VZEROUPPER()
	RET()
}

// dotsRegs are the registers of a kernel of dot products: at is the number of rows of w that it
// processes at once.
type dotsRegs struct {
	t                                 string
	m, at                             int
	k, x, w, out, ldx, ldw, ldo, ldw3 reg.GPVirtual
}

// dotsOf computes the products with rows j.. of w and advances w past them. Other registers are
// unchanged.
func (v *vm) dotsOf(d *dotsRegs, j int) {
	parts := 16 / v.w // vectors that hold the 16 partial sums
	sum := make([][]vec, d.m*d.at)
	for i := range sum {
		for range parts {
			s := v.new()
			v.zero(s)
			sum[i] = append(sum[i], s)
		}
	}
	k, x, w, ahead, out := GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(d.k, k)
	MOVQ(d.x, x)
	MOVQ(d.w, w)
	LEAQ(Mem{Base: d.w, Index: d.ldw, Scale: uint8(d.at)}, ahead)
	MOVQ(ahead, d.w)
	rows := []Mem{{Base: w}, {Base: w, Index: d.ldw, Scale: 1}, {Base: w, Index: d.ldw, Scale: 2}, {Base: w, Index: d.ldw3, Scale: 1}}[:d.at]
	loop(fmt.Sprint("loop", j), k, func() {
		step := 16 * typeSize(d.t)
		for line := 0; line < d.at*step; line += 64 {
			PREFETCHT1(Mem{Base: ahead, Disp: line})
		}
		ADDQ(imm(d.at*step), ahead)
		for p := range parts {
			v.dotsPart(d, x, rows, sum, p)
		}
		ADDQ(imm(64), x)
		ADDQ(imm(step), w)
	})
	MOVQ(d.out, out)
	for i := range d.m {
		for r := range d.at {
			VMOVSS(v.fold(addI, sum[i*d.at+r]), Mem{Base: out, Disp: 4 * (j + r)})
		}
		ADDQ(d.ldo, out)
	}
}

// dotsPart adds the products of the p-th vector of 16 elements.
func (v *vm) dotsPart(d *dotsRegs, x reg.GPVirtual, rows []Mem, sum [][]vec, p int) {
	in := make([]vec, d.m)
	for i := range in {
		in[i] = v.new()
		at := Mem{Base: x, Disp: p * v.size()}
		if i > 0 {
			at.Index, at.Scale = d.ldx, 1
		}
		VMOVUPS(at, in[i])
	}
	for j, r := range rows {
		c := v.new()
		r.Disp = p * v.w * typeSize(d.t)
		v.load(d.t, r, c)
		for i := range in {
			VFMADD231PS(in[i], c, sum[i*d.at+j][p])
		}
	}
}

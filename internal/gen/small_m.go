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
		for m := 1; m <= v.turnedRows(); m *= 2 {
			v.turned(t, m)
		}
	}
}

// gemv emits y[i][j] += sum over r < 8 of x[r*m+i] * w[r][j], for j < cols, a multiple of the
// vector. It prefetches the next 8 rows, which the next call reads: rows are too short for the
// processor to prefetch by itself.
func (v *vm) gemv(t string, m int) {
	v.text(fmt.Sprintf("gemv%d%s", m, t), "vecs int, y *float32, ldy int, x *float32, w *byte, ldw int",
		fmt.Sprintf("adds the product of %d rows of w to %d rows of y, vecs vectors long; x is packed [%d][%d].", gemvDepth, m, gemvDepth, m))
	k := v.newGemv(t, m, gemvDepth)
	k.loops()
	VZEROUPPER()
	RET()
}

// gemvWords emits gemv for bf16 without widening: rows of w are joined in words, two of each, and x is packed in words.
func (v *vm) gemvWords(m, depth int) {
	v.text(fmt.Sprintf("gemv%d%s%d", m, words, depth), "vecs int, y *float32, ldy int, x *float32, w *byte, ldw int) (subnormal uint64",
		fmt.Sprintf("is a gemvVNNIFunc of %d rows of w.", depth))
	k := v.newGemv(words, m, depth)
	k.small = v.smallest()
	for i := range k.join {
		k.join[i] = v.new()
		VMOVUPS(NewDataAddr(NewStaticSymbol("kernWords"), 64*i), k.join[i])
	}
	k.loops()
	k.small.store()
}

// emitWords emits the index vectors that join rows of 32 halves in words: the first 16 columns, and the others.
func emitWords() {
	GLOBL("kernWords", RODATA|NOPTR)
	for i := range 32 {
		DATA(4*i, U32(uint32(i|(32+i)<<16)))
	}
}

// gemvRun is the emission of one GEMV kernel.
type gemvRun struct {
	v                       *vm
	t                       string
	m, depth                int // rows of y, and of w
	n, y, ldy, x, ldw, ldw3 reg.GPVirtual
	w                       []reg.GPVirtual // every fourth row
	held                    []vec           // broadcasts of x, if they fit the registers
	small                   *smallest       // of VNNI
	join                    [2]vec          // the same; see emitWords
}

func (v *vm) newGemv(t string, m, depth int) *gemvRun {
	k := &gemvRun{v: v, t: t, m: m, depth: depth, n: ptrParam("vecs"), y: ptrParam("y"), ldy: ptrParam("ldy"), x: ptrParam("x"), ldw: ptrParam("ldw"), ldw3: GP64()}
	k.w = []reg.GPVirtual{ptrParam("w")}
	scaleBy(k.ldy, 4)
	scaleBy(k.ldw, sizeInMemory(k.t))
	LEAQ(Mem{Base: k.ldw, Index: k.ldw, Scale: 2}, k.ldw3)
	for i := range (2*depth - 1) / 4 { // those that are prefetched included
		k.w = append(k.w, GP64())
		LEAQ(Mem{Base: k.w[i], Index: k.ldw, Scale: 4}, k.w[i+1])
	}
	k.hold()
	return k
}

// sizeInMemory is the size of an element in memory: words are joined of two.
func sizeInMemory(t string) int {
	if t == words {
		return 2
	}
	return typeSize(t)
}

// loops emits the loops over the columns.
func (k *gemvRun) loops() {
	line := 64 / (k.v.w * sizeInMemory(k.t)) // vectors of a line of w
	SUBQ(imm(line), k.n)
	JL(LabelRef("few"))
	Label("line")
	for r := range k.depth {
		PREFETCHT1(k.row(k.depth + r))
	}
	k.vectors(line)
	SUBQ(imm(line), k.n)
	JGE(LabelRef("line"))
	Label("few")
	if line > 1 {
		ADDQ(imm(line), k.n)
		JZ(LabelRef("end"))
		loop("vector", k.n, func() { k.vectors(1) })
		Label("end")
	}
}

// row is the address of row r of w.
func (k *gemvRun) row(r int) Mem { return rowOfFour(k.w[r/4], k.ldw, k.ldw3, r) }

// rowOfFour is the address of row i%4 of four rows from p on, ld apart; ld3 is three times ld.
func rowOfFour(p, ld, ld3 reg.GPVirtual, i int) Mem {
	switch i % 4 {
	case 0:
		return Mem{Base: p}
	case 3:
		return Mem{Base: p, Index: ld3, Scale: 1}
	}
	return Mem{Base: p, Index: ld, Scale: uint8(i % 4)}
}

// products is the number of broadcasts of x for each row of y.
func (k *gemvRun) products() int {
	if k.t == words {
		return k.depth / 2
	}
	return k.depth
}

// hold loads the broadcasts of x if there are registers for them.
func (k *gemvRun) hold() {
	count := k.m * k.products()
	if count+k.m+2 > map[bool]int{true: 32, false: 16}[k.v.wide()] || k.t == words && k.m > 2 {
		return
	}
	for i := range count {
		r := k.v.new()
		VBROADCASTSS(Mem{Base: k.x, Disp: 4 * i}, r)
		k.held = append(k.held, r)
	}
}

// vectors emits the code of count vectors of columns and advances past them: two at a time if rows are joined, or if each
// broadcast is loaded again and there are enough registers.
func (k *gemvRun) vectors(count int) {
	v, step := k.v, 1
	if count > 1 && (k.t == words || k.held == nil && !v.wide() && k.m <= 4) {
		step = 2
	}
	for i := 0; i < count; i += step {
		k.columns(i, step)
	}
	ADDQ(imm(count*v.size()), k.y)
	for _, p := range k.w {
		ADDQ(imm(count*v.w*sizeInMemory(k.t)), p)
	}
}

// columns emits the code of count vectors of columns, beginning with vector first.
func (k *gemvRun) columns(first, count int) {
	v, sum := k.v, make([][]vec, k.m)
	for i := range sum {
		sum[i] = v.several(count)
	}
	k.sums(sum, first, func(m Mem, s vec) { VMOVUPS(m, s) })
	for r := range k.products() {
		col := k.load(r, first, count)
		for i := range sum {
			k.multiply(r*k.m+i, col, sum[i])
		}
	}
	k.sums(sum, first, func(m Mem, s vec) { VMOVUPS(s, m) })
}

// load returns count vectors of columns of row r of w, or of its r-th pair of rows.
func (k *gemvRun) load(r, first, count int) (col []vec) {
	v := k.v
	if k.t == words {
		low, high := k.halves(2*r, count), k.halves(2*r+1, count)
		for i := range count {
			c := v.new()
			VMOVAPS(k.join[i], c)
			VPERMI2W(high, low, c)
			col = append(col, c)
		}
		return col
	}
	for j := range count {
		c, at := v.new(), k.row(r)
		at.Disp = (first + j) * v.w * sizeInMemory(k.t)
		v.load(k.t, at, c)
		col = append(col, c)
	}
	return col
}

// halves loads 16 or 32 halves of row r of w.
func (k *gemvRun) halves(r, vectors int) vec {
	x := k.v.new()
	if vectors == 1 {
		VMOVUPS(k.row(r), x.AsY()) // the others are zero
	} else {
		VMOVUPS(k.row(r), x)
	}
	k.small.add(x)
	return x
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
	case k.t == words:
		b := k.v.new()
		if k.held != nil {
			b = k.held[i]
		} else {
			VBROADCASTSS(at, b)
		}
		for j, c := range col {
			VPDPWSSD(c, b, sum[j]) // see bf16Code
		}
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

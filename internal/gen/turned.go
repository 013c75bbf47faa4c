package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// words is the type of operands in the VNNI layout: a lane is a word of two depths.
const words = "VNNI"

// turnedRows is the largest number of rows of a turnedFunc: their sums fit the registers beside a square that is transposed.
func (v *vm) turnedRows() int {
	if v.wide() {
		return 8
	}
	return 4
}

// turned emits y[i][j] = sum over k of x[k][i]*w[j][k], or y[i][j] plus that, for m rows and two vectors of columns, whose
// elements are rows of w. Squares of w are transposed in registers.
func (v *vm) turned(t string, m int) {
	params, doc := "k int, x *float32, w *byte, ldw int, y *float32, ldy, acc int, next *byte", "is a turnedFunc of %d rows."
	if t == words {
		params, doc = params+") (subnormal uint64", "is a turnedVNNIFunc of %d rows."
	}
	v.text(fmt.Sprintf("turned%d%s", m, t), params, fmt.Sprintf(doc, m))
	r := &turnedRun{v: v, t: t, m: m, w: ptrParam("w"), ldw: ptrParam("ldw"), next: ptrParam("next"), ldw3: GP64()}
	scaleBy(r.ldw, sizeInMemory(r.t))
	LEAQ(Mem{Base: r.ldw, Index: r.ldw, Scale: 2}, r.ldw3)
	if t == words {
		r.small = v.smallest()
	}
	vectors := 2
	if vectors*m > v.turnedRows() { // one after the other
		vectors = 1
	}
	for first := 0; first < 2; first += vectors {
		r.pass(first, vectors)
	}
	if t == words {
		r.small.store()
		return
	}
	VZEROUPPER()
	RET()
}

// turnedRun is the emission of a kernel of a transposed matrix in memory.
type turnedRun struct {
	v     *vm
	t     string
	m     int
	small *smallest // of VNNI

	w, ldw, ldw3, next reg.GPVirtual // of the rows that the next pass reads
	x                  reg.GPVirtual // of the next depths
	last               bool          // of the last depths, fewer than in a line
	sum                [][]vec       // of a row, by vector
}

// depths is the number of depths of a square: of halves those of a cache line, which is then read once.
func (r *turnedRun) depths() int {
	if r.lines() {
		return 2 * r.v.w
	}
	return r.v.w
}

// lines reports whether rows of a square are vectors of halves, two depths a lane.
func (r *turnedRun) lines() bool {
	return sizeInMemory(r.t) == 2 && (r.v.wide() || r.t == "BF16" && !r.last)
}

// pass emits the sums of so many vectors of columns over all depths.
func (r *turnedRun) pass(first, vectors int) {
	v, name := r.v, func(s string) string { return fmt.Sprint(s, first) }
	r.sum = nil
	for range r.m {
		row := v.several(vectors)
		for _, s := range row {
			v.zero(s)
		}
		r.sum = append(r.sum, row)
	}
	k, w, next, squares := ptrParam("k"), GP64(), GP64(), GP64()
	r.x = ptrParam("x")
	MOVQ(r.w, w)
	MOVQ(r.next, next)
	MOVQ(k, squares)
	SHRQ(Imm(uint64(log2(r.depths()))), squares)
	JZ(LabelRef(name("rest")))
	square := func() {
		r.squares(w, next, vectors, nil, "")
		ADDQ(imm(r.depths()*sizeInMemory(r.t)), w)
		ADDQ(imm(r.depths()*sizeInMemory(r.t)), next)
		ADDQ(imm(4*r.steps()*r.m), r.x)
	}
	loop(name("square"), squares, square)
	Label(name("rest"))
	ANDQ(imm(r.depths()-1), k)
	JZ(LabelRef(name("store")))
	if r.last = !v.wide(); r.last && r.t == "BF16" { // half a line, without masks of halves
		CMPQ(k, imm(v.w))
		JL(LabelRef(name("last")))
		square()
		SUBQ(imm(v.w), k)
		JZ(LabelRef(name("store")))
		Label(name("last"))
	}
	r.squares(w, next, vectors, k, name("part"))
	r.last = false
	Label(name("store"))
	r.store(first, vectors)
	if first+vectors < 2 {
		for range v.w / 4 {
			LEAQ(Mem{Base: r.w, Index: r.ldw, Scale: 4}, r.w)
			LEAQ(Mem{Base: r.next, Index: r.ldw, Scale: 4}, r.next)
		}
	}
}

// squares adds the products of a square of each vector of columns: of all its depths, or of the first k.
func (r *turnedRun) squares(w, next reg.GPVirtual, vectors int, k reg.GPVirtual, label string) {
	v := r.v
	at, ahead := GP64(), GP64()
	MOVQ(w, at)
	MOVQ(next, ahead)
	load := r.loader(k)
	for j := range vectors {
		end := fmt.Sprint(label, j, "end")
		for part := range r.parts() {
			in := r.rows(at, ahead, part, load, k == nil && part == 0)
			r.columns(in, func(i int, c vec) {
				i += part * v.w
				r.multiply(i, c, j)
				if step := r.depths() / r.steps(); k != nil && i < r.steps()-1 {
					CMPQ(k, imm((i+1)*step))
					JLE(LabelRef(end))
				}
			})
		}
		if k != nil {
			Label(end)
		}
		if j < vectors-1 {
			for range v.w / 4 {
				LEAQ(Mem{Base: at, Index: r.ldw, Scale: 4}, at)
				LEAQ(Mem{Base: ahead, Index: r.ldw, Scale: 4}, ahead)
			}
		}
	}
}

// rows loads a part of the rows of a square from p on, and prefetches those from ahead on.
func (r *turnedRun) rows(p, ahead reg.GPVirtual, part int, load func(m Mem, part int) vec, prefetch bool) (in []vec) {
	at, next := GP64(), GP64()
	MOVQ(p, at)
	MOVQ(ahead, next)
	for i := range r.v.w {
		if prefetch {
			PREFETCHT1(r.row(next, i))
		}
		in = append(in, load(r.row(at, i).Offset(32*part), part))
		if i%4 == 3 {
			LEAQ(Mem{Base: at, Index: r.ldw, Scale: 4}, at)
			LEAQ(Mem{Base: next, Index: r.ldw, Scale: 4}, next)
		}
	}
	return in
}

// parts is how many pieces of a square are transposed one after the other: those of f16 as halves, which are widened then.
func (r *turnedRun) parts() int {
	if r.t == "F16" && r.lines() {
		return 2
	}
	return 1
}

// steps is the number of columns of a square.
func (r *turnedRun) steps() int {
	if r.t == words {
		return r.v.w
	}
	return r.depths()
}

// row is the address of row i of the four that begin at p.
func (r *turnedRun) row(p reg.GPVirtual, i int) Mem { return rowOfFour(p, r.ldw, r.ldw3, i) }

// loader returns what loads a part of a row of a square, or the first of k elements of one.
func (r *turnedRun) loader(k reg.GPVirtual) func(m Mem, part int) vec {
	v := r.v
	var mask [2]reg.OpmaskVirtual
	var e *edge
	switch {
	case k != nil && r.lines():
		mask[0], mask[1] = v.firstHalves(k), K()
		KSHIFTRD(Imm(16), mask[0], mask[1])
	case k != nil:
		e = v.edge(r.t, k)
	}
	return func(m Mem, part int) vec {
		x := v.new()
		if r.parts() > 1 {
			x = YMM()
		}
		switch {
		case k != nil && r.lines():
			VMOVDQU16_Z(m, mask[part], x)
		case e != nil:
			v.loadEdge(r.t, m, e, x)
		case r.lines():
			VMOVUPS(m, x)
		default:
			v.load(r.t, m, x)
		}
		if r.t == words {
			r.small.add(x)
		}
		return x
	}
}

// columns visits the columns of a part of a square in ascending depth, widened unless they are words.
func (r *turnedRun) columns(in []vec, visit func(i int, c vec)) {
	v := r.v
	switch {
	case r.parts() > 1:
		for i, c := range transposeHalves(in) {
			wide := v.new()
			VCVTPH2PS(c, wide)
			visit(i, wide)
		}
	case r.t == "BF16" && r.lines():
		high := v.reg(bits(0xffff0000))
		for i, c := range v.transpose(in) {
			low := v.new()
			VPSLLD(Imm(16), c, low)
			visit(2*i, low)
			v.do(andI, high, c, c)
			visit(2*i+1, c)
		}
	default:
		for i, c := range v.transpose(in) {
			visit(i, c)
		}
	}
}

// multiply adds the products of depth i of a square, c, to vector j of the sums.
func (r *turnedRun) multiply(i int, c vec, j int) {
	v := r.v
	for row, sum := range r.sum {
		x := Mem{Base: r.x, Disp: 4 * (i*r.m + row)}
		if v.wide() && r.t != words {
			VFMADD231PS_BCST(x, c, sum[j])
			continue
		}
		b := v.new()
		VBROADCASTSS(x, b)
		if r.t == words {
			VPDPWSSD(c, b, sum[j]) // see bf16Code
		} else {
			VFMADD231PS(c, b, sum[j])
		}
	}
}

// store stores the sums, or adds them to y, which is added last, as tiles do.
func (r *turnedRun) store(first, vectors int) {
	v := r.v
	y, ldy, acc := ptrParam("y"), ptrParam("ldy"), ptrParam("acc")
	scaleBy(ldy, 4)
	each := func(do func(s vec, m Mem)) {
		p := GP64()
		MOVQ(y, p)
		for _, row := range r.sum {
			for j, s := range row {
				do(s, Mem{Base: p, Disp: (first + j) * v.size()})
			}
			ADDQ(ldy, p)
		}
	}
	v.whenSet(fmt.Sprint("set", first), acc, func() {
		each(func(s vec, m Mem) { VADDPS(m, s, s) })
	})
	each(func(s vec, m Mem) { VMOVUPS(s, m) })
}

// log2 is the logarithm of a power of two.
func log2(n int) (bits int) {
	for ; n > 1; n /= 2 {
		bits++
	}
	return bits
}

package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pools emits the pooling of windows of 2 x 2 elements with stride 2: maximum and mean, and their
// gradients. AVX2 moves other parts of a vector of halves in three pieces, so its kernels for
// halves process only whole and half vectors.
func (v *vm) pools() {
	for _, t := range types {
		v.maxPool(t, false)
		v.maxPool(t, true)
		v.maxPoolGrad(t)
		v.avgPool(t)
		v.avgPoolGrad(t)
	}
}

// poolTable emits a function that returns the kernels of each type.
func (v *vm) poolTable(b *strings.Builder) {
	s := v.suffix()
	fmt.Fprintf(b, "// pools%s are the %d-lane kernels that pool.\nfunc pools%s(t Type) *poolKernels {\nreturn [...]*poolKernels{\n", s, v.w, s)
	for _, t := range types {
		fmt.Fprintf(b, "{%d, %t, maxPool%s%s, maxPoolAt%s%s, maxPoolGrad%s%s, avgPool%s%s, avgPoolGrad%s%s},\n", v.w, v.parts(t), t, s, t, s, t, s, t, s, t, s)
	}
	fmt.Fprint(b, "}[t]\n}\n\n")
}

// parts reports whether kernels of type t process any number of windows, not only whole and half
// vectors.
func (v *vm) parts(t string) bool { return v.wide() || t == "F32" }

// Fields of Windows2, the loop bounds.
const (
	fieldPlanes = 8 * iota
	fieldRows
	fieldWhole
	fieldTail
	fieldRow
	fieldSkip
	fieldJump
	fieldWidth
	fieldSkipped
)

// walk2 is a loop over windows, a vector of them at a time. Pairs are two rows of elements; single
// is a row with one element a window.
type walk2 struct {
	v      *vm
	t      string
	g, row reg.GPVirtual
	pairs  []reg.GPVirtual
	single reg.GPVirtual
	index  reg.GPVirtual // positions of the result, if there are any
	base   reg.GPVirtual // if so, the position in its plane of the first element of a vector

	in   []reg.Register // lanes of a pair's last vectors
	out  reg.Register   // of the last windows
	size walkSize       // windows that turn computes
	pick func(odd int, x, y vec) vec
	join func(x, y vec) (low, high vec)
}

// walkSize is the number of windows computed at once: a vector, the last windows, or half a vector
// as the last windows, for AVX2, whose masked stores are slow.
type walkSize uint8

const (
	walkWhole walkSize = iota
	walkPart
	walkHalf
)

// walk emits the loops around turn, which computes a vector of windows.
func (w *walk2) walk(turn func()) {
	v := w.v
	w.row = GP64()
	planes, rows, left, both := GP64(), GP64(), GP64(), GP64()
	field := func(at int) Mem { return Mem{Base: w.g, Disp: at} }
	MOVQ(field(fieldRow), w.row)
	MOVQ(field(fieldTail), left)
	LEAQ(Mem{Base: left, Index: left, Scale: 1}, both)
	if v.parts(w.t) {
		w.in, w.out = v.colMasks(2, both), v.lanes(left)
	}
	MOVQ(field(fieldPlanes), planes)
	if w.index != nil {
		w.base = GP64()
	}
	Label("planes")
	MOVQ(field(fieldRows), rows)
	if w.index != nil {
		XORQ(w.base, w.base)
	}
	Label("rows")
	MOVQ(field(fieldWhole), left)
	TESTQ(left, left)
	JZ(LabelRef("tail"))
	loop("whole", left, func() {
		w.size = walkWhole
		turn()
		for _, p := range w.pairs {
			ADDQ(imm(2*v.w*typeSize(w.t)), p)
		}
		ADDQ(imm(v.w*typeSize(w.t)), w.single)
		if w.index != nil {
			ADDQ(imm(4*v.w), w.index)
			ADDQ(imm(2*v.w), w.base)
		}
	})
	Label("tail")
	MOVQ(field(fieldTail), left)
	TESTQ(left, left)
	JZ(LabelRef("next"))
	if !v.wide() {
		CMPQ(left, imm(v.w/2))
		JNE(LabelRef("part"))
		w.size = walkHalf
		turn()
		JMP(LabelRef("moved"))
		Label("part")
	}
	if v.parts(w.t) {
		w.size = walkPart
		turn()
	}
	Label("moved")
	LEAQ(Mem{Base: w.single, Index: left, Scale: uint8(typeSize(w.t))}, w.single)
	if w.index != nil {
		LEAQ(Mem{Base: w.index, Index: left, Scale: 4}, w.index)
	}
	Label("next")
	for _, p := range w.pairs {
		ADDQ(field(fieldSkip), p)
	}
	if w.index != nil {
		ADDQ(field(fieldSkipped), w.base)
	}
	DECQ(rows)
	JNZ(LabelRef("rows"))
	for _, p := range w.pairs {
		ADDQ(field(fieldJump), p)
	}
	DECQ(planes)
	JNZ(LabelRef("planes"))
	VZEROUPPER()
	RET()
}

// read loads a vector at m: one of the two of a pair, or the only one of a single row.
func (w *walk2) read(m Mem, which vector) vec {
	x := w.v.new()
	switch {
	case w.size == walkPart:
		w.v.loadEdge(w.t, m, &edge{lanes: w.mask(which)}, x)
	case w.size == walkHalf && which == second:
		w.v.zero(x)
	case w.size == walkHalf && which == all && w.t == "F32":
		VMOVUPS(m, x.AsX())
	case w.size == walkHalf && which == all:
		h := XMM()
		VMOVQ(m, h)
		w.v.load(w.t, h, x)
	default:
		w.v.load(w.t, m, x)
	}
	return x
}

func (w *walk2) write(x vec, m Mem, which vector) {
	switch {
	case w.size == walkPart:
		w.v.storeEdge(w.t, x, &edge{lanes: w.mask(which)}, m)
	case w.size == walkHalf && which == second:
	case w.size == walkHalf && which == all && w.t == "F32":
		VMOVUPS(x.AsX(), m)
	case w.size == walkHalf && which == all:
		VMOVQ(w.v.halves(w.t, x).AsX(), m)
	default:
		w.v.putWhole(w.t, x, m)
	}
}

// vector selects one of the vectors of some windows.
type vector int

const (
	first vector = iota
	second
	all // that of a single row
)

func (w *walk2) mask(which vector) reg.Register {
	if which == all {
		return w.out
	}
	return w.in[which]
}

// lines are the positions of the two vectors of a pair's row.
func (w *walk2) lines(pair reg.GPVirtual, below bool) (low, high Mem) {
	low, high = Mem{Base: pair}, Mem{Base: pair, Disp: w.v.w * typeSize(w.t)}
	if below {
		low.Index, low.Scale, high.Index, high.Scale = w.row, 1, w.row, 1
	}
	return low, high
}

// taps loads the four elements of a vector of windows, in their order.
func (w *walk2) taps(pair reg.GPVirtual) (x [4]vec) {
	for i := range 2 {
		low, high := w.lines(pair, i > 0)
		a, b := w.read(low, first), w.read(high, second)
		x[2*i], x[2*i+1] = w.pick(0, a, b), w.pick(1, a, b)
	}
	return x
}

// spread stores the four elements of a vector of windows.
func (w *walk2) spread(x [4]vec, pair reg.GPVirtual) {
	for i := range 2 {
		low, high := w.lines(pair, i > 0)
		a, b := w.join(x[2*i], x[2*i+1])
		w.write(a, low, first)
		w.write(b, high, second)
	}
}

func (v *vm) walk2(t string, single string, pairs ...string) *walk2 {
	w := &walk2{v: v, t: t, g: ptrParam("walk"), single: ptrParam(single)}
	for _, p := range pairs {
		w.pairs = append(w.pairs, ptrParam(p))
	}
	w.pick, w.join = v.picker()
	return w
}

// picker returns two functions. pick takes the elements at even (0) or odd (1) positions of two
// vectors; the results of the other one alternate between the elements of two vectors.
func (v *vm) picker() (pick func(odd int, x, y vec) vec, join func(x, y vec) (low, high vec)) {
	if !v.wide() {
		return v.halver(), v.joiner()
	}
	table := func(at int) vec {
		d := v.new()
		VMOVDQU32(NewDataAddr(NewStaticSymbol("kernPairs"), 64*at), d)
		return d
	}
	take := func(at vec, x, y vec) vec {
		d := v.copy(x)
		VPERMT2PS(y, at, d)
		return d
	}
	order := []vec{table(0), table(1), table(2), table(3)}
	pick = func(odd int, x, y vec) vec { return take(order[odd], x, y) }
	join = func(x, y vec) (vec, vec) { return take(order[2], x, y), take(order[3], x, y) }
	return pick, join
}

// emitPairs emits the index vectors of picker: even and odd positions of two vectors, and two
// vectors alternating, low and high half.
func emitPairs() {
	GLOBL("kernPairs", RODATA|NOPTR)
	for i := range 64 {
		lane, turn := i%16, i%16/2+i%2*16
		DATA(4*i, U32(uint32([]int{2 * lane, 2*lane + 1, turn, turn + 8}[i/16])))
	}
}

// larger is set where e is larger than top, the largest element so far: a NaN is larger than any
// number, and nothing is larger than a NaN.
func (v *vm) larger(e, top vec) cond {
	larger, number := v.cmp(notLessEq, e, top), v.cmp(ordered, top, top)
	if !v.wide() {
		return v.and(larger.(vec), number.(vec))
	}
	k := K()
	KANDW(larger, number, k)
	return k
}

func (v *vm) maxPool(t string, index bool) {
	name, params := "maxPool", "walk *int, y, x *byte"
	if index {
		name, params = "maxPoolAt", "walk *int, y *byte, index *int32, x *byte"
	}
	v.text(name+t, params, "pools the largest element of each window, the first of them.")
	w := v.walk2(t, "y", "x")
	var width vec
	if index {
		w.index, width = ptrParam("index"), v.new()
		v.spreadInt(Mem{Base: w.g, Disp: fieldWidth}, width)
	}
	w.walk(func() {
		x := w.taps(w.pairs[0])
		top := x[0]
		var at, place vec
		if index {
			at = v.new()
			base := XMM()
			VMOVQ(w.base, base)
			VPBROADCASTD(base, at)
			VPADDD(NewDataAddr(NewStaticSymbol("kernPairs"), 0), at, at)
			place = at
		}
		for i, e := range x[1:] {
			larger := v.larger(e, top)
			top = v.pick(larger, e, top)
			if index {
				tap := [...]func() vec{
					func() vec { return v.addInt(at, bits(1)) },
					func() vec { return v.addInt(at, width) },
					func() vec { return v.addInt(v.addInt(at, width), bits(1)) },
				}[i]()
				place = v.pick(larger, tap, place)
			}
		}
		w.write(top, Mem{Base: w.single}, all)
		if !index {
			return
		}
		switch to := (Mem{Base: w.index}); w.size {
		case walkWhole:
			VMOVUPS(place, to)
		case walkHalf:
			VMOVUPS(place.AsX(), to)
		default:
			v.storePart(place, w.out, to)
		}
	})
}

// spreadInt broadcasts the low half of the integer at m.
func (v *vm) spreadInt(m Mem, d vec) { VPBROADCASTD(m, d) }

func (v *vm) maxPoolGrad(t string) {
	v.text("maxPoolGrad"+t, "walk *int, dx, dy, x *byte", "gives each gradient to the first largest element of its window, zero to the others.")
	w := v.walk2(t, "dy", "dx", "x")
	zero := v.new()
	v.zero(zero)
	w.walk(func() {
		x := w.taps(w.pairs[1])
		var larger [4]cond
		top := x[0]
		for i, e := range x[1:] {
			larger[i+1] = v.larger(e, top)
			if i < 2 {
				top = v.pick(larger[i+1], e, top)
			}
		}
		rest := v.add(w.read(Mem{Base: w.single}, all), zero) // sums begin with +0
		for i := 3; i > 0; i-- {
			x[i] = v.only(larger[i], rest)
			rest = v.pick(larger[i], zero, rest)
		}
		x[0] = rest
		w.spread(x, w.pairs[0])
	})
}

func (v *vm) avgPool(t string) {
	v.text("avgPool"+t, "walk *int, y, x *byte", "pools the mean of each window.")
	w := v.walk2(t, "y", "x")
	zero, quarter := v.new(), v.reg(f(0.25))
	v.zero(zero)
	w.walk(func() {
		sum := zero
		for _, e := range w.taps(w.pairs[0]) {
			sum = v.add(sum, e)
		}
		w.write(v.mul(sum, quarter), Mem{Base: w.single}, all)
	})
}

func (v *vm) avgPoolGrad(t string) {
	v.text("avgPoolGrad"+t, "walk *int, dx, dy *byte", "gives a quarter of each gradient to the elements of its window.")
	w := v.walk2(t, "dy", "dx")
	zero, quarter := v.new(), v.reg(f(0.25))
	v.zero(zero)
	w.walk(func() {
		d := v.add(v.mul(w.read(Mem{Base: w.single}, all), quarter), zero)
		w.spread([4]vec{d, d, d, d}, w.pairs[0])
	})
}

// maxThree emits the maxima of windows of 3 x 3 elements with stride 2, row by row: those of each
// row of a window from left to right, then those of the rows. VMAXPS keeps the first of equal
// elements, but not a NaN, so the kernel reports NaNs to the caller.
func (v *vm) maxThree() {
	v.text("maxThree", "rows, n int, y *float32, ldy int, x *float32, ldx int, nan *uint32",
		"pools n windows, up to a vector, of rows of windows of 3 x 3 elements, two apart; it sets nan where x has one.")
	rows, n, y, ldy, x, ldx := ptrParam("rows"), ptrParam("n"), ptrParam("y"), ptrParam("ldy"), ptrParam("x"), ptrParam("ldx")
	scaleBy(ldy, 4)
	scaleBy(ldx, 4)
	reach := GP64()
	LEAQ(Mem{Base: n, Index: n, Scale: 1}, reach)
	here, out := v.colMasks(2, reach), v.lanes(n)
	DECQ(reach) // the last window ends two elements after its start
	next := v.colMasks(2, reach)
	pick, _ := v.picker()
	a, b, c, d := v.new(), v.new(), v.new(), v.new()
	no := v.noNaN()
	row := func() vec { // the maxima of a row's threes
		for i, to := range []vec{a, b} {
			v.loadPart(Mem{Base: x, Disp: i * v.size()}, here[i], to)
		}
		for i, to := range []vec{c, d} {
			v.loadPart(Mem{Base: x, Disp: i*v.size() + 8}, next[i], to)
		}
		no.see(a, b)
		no.see(c, d)
		ADDQ(ldx, x)
		top := pick(0, a, b)
		for _, e := range []vec{pick(1, a, b), pick(0, c, d)} {
			VMAXPS(top, e, top)
		}
		return top
	}
	v.threeRows("F32", rows, y, ldy, row, func(top vec) { v.storePart(top, out, Mem{Base: y}) })
	no.tell(ptrParam("nan"))
	VZEROUPPER()
	RET()
}

// threeRows emits the loop of maxThree: row makes the maxima of the next row's threes, store stores those of a window.
func (v *vm) threeRows(t string, rows, y, ldy reg.GPVirtual, row func() vec, store func(top vec)) {
	last, below := row(), GP64()
	MOVQ(ldy, below)
	SHLQ(Imm(3), below)
	loop("rows", rows, func() {
		for _, at := range []int{0, (v.w - 1) * typeSize(t)} { // of results that are not in a cache yet
			PREFETCHT0(Mem{Base: y, Index: below, Scale: 1, Disp: at})
		}
		second, third := row(), row()
		VMAXPS(last, second, second)
		VMAXPS(second, third, second)
		store(second)
		VMOVAPS(third, last)
		ADDQ(ldy, y)
	})
}

// maxThreeBF16 emits maxThree for bf16: a lane holds the first two elements of a row of a window, as the
// upper halves of floats once they are apart.
func (v *vm) maxThreeBF16() {
	v.text("maxThreeBF16", "rows, n int, y *byte, ldy int, x *byte, ldx int, nan *uint32", "is maxThree for elements in bf16.")
	rows, n, y, ldy, x, ldx := ptrParam("rows"), ptrParam("n"), ptrParam("y"), ptrParam("ldy"), ptrParam("x"), ptrParam("ldx")
	scaleBy(ldy, 2)
	scaleBy(ldx, 2)
	out, reach := v.lanes(n), GP64()
	LEAQ(Mem{Base: n, Index: n, Scale: 1}, reach)
	here := v.halfLanes(reach)
	DECQ(reach) // the last window ends two elements after its start
	next := v.halfLanes(reach)
	high := v.reg(bits(0xffff0000))
	first, second, third := v.new(), v.new(), v.new()
	no := v.noNaN()
	v.threeRows("BF16", rows, y, ldy, func() vec {
		VMOVDQU16_Z(Mem{Base: x}, here, second)
		VMOVDQU16_Z(Mem{Base: x, Disp: 4}, next, third)
		ADDQ(ldx, x)
		VPSLLD(Imm(16), second, first)
		VPANDD(second, high, second)
		VPSLLD(Imm(16), third, third)
		no.see(first, second)
		no.see(third, third)
		top := v.new()
		VMAXPS(first, second, top)
		VMAXPS(top, third, top)
		return top
	}, func(top vec) {
		VPSRLD(Imm(16), top, top)
		VPMOVDW(top, out, Mem{Base: y})
	})
	no.tell(ptrParam("nan"))
	VZEROUPPER()
	RET()
}

// halfLanes is the mask of the first n halves of a vector, n up to 32.
func (v *vm) halfLanes(n reg.GPVirtual) reg.Register {
	m, k := GP32(), K()
	MOVL(U32(0xffffffff), m)
	BZHIL(n.As32(), m, m)
	KMOVD(m, k)
	return k
}

// nanCheck records whether vectors contain NaNs.
type nanCheck struct {
	v    *vm
	seen reg.Register
}

func (v *vm) noNaN() *nanCheck {
	c := &nanCheck{v: v}
	if v.wide() {
		k := K()
		KXORW(k, k, k)
		c.seen = k
		return c
	}
	x := v.new()
	v.zero(x)
	c.seen = x
	return c
}

// see tests two vectors.
func (c *nanCheck) see(x, y vec) {
	const unordered = 3
	if k := c.v.cmp(unordered, x, y); c.v.wide() {
		KORW(k, c.seen, c.seen)
	} else {
		VORPS(c.seen, k, c.seen)
	}
}

// tell sets the word at to if there was a NaN.
func (c *nanCheck) tell(to reg.GPVirtual) {
	word := GP32()
	if c.v.wide() {
		KMOVW(c.seen, word)
	} else {
		VMOVMSKPS(c.seen, word)
	}
	ORL(word, Mem{Base: to})
}

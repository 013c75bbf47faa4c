package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// attention emits products of small matrices that are not packed, and the softmax of scores whose columns are queries.
func (v *vm) attention() {
	for rows := 1; rows <= v.tileRows(); rows++ {
		v.unpackedTile("unpacked", rows, 2, false, VFMADD231PS)
	}
	for nv := 1; v.wide() && nv <= 2; nv++ {
		v.unpackedTile("fetching", stairRows, nv, true, VFMADD231PS)
	}
	v.scaleLanes()
	v.scaleEach()
	v.rowDots()
	v.softLanes()
	v.softLanesGrad()
}

// stairRows is the number of rows of products that have a depth of their own where keys are hidden.
const stairRows = 8

// unpackedTile emits a tile of nv vectors, one panel of rows below the other, that finds element i, k of A at a + i*row + k*step.
// If it fetches, it prefetches a cache line at each depth, into the second cache: the first has no room for what comes later.
func (v *vm) unpackedTile(name string, mr, nv int, fetches bool, mul func(...Op)) {
	kind, more := "an unpackedFunc", ""
	if fetches {
		kind, more = "a fetchingFunc", ", next uintptr, ahead int, last uintptr"
	}
	v.text(fmt.Sprintf("%s%dx%d", name, mr, nv*v.w), "panels, kc int, a *byte, row, step int, b *float32, ldb int, c *float32, ldc, acc int"+more,
		fmt.Sprintf("is %s of %d rows a panel.", kind, mr))
	a, row, step, c := ptrParam("a"), ptrParam("row"), ptrParam("step"), ptrParam("c")
	ldb, ldc, panels := ptrParam("ldb"), ptrParam("ldc"), ptrParam("panels")
	scaleBy(ldb, 4)
	scaleBy(ldc, 4)
	fetch := func() {}
	if fetches {
		next := ptrParam("next")
		fetch = func() {
			PREFETCHT1(Mem{Base: next})
			ADDQ(param("ahead"), next)
			CMPQ(next, param("last"))
			CMOVQHI(param("last"), next)
		}
	}
	at := newRows(row, mr)
	var sum [][]vec
	for range mr {
		sum = append(sum, v.several(nv))
	}
	eachRow := func(f func(m Mem, s vec)) {
		p := GP64()
		MOVQ(c, p)
		for i, r := range sum {
			for j, s := range r {
				f(Mem{Base: p, Disp: j * v.size()}, s)
			}
			if i < mr-1 {
				ADDQ(ldc, p)
			}
		}
	}
	loop("panel", panels, func() {
		for _, r := range sum {
			for _, s := range r {
				v.zero(s)
			}
		}
		acc := ptrParam("acc")
		TESTQ(acc, acc)
		JZ(LabelRef("begin"))
		eachRow(func(m Mem, s vec) { VMOVUPS(m, s) })
		Label("begin")
		at.start(a)
		col, x := v.several(nv), v.several(2)
		b := ptrParam("b")
		loop("depth", ptrParam("kc"), func() {
			for j, c := range col {
				VMOVUPS(Mem{Base: b, Disp: j * v.size()}, c)
			}
			ADDQ(ldb, b)
			fetch()
			for i, s := range sum {
				r := x[i%2]
				VBROADCASTSS(at.row(i), r)
				for j, c := range col {
					mul(c, r, s[j])
				}
			}
			at.step(step)
		})
		eachRow(func(m Mem, s vec) { VMOVUPS(s, m) })
		for range mr {
			ADDQ(row, a)
			ADDQ(ldc, c)
		}
	})
	VZEROUPPER()
	RET()
}

// rowsAt addresses up to 14 rows that lie apart by a register: seven from each of two bases, which move on together.
type rowsAt struct {
	bases            []reg.GPVirtual
	one, three, five reg.GPVirtual // times the distance
}

func newRows(apart reg.GPVirtual, n int) *rowsAt {
	r := &rowsAt{bases: []reg.GPVirtual{GP64()}, one: apart}
	if n > 3 {
		r.three = GP64()
		LEAQ(Mem{Base: apart, Index: apart, Scale: 2}, r.three)
	}
	if n > 5 {
		r.five = GP64()
		LEAQ(Mem{Base: apart, Index: apart, Scale: 4}, r.five)
	}
	if n > 7 {
		r.bases = append(r.bases, GP64())
	}
	return r
}

// start sets the first row.
func (r *rowsAt) start(at reg.GPVirtual) {
	MOVQ(at, r.bases[0])
	if len(r.bases) > 1 {
		LEAQ(Mem{Base: at, Index: r.three, Scale: 2}, r.bases[1])
		ADDQ(r.one, r.bases[1])
	}
}

func (r *rowsAt) row(i int) Mem {
	m := Mem{Base: r.bases[i/7]}
	switch i % 7 {
	case 1, 2, 4:
		m.Index, m.Scale = r.one, uint8(i%7)
	case 3, 6:
		m.Index, m.Scale = r.three, uint8(i%7/3)
	case 5:
		m.Index, m.Scale = r.five, 1
	}
	return m
}

func (r *rowsAt) step(by reg.GPVirtual) {
	for _, b := range r.bases {
		ADDQ(by, b)
	}
}

// exp2 is 2^y, zero below 2^-150 at the latest; its polynomial is off by 2e-9.
func (v *vm) exp2(y vec) vec {
	low, high := f(-127), f(128)
	if v.wide() {
		low, high = f(-151), f(129)
	}
	return v.exp2Of(v.clamp(y, low, high), 1.535335905e-4, 1.3398876181e-3, 9.6184369177e-3, 5.5503323674e-2, 2.4022647738e-1, 6.9314718246e-1, 1)
}

// lanesLoop is the common part of the kernels over columns of scores: rows of two vectors. Rows
// from full on hide the columns where stair is zero, one column more in each row.
type lanesLoop struct {
	n, full, ld, stair reg.GPVirtual
	at                 []reg.GPVirtual // the matrices
	x                  vec
}

// lanesRows emits body for all rows. The last argument of body is the mask of visible columns, nil
// for the rows before full. Registers are unchanged afterwards.
func (v *vm) lanesRows(l *lanesLoop, label string, body func(j int, m []Mem, seen cond)) {
	count, stair := GP64(), GP64()
	var at []reg.GPVirtual
	for _, p := range l.at {
		q := GP64()
		MOVQ(p, q)
		at = append(at, q)
	}
	part := func(label string, masked bool) {
		loop(label, count, func() {
			for j := range 2 {
				var m []Mem
				for _, p := range at {
					m = append(m, Mem{Base: p, Disp: j * v.size()})
				}
				var seen cond
				if masked {
					VMOVUPS(Mem{Base: stair, Disp: j * v.size()}, l.x)
					seen = v.cmp(notEqual, l.x, f(0))
				}
				body(j, m, seen)
			}
			for _, p := range at {
				ADDQ(l.ld, p)
			}
			if masked {
				SUBQ(imm(4), stair)
			}
		})
	}
	MOVQ(l.full, count)
	TESTQ(count, count)
	JZ(LabelRef(label + "Stairs"))
	part(label, false)
	Label(label + "Stairs")
	MOVQ(l.n, count)
	SUBQ(l.full, count)
	JZ(LabelRef(label + "Done"))
	MOVQ(l.stair, stair)
	part(label+"Masked", true)
	Label(label + "Done")
}

// scaleLanes emits the product of rows of two vectors with one row.
func (v *vm) scaleLanes() {
	v.text("scaleLanes", "n int, s *float32, ld int, lanes *float32", "multiplies n > 0 rows of two vectors by a row.")
	n, s, ld, lanes := ptrParam("n"), ptrParam("s"), ptrParam("ld"), ptrParam("lanes")
	scaleBy(ld, 4)
	x := []vec{v.new(), v.new()}
	for j, r := range x {
		VMOVUPS(Mem{Base: lanes, Disp: j * v.size()}, r)
	}
	loop("rows", n, func() {
		for j, r := range x {
			m, y := Mem{Base: s, Disp: j * v.size()}, v.new()
			VMULPS(m, r, y)
			VMOVUPS(y, m)
		}
		ADDQ(ld, s)
	})
	VZEROUPPER()
	RET()
}

// scaleEach emits the product of each row with a factor of its own.
func (v *vm) scaleEach() {
	v.text("scaleEach", "rows, n int, dst *float32, ldd int, src *float32, lds int, by *float32", "is a scaleEachFunc.")
	rows, n, dst, ldd := ptrParam("rows"), ptrParam("n"), ptrParam("dst"), ptrParam("ldd")
	src, lds, by, at := ptrParam("src"), ptrParam("lds"), ptrParam("by"), GP64()
	scaleBy(ldd, 4)
	scaleBy(lds, 4)
	scaleBy(n, 4)
	loop("rows", rows, func() {
		x := v.new()
		v.splat(Mem{Base: by}, x)
		XORL(at.As32(), at.As32())
		Label("vector")
		for j := range 2 {
			y := v.new()
			VMULPS(Mem{Base: src, Index: at, Scale: 1, Disp: j * v.size()}, x, y)
			VMOVUPS(y, Mem{Base: dst, Index: at, Scale: 1, Disp: j * v.size()})
		}
		ADDQ(imm(2*v.size()), at)
		CMPQ(at, n)
		JLT(LabelRef("vector"))
		ADDQ(ldd, dst)
		ADDQ(lds, src)
		ADDQ(imm(4), by)
	})
	VZEROUPPER()
	RET()
}

// rowDots emits a rowDotsFunc.
func (v *vm) rowDots() {
	v.text("rowDots", "rows, n int, a *float32, lda int, b *float32, ldb int, dots *float32", "is a rowDotsFunc.")
	rows, a, lda, b, ldb, dots := ptrParam("rows"), ptrParam("a"), ptrParam("lda"), ptrParam("b"), ptrParam("ldb"), ptrParam("dots")
	scaleBy(lda, 4)
	scaleBy(ldb, 4)
	n, last, sum := ptrParam("n"), GP64(), v.new()
	MOVQ(n, last)
	ANDQ(imm(v.w-1), last)
	part := v.lanes(last)
	loop("row", rows, func() {
		v.zero(sum)
		v.row("dot", n, last, part, func(at reg.GPVirtual, mask reg.Register) {
			v.addMul(sum, v.fetch(Mem{Base: a, Index: at, Scale: 1}, mask), v.fetch(Mem{Base: b, Index: at, Scale: 1}, mask))
		})
		VMOVSS(v.fold(addI, []vec{sum}), Mem{Base: dots})
		ADDQ(lda, a)
		ADDQ(ldb, b)
		ADDQ(imm(4), dots)
	})
	VZEROUPPER()
	RET()
}

// lanesParams loads the parameters that the kernels over columns share; log2e times scale is the factor of the exponents.
func (v *vm) lanesParams(at ...string) (l *lanesLoop, factor vec) {
	l = &lanesLoop{n: ptrParam("n"), full: ptrParam("full"), ld: ptrParam("ld"), stair: ptrParam("stair"), x: v.new()}
	for _, name := range at {
		l.at = append(l.at, ptrParam(name))
	}
	scaleBy(l.ld, 4)
	scale := v.new()
	v.splat(paramMem("scale"), scale)
	return l, v.mul(scale, f(math.Log2E))
}

// softLanes emits a softFunc of two vectors.
func (v *vm) softLanes() {
	v.text("softLanes", "n, full int, s *float32, ld int, state, stair *float32, scale float32", "is a softFunc of two vectors.")
	l, factor := v.lanesParams("s")
	state := ptrParam("state")
	row := func(i, j int) Mem { return Mem{Base: state, Disp: (2*i + j) * v.size()} }
	top := []vec{v.new(), v.new()}
	for j, m := range top {
		VMOVUPS(row(0, j), m)
		VMOVUPS(m, row(2, j))
	}
	v.lanesRows(l, "top", func(j int, m []Mem, seen cond) {
		if seen == nil {
			VMAXPS(m[0], top[j], top[j])
			return
		}
		x := v.new()
		VMOVUPS(m[0], x)
		x = v.pick(seen, x, bits(0xff800000))
		VMAXPS(x, top[j], top[j])
	})
	sum, shift := []vec{v.new(), v.new()}, []vec{v.new(), v.new()}
	for j, m := range top { // the shift of a column that has seen only -Inf is 0
		some := v.only(v.cmp(notEqual, m, bits(0xff800000)), m)
		VMOVUPS(m, row(0, j))
		VMULPS(factor, some, shift[j])
		VXORPS(sum[j], sum[j], sum[j])
		old := v.new()
		VMOVUPS(row(2, j), old)
		old = v.exp2(v.sub(v.mul(old, factor), shift[j]))
		VMOVUPS(old, row(2, j))
	}
	v.hold(func() { v.exp2(v.new()) })
	v.lanesRows(l, "exp", func(j int, m []Mem, seen cond) {
		x := v.new()
		VMOVUPS(m[0], x)
		VFMSUB213PS(shift[j], factor, x)
		p := v.exp2(x)
		if seen != nil {
			p = v.only(seen, p)
		}
		VMOVUPS(p, m[0])
		VADDPS(p, sum[j], sum[j])
	})
	for j, s := range sum {
		old := v.new()
		VMOVUPS(row(2, j), old)
		VFMADD231PS(row(1, j), old, s)
		VMOVUPS(s, row(1, j))
	}
	VZEROUPPER()
	RET()
	v.held = nil
}

// softLanesGrad emits a softGradFunc of two vectors.
func (v *vm) softLanesGrad() {
	v.text("softLanesGrad", "n, full int, s, ds *float32, ld int, state, stair *float32, scale, gain float32", "is a softGradFunc of two vectors.")
	l, factor := v.lanesParams("s", "ds")
	gain := v.new()
	v.splat(paramMem("gain"), gain)
	state := ptrParam("state")
	var less, delta []vec
	for j := range 2 {
		x, d := v.new(), v.new()
		VMOVUPS(Mem{Base: state, Disp: j * v.size()}, x)
		VMOVUPS(Mem{Base: state, Disp: (2 + j) * v.size()}, d)
		less, delta = append(less, v.mul(x, f(math.Log2E))), append(delta, d)
	}
	v.hold(func() { v.exp2(v.new()) })
	v.lanesRows(l, "rows", func(j int, m []Mem, seen cond) {
		x, g := v.new(), v.new()
		VMOVUPS(m[0], x)
		VFMADD213PS(less[j], factor, x)
		p := v.exp2(x)
		VADDPS(m[1], delta[j], g)
		VMULPS(gain, g, g)
		VMULPS(p, g, g)
		if seen != nil {
			p, g = v.only(seen, p), v.only(seen, g)
		}
		VMOVUPS(p, m[0])
		VMOVUPS(g, m[1])
	})
	VZEROUPPER()
	RET()
	v.held = nil
}

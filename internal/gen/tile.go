package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tiles emits the register tiles of the matrix product for 1 to mr rows, one and two vectors wide,
// and those that read B without packing.
func (v *vm) tiles() {
	for nv := 1; nv <= 2; nv++ {
		for rows := 1; rows <= v.tileRows(); rows++ {
			v.tile("tile", rows, nv, VFMADD231PS)
		}
	}
	for rows := 1; rows <= v.tileRows(); rows++ {
		v.indirectTile("indirect", rows, VFMADD231PS)
	}
	v.indirectFetch()
	for _, t := range types {
		for rows := v.packingFrom(); rows <= v.tileRows(); rows++ {
			v.packingTile(t, rows)
		}
	}
}

// packingFrom is the least number of rows of a tile that packs B while it multiplies: if a product
// has several panels of rows, none has fewer rows.
func (v *vm) packingFrom() int { return v.tileRows() / 2 }

// tileRows is the largest number of rows whose sums fit the registers beside two vectors of B and two of A.
func (v *vm) tileRows() int {
	if v.wide() {
		return 14
	}
	return 6
}

// tileRegs are the registers of a tile kernel.
type tileRegs struct {
	a, b, c, ldb, ldc reg.GPVirtual
	sum               [][]vec
	row, col          []vec       // broadcasts of A, vectors of B
	mul               func(...Op) // adds the product of two vectors to the third
	fetches           bool        // next and step are parameters
}

func (v *vm) tile(name string, mr, nv int, mul func(...Op)) {
	v.text(fmt.Sprintf("%s%dx%d", name, mr, nv*v.w), "kc int, a, b *float32, ldb int, c *float32, ldc, cols, acc int, next uintptr, step int",
		fmt.Sprintf("is a tileFunc of %d rows.", mr))
	kc, cols, acc := ptrParam("kc"), ptrParam("cols"), ptrParam("acc")
	t := &tileRegs{a: ptrParam("a"), b: ptrParam("b"), c: ptrParam("c"), ldb: ptrParam("ldb"), ldc: ptrParam("ldc"), mul: mul}
	scaleBy(t.ldb, 4)
	t.fetches = true
	v.tileLoop(t, mr, nv, kc, cols, acc, func(int) {
		for j, c := range t.col {
			VMOVUPS(Mem{Base: t.b, Disp: j * v.size()}, c)
		}
		if mr > 3 {
			for at := 0; at < nv*v.size(); at += 64 {
				PREFETCHT0(Mem{Base: t.b, Disp: at + 16*nv*v.size()})
			}
		}
		ADDQ(t.ldb, t.b)
	}, nil)
}

// indirectTile emits a tile that finds row k of B, two vectors, at b0 and b1 plus offs[k].
func (v *vm) indirectTile(name string, mr int, mul func(...Op)) {
	v.text(fmt.Sprintf("%s%dx%d", name, mr, 2*v.w), "kc int, a *float32, b0, b1 *byte, offs *int, c *float32, ldc, acc int",
		fmt.Sprintf("is an indirectFunc of %d rows.", mr))
	kc, acc := ptrParam("kc"), ptrParam("acc")
	b := []reg.GPVirtual{ptrParam("b0"), ptrParam("b1")}
	offs, o := ptrParam("offs"), GP64()
	t := &tileRegs{a: ptrParam("a"), c: ptrParam("c"), ldc: ptrParam("ldc"), mul: mul}
	cols := GP64()
	MOVQ(U32(uint32(2*v.w)), cols)
	v.tileLoop(t, mr, 2, kc, cols, acc, func(u int) {
		MOVQ(Mem{Base: offs, Disp: 8 * u}, o)
		for j, c := range t.col {
			VMOVUPS(Mem{Base: b[j], Index: o, Scale: 1}, c)
		}
	}, func(n int) { ADDQ(imm(8*n), offs) })
}

// packingTile emits a tile that reads unpacked B, two vectors a row, and packs it for the tiles below. Rows
// of B are fetched some 400 cycles before they are read.
func (v *vm) packingTile(t string, mr int) {
	v.text(fmt.Sprintf("packing%s%dx%d", t, mr, 2*v.w), "kc int, a *float32, b *byte, ldb int, packed, c *float32, ldc, acc int",
		fmt.Sprintf("is a packingFunc of %d rows.", mr))
	kc, acc := ptrParam("kc"), ptrParam("acc")
	b, ldb, packed, ahead := ptrParam("b"), ptrParam("ldb"), ptrParam("packed"), GP64()
	r := &tileRegs{a: ptrParam("a"), c: ptrParam("c"), ldc: ptrParam("ldc"), mul: VFMADD231PS}
	scaleBy(ldb, typeSize(t))
	MOVQ(ldb, ahead)
	SHLQ(Imm(map[bool]uint64{true: 4, false: 6}[v.wide()]), ahead)
	ADDQ(b, ahead)
	cols := GP64()
	MOVQ(U32(uint32(2*v.w)), cols)
	v.tileLoop(r, mr, 2, kc, cols, acc, func(u int) {
		for j, c := range r.col {
			v.load(t, Mem{Base: b, Disp: j * v.w * typeSize(t)}, c)
			VMOVUPS(c, Mem{Base: packed, Disp: (2*u + j) * v.size()})
		}
		for at := 0; at < 2*v.w*typeSize(t); at += 64 {
			PREFETCHT0(Mem{Base: ahead, Disp: at})
		}
		ADDQ(ldb, b)
		ADDQ(ldb, ahead)
	}, func(n int) { ADDQ(imm(2*n*v.size()), packed) })
}

// indirectFetch emits the prefetch of rows that an indirectFunc will read.
func (v *vm) indirectFetch() {
	v.text("indirectFetch", "n int, b0, b1 *byte, offs *int", "prefetches n > 0 rows of B, in two halves, into the second cache.")
	n, b0, b1, offs, o := ptrParam("n"), ptrParam("b0"), ptrParam("b1"), ptrParam("offs"), GP64()
	loop("rows", n, func() {
		MOVQ(Mem{Base: offs}, o)
		for _, b := range []reg.GPVirtual{b0, b1} {
			PREFETCHT1(Mem{Base: b, Index: o, Scale: 1, Disp: v.size() - 4})
		}
		ADDQ(imm(8), offs)
	})
	RET()
}

// aheadOfA is the distance, in bytes, by which tiles prefetch their panel of A: packed weights come
// from memory or the last-level cache, and the processor's own prefetch ends with a page.
const aheadOfA = 2048

// tileLoop emits the body of a tile kernel: fetch loads the vectors of B of the u-th k; done,
// unless it is nil, follows n of them.
func (v *vm) tileLoop(t *tileRegs, mr, nv int, kc, cols, acc reg.GPVirtual, fetch, done func(int)) {
	scaleBy(t.ldc, 4)
	for range mr {
		var r []vec
		for range nv {
			r = append(r, v.new())
		}
		t.sum = append(t.sum, r)
	}
	v.tileInit(t)
	for range nv {
		t.col = append(t.col, v.new())
	}
	for range 2 {
		t.row = append(t.row, v.new())
	}
	steps := func(n int) {
		for u := range n {
			fetch(u)
			v.tileStep(t, u)
		}
		ADDQ(imm(4*n*mr), t.a)
		if done != nil {
			done(n)
		}
	}
	k4 := GP64()
	MOVQ(kc, k4)
	SHRQ(Imm(2), k4)
	JZ(LabelRef("rest"))
	fetchNext := v.belowFetch(t, mr, nv)
	loop("four", k4, func() {
		fetchNext()
		for at := 0; at < 16*mr; at += 64 {
			PREFETCHT0(Mem{Base: t.a, Disp: at + aheadOfA})
		}
		steps(4)
	})
	Label("rest")
	ANDQ(Imm(3), kc)
	JZ(LabelRef("store"))
	loop("one", kc, func() { steps(1) })
	Label("store")
	v.tileStore(t, cols, acc)
}

// belowFetch emits, once in an iteration of a loop, the prefetch of the rows of C below the tile,
// which the next tile starts from, one row in each of the first mr iterations. Then it prefetches what next and step
// say, or the same row again.
func (v *vm) belowFetch(t *tileRegs, mr, nv int) func() {
	row, step, left := GP64(), GP64(), GP64()
	IMUL3Q(Imm(uint64(mr)), t.ldc, row)
	ADDQ(t.c, row)
	MOVQ(t.ldc, step)
	MOVQ(U32(uint32(mr)), left)
	zero := GP64()
	if !t.fetches {
		XORQ(zero, zero)
	}
	return func() {
		for at := 0; at < nv*v.size(); at += 64 {
			PREFETCHT0(Mem{Base: row, Disp: at})
		}
		ADDQ(step, row)
		DECQ(left)
		if t.fetches {
			CMOVQEQ(param("next"), row)
			CMOVQEQ(param("step"), step)
		} else {
			CMOVQEQ(zero, step)
		}
	}
}

// tileInit clears the sums and fetches the rows of C, which are added or stored at the end.
func (v *vm) tileInit(t *tileRegs) {
	for _, r := range t.sum {
		for _, s := range r {
			v.zero(s)
		}
	}
	p := GP64()
	MOVQ(t.c, p)
	for range t.sum {
		PREFETCHT0(Mem{Base: p})
		ADDQ(t.ldc, p)
	}
}

// colMasks are the masks of the vectors of a row of cols elements.
func (v *vm) colMasks(nv int, cols reg.GPVirtual) (masks []reg.Register) {
	left := GP64()
	MOVQ(cols, left)
	for j := range nv {
		n, full, zero := GP64(), GP64(), GP64()
		MOVQ(left, n)
		MOVQ(U32(uint32(v.w)), full)
		CMPQ(n, full)
		CMOVQGT(full, n)
		XORL(zero.As32(), zero.As32())
		TESTQ(n, n)
		CMOVQLT(zero, n)
		masks = append(masks, v.lanes(n))
		if j < nv-1 {
			SUBQ(imm(v.w), left)
		}
	}
	return masks
}

// tileStep adds the products of one k, the u-th after t.a, with the vectors of B in t.col.
func (v *vm) tileStep(t *tileRegs, u int) {
	mr := len(t.sum)
	for i := range mr {
		r := t.row[i%2]
		VBROADCASTSS(Mem{Base: t.a, Disp: 4 * (u*mr + i)}, r)
		for j, c := range t.col {
			t.mul(c, r, t.sum[i][j])
		}
	}
}

// tileStore writes the sums, or adds them to C if acc is set, by mask unless the tile is full. C is added last, so that a
// long sum is a sum of short ones.
func (v *vm) tileStore(t *tileRegs, cols, acc reg.GPVirtual) {
	nv := len(t.sum[0])
	CMPQ(cols, imm(nv*v.w))
	JNE(LabelRef("edge"))
	v.whenSet("full", acc, func() {
		v.eachSum(t, func(j int, s vec, m Mem) { VADDPS(m, s, s) })
	})
	v.eachSum(t, func(j int, s vec, m Mem) { VMOVUPS(s, m) })
	VZEROUPPER()
	RET()
	Label("edge")
	masks, old := v.colMasks(nv, cols), v.new()
	v.whenSet("part", acc, func() {
		v.eachSum(t, func(j int, s vec, m Mem) {
			v.loadPart(m, masks[j], old)
			VADDPS(old, s, s)
		})
	})
	v.eachSum(t, func(j int, s vec, m Mem) { v.storePart(s, masks[j], m) })
	VZEROUPPER()
	RET()
}

// whenSet emits code that runs if flag is not zero.
func (v *vm) whenSet(label string, flag reg.GPVirtual, code func()) {
	TESTQ(flag, flag)
	JZ(LabelRef(label))
	code()
	Label(label)
}

// eachSum visits the vectors of sums with where they belong in C.
func (v *vm) eachSum(t *tileRegs, visit func(j int, s vec, m Mem)) {
	p := GP64()
	MOVQ(t.c, p)
	for _, r := range t.sum {
		for j, s := range r {
			visit(j, s, Mem{Base: p, Disp: j * v.size()})
		}
		ADDQ(t.ldc, p)
	}
}

// param is where a parameter is in the frame.
func param(name string) Op {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// finish emits the epilogue kernels of a tile two vectors wide.
func (v *vm) finish() {
	v.tileBias()
	v.tileShift()
	for _, t := range types {
		v.put(t)
	}
	for _, t := range v.finishTypes() {
		v.finishRows(t)
	}
}

// finishTypes are the types of the results that finishRows stores: AVX2 has no masks for halves of two vectors.
func (v *vm) finishTypes() []string {
	if v.wide() {
		return types
	}
	return types[:1]
}

// finishRows emits a finishFunc: bias, activation, residual, activation and store of a tile in one pass.
func (v *vm) finishRows(t string) {
	v.text("finish"+t, "h, n int, dst *byte, ldd int, tile, shift *float32, add *byte, lda int, limits *float32", "is a finishFunc.")
	h, n, dst, ldd := ptrParam("h"), ptrParam("n"), ptrParam("dst"), ptrParam("ldd")
	tile, shift, add, lda, limits := ptrParam("tile"), ptrParam("shift"), ptrParam("add"), ptrParam("lda"), ptrParam("limits")
	scaleBy(ldd, typeSize(t))
	scaleBy(lda, typeSize(t))
	if t == "BF16" {
		v.hold(func() { v.bfloat(v.new()) })
	}
	var limit [4]vec
	for i := range limit {
		limit[i] = v.new()
		VBROADCASTSS(Mem{Base: limits, Disp: 4 * i}, limit[i])
	}
	masks := v.colMasks(2, n)
	rows := func(label string, whole, sum bool) {
		Label(label)
		loop(label+"loop", h, func() {
			b := v.new()
			VBROADCASTSS(Mem{Base: shift}, b)
			for j := range 2 {
				at, e := j*v.w*typeSize(t), &edge{lanes: masks[j]}
				load := func(t string, from Mem) vec {
					d := v.new()
					switch {
					case !whole:
						v.loadEdge(t, from, e, d)
					case t == "F32":
						return v.at(from)
					default:
						v.load(t, from, d)
					}
					return d
				}
				x := v.add(v.maxOf(limit[0], v.add(b, load("F32", Mem{Base: tile, Disp: j * v.size()}))), limit[1])
				if sum {
					x = v.add(v.maxOf(limit[2], v.add(x, load(t, Mem{Base: add, Disp: at}))), limit[3])
				}
				if to := (Mem{Base: dst, Disp: at}); whole {
					v.putWhole(t, x, to)
				} else {
					v.storeEdge(t, x, e, to)
				}
			}
			ADDQ(imm(4), shift)
			ADDQ(imm(2*v.size()), tile)
			ADDQ(ldd, dst)
			if sum {
				ADDQ(lda, add)
			}
		})
		VZEROUPPER()
		RET()
	}
	CMPQ(n, imm(2*v.w))
	JNE(LabelRef("parts"))
	TESTQ(add, add)
	JZ(LabelRef("plain"))
	rows("sums", true, true)
	rows("plain", true, false)
	Label("parts")
	TESTQ(add, add)
	JZ(LabelRef("plainpart"))
	rows("sumpart", false, true)
	rows("plainpart", false, false)
	v.held = nil
}

func (v *vm) tileBias() {
	v.text("tileBias", "h int, tile, bias *float32", "adds a row to each of h rows of two vectors.")
	h, tile, bias := ptrParam("h"), ptrParam("tile"), ptrParam("bias")
	lo, hi, x, y := v.new(), v.new(), v.new(), v.new()
	VMOVUPS(Mem{Base: bias}, lo)
	VMOVUPS(Mem{Base: bias, Disp: v.size()}, hi)
	loop("loop", h, func() {
		VADDPS(Mem{Base: tile}, lo, x)
		VADDPS(Mem{Base: tile, Disp: v.size()}, hi, y)
		VMOVUPS(x, Mem{Base: tile})
		VMOVUPS(y, Mem{Base: tile, Disp: v.size()})
		ADDQ(imm(2*v.size()), tile)
	})
	VZEROUPPER()
	RET()
}

func (v *vm) tileShift() {
	v.text("tileShift", "h int, tile, shift *float32", "adds shift[r] to row r of h rows of two vectors.")
	h, tile, shift := ptrParam("h"), ptrParam("tile"), ptrParam("shift")
	b, x, y := v.new(), v.new(), v.new()
	loop("loop", h, func() {
		VBROADCASTSS(Mem{Base: shift}, b)
		VADDPS(Mem{Base: tile}, b, x)
		VADDPS(Mem{Base: tile, Disp: v.size()}, b, y)
		VMOVUPS(x, Mem{Base: tile})
		VMOVUPS(y, Mem{Base: tile, Disp: v.size()})
		ADDQ(imm(2*v.size()), tile)
		ADDQ(imm(4), shift)
	})
	VZEROUPPER()
	RET()
}

// put emits the rounding store of a tile.
func (v *vm) put(t string) {
	v.text("put"+t, "h, n int, dst *byte, ldd int, tile *float32", "stores n elements of h rows of two vectors; dst rows are ldd elements apart.")
	h, n, dst, ldd, tile := ptrParam("h"), ptrParam("n"), ptrParam("dst"), ptrParam("ldd"), ptrParam("tile")
	scaleBy(ldd, typeSize(t))
	if t == "BF16" {
		v.hold(func() { v.bfloat(v.new()) })
	}
	row := func(label string, whole int, part *edge) {
		loop(label, h, func() {
			for i := range 2 {
				x, to := v.new(), Mem{Base: dst, Disp: i * v.w * typeSize(t)}
				switch {
				case i < whole:
					VMOVUPS(Mem{Base: tile, Disp: i * v.size()}, x)
					v.putWhole(t, x, to)
				case i == whole && part != nil:
					VMOVUPS(Mem{Base: tile, Disp: i * v.size()}, x)
					v.storeEdge(t, x, part, to)
				}
			}
			ADDQ(imm(2*v.size()), tile)
			ADDQ(ldd, dst)
		})
		VZEROUPPER()
		RET()
	}
	CMPQ(n, imm(v.w))
	JEQ(LabelRef("one"))
	JG(LabelRef("more"))
	row("partloop", 0, v.edge(t, n))
	Label("one")
	row("oneloop", 1, nil)
	Label("more")
	SUBQ(imm(v.w), n)
	CMPQ(n, imm(v.w))
	JEQ(LabelRef("two"))
	row("moreloop", 1, v.edge(t, n))
	Label("two")
	row("twoloop", 2, nil)
	v.held = nil
}

func (v *vm) putWhole(t string, x vec, to Mem) {
	if t == "F32" {
		VMOVUPS(x, to)
	} else {
		v.narrowWhole(t, x, to)
	}
}

// touch emits the prefetch of a tile's destination. A row that ends in another cache line than it
// begins in skips the first line: the tile to the left has prefetched it.
func (v *vm) touch() {
	v.text("touch", "h int, p *byte, row, n int", "fetches n > 0 bytes of h rows, row bytes apart.")
	h, p, row, n := ptrParam("h"), ptrParam("p"), ptrParam("row"), ptrParam("n")
	at := GP64()
	loop("rows", h, func() {
		XORQ(at, at)
		Label("line")
		PREFETCHT0(Mem{Base: p, Index: at, Scale: 1, Disp: 63})
		ADDQ(imm(64), at)
		CMPQ(at, n)
		JL(LabelRef("line"))
		ADDQ(row, p)
	})
	RET()
}

package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var types = []string{"F32", "F16", "BF16"}

func (v *vm) packing() {
	for _, t := range types {
		v.rows(t)
		v.pick2(t)
		v.trans(t)
		if v.panelled(t) {
			v.panels(t)
		}
	}
}

// panelled reports whether there is a panelsFunc: AVX2 would need too many registers for the edges of halves.
func (v *vm) panelled(t string) bool { return v.wide() || t == "F32" }

// panels emits a panelsFunc.
func (v *vm) panels(t string) {
	v.text("panels"+t, "rows, panels, lanes, last int, places *byte, dst *float32, src *byte, lds, ahead int", "is a panelsFunc.")
	rows, panels, lanes, last := ptrParam("rows"), ptrParam("panels"), ptrParam("lanes"), ptrParam("last")
	places, dst, src, lds := ptrParam("places"), ptrParam("dst"), ptrParam("src"), ptrParam("lds")
	scaleBy(lds, typeSize(t))
	most, least := v.edge(t, lanes), v.edge(t, last)
	later, p, left, from, to, x := GP64(), GP64(), GP64(), GP64(), GP64(), v.new()
	Load(Param("ahead"), later)
	IMULQ(lds, later)
	ADDQ(src, later)
	piece := func(e *edge) {
		MOVQ(Mem{Base: p}, from)
		MOVQ(Mem{Base: p, Disp: 8}, to)
		PREFETCHT0(Mem{Base: later, Index: from, Scale: 1})
		v.loadEdge(t, Mem{Base: src, Index: from, Scale: 1}, e, x)
		VMOVUPS(x, Mem{Base: dst, Index: to, Scale: 1})
		ADDQ(Mem{Base: p, Disp: 16}, to)
		MOVQ(to, Mem{Base: p, Disp: 8})
		ADDQ(imm(24), p)
	}
	loop("row", rows, func() {
		MOVQ(places, p)
		MOVQ(panels, left)
		DECQ(left)
		JZ(LabelRef("end"))
		loop("panel", left, func() { piece(most) })
		Label("end")
		piece(least)
		ADDQ(lds, src)
		ADDQ(lds, later)
	})
	VZEROUPPER()
	RET()
}

// rows emits a rowsFunc for up to two vectors.
func (v *vm) rows(t string) {
	v.text("rows"+t, "k, n int, dst *float32, ldd int, src *byte, lds int", "is a rowsFunc for n up to two vectors.")
	k, n, dst, src := ptrParam("k"), ptrParam("n"), ptrParam("dst"), ptrParam("src")
	ldd, lds := ptrParam("ldd"), ptrParam("lds")
	scaleBy(ldd, 4)
	scaleBy(lds, typeSize(t))
	x, y := v.new(), v.new()
	second := Mem{Base: src, Disp: v.w * typeSize(t)}
	CMPQ(n, imm(v.w))
	JGT(LabelRef("two"))
	part := v.edge(t, n)
	loop("one", k, func() {
		v.loadEdge(t, Mem{Base: src}, part, x)
		VMOVUPS(x, Mem{Base: dst})
		ADDQ(lds, src)
		ADDQ(ldd, dst)
	})
	VZEROUPPER()
	RET()
	Label("two")
	SUBQ(imm(v.w), n)
	part = v.edge(t, n)
	ahead := GP64()
	LEAQ(Mem{Base: src, Index: lds, Scale: 8}, ahead)
	loop("both", k, func() {
		PREFETCHT0(Mem{Base: ahead})
		ADDQ(lds, ahead)
		v.load(t, Mem{Base: src}, x)
		v.loadEdge(t, second, part, y)
		VMOVUPS(x, Mem{Base: dst})
		VMOVUPS(y, Mem{Base: dst, Disp: v.size()})
		ADDQ(lds, src)
		ADDQ(ldd, dst)
	})
	VZEROUPPER()
	RET()
}

// loop repeats body n > 0 times, counting n down.
func loop(label string, n reg.GPVirtual, body func()) {
	Label(label)
	body()
	DECQ(n)
	JNZ(LabelRef(label))
}

// pick2 emits a pickFunc for up to two vectors.
func (v *vm) pick2(t string) {
	v.text("pick"+t, "k, n int, dst *float32, ldd int, src *byte, offs *int", "is a pickFunc for n up to two vectors.")
	k, n, dst, src := ptrParam("k"), ptrParam("n"), ptrParam("dst"), ptrParam("src")
	ldd, offs := ptrParam("ldd"), ptrParam("offs")
	scaleBy(ldd, 4)
	x, y, o := v.new(), v.new(), GP64()
	whole := func(d vec, disp int) {
		MOVQ(Mem{Base: offs}, o)
		v.load(t, Mem{Base: src, Index: o, Scale: 1, Disp: disp * typeSize(t)}, d)
	}
	CMPQ(n, imm(v.w))
	JGT(LabelRef("two"))
	JEQ(LabelRef("full"))
	if v.wide() { // half a vector, the usual length of rows of small images
		CMPQ(n, imm(v.w/2))
		JEQ(LabelRef("half"))
	}
	part := v.edge(t, n)
	loop("one", k, func() {
		MOVQ(Mem{Base: offs}, o)
		v.loadEdge(t, Mem{Base: src, Index: o, Scale: 1}, part, x)
		v.mergePart(x, part.lanes, Mem{Base: dst})
		ADDQ(imm(8), offs)
		ADDQ(ldd, dst)
	})
	VZEROUPPER()
	RET()
	if v.wide() {
		Label("half")
		narrow, y := &vm{w: 8}, YMM()
		loop("halves", k, func() {
			MOVQ(Mem{Base: offs}, o)
			narrow.load(t, Mem{Base: src, Index: o, Scale: 1}, y)
			VMOVUPS(y, Mem{Base: dst})
			ADDQ(imm(8), offs)
			ADDQ(ldd, dst)
		})
		VZEROUPPER()
		RET()
	}
	Label("full")
	loop("fulls", k, func() {
		whole(x, 0)
		VMOVUPS(x, Mem{Base: dst})
		ADDQ(imm(8), offs)
		ADDQ(ldd, dst)
	})
	VZEROUPPER()
	RET()
	Label("two")
	SUBQ(imm(v.w), n)
	part = v.edge(t, n)
	loop("both", k, func() {
		whole(x, 0)
		v.loadEdge(t, Mem{Base: src, Index: o, Scale: 1, Disp: v.w * typeSize(t)}, part, y)
		VMOVUPS(x, Mem{Base: dst})
		v.mergePart(y, part.lanes, Mem{Base: dst, Disp: v.size()})
		ADDQ(imm(8), offs)
		ADDQ(ldd, dst)
	})
	VZEROUPPER()
	RET()
}

// mergePart stores the lanes of s that mask holds. AVX2, whose masked stores take a dozen cycles,
// stores the other lanes unchanged.
func (v *vm) mergePart(s vec, mask reg.Register, m Mem) {
	if v.wide() {
		v.storePart(s, mask, m)
		return
	}
	old := v.new()
	VMOVUPS(m, old)
	VBLENDVPS(mask, s, old, old)
	VMOVUPS(old, m)
}

// trans emits a transFunc for up to w lanes: blocks of w x w are loaded by rows, transposed in registers and stored.
func (v *vm) trans(t string) {
	v.text("trans"+t, "k, n int, dst *float32, ldd int, src *byte, offs *int", fmt.Sprintf("is a transFunc for n up to %d.", v.w))
	k, n, dst, src := ptrParam("k"), ptrParam("n"), ptrParam("dst"), ptrParam("src")
	ldd, offs := ptrParam("ldd"), ptrParam("offs")
	scaleBy(ldd, 4)
	halves := v.wide() && t != "F32" // transposed before they are widened: half as many vectors
	block := func(load func(m Mem, d vec), part bool) {
		// Lanes past n repeat the last row; callers accept any values there.
		p, o := GP64(), GP64()
		MOVQ(offs, p)
		in := make([]vec, v.w)
		for r := range in {
			in[r] = v.new()
			if halves {
				in[r] = YMM()
			}
			MOVQ(Mem{Base: p}, o)
			load(Mem{Base: src, Index: o, Scale: 1}, in[r])
			if r < v.w-1 {
				next := GP64()
				LEAQ(Mem{Base: p, Disp: 8}, next)
				CMPQ(n, imm(r+1))
				CMOVQGT(next, p)
			}
		}
		transpose := v.transpose
		if halves {
			transpose = transposeHalves
		}
		for i, x := range transpose(in) {
			if halves {
				wide := v.new()
				v.load(t, x, wide)
				x = wide
			}
			VMOVUPS(x, Mem{Base: dst})
			ADDQ(ldd, dst)
			if part && i < v.w-1 {
				CMPQ(k, imm(i+1))
				JLE(LabelRef("done"))
			}
		}
	}
	Label("block")
	CMPQ(k, imm(v.w))
	JL(LabelRef("part"))
	block(func(m Mem, d vec) {
		if halves {
			VMOVDQU(m, d)
		} else {
			v.load(t, m, d)
		}
	}, false)
	ADDQ(imm(v.w*typeSize(t)), src)
	SUBQ(imm(v.w), k)
	JG(LabelRef("block"))
	JMP(LabelRef("done"))
	Label("part")
	e := v.edge(t, k)
	block(func(m Mem, d vec) {
		if halves {
			VMOVDQU16_Z(m, e.lanes, d)
		} else {
			v.loadEdge(t, m, e, d)
		}
	}, true)
	Label("done")
	VZEROUPPER()
	RET()
}

func op3(i func(...Op), a, b, d vec) vec { i(a, b, d); return d }

// transposeHalves transposes a square of 16 x 16 halves: pairs, quads and eights within 128-bit parts, then the parts.
func transposeHalves(in []vec) []vec {
	unpack := func(low, high func(...Op), apart int, in []vec) []vec {
		out := make([]vec, len(in))
		for i := range in {
			if i&apart == 0 {
				out[i] = op3(low, in[i+apart], in[i], YMM())
				out[i+apart] = op3(high, in[i+apart], in[i], YMM())
			}
		}
		return out
	}
	in = unpack(VPUNPCKLWD, VPUNPCKHWD, 1, in)
	in = unpack(VPUNPCKLDQ, VPUNPCKHDQ, 2, in)
	in = unpack(VPUNPCKLQDQ, VPUNPCKHQDQ, 4, in)
	out := make([]vec, len(in))
	for i := range 8 { // of rows 0 to 7, part p of in[i] is column 8p plus i with its bits reversed
		c := i>>2&1 | i&2 | i&1<<2
		out[c], out[c+8] = YMM(), YMM()
		VSHUFI64X2(Imm(0), in[8+i], in[i], out[c])
		VSHUFI64X2(Imm(3), in[8+i], in[i], out[c+8])
	}
	return out
}

// transpose transposes a square of w x w lanes: pairs, then quads within 128-bit parts, then the parts.
func (v *vm) transpose(in []vec) []vec {
	pair, quad := make([]vec, v.w), make([]vec, v.w)
	for i := 0; i < v.w; i += 2 {
		pair[i] = op3(VUNPCKLPS, in[i+1], in[i], v.new())
		pair[i+1] = op3(VUNPCKHPS, in[i+1], in[i], v.new())
	}
	for i := 0; i < v.w; i += 4 { // quad[i+j], part p: column 4p+j of rows i to i+3
		quad[i] = op3(VUNPCKLPD, pair[i+2], pair[i], v.new())
		quad[i+1] = op3(VUNPCKHPD, pair[i+2], pair[i], v.new())
		quad[i+2] = op3(VUNPCKLPD, pair[i+3], pair[i+1], v.new())
		quad[i+3] = op3(VUNPCKHPD, pair[i+3], pair[i+1], v.new())
	}
	out := make([]vec, v.w)
	shuffle := func(sel uint64, lo, hi vec) vec {
		d := v.new()
		VSHUFF32X4(Imm(sel), hi, lo, d)
		return d
	}
	for j := range 4 {
		if !v.wide() {
			out[j], out[4+j] = v.new(), v.new()
			VPERM2F128(Imm(0x20), quad[4+j], quad[j], out[j])
			VPERM2F128(Imm(0x31), quad[4+j], quad[j], out[4+j])
			continue
		}
		even, odd := shuffle(0x88, quad[j], quad[4+j]), shuffle(0xdd, quad[j], quad[4+j])
		evenHi, oddHi := shuffle(0x88, quad[8+j], quad[12+j]), shuffle(0xdd, quad[8+j], quad[12+j])
		out[j], out[8+j] = shuffle(0x88, even, evenHi), shuffle(0xdd, even, evenHi)
		out[4+j], out[12+j] = shuffle(0x88, odd, oddHi), shuffle(0xdd, odd, oddHi)
	}
	return out
}

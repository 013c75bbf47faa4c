package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vnni emits the kernels of products of two bf16 operands by VDPBF16PS (AVX512_BF16). A 32-bit word
// of a packed operand holds the elements of two adjacent depths, the earlier one in its low half.
func (v *vm) vnni() {
	for nv := 1; nv <= 2; nv++ {
		for rows := 1; rows <= v.tileRows(); rows++ {
			v.tile("vnni", rows, nv, VPDPWSSD) // see bf16Code
		}
	}
	for rows := 1; rows <= v.tileRows(); rows++ {
		v.indirectTile("indirectVNNI", rows, VPDPWSSD)
		v.unpackedTile("unpackedVNNI", rows, 2, false, VPDPWSSD)
	}
	for m := 1; m <= v.turnedRows(); m *= 2 {
		v.turned(words, m)
		v.gemvWords(m, gemvDepth)
		v.gemvWords(m, 2)
	}
	v.vnniRows()
	v.vnniPick()
	v.vnniFromF32()
	v.vnniToF32()
	v.vnniSubnormal()
	v.packTileRows()
	v.anySubnormal()
	v.anyInfinite()
	v.splitWords()
	v.splitTiles()
}

// vnniRows emits a rowsFunc of words: k depths, even, for n up to two vectors.
func (v *vm) vnniRows() {
	v.text("vnniRows", "k, n int, dst *float32, ldd int, src *byte, lds int", "packs pairs of rows of bf16, k even, n up to two vectors.")
	k, n, dst, src := ptrParam("k"), ptrParam("n"), ptrParam("dst"), ptrParam("src")
	ldd, lds := ptrParam("ldd"), ptrParam("lds")
	scaleBy(ldd, 4)
	scaleBy(lds, 2)
	masks := v.colMasks(2, n)
	SHRQ(Imm(1), k)
	CMPQ(n, imm(v.w))
	JGT(LabelRef("two"))
	word := func(j int, low, high Mem) vec {
		low.Disp, high.Disp = 2*v.w*j, 2*v.w*j
		return v.word(masks[j], low, high)
	}
	row := func(vectors int) {
		for j := range vectors {
			VMOVUPS(word(j, Mem{Base: src}, Mem{Base: src, Index: lds, Scale: 1}), Mem{Base: dst, Disp: v.size() * j})
		}
		LEAQ(Mem{Base: src, Index: lds, Scale: 2}, src)
		ADDQ(ldd, dst)
	}
	loop("one", k, func() { row(1) })
	VZEROUPPER()
	RET()
	Label("two")
	ahead := GP64()
	LEAQ(Mem{Base: src, Index: lds, Scale: 8}, ahead)
	loop("both", k, func() {
		PREFETCHT0(Mem{Base: ahead})
		PREFETCHT0(Mem{Base: ahead, Index: lds, Scale: 1})
		LEAQ(Mem{Base: ahead, Index: lds, Scale: 2}, ahead)
		row(2)
	})
	VZEROUPPER()
	RET()
}

// vnniPick emits a pickFunc of words: k depths, even, for n up to two vectors.
func (v *vm) vnniPick() {
	v.text("vnniPick", "k, n int, dst *float32, ldd int, src *byte, offs *int", "packs pairs of scattered rows of bf16, k even, n up to two vectors.")
	k, n, dst, src := ptrParam("k"), ptrParam("n"), ptrParam("dst"), ptrParam("src")
	ldd, offs := ptrParam("ldd"), ptrParam("offs")
	scaleBy(ldd, 4)
	masks := v.colMasks(2, n)
	SHRQ(Imm(1), k)
	even, odd := GP64(), GP64()
	row := func(vectors int) {
		MOVQ(Mem{Base: offs}, even)
		MOVQ(Mem{Base: offs, Disp: 8}, odd)
		for j := range vectors {
			at := func(o reg.GPVirtual) Mem { return Mem{Base: src, Index: o, Scale: 1, Disp: 2 * v.w * j} }
			v.storePart(v.word(masks[j], at(even), at(odd)), masks[j], Mem{Base: dst, Disp: v.size() * j})
		}
		ADDQ(imm(16), offs)
		ADDQ(ldd, dst)
	}
	v.oneOrTwo(k, n, row)
	VZEROUPPER()
	RET()
}

// word joins the lanes in mask of two rows of halves.
func (v *vm) word(mask reg.Register, low, high Mem) vec {
	x, y := v.new(), v.new()
	VPMOVZXWD_Z(low, mask, x)
	VPMOVZXWD_Z(high, mask, y)
	VPSLLD(Imm(16), y, y)
	VPORD(y, x, x)
	return x
}

// oneOrTwo emits k rows of one vector if n lanes fit in it, otherwise of two.
func (v *vm) oneOrTwo(k, n reg.GPVirtual, row func(vectors int)) {
	CMPQ(n, imm(v.w))
	JGT(LabelRef("two"))
	loop("one", k, func() { row(1) })
	JMP(LabelRef("done"))
	Label("two")
	loop("both", k, func() { row(2) })
	Label("done")
}

// vnniFromF32 emits the packing of pairs of rows that have been widened: k rows, even, of up to two vectors.
func (v *vm) vnniFromF32() {
	v.text("vnniFromF32", "k, n int, dst *float32, ldd int, src *float32, lds int", "packs pairs of rows of bf16 values held as f32, k even, n up to two vectors.")
	k, n, dst, src := ptrParam("k"), ptrParam("n"), ptrParam("dst"), ptrParam("src")
	ldd, lds := ptrParam("ldd"), ptrParam("lds")
	scaleBy(ldd, 4)
	scaleBy(lds, 4)
	SHRQ(Imm(1), k)
	odd, words := K(), GP32()
	MOVL(U32(0xaaaaaaaa), words)
	KMOVD(words, odd)
	x := v.new()
	row := func(vectors int) {
		for j := range vectors {
			VPSRLD(Imm(16), Mem{Base: src, Disp: v.size() * j}, x)
			VMOVDQU16(Mem{Base: src, Index: lds, Scale: 1, Disp: v.size() * j}, odd, x)
			VMOVUPS(x, Mem{Base: dst, Disp: v.size() * j})
		}
		LEAQ(Mem{Base: src, Index: lds, Scale: 2}, src)
		ADDQ(ldd, dst)
	}
	v.oneOrTwo(k, n, row)
	VZEROUPPER()
	RET()
}

// vnniToF32 emits the inverse of vnniFromF32: two rows for each of k rows of words. Rows are ascending.
func (v *vm) vnniToF32() {
	v.text("vnniToF32", "k, n int, dst *float32, ldd int, src *float32, lds int", "widens k rows of words to twice as many of f32, n up to two vectors.")
	k, n, dst, src := ptrParam("k"), ptrParam("n"), ptrParam("dst"), ptrParam("src")
	ldd, lds := ptrParam("ldd"), ptrParam("lds")
	scaleBy(ldd, 4)
	scaleBy(lds, 4)
	high := v.reg(bits(0xffff0000))
	y := v.new()
	row := func(vectors int) {
		for _, half := range []func(Mem){
			func(m Mem) { VPSLLD(Imm(16), m, y) },
			func(m Mem) { VPANDD(m, high, y) },
		} {
			for j := range vectors {
				half(Mem{Base: src, Disp: v.size() * j})
				VMOVUPS(y, Mem{Base: dst, Disp: v.size() * j})
			}
			ADDQ(ldd, dst)
		}
		ADDQ(lds, src)
	}
	v.oneOrTwo(k, n, row)
	VZEROUPPER()
	RET()
}

// vnniSubnormal emits the search for subnormal elements, two bits a lane.
func (v *vm) vnniSubnormal() {
	v.text("vnniSubnormal", "k, n int, src *float32, lds int) (lanes uint64", "says which halves of n lanes, up to two vectors, are subnormal in any of k rows of words.")
	k, n, src, lds := ptrParam("k"), ptrParam("n"), ptrParam("src"), ptrParam("lds")
	scaleBy(lds, 4)
	exponent, mantissa, x := v.reg(bits(0x7f807f80)), v.reg(bits(0x007f007f)), v.new()
	small, subnormal := K(), K()
	found := []reg.OpmaskVirtual{K(), K()}
	for _, f := range found {
		KXORQ(f, f, f)
	}
	row := func(vectors int) {
		for j := range vectors {
			VMOVUPS(Mem{Base: src, Disp: v.size() * j}, x)
			VPTESTNMW(exponent, x, small)
			VPTESTMW(mantissa, x, small, subnormal)
			KORD(subnormal, found[j], found[j])
		}
		ADDQ(lds, src)
	}
	v.oneOrTwo(k, n, row)
	KUNPCKDQ(found[0], found[1], subnormal)
	lanes := GP64()
	KMOVQ(subnormal, lanes)
	ADDQ(n, n)
	BZHIQ(n, lanes, lanes)
	Store(lanes, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// vnniTable enters the kernels for the VNNI layout.
func (v *vm) vnniTable(w func(format string, args ...any)) {
	w("\n// vnni%s are the kernels of products of two bf16 operands.\nfunc vnni%s() *vnniKernels {\nreturn &vnniKernels{rows: vnniRows%s, pick: vnniPick%s, fromF32: vnniFromF32%s, toF32: vnniToF32%s, subnormal: vnniSubnormal%s,\n",
		v.suffix(), v.suffix(), v.suffix(), v.suffix(), v.suffix(), v.suffix(), v.suffix())
	w("tile: [2][]tileFunc{\n")
	for nv := 1; nv <= 2; nv++ {
		w("{")
		for rows := 1; rows <= v.tileRows(); rows++ {
			w("vnni%dx%d%s, ", rows, nv*v.w, v.suffix())
		}
		w("},\n")
	}
	w("},\nindirect: []indirectFunc{")
	for rows := 1; rows <= v.tileRows(); rows++ {
		w("indirectVNNI%dx%d%s, ", rows, 2*v.w, v.suffix())
	}
	w("},\nunpacked: []unpackedFunc{")
	for rows := 1; rows <= v.tileRows(); rows++ {
		w("unpackedVNNI%dx%d%s, ", rows, 2*v.w, v.suffix())
	}
	w("},\nending: []endingFunc{")
	for rows := 1; rows <= v.tileRows(); rows++ {
		w("endingVNNI%dx%d%s, ", rows, 2*v.w, v.suffix())
	}
	w("},\nturned: []turnedVNNIFunc{")
	for m := 1; m <= v.turnedRows(); m *= 2 {
		w("turned%d%s%s, ", m, words, v.suffix())
	}
	for i, name := range []string{"gemv", "gemvWord"} {
		depth := []int{gemvDepth, 2}[i]
		w("},\n%s: []gemvVNNIFunc{", name)
		for m := 1; m <= v.turnedRows(); m *= 2 {
			w("gemv%d%s%d%s, ", m, words, depth, v.suffix())
		}
	}
	w("}}\n}\n")
}

var standIn = regexp.MustCompile(`VPDPWSSD +Z(\d+), Z(\d+), Z(\d+)`)

// bf16Code replaces VPDPWSSD in the assembly by the code of VDPBF16PS, which differs from it by its prefix and which
// neither avo nor the assembler of Go 1.26 knows.
func bf16Code(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out := standIn.ReplaceAllFunc(text, func(m []byte) []byte {
		var z [3]byte // second source, first source, sum
		for i, s := range standIn.FindSubmatch(m)[1:] {
			n, _ := strconv.Atoi(string(s))
			z[i] = byte(n)
		}
		code := dotProduct(z[0], z[1], z[2])
		return fmt.Appendf(nil, "LONG $0x%02x%02x%02x%02x; WORD $0x%02x%02x // VDPBF16PS Z%d, Z%d, Z%d",
			code[3], code[2], code[1], code[0], code[5], code[4], z[0], z[1], z[2])
	})
	return os.WriteFile(file, bytes.ReplaceAll(out, []byte("AVX512VNNI"), []byte("AVX512_BF16")), 0o644)
}

// dotProduct is EVEX.512.F3.0F38.W0 52 /r of three registers; the register fields of the prefix are inverted.
func dotProduct(b, a, sum byte) [6]byte {
	bit := func(x byte, n int) byte { return ^x >> n & 1 }
	return [6]byte{
		0x62,
		bit(sum, 3)<<7 | bit(b, 4)<<6 | bit(b, 3)<<5 | bit(sum, 4)<<4 | 2,
		^a&15<<3 | 1<<2 | 2,
		2<<5 | bit(a, 4)<<3,
		0x52,
		3<<6 | sum&7<<3 | b&7,
	}
}

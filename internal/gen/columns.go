package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// addColumns emits a columnsFunc: up to eight vectors of sums stay in registers while the rows pass.
func (v *vm) addColumns(t string) {
	v.text("addColumns"+t, "rows, vecs int, sum *float32, src *byte, lds int", "is a columnsFunc.")
	vecs, sum, src, lds := ptrParam("vecs"), ptrParam("sum"), ptrParam("src"), ptrParam("lds")
	scaleBy(lds, typeSize(t))
	part := func(label string, wide int) {
		CMPQ(vecs, imm(wide))
		JL(LabelRef(label + "Done"))
		Label(label)
		rows, at, ahead := ptrParam("rows"), GP64(), GP64()
		MOVQ(src, at)
		LEAQ(Mem{Base: src, Index: lds, Scale: 8}, ahead)
		var s []vec
		for range wide {
			s = append(s, v.new())
			v.zero(s[len(s)-1])
		}
		loop(label+"Rows", rows, func() {
			for o := 0; o < wide*v.w*typeSize(t); o += 64 {
				PREFETCHT0(Mem{Base: ahead, Disp: o})
			}
			for j := range s {
				m, x := Mem{Base: at, Disp: j * v.w * typeSize(t)}, v.new()
				if t == "F32" {
					VADDPS(m, s[j], s[j])
					continue
				}
				v.load(t, m, x)
				VADDPS(x, s[j], s[j])
			}
			ADDQ(lds, at)
			ADDQ(lds, ahead)
		})
		for j := range s {
			VMOVUPS(s[j], Mem{Base: sum, Disp: j * v.size()})
		}
		ADDQ(imm(wide*v.size()), sum)
		ADDQ(imm(wide*v.w*typeSize(t)), src)
		SUBQ(imm(wide), vecs)
		CMPQ(vecs, imm(wide))
		JGE(LabelRef(label))
		Label(label + "Done")
	}
	part("eight", 8)
	part("one", 1)
	VZEROUPPER()
	RET()
}

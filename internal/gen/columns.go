package main

import (
	"strconv"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// columns emits the kernels of sums of columns.
func (v *vm) columns() {
	for _, t := range types {
		v.addRows(t)
		v.foldRows(t)
	}
}

// addRows emits an addRowsFunc: a part of a row of sums is in registers while the rows of src that it takes are added.
func (v *vm) addRows(t string) {
	v.text("addRows"+t, "rows, deep, vecs, begun int, sum *float32, src *byte, lds, step int", "is an addRowsFunc.")
	rows, sum, src, lds, step := ptrParam("rows"), ptrParam("sum"), ptrParam("src"), ptrParam("lds"), ptrParam("step")
	scaleBy(lds, typeSize(t))
	scaleBy(step, typeSize(t))
	loop("sums", rows, func() {
		vecs, from := ptrParam("vecs"), GP64()
		MOVQ(src, from)
		v.groups([]int{8, 4, 1}, vecs, func(label string, wide int) {
			begun, deep, at := ptrParam("begun"), ptrParam("deep"), GP64()
			MOVQ(from, at)
			s := v.several(wide)
			for _, x := range s {
				v.zero(x)
			}
			TESTQ(begun, begun)
			JZ(LabelRef(label + "Deep"))
			for i, x := range s {
				VMOVUPS(Mem{Base: sum, Disp: i * v.size()}, x)
			}
			loop(label+"Deep", deep, func() {
				for o := 0; o < wide*v.w*typeSize(t); o += 64 {
					PREFETCHT0(Mem{Base: at, Index: lds, Scale: 2, Disp: o})
				}
				for i, x := range s {
					v.addAt(t, Mem{Base: at, Disp: i * v.w * typeSize(t)}, x)
				}
				ADDQ(step, at)
			})
			v.storeAll(s, sum)
			ADDQ(imm(wide*v.size()), sum)
			ADDQ(imm(wide*v.w*typeSize(t)), from)
		})
		ADDQ(lds, src)
	})
	VZEROUPPER()
	RET()
}

// groups runs body for groups of vectors, as wide as any of wides allows.
func (v *vm) groups(wides []int, vecs reg.GPVirtual, body func(label string, wide int)) {
	for _, wide := range wides {
		label := map[int]string{8: "eight", 4: "four", 1: "one"}[wide]
		CMPQ(vecs, imm(wide))
		JL(LabelRef(label + "Done"))
		Label(label)
		body(label, wide)
		SUBQ(imm(wide), vecs)
		CMPQ(vecs, imm(wide))
		JGE(LabelRef(label))
		Label(label + "Done")
	}
}

// addAt adds the vector of t at m to s.
func (v *vm) addAt(t string, m Mem, s vec) {
	if t == "F32" {
		VADDPS(m, s, s)
		return
	}
	x := v.new()
	v.load(t, m, x)
	VADDPS(x, s, s)
}

func (v *vm) storeAll(s []vec, to reg.GPVirtual) {
	for j := range s {
		VMOVUPS(s[j], Mem{Base: to, Disp: j * v.size()})
	}
}

// foldRows emits a foldRowsFunc: the sums of eight chains, or of four or two where there are no more, stay in registers as they are
// folded.
func (v *vm) foldRows(t string) {
	v.text("foldRows"+t, "span, vecs int, sum *float32, src *byte, lds int", "is a foldRowsFunc.")
	vecs, sum, src, lds := ptrParam("vecs"), ptrParam("sum"), ptrParam("src"), ptrParam("lds")
	scaleBy(lds, typeSize(t))
	f := folded{v: v, t: t, src: src, half: GP64(), lds: lds, three: GP64(), step: GP64()}
	LEAQ(Mem{Base: lds, Index: lds, Scale: 2}, f.three)
	MOVQ(lds, f.step)
	SHLQ(Imm(3), f.step)
	v.groups([]int{4, 1}, vecs, func(label string, wide int) {
		f.label, f.wide, f.end = label, wide, ptrParam("span")
		scaleBy(f.end, typeSize(t))
		ADDQ(src, f.end)
		LEAQ(Mem{Base: src, Index: lds, Scale: 4}, f.half)
		for _, n := range []int{2, 4, 8} {
			if wide == 1 && n < 8 {
				continue
			}
			more := label + "MoreThan" + strconv.Itoa(n)
			if n < 8 {
				limit := GP64()
				LEAQ(f.row(n), limit)
				CMPQ(limit, f.end)
				JLT(LabelRef(more))
			}
			v.storeAll(f.tree(0, n, n), sum)
			if n < 8 {
				JMP(LabelRef(label + "Next"))
				Label(more)
			}
		}
		Label(label + "Next")
		ADDQ(imm(wide*v.size()), sum)
		ADDQ(imm(wide*v.w*typeSize(t)), src)
	})
	VZEROUPPER()
	RET()
}

// folded is what the code of a foldRowsFunc is about.
type folded struct {
	v                     *vm
	t, label              string
	wide                  int
	src, half             reg.GPVirtual // rows 0 and 4
	lds, three, step, end reg.GPVirtual
}

// row is the address of row r < 8.
func (f *folded) row(r int) Mem {
	m := Mem{Base: f.src}
	if r >= 4 {
		m.Base = f.half
	}
	switch r % 4 {
	case 1, 2:
		m.Index, m.Scale = f.lds, uint8(r%4)
	case 3:
		m.Index, m.Scale = f.three, 1
	}
	return m
}

// tree is the sum of k of n chains, every n/k th from the first on, as Path.Sum folds them.
func (f *folded) tree(first, k, n int) []vec {
	if k == 1 {
		return f.chain(first, n)
	}
	a, b := f.tree(first, k/2, n), f.tree(first+n/k, k/2, n)
	for i := range a {
		VADDPS(b[i], a[i], a[i])
	}
	return a
}

// chain is the sum of row r and every eighth after it.
func (f *folded) chain(r, n int) []vec {
	s, at := f.v.several(f.wide), GP64()
	for _, x := range s {
		f.v.zero(x)
	}
	name := f.label + strconv.Itoa(n) + "Chain" + strconv.Itoa(r)
	LEAQ(f.row(r), at)
	if r > 0 {
		CMPQ(at, f.end)
		JGE(LabelRef(name + "Done"))
	}
	Label(name)
	for i, x := range s {
		f.v.addAt(f.t, Mem{Base: at, Disp: i * f.v.w * typeSize(f.t)}, x)
	}
	ADDQ(f.step, at)
	CMPQ(at, f.end)
	JLT(LabelRef(name))
	Label(name + "Done")
	return s
}

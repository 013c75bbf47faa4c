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

// foldRows emits a foldRowsFunc. Sums that wait for others are in registers, or in the frame where there are too few.
func (v *vm) foldRows(t string) {
	v.text("foldRows"+t, "slots, rows, vecs int, sum *float32, src *byte, lds int", "is a foldRowsFunc.")
	sum, src, lds, end, slots := ptrParam("sum"), ptrParam("src"), ptrParam("lds"), ptrParam("rows"), ptrParam("slots")
	scaleBy(lds, typeSize(t))
	IMULQ(lds, end)
	ADDQ(src, end)
	f := folded{v: v, t: t, apart: GP64(), three: GP64(), step: GP64()}
	MOVQ(lds, f.apart)
	IMULQ(slots, f.apart)
	LEAQ(Mem{Base: f.apart, Index: f.apart, Scale: 2}, f.three)
	MOVQ(f.apart, f.step)
	SHLQ(Imm(3), f.step)
	f.spilled()
	loop("slot", slots, func() {
		vecs := ptrParam("vecs")
		f.at, f.half, f.end = GP64(), GP64(), GP64()
		MOVQ(src, f.at)
		MOVQ(end, f.end)
		f.skip()
		v.groups(f.wides(), vecs, func(label string, wide int) {
			f.label, f.wide = label, wide
			LEAQ(Mem{Base: f.at, Index: f.apart, Scale: 4}, f.half)
			v.storeAll(f.tree(0, chainsFolded), sum)
			ADDQ(imm(wide*v.size()), sum)
			ADDQ(imm(wide*v.w*typeSize(t)), f.at)
			ADDQ(imm(wide*v.w*typeSize(t)), f.end)
		})
		ADDQ(lds, src)
	})
	VZEROUPPER()
	RET()
}

// chainsFolded is the number of chains of a sum of a foldRowsFunc.
const chainsFolded = 8

// folded is what the code of a foldRowsFunc is about.
type folded struct {
	v                  *vm
	t, label           string
	wide               int
	at, half           reg.GPVirtual // chains 0 and 4
	apart, three, step reg.GPVirtual // from a chain to the next, to the third, from a row of a chain to the next
	end                reg.GPVirtual // of the rows
	frame              map[int]Mem   // sums of the first half of so many chains
}

// row is the address of the first row of chain r.
func (f *folded) row(r int) Mem {
	m := Mem{Base: f.at}
	if r >= 4 {
		m.Base = f.half
	}
	switch r % 4 {
	case 1, 2:
		m.Index, m.Scale = f.apart, uint8(r%4)
	case 3:
		m.Index, m.Scale = f.three, 1
	}
	return m
}

// wides are the numbers of vectors of groups: half a kilobyte of f32 in a row where there are the registers.
func (f *folded) wides() []int {
	if f.v.wide() || f.t == "F32" {
		return []int{8, 4, 1}
	}
	return []int{4, 1}
}

// skip passes by groups whose sums are in the frame if each of all 64 chains has a row at most: storing and loading them would then
// take longer than reading pieces half as long.
func (f *folded) skip() {
	if len(f.frame) == 0 || f.t != "F32" {
		return
	}
	rows := ptrParam("rows")
	CMPQ(rows, imm(64))
	JLE(LabelRef("eightDone"))
}

// spilled reserves the frame for sums of the widest group that do not fit in registers.
func (f *folded) spilled() {
	f.frame = map[int]Mem{}
	most, wide := 2*f.v.w, f.wides()[0]
	if f.t != "F32" {
		most -= 2
	}
	for k, live := 2, wide; k <= chainsFolded; k, live = 2*k, live+wide {
		if live+wide > most {
			f.frame[k] = AllocLocal(wide * f.v.size())
		}
	}
}

// tree is the sum of k chains, the first and those 8/k, 16/k and so on after it, as Path.Sum folds them. Chains without rows are the
// last ones.
func (f *folded) tree(first, k int) []vec {
	if k == 1 {
		return f.chain(first)
	}
	a := f.tree(first, k/2)
	next, at := first+chainsFolded/k, GP64()
	done := f.label + "Fold" + strconv.Itoa(k) + "At" + strconv.Itoa(first)
	LEAQ(f.row(next), at)
	CMPQ(at, f.end)
	JGE(LabelRef(done))
	if frame, ok := f.frame[k]; ok && f.wide == f.wides()[0] {
		for i, x := range a {
			VMOVUPS(x, frame.Offset(i*f.v.size()))
		}
		for i, x := range f.tree(next, k/2) {
			VADDPS(frame.Offset(i*f.v.size()), x, a[i])
		}
	} else {
		for i, x := range f.tree(next, k/2) {
			VADDPS(x, a[i], a[i])
		}
	}
	Label(done)
	return a
}

// chain is the sum of the rows of chain r. That of chain 0 begins with 0, so that no sum is -0.
func (f *folded) chain(r int) []vec {
	s, at := f.v.several(f.wide), GP64()
	LEAQ(f.row(r), at)
	name := f.label + "Chain" + strconv.Itoa(r)
	for i, x := range s {
		m := Mem{Base: at, Disp: i * f.v.w * typeSize(f.t)}
		if r == 0 {
			f.v.zero(x)
			f.v.addAt(f.t, m, x)
		} else {
			f.v.load(f.t, m, x)
		}
	}
	JMP(LabelRef(name + "Next"))
	Label(name)
	for i, x := range s {
		f.v.addAt(f.t, Mem{Base: at, Disp: i * f.v.w * typeSize(f.t)}, x)
	}
	Label(name + "Next")
	ADDQ(f.step, at)
	CMPQ(at, f.end)
	JLT(LabelRef(name))
	return s
}

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// line is a transform of a few values: each result as a function of them. A square is transformed
// along its columns, then along its rows. An operand is a vector, or its address in memory.
type line []func(v *vm, x func(int) any) vec

// The lines of F(2,3) and F(3,2), which share the line of the input (Lavin and Gray, arXiv
// 1509.09308): a result is the output line of the products of the input line and the tap line.
var (
	winoIn = line{
		func(v *vm, x func(int) any) vec { return v.sub(v.at(x(0)), x(2)) },
		func(v *vm, x func(int) any) vec { return v.add(v.at(x(1)), x(2)) },
		func(v *vm, x func(int) any) vec { return v.sub(v.at(x(2)), x(1)) },
		func(v *vm, x func(int) any) vec { return v.sub(v.at(x(1)), x(3)) },
	}
	winoThree = line{
		func(v *vm, x func(int) any) vec { return v.at(x(0)) },
		func(v *vm, x func(int) any) vec { return v.mul(v.add(v.add(v.at(x(0)), x(2)), x(1)), f(0.5)) },
		func(v *vm, x func(int) any) vec { return v.mul(v.sub(v.add(v.at(x(0)), x(2)), x(1)), f(0.5)) },
		func(v *vm, x func(int) any) vec { return v.at(x(2)) },
	}
	winoTwo = line{
		func(v *vm, x func(int) any) vec { return v.at(x(0)) },
		func(v *vm, x func(int) any) vec { return v.mul(v.add(v.at(x(0)), x(1)), f(0.5)) },
		func(v *vm, x func(int) any) vec { return v.mul(v.sub(v.at(x(0)), x(1)), f(0.5)) },
		func(v *vm, x func(int) any) vec { return v.at(x(1)) },
	}
	winoPixels = line{
		func(v *vm, x func(int) any) vec { return v.add(v.add(v.at(x(1)), x(2)), x(0)) },
		func(v *vm, x func(int) any) vec { return v.sub(v.sub(v.at(x(1)), x(2)), x(3)) },
	}
	winoTaps = line{
		func(v *vm, x func(int) any) vec { return v.add(v.add(v.at(x(1)), x(2)), x(0)) },
		func(v *vm, x func(int) any) vec { return v.sub(v.at(x(1)), x(2)) },
		func(v *vm, x func(int) any) vec { return v.sub(v.add(v.at(x(1)), x(2)), x(3)) },
	}
)

// at is x in a register.
func (v *vm) at(x any) vec {
	m, ok := x.(Mem)
	if !ok {
		return x.(vec)
	}
	d := v.new()
	VMOVUPS(m, d)
	return d
}

// winograd emits the transforms of convolutions with fewer products.
func (v *vm) winograd() {
	v.winoSquare("winoIn", 4, winoIn)
	v.winoSquare("winoThree", 3, winoThree)
	v.winoSquare("winoTwo", 2, winoTwo)
	v.winoSquare("winoTaps", 4, winoTaps)
	v.winoPixels()
}

// winoRow is the line's result i along each column of a square of n in memory.
func (v *vm) winoRow(l line, i, n int, square func(row, col int) Mem) func(int) any {
	out := make([]any, n)
	for j := range n {
		out[j] = l[i](v, func(k int) any { return square(k, j) })
	}
	return func(j int) any { return out[j] }
}

// winoSquare emits a squareFunc of n x n values.
func (v *vm) winoSquare(name string, n int, l line) {
	v.text(name, "count, lanes int, dst *float32, dstep, dpoint int, src *float32, sstep, srow, odd, two int", "is a squareFunc.")
	count, lanes, dst, dstep, dpoint := ptrParam("count"), ptrParam("lanes"), ptrParam("dst"), ptrParam("dstep"), ptrParam("dpoint")
	sstep, srow := ptrParam("sstep"), ptrParam("srow")
	cols := []reg.GPVirtual{ptrParam("src"), ptrParam("odd"), ptrParam("two"), GP64()}
	for _, r := range []reg.GPVirtual{dstep, dpoint, sstep, srow, cols[1], cols[2]} {
		scaleBy(r, 4)
	}
	LEAQ(Mem{Base: cols[1], Index: cols[2], Scale: 1}, cols[3])
	for _, c := range cols[1:] {
		ADDQ(cols[0], c)
	}
	square, points := steps(srow), steps(dpoint)
	body := func(label string, store func(x vec, m Mem)) {
		loop(label, count, func() {
			to := GP64()
			MOVQ(dst, to)
			for i := range l {
				row := v.winoRow(l, i, n, func(k, j int) Mem { return square(cols[j], k) })
				for j := range l {
					store(l[j](v, row), points(to, j))
				}
				if i < len(l)-1 {
					LEAQ(points(to, len(l)), to)
				}
			}
			ADDQ(dstep, dst)
			for _, c := range cols[:n] {
				ADDQ(sstep, c)
			}
		})
		VZEROUPPER()
		RET()
	}
	mask := v.lanes(lanes)
	CMPQ(lanes, imm(v.w))
	JNE(LabelRef("part"))
	body("whole", func(x vec, m Mem) { VMOVUPS(x, m) })
	Label("part")
	body("parts", func(x vec, m Mem) { v.storePart(x, mask, m) })
}

// steps returns the address k steps, up to 4, after a pointer.
func steps(step reg.GPVirtual) func(base reg.GPVirtual, k int) Mem {
	three := GP64()
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, three)
	return func(base reg.GPVirtual, k int) Mem {
		switch k {
		case 0:
			return Mem{Base: base}
		case 3:
			return Mem{Base: base, Index: three, Scale: 1}
		}
		return Mem{Base: base, Index: step, Scale: uint8(k)}
	}
}

// winoPixels emits the transform of products to squares of two by two results, which become rows.
func (v *vm) winoPixels() {
	v.text("winoPixels", "count, cols int, dst *float32, dstep, drow int, src *float32, sstep, spoint int", "is a pixelsFunc.")
	count, n, dst, dstep, drow := ptrParam("count"), ptrParam("cols"), ptrParam("dst"), ptrParam("dstep"), ptrParam("drow")
	src, sstep, spoint := ptrParam("src"), ptrParam("sstep"), ptrParam("spoint")
	for _, r := range []reg.GPVirtual{dstep, drow, sstep, spoint} {
		scaleBy(r, 4)
	}
	_, join := v.picker()
	masks := v.colMasks(2, n)
	points, rows := steps(spoint), []reg.GPVirtual{GP64(), GP64(), GP64(), GP64()}
	body := func(label string, vecs int, store func(x vec, j int, m Mem)) {
		loop(label, count, func() {
			MOVQ(src, rows[0])
			for k := 1; k < 4; k++ {
				LEAQ(points(rows[k-1], 4), rows[k])
			}
			for i := 1; i >= 0; i-- { // the second row first: it may have the same address as the first
				row := v.winoRow(winoPixels, i, 4, func(k, j int) Mem { return points(rows[k], j) })
				low, high := join(winoPixels[0](v, row), winoPixels[1](v, row))
				for j, x := range []vec{low, high}[:vecs] {
					to := Mem{Base: dst, Disp: j * v.size()}
					if i > 0 {
						to.Index, to.Scale = drow, 1
					}
					store(x, j, to)
				}
			}
			ADDQ(sstep, src)
			ADDQ(dstep, dst)
		})
		VZEROUPPER()
		RET()
	}
	whole := func(x vec, _ int, m Mem) { VMOVUPS(x, m) }
	CMPQ(n, imm(v.w))
	JEQ(LabelRef("one"))
	CMPQ(n, imm(2*v.w))
	JNE(LabelRef("part"))
	body("twoloop", 2, whole)
	Label("one")
	body("oneloop", 1, whole)
	Label("part")
	body("parts", 2, func(x vec, j int, m Mem) { v.storePart(x, masks[j], m) })
}

package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The words of kern.endingTask, in their order.
const (
	endDepth = iota
	endA
	endB0
	endB1
	endOffs
	endNext0
	endNext1
	endNextOffs
	endFrom
	endFromRow
	endC
	endRow
	endAdd
	endAddRow
	endShift
	endLimits
	endWhole
	endLanes0
	endLanes1
	endFirst0
	endFirst1
	endSecond
	endTouches
	endBias
)

// endings emits the tiles that apply the epilogue to their sums before they store them: in f32, and for
// operands of words in bf16, these without a residual.
func (v *vm) endings() {
	for rows := 1; rows <= v.tileRows(); rows++ {
		v.endingTile("ending", rows, VFMADD231PS, "F32")
		v.endingTile("endingVNNI", rows, VPDPWSSD, "BF16") // see bf16Code
	}
}

// ending is a tile in registers, its task and the type of the results.
type ending struct {
	*vm
	task reg.GPVirtual
	t    tileRegs
	typ  string
}

// bytes is the size of a vector of results.
func (e *ending) bytes() int { return e.w * typeSize(e.typ) }

func (e *ending) word(i int) Mem { return Mem{Base: e.task, Disp: 8 * i} }

func (e *ending) load(i int) reg.GPVirtual {
	r := GP64()
	MOVQ(e.word(i), r)
	return r
}

func (v *vm) endingTile(name string, mr int, mul func(...Op), typ string) {
	v.text(fmt.Sprintf("%s%dx%d", name, mr, 2*v.w), "task *byte", fmt.Sprintf("is an endingFunc of %d rows.", mr))
	e := &ending{vm: v, task: ptrParam("task"), typ: typ}
	e.t.mul = mul
	for range mr {
		e.t.sum = append(e.t.sum, []vec{v.new(), v.new()})
	}
	for _, r := range e.t.sum {
		v.zero(r[0])
		v.zero(r[1])
	}
	e.t.col, e.t.row = []vec{v.new(), v.new()}, []vec{v.new(), v.new()}
	e.multiply()
	from, fromRow := e.load(endFrom), e.load(endFromRow)
	v.whenSet("whole", from, func() {
		for _, r := range e.t.sum {
			for j, s := range r {
				VADDPS(Mem{Base: from, Disp: j * v.size()}, s, s)
			}
			ADDQ(fromRow, from)
		}
	})
	e.t.c, e.t.ldc = e.load(endC), e.load(endRow)
	whole := e.load(endWhole)
	TESTQ(whole, whole)
	JZ(LabelRef("parts"))
	bias := e.load(endBias)
	TESTQ(bias, bias)
	JZ(LabelRef("shift"))
	e.finish("plainbias", true, bias)
	Label("shift")
	e.finish("plain", true, nil)
	Label("parts")
	e.finish("plainpart", false, nil)
}

// multiply emits the loop over the depth. Once in four depths it prefetches some rows of C, and one
// that the next tile reads.
func (e *ending) multiply() {
	e.t.a = e.load(endA)
	b, offs, o := []reg.GPVirtual{e.load(endB0), e.load(endB1)}, e.load(endOffs), GP64()
	steps := func(n int) {
		for u := range n {
			MOVQ(Mem{Base: offs, Disp: 8 * u}, o)
			for j, c := range e.t.col {
				VMOVUPS(Mem{Base: b[j], Index: o, Scale: 1}, c)
			}
			e.tileStep(&e.t, u)
		}
		ADDQ(imm(4*n*len(e.t.sum)), e.t.a)
		ADDQ(imm(8*n), offs)
	}
	row, below, last := e.load(endC), e.load(endRow), GP64()
	IMUL3Q(Imm(uint64(len(e.t.sum)-1)), below, last)
	ADDQ(row, last)
	touches, some := e.load(endTouches), GP64()
	touch := func(label string) {
		MOVQ(touches, some)
		loop(label, some, func() {
			for at := 0; at < 2*e.bytes(); at += 64 {
				PREFETCHT0(Mem{Base: row, Disp: at})
			}
			PREFETCHT0(Mem{Base: row, Disp: 2*e.bytes() - typeSize(e.typ)})
			ADDQ(below, row)
			CMPQ(row, last)
			CMOVQGT(last, row)
		})
	}
	next, nextOffs := []reg.GPVirtual{e.load(endNext0), e.load(endNext1)}, e.load(endNextOffs)
	four := func(label string, fetch func()) {
		left := e.load(endDepth)
		SHRQ(Imm(2), left)
		JZ(LabelRef("rest"))
		loop(label, left, func() {
			touch(label + "rows")
			fetch()
			for at := 0; at < 16*len(e.t.sum); at += 64 {
				PREFETCHT0(Mem{Base: e.t.a, Disp: at + aheadOfA})
			}
			steps(4)
		})
	}
	TESTQ(nextOffs, nextOffs)
	JZ(LabelRef("last"))
	four("fetching", func() {
		MOVQ(Mem{Base: nextOffs}, o)
		ADDQ(imm(8), nextOffs)
		for _, n := range next {
			PREFETCHT1(Mem{Base: n, Index: o, Scale: 1})
		}
	})
	JMP(LabelRef("rest"))
	Label("last")
	four("four", func() {})
	Label("rest")
	left := e.load(endDepth)
	ANDQ(Imm(3), left)
	JZ(LabelRef("sums"))
	loop("one", left, func() { steps(1) })
	Label("sums")
}

// finish emits the epilogue and the stores: of two whole vectors, or of some of their lanes, which
// are contiguous in C. It adds a bias to each row, or an element of shift to each of the lanes of one.
func (e *ending) finish(label string, whole bool, bias reg.Register) {
	if e.typ == "F32" {
		add := e.load(endAdd)
		TESTQ(add, add)
		JZ(LabelRef(label))
		e.rows(whole, add, bias)
		Label(label)
	}
	e.rows(whole, nil, bias)
}

func (e *ending) rows(whole bool, add, bias reg.Register) {
	v, shift, limits := e.vm, e.load(endShift), e.load(endLimits)
	var lanes, first []reg.Register
	to := []Mem{{Base: e.t.c}, {Base: e.t.c, Disp: e.bytes()}}
	var from []Mem
	var addRow, second reg.GPVirtual
	if !whole {
		for _, i := range []int{endLanes0, endLanes1} {
			lanes, first = append(lanes, v.mask(e.load(i))), append(first, v.mask(e.load(i+endFirst0-endLanes0)))
		}
		second = e.load(endSecond)
		to[1] = Mem{Base: e.t.c, Index: second, Scale: 1}
	}
	if add != nil {
		base := add.(reg.GPVirtual)
		addRow, from = e.load(endAddRow), []Mem{{Base: base}, {Base: base, Disp: v.size()}}
		if !whole {
			from[1] = Mem{Base: base, Index: second, Scale: 1}
		}
	}
	b, max, x := e.t.col, e.t.row[0], e.t.row[1]
	VBROADCASTSS(Mem{Base: limits}, max)
	if bias != nil {
		VMOVUPS(Mem{Base: bias}, b[0])
		VMOVUPS(Mem{Base: bias, Disp: v.size()}, b[1])
	}
	for i, r := range e.t.sum {
		if bias == nil {
			VBROADCASTSS(Mem{Base: shift, Disp: 4 * i}, b[0])
			b[1] = b[0]
		}
		for j, s := range r {
			VADDPS(s, b[j], s)
			VMAXPS(s, max, s)
			VADDPS_BCST(Mem{Base: limits, Disp: 4}, s, s)
			if add != nil {
				if whole {
					VADDPS(from[j], s, s)
				} else {
					VEXPANDPS_Z(from[j], lanes[j], x)
					VADDPS(x, s, s)
				}
				VBROADCASTSS(Mem{Base: limits, Disp: 8}, x)
				VMAXPS(s, x, s)
				VADDPS_BCST(Mem{Base: limits, Disp: 12}, s, s)
			}
			if whole {
				v.putWhole(e.typ, s, to[j])
			} else {
				VCOMPRESSPS_Z(s, lanes[j], x)
				v.storeEdge(e.typ, x, &edge{lanes: first[j]}, to[j])
			}
		}
		ADDQ(e.t.ldc, e.t.c)
		if add != nil {
			ADDQ(addRow, add)
		}
	}
	VZEROUPPER()
	RET()
}

// mask is the mask register of some lanes, one bit each.
func (v *vm) mask(lanes reg.GPVirtual) reg.Register {
	k := K()
	KMOVW(lanes.As32(), k)
	return k
}

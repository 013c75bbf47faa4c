package main

import (
	"fmt"
	"log"

	"github.com/mmcloughlin/avo/reg"
)

// arm records a kernel body as NEON instructions on virtual registers, gives them real ones and writes them out.
// avo's virtual registers serve as names of values; the number of a name changes where an instruction must not
// overwrite its operand.
type arm struct {
	names *reg.Collection
	num   map[vec]int
	count int
	ops   []armOp
}

// armOp is an instruction: dst from a and b, -1 if absent. sum means that dst is also an operand;
// constant means that it loads b.
type armOp struct {
	enc      uint32
	name     string
	dst, a   int
	b        int
	sum      bool
	constant bool
	value    bits
}

func newArm() *arm { return &arm{names: reg.NewCollection(), num: map[vec]int{}} }

// id is the number of the value that x names.
func (m *arm) id(x vec) int {
	if _, ok := m.num[x]; !ok {
		m.rename(x)
	}
	return m.num[x]
}

func (m *arm) rename(x vec) int {
	m.num[x] = m.count
	m.count++
	return m.num[x]
}

func (m *arm) new() vec { return m.names.XMM() }

// set records x = a op b.
func (m *arm) set(enc uint32, name string, a, b vec) vec {
	o := armOp{enc: enc, name: name, a: m.id(a), b: -1}
	if b != nil {
		o.b = m.id(b)
	}
	d := m.new()
	o.dst = m.id(d)
	m.ops = append(m.ops, o)
	return d
}

// into records acc = acc op (a, b).
func (m *arm) into(enc uint32, name string, acc, a, b vec) {
	m.ops = append(m.ops, armOp{enc: enc, name: name, dst: m.id(acc), a: m.id(a), b: m.id(b), sum: true})
}

func (m *arm) constant(b bits) vec {
	d := m.new()
	m.ops = append(m.ops, armOp{dst: m.id(d), a: -1, b: -1, constant: true, value: b})
	return d
}

func (m *arm) copy(a vec) vec { return m.set(orr, "MOV", a, a) }

// cmp is a mask of ones where the comparison holds.
func (m *arm) cmp(pred uint64, a, b vec) vec {
	switch pred {
	case equal:
		return m.set(fcmeq, "FCMEQ", a, b)
	case notEqual:
		return m.not(m.set(fcmeq, "FCMEQ", a, b))
	case less:
		return m.set(fcmgt, "FCMGT", b, a)
	case lessEq:
		return m.set(fcmge, "FCMGE", b, a)
	case greater:
		return m.set(fcmgt, "FCMGT", a, b)
	case greaterEq:
		return m.set(fcmge, "FCMGE", a, b)
	case notLess:
		return m.not(m.set(fcmgt, "FCMGT", b, a))
	case notGreaterEq:
		return m.not(m.set(fcmge, "FCMGE", a, b))
	case notEqualOrdered:
		return m.set(orr, "ORR", m.set(fcmgt, "FCMGT", a, b), m.set(fcmgt, "FCMGT", b, a))
	case unordered:
		return m.not(m.set(and, "AND", m.set(fcmeq, "FCMEQ", a, a), m.set(fcmeq, "FCMEQ", b, b)))
	}
	panic(fmt.Sprintf("no NEON form of comparison %#x", pred))
}

func (m *arm) not(a vec) vec { return m.set(not, "NOT", a, nil) }

// More encodings; shifts take the count in bits 16 to 22.
const (
	fmax  = 0x4e20f400
	fmin  = 0x4ea0f400
	and   = 0x4e201c00
	bic   = 0x4e601c00
	orr   = 0x4ea01c00
	eor   = 0x6e201c00
	bsl   = 0x6e601c00
	fmls  = 0x4ea0cc00
	fcmeq = 0x4e20e400
	fcmge = 0x6e20e400
	fcmgt = 0x6ea0e400
	addI4 = 0x4ea08400
	subI4 = 0x6ea08400

	not    = 0x6e205800
	frintn = 0x4e218800
	frintm = 0x4e219800
	frintp = 0x4ea18800
	fsqrt  = 0x6ea1f800
	fcvtns = 0x4e21a800
	scvtf  = 0x4e21d800
	shl    = 0x4f005400
	ushr   = 0x6f000400
	sshr   = 0x4f000400

	fabs  = 0x4ea0f800
	fminv = 0x6eb0f800
	fmaxv = 0x6e30f800
	addv  = 0x4eb1b800
)

// opNames are the names that internal/a64 has for the instructions of bodies, by encoding without the count of a shift.
var opNames = map[uint32]string{
	fadd: "FADD", fsub: "FSUB", fmul: "FMUL", fdiv: "FDIV", fmin: "FMIN", fmax: "FMAX", fmla: "FMLA", fmls: "FMLS",
	fcmeq: "FCMEQ", fcmge: "FCMGE", fcmgt: "FCMGT", addI4: "ADD", subI4: "SUB",
	and: "AND", bic: "BIC", orr: "ORR", eor: "EOR", bsl: "BSL", not: "NOT",
	frintn: "FRINTN", frintm: "FRINTM", frintp: "FRINTP", fsqrt: "FSQRT", fcvtns: "FCVTNS", scvtf: "SCVTF",
	fcvtl: "FCVTL", fcvtn: "FCVTN", shl: "SHL", ushr: "USHR", sshr: "SSHR",
}

// play records on m the instructions of a body. It returns the operand that each value of a stands for at the end; copies
// stand for what they copy.
func (m *tape) play(a *arm) (stands map[int]int) {
	stands = map[int]int{-1: none}
	for i := range m.inputs {
		stands[i] = i
	}
	for _, o := range a.ops {
		switch {
		case o.constant:
			stands[o.dst] = m.id(o.value)
			continue
		case o.enc == orr && o.a == o.b:
			stands[o.dst] = stands[o.a]
			continue
		}
		t := tapeOp{op: opNames[o.enc], old: none, a: stands[o.a], b: stands[o.b], mask: none}
		if o.sum {
			t.old = stands[o.dst]
		}
		if count := o.enc >> 16 & 0x7f; t.op == "" && o.enc&^(0x7f<<16) == shl {
			t.op, t.imm = "SHL", uint64(count-32)
		} else if t.op == "" {
			t.op, t.imm = opNames[o.enc&^(0x7f<<16)], uint64(64-count)
		}
		if t.op == "" {
			log.Fatalf("%s has no name in internal/a64", o.name)
		}
		stands[o.dst] = m.inputs + len(m.ops)
		m.ops = append(m.ops, t)
	}
	return stands
}

// place gives every value a register: scalars have fixed ones, the constants in held keep theirs
// for the whole kernel, other values share the rest. It fails if there are too few.
func (m *arm) place(fixed map[int]int, held map[bits]int, free []int) (regs map[int]int, ok bool) {
	last := map[int]int{}
	for i, o := range m.ops {
		last[o.dst], last[o.a], last[o.b] = i, i, i
	}
	regs = map[int]int{}
	for v, r := range fixed {
		regs[v] = r
	}
	own := map[int]bool{}
	for i, o := range m.ops {
		if r, stays := held[o.value]; o.constant && stays {
			regs[o.dst] = r
			continue
		}
		for _, s := range []int{o.a, o.b} {
			if own[s] && last[s] == i && s != o.dst {
				free = append(free, regs[s])
				own[s] = false
			}
		}
		if _, known := regs[o.dst]; !known {
			if len(free) == 0 {
				return nil, false
			}
			regs[o.dst], free = free[len(free)-1], free[:len(free)-1]
			own[o.dst] = true
		}
	}
	return regs, true
}

// hold picks the n constants that are used most.
func (m *arm) hold(n, first int) map[bits]int {
	uses, held := map[bits]int{}, map[bits]int{}
	var order []bits
	for _, o := range m.ops {
		if o.constant {
			if uses[o.value] == 0 {
				order = append(order, o.value)
			}
			uses[o.value]++
		}
	}
	for range min(n, len(order)) {
		best := -1
		for i, b := range order {
			if _, done := held[b]; !done && (best < 0 || uses[b] > uses[order[best]]) {
				best = i
			}
		}
		held[order[best]] = first - len(held)
	}
	return held
}

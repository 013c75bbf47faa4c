package main

import (
	"fmt"
	"strings"
)

// kernel emits k for any n, one vector at a time. The last partial vector is copied to the stack, computed there and
// copied back.
func (n *neon) kernel(k kernel) {
	ops, scalars := strings.Fields(k.operands), strings.Fields(k.scalars)
	params := "n int, dst, " + strings.Join(ops, ", ") + " *float32"
	if len(scalars) > 0 {
		params += ", " + strings.Join(scalars, ", ") + " float32"
	}
	frame := 16 * (len(ops) + 1)
	n.text(k.symbol()+"NEON", params, "computes n elements.", frame, 16+8*len(ops)+4*len(scalars))
	n.op("MOVD n+0(FP), R0")
	n.op("MOVD dst+8(FP), R1")
	for i, o := range ops {
		n.op("MOVD %s+%d(FP), R%d", o, 16+8*i, 2+i)
	}
	for i, s := range scalars {
		n.op("FMOVS %s+%d(FP), F%d", s, 16+8*len(ops)+4*i, 31-i)
		n.op("VDUP V%d.S[0], V%[1]d.S4", 31-i)
	}
	write := n.body(k, len(ops), len(scalars))
	n.op("MOVD $0, R7")
	n.op("SUBS $4, R0, R0")
	n.op("BLT last")
	n.label("single")
	for i := range ops {
		n.op("VLD1.P 16(R%d), [V%d.S4]", 2+i, i)
	}
	write()
	n.op("SUBS $4, R0, R0")
	n.op("BGE single")
	n.label("last")
	n.op("ADDS $4, R0, R0")
	n.op("BEQ end")
	n.op("MOVD R0, R7")
	n.op("MOVD R1, R8")
	for i := range ops {
		n.op("MOVD $slot%d-%d(SP), R9", i+1, frame-16*(i+1))
		n.words(fmt.Sprintf("in%d", i), fmt.Sprintf("R%d", 2+i), "R9")
		n.op("MOVD R9, R%d", 2+i)
	}
	n.op("MOVD $slot0-%d(SP), R1", frame)
	n.op("MOVD $0, R0")
	n.op("B single")
	n.label("end")
	n.op("CBZ R7, return")
	n.op("MOVD $slot0-%d(SP), R9", frame)
	n.words("out", "R9", "R8")
	n.label("return")
	n.op("RET")
}

// words copies R7 words.
func (n *neon) words(label, from, to string) {
	n.op("MOVD $0, R10")
	n.label(label + "copy")
	n.op("MOVWU (%s)(R10<<2), R11", from)
	n.op("MOVW R11, (%s)(R10<<2)", to)
	n.op("ADD $1, R10, R10")
	n.op("CMP R7, R10")
	n.op("BLT %scopy", label)
}

// body records the body of k and loads its constants, as many as there are registers for. The
// function that it returns writes the instructions: operands are in V0 and up, the result is stored
// to R1.
func (n *neon) body(k kernel, operands, scalars int) (write func()) {
	v := &vm{w: 4, arm: newArm()}
	fixed := map[int]int{}
	named := func(count, first, step int) (x []vec) {
		for i := range count {
			r := v.new()
			fixed[v.arm.id(r)] = first + step*i
			x = append(x, r)
		}
		return x
	}
	x, s := named(operands, 0, 1), named(scalars, 31, -1)
	result := v.arm.id(k.body(v, x, s))
	top := 31 - scalars
	for room := 20; ; room-- {
		if room < 0 {
			panic("no registers for " + k.name)
		}
		held := v.arm.hold(room, top)
		var free []int
		for r := operands; r <= top-len(held); r++ {
			free = append(free, r)
		}
		regs, ok := v.arm.place(fixed, held, free)
		if !ok {
			continue
		}
		for r := top; r > top-len(held); r-- {
			for b, at := range held {
				if at == r {
					n.load(b, r)
				}
			}
		}
		return func() {
			n.write(v.arm, regs, held)
			n.op("VST1.P [V%d.S4], 16(R1)", regs[result])
		}
	}
}

// load broadcasts a constant.
func (n *neon) load(b bits, r int) {
	n.op("MOVD $kernConst<>+%d(SB), R13", n.consts.place(b)/8)
	n.op("VLD1R (R13), [V%d.S4]", r)
}

// write emits recorded instructions.
func (n *neon) write(m *arm, regs map[int]int, held map[bits]int) {
	for _, o := range m.ops {
		switch {
		case o.constant:
			if _, stays := held[o.value]; !stays {
				n.load(o.value, regs[o.dst])
			}
		case o.b < 0:
			n.two(o.enc, o.name, regs[o.dst], regs[o.a])
		default:
			n.three(o.enc, o.name, regs[o.dst], regs[o.a], regs[o.b])
		}
	}
}

// constants writes the table of constants.
func (n *neon) constants() {
	n.asm.WriteString("\n")
	for i, b := range n.consts.order {
		fmt.Fprintf(&n.asm, "DATA kernConst<>+%d(SB)/4, $0x%08x\n", 4*i, uint32(b))
	}
	fmt.Fprintf(&n.asm, "GLOBL kernConst<>(SB), RODATA|NOPTR, $%d\n", 4*len(n.consts.order))
}

// reduction is a kernel that reduces a row: step combines the vectors V0 (and V1) with the partial
// results of register d.
type reduction struct {
	name    string
	params  string
	args    int
	vectors int  // operands
	empty   bits // initial value of partial results, which also fills the last vector
	mean    bool // has a scalar that fills the last vector instead
	step    func(n *neon, d int)
	join    uint32
}

var neonReductions = []reduction{
	{"sum", "n int, x *float32", 16, 1, 0, false, func(n *neon, d int) { n.three(fadd, "FADD", d, d, 0) }, fadd},
	{"dot", "n int, a, b *float32", 24, 2, 0, false, func(n *neon, d int) { n.three(fmla, "FMLA", d, 0, 1) }, fadd},
	{"sumSq", "n int, x *float32, mean float32", 20, 1, 0, true, func(n *neon, d int) {
		n.three(fsub, "FSUB", 0, 0, 3)
		n.three(fmla, "FMLA", d, 0, 0)
	}, fadd},
	{"maxOf", "n int, x *float32", 16, 1, 0xff800000, false, func(n *neon, d int) { n.three(fmax, "FMAX", d, d, 0) }, fmax},
	{"minOf", "n int, x *float32", 16, 1, 0x7f800000, false, func(n *neon, d int) { n.three(fmin, "FMIN", d, d, 0) }, fmin},
}

// reductions emits the reductions: 64 partial results in V16 to V31, folded in halves.
func (n *neon) reductions() {
	for _, r := range neonReductions {
		n.reduce(r)
	}
}

func (n *neon) reduce(r reduction) {
	frame := 16 * r.vectors
	n.text(r.name+"NEON", r.params+") (r float32", "reduces n elements.", frame, roundUp8(r.args)+4)
	n.op("MOVD n+0(FP), R0")
	names := []string{"x"}
	if r.vectors == 2 {
		names = []string{"a", "b"}
	}
	for i, p := range names {
		n.op("MOVD %s+%d(FP), R%d", p, 8+8*i, 2+i)
	}
	n.load(r.empty, 2)
	n.op("VMOV V2.B16, V3.B16")
	if r.mean {
		n.op("FMOVS mean+16(FP), F3")
		n.op("VDUP V3.S[0], V3.S4")
	}
	for d := 16; d < 32; d++ {
		n.op("VMOV V2.B16, V%d.B16", d)
	}
	fetch := func() {
		for i := range r.vectors {
			n.op("VLD1.P 16(R%d), [V%d.S4]", 2+i, i)
		}
	}
	n.op("SUBS $64, R0, R0")
	n.op("BLT rest")
	n.label("loop")
	for d := 16; d < 32; d++ {
		fetch()
		r.step(n, d)
	}
	n.op("SUBS $64, R0, R0")
	n.op("BGE loop")
	n.label("rest")
	n.op("ADDS $64, R0, R0")
	n.op("BEQ fold")
	for d := 16; d < 32; d++ { // whole vectors, then the partial one on the stack
		n.op("CMP $4, R0")
		n.op("BLT part%d", d)
		fetch()
		r.step(n, d)
		n.op("SUBS $4, R0, R0")
		n.op("BEQ fold")
	}
	for d := 16; d < 32; d++ {
		n.label(fmt.Sprintf("part%d", d))
		n.op("MOVD R0, R7")
		for i := range r.vectors {
			n.op("MOVD $slot%d-%d(SP), R9", i, frame-16*i)
			n.op("VST1 [V3.S4], (R9)")
			n.words(fmt.Sprintf("p%d_%d", d, i), fmt.Sprintf("R%d", 2+i), "R9")
			n.op("VLD1 (R9), [V%d.S4]", i)
		}
		r.step(n, d)
		n.op("B fold")
	}
	n.label("fold")
	for h := 8; h > 0; h /= 2 {
		for i := range h {
			n.three(r.join, "JOIN", 16+i, 16+i, 16+i+h)
		}
	}
	n.op("VEXT $8, V16.B16, V16.B16, V17.B16")
	n.three(r.join, "JOIN", 16, 16, 17)
	n.op("VEXT $4, V16.B16, V16.B16, V17.B16")
	n.three(r.join, "JOIN", 16, 16, 17)
	n.op("FMOVS F16, r+%d(FP)", roundUp8(r.args))
	n.op("RET")
}

// count emits a countFunc for whole vectors: V2 to V7 are the counts, V16 and up are constants.
func (n *neon) count() {
	n.text("countNEON", countParams, "is a countFunc.", 0, 40)
	n.op("MOVD n+0(FP), R0")
	n.op("MOVD x+8(FP), R1")
	n.op("MOVD R0, R2")
	const plus, minus = 16, 17
	n.load(infinity, plus)
	n.load(infinity|signBit, minus)
	n.op("VMOV V%d.B16, V2.B16", plus)
	n.op("VMOV V%d.B16, V3.B16", minus)
	for r := 4; r < 8; r++ {
		n.op("VEOR V%d.B16, V%[1]d.B16, V%[1]d.B16", r)
	}
	n.op("VEOR V18.B16, V18.B16, V18.B16")
	n.label("loop")
	n.op("VLD1.P 16(R1), [V0.S4]")
	n.two(fabs, "FABS", 1, 0)
	n.three(fcmeq, "FCMEQ", 19, 0, 0)
	n.three(addI4, "ADD", 4, 4, 19) // -1 if it is a number
	for i, with := range [][2]int{{1, plus}, {0, minus}, {0, 18}} {
		n.three(fcmeq, "FCMEQ", 19, with[0], with[1])
		n.three(subI4, "SUB", 5+i, 5+i, 19)
	}
	n.three(fcmgt, "FCMGT", 19, plus, 1)
	for d, none := range []int{plus, minus} {
		n.op("VMOV V19.B16, V20.B16")
		n.three(bsl, "BSL", 20, 0, none)
		n.three([]uint32{fmin, fmax}[d], "EXTREME", 2+d, 2+d, 20)
	}
	n.op("SUBS $4, R0, R0")
	n.op("BGT loop")
	n.two(fminv, "FMINV", 2, 2)
	n.two(fmaxv, "FMAXV", 3, 3)
	for r := 4; r < 8; r++ {
		n.two(addv, "ADDV", r, r)
	}
	n.op("FMOVS F4, R3")
	n.op("ADD R2, R3, R3")
	n.op("MOVW R3, nan+24(FP)")
	for i, r := range []string{"lo", "hi", "", "inf", "negInf", "zeros"} {
		if r != "" {
			n.op("FMOVS F%d, %s+%d(FP)", 2+i, r, 16+4*i)
		}
	}
	n.op("RET")
}

func roundUp8(n int) int { return (n + 7) / 8 * 8 }

// table is the Go source of the function that enters the elementwise kernels and reductions into a Path.
func (n *neon) table() string {
	var b strings.Builder
	b.WriteString("\n// kernelsNEON enters the elementwise kernels and reductions.\nfunc kernelsNEON(p *Path) {\n")
	for _, k := range kernels {
		if k.scalars != "" {
			fmt.Fprintf(&b, "\tp.%s = %sNEON\n", k.name, k.name)
			continue
		}
		kind := []string{"unary", "binary", "ternary"}[strings.Count(k.operands, " ")]
		fmt.Fprintf(&b, "\tp.%s[%s] = %sNEON\n", kind, k.name, k.symbol())
	}
	for _, r := range neonReductions {
		fmt.Fprintf(&b, "\tp.%s = %sNEON\n", strings.TrimSuffix(r.name, "Of"), r.name)
	}
	b.WriteString("\tp.count = countNEON\n}\n")
	return b.String()
}

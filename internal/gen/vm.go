package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vm emits code for vectors of w float32 lanes: 16 is AVX-512, 8 is AVX2. A kernel body is written once against its
// methods. Operands are vector registers or constants; constants come from memory, or from registers loaded before
// the loop where there are enough of them.
type vm struct {
	w      int
	consts *consts
	dry    *[]uint32 // if set, nothing is emitted; constants are only listed
	held   map[uint32]vec

	arm  *arm  // if set, bodies are recorded for arm64
	tape *tape // if set, bodies are recorded for kernels that are composed at load

	second reg.GPVirtual // pointer of a reduction's second operand
	scalar vec           // its scalar operand
}

type vec = reg.VecVirtual

// bits is a constant operand by its pattern.
type bits uint32

func f(x float64) bits { return bits(math.Float32bits(float32(x))) }

// consts is the table of constants in memory, each repeated to fill a 256-bit vector. A constant gets its place when
// it is first used.
type consts struct {
	at    map[bits]int
	order []bits
}

// mem is the address of b.
func (c *consts) mem(b bits) Mem {
	return NewDataAddr(NewStaticSymbol("kernConst"), c.place(b))
}

// place is the offset of b.
func (c *consts) place(b bits) int {
	if _, ok := c.at[b]; !ok {
		c.at[b] = 32 * len(c.order)
		c.order = append(c.order, b)
	}
	return c.at[b]
}

// tail is a run of 8 words of ones and 8 of zeros: masks for the last lanes.
func (c *consts) tail(off int) Mem { return NewDataAddr(NewStaticSymbol("kernTail"), off) }

func (c *consts) emit() {
	GLOBL("kernTail", RODATA|NOPTR)
	for i := range 16 {
		v := uint32(0)
		if i < 8 {
			v = math.MaxUint32
		}
		DATA(4*i, U32(v))
	}
	GLOBL("kernConst", RODATA|NOPTR)
	for i, b := range c.order {
		for j := range 8 {
			DATA(32*i+4*j, U32(uint32(b)))
		}
	}
}

func (v *vm) wide() bool { return v.w == 16 }

// suffix ends the names of the kernels of this width.
func (v *vm) suffix() string {
	switch v.w {
	case 16:
		return "AVX512"
	case 8:
		return "AVX2"
	}
	return "NEON"
}

func (v *vm) size() int { return 4 * v.w }

func (v *vm) new() vec {
	if v.tape != nil {
		return v.tape.names.ZMM()
	}
	if v.wide() {
		return ZMM()
	}
	if v.arm != nil {
		return v.arm.new()
	}
	return YMM()
}

func (v *vm) several(n int) (list []vec) {
	for range n {
		list = append(list, v.new())
	}
	return list
}

func (v *vm) text(name, params, doc string) {
	TEXT(name+v.suffix(), NOSPLIT, "func("+params+")")
	Pragma("noescape")
	Doc(name + v.suffix() + " " + doc)
}

// inst is an instruction with its form for a constant broadcast from memory (AVX-512 only), its NEON encoding, and its name
// on tapes with its immediate.
type inst struct {
	plain, bcst func(...Op)
	neon        uint32
	name        string
	op          string
	imm         uint64
}

var (
	addI   = inst{VADDPS, VADDPS_BCST, fadd, "FADD", "VADDPS", 0}
	subI   = inst{VSUBPS, VSUBPS_BCST, fsub, "FSUB", "VSUBPS", 0}
	mulI   = inst{VMULPS, VMULPS_BCST, fmul, "FMUL", "VMULPS", 0}
	divI   = inst{VDIVPS, VDIVPS_BCST, fdiv, "FDIV", "VDIVPS", 0}
	minI   = inst{VMINPS, VMINPS_BCST, fmin, "FMIN", "VMINPS", 0}
	maxI   = inst{VMAXPS, VMAXPS_BCST, fmax, "FMAX", "VMAXPS", 0}
	andI   = inst{VANDPS, VANDPS_BCST, and, "AND", "VANDPS", 0}
	andnI  = inst{VANDNPS, VANDNPS_BCST, 0, "", "VANDNPS", 0}
	orI    = inst{VORPS, VORPS_BCST, orr, "ORR", "VORPS", 0}
	xorI   = inst{VXORPS, VXORPS_BCST, eor, "EOR", "VXORPS", 0}
	iaddI  = inst{VPADDD, VPADDD_BCST, addI4, "ADD", "VPADDD", 0}
	isubI  = inst{VPSUBD, VPSUBD_BCST, subI4, "SUB", "VPSUBD", 0}
	fma213 = inst{plain: VFMADD213PS, bcst: VFMADD213PS_BCST, op: "VFMADD213PS"}
	fma231 = inst{VFMADD231PS, VFMADD231PS_BCST, fmla, "FMLA", "VFMADD231PS", 0}
	fnm231 = inst{VFNMADD231PS, VFNMADD231PS_BCST, fmls, "FMLS", "VFNMADD231PS", 0}
)

// constant is the operand of a constant; bcst reports that it needs the broadcasting form.
func (v *vm) constant(b bits) (o Op, bcst bool) {
	if r, ok := v.held[uint32(b)]; ok {
		return r, false
	}
	return v.consts.mem(b), v.wide()
}

// do emits i with source x, a register or a constant, before the other operands.
func (v *vm) do(i inst, x any, rest ...Op) {
	if v.tape != nil {
		v.tape.record(i.op, i.imm, x, rest)
		return
	}
	if b, ok := x.(bits); ok {
		if v.dry != nil {
			*v.dry = append(*v.dry, uint32(b))
			return
		}
		o, bcst := v.constant(b)
		if bcst {
			i.bcst(append([]Op{o}, rest...)...)
			return
		}
		x = o
	}
	v.emit(func() { i.plain(append([]Op{x.(Op)}, rest...)...) })
}

func (v *vm) emit(g func()) {
	if v.dry == nil {
		g()
	}
}

// reg is x in a register.
func (v *vm) reg(x any) vec {
	b, ok := x.(bits)
	if !ok {
		return x.(vec)
	}
	if v.arm != nil {
		return v.arm.constant(b)
	}
	if v.tape != nil {
		return v.tape.constant(b)
	}
	if v.dry != nil {
		*v.dry = append(*v.dry, uint32(b))
		return v.new()
	}
	if r, ok := v.held[uint32(b)]; ok {
		return r
	}
	r := v.new()
	v.splat(v.consts.mem(b), r)
	return r
}

// splat broadcasts the float at m.
func (v *vm) splat(m Mem, r vec) { v.emit(func() { VBROADCASTSS(m, r) }) }

// hold loads the constants that body uses into registers, if the width has registers to spare.
func (v *vm) hold(body func()) {
	const most = 18
	v.held = map[uint32]vec{}
	if !v.wide() {
		return
	}
	var list []uint32
	v.dry = &list
	body()
	v.dry = nil
	for _, b := range list {
		if _, ok := v.held[b]; !ok && len(v.held) < most {
			r := v.new()
			v.splat(v.consts.mem(bits(b)), r)
			v.held[b] = r
		}
	}
}

func (v *vm) two(i inst, a, b any) vec {
	if v.arm != nil {
		return v.arm.set(i.neon, i.name, v.reg(a), v.reg(b))
	}
	d := v.new()
	v.do(i, b, v.reg(a), d)
	return d
}

// one is an instruction of one operand: its amd64 form, on a tape with op and imm, or its NEON encoding.
func (v *vm) one(x vec, op string, imm uint64, enc uint32, name string, g func(d vec)) vec {
	if v.tape != nil {
		return v.tape.one(op, imm, x)
	}
	if v.arm != nil {
		return v.arm.set(enc, name, x, nil)
	}
	d := v.new()
	v.emit(func() { g(d) })
	return d
}

func (v *vm) add(a, b any) vec { return v.two(addI, a, b) }
func (v *vm) sub(a, b any) vec { return v.two(subI, a, b) }
func (v *vm) mul(a, b any) vec { return v.two(mulI, a, b) }
func (v *vm) div(a, b any) vec { return v.two(divI, a, b) }
func (v *vm) and(a, b any) vec { return v.two(andI, a, b) }
func (v *vm) or(a, b any) vec  { return v.two(orI, a, b) }
func (v *vm) xor(a, b any) vec { return v.two(xorI, a, b) }

// andNot is a and not b.
func (v *vm) andNot(a, b any) vec {
	if v.arm != nil {
		return v.arm.set(bic, "BIC", v.reg(a), v.reg(b))
	}
	return v.two(andnI, b, a)
}

// minOf and maxOf return b if b is NaN or both are zero. Bodies use them only where this does not
// matter.
func (v *vm) minOf(a, b any) vec { return v.two(minI, a, b) }
func (v *vm) maxOf(a, b any) vec { return v.two(maxI, a, b) }

// clamp limits x to [lo,hi] and keeps NaN.
func (v *vm) clamp(x vec, lo, hi bits) vec { return v.maxOf(lo, v.minOf(hi, x)) }

func (v *vm) copy(a vec) vec {
	if v.arm != nil {
		return v.arm.copy(a)
	}
	if v.tape != nil {
		return v.tape.copy(a)
	}
	d := v.new()
	v.emit(func() { VMOVAPS(a, d) })
	return d
}

// horner is p = p*x + c, in place.
func (v *vm) horner(p, x vec, c any) {
	if v.arm == nil {
		v.do(fma213, c, x, p)
		return
	}
	old := v.new()
	v.arm.num[old] = v.arm.id(p)
	sum := v.copy(v.reg(c))
	v.arm.into(fmla, "FMLA", sum, old, x)
	v.arm.num[p] = v.arm.id(sum)
}

// addMul is acc += a*b, subMul acc -= a*b, in place; b may be a constant.
func (v *vm) addMul(acc, a vec, b any) { v.sum(fma231, acc, a, b) }
func (v *vm) subMul(acc, a vec, b any) { v.sum(fnm231, acc, a, b) }

func (v *vm) sum(i inst, acc, a vec, b any) {
	if v.arm != nil {
		v.arm.into(i.neon, i.name, acc, a, v.reg(b))
		return
	}
	v.do(i, b, a, acc)
}

// fma is a*b + c in a new register.
func (v *vm) fma(a vec, b, c any) vec {
	if v.arm != nil {
		sum := v.copy(v.reg(c))
		v.arm.into(fmla, "FMLA", sum, a, v.reg(b))
		return sum
	}
	d := v.copy(a)
	v.horner(d, v.reg(b), c)
	return d
}

// poly is the polynomial of x with coefficients from the highest power.
func (v *vm) poly(x vec, c ...float64) vec {
	p := v.new()
	if first := v.reg(f(c[0])); v.held[uint32(f(c[0]))] != nil {
		v.emit(func() { VMOVAPS(first, p) })
	} else {
		p = first
	}
	for _, k := range c[1:] {
		v.horner(p, x, f(k))
	}
	return p
}

func (v *vm) abs(x vec) vec { return v.andNot(x, bits(signBit)) }

const signBit = 0x80000000

// round rounds to an integer: 0 to nearest even, 1 down, 2 up.
func (v *vm) round(x vec, mode uint8) vec {
	op := "VRNDSCALEPS"
	if !v.wide() {
		op = "VROUNDPS"
	}
	return v.one(x, op, uint64(mode), [...]uint32{frintn, frintm, frintp}[mode], "FRINT", func(d vec) {
		if v.wide() {
			VRNDSCALEPS(Imm(uint64(mode)), x, d)
		} else {
			VROUNDPS(Imm(uint64(mode)), x, d)
		}
	})
}

func (v *vm) sqrt(x vec) vec {
	return v.one(x, "VSQRTPS", 0, fsqrt, "FSQRT", func(d vec) { VSQRTPS(x, d) })
}

// toInt converts integers in float form; shl, shr, sar and addInt work on the integer lanes.
func (v *vm) toInt(x vec) vec {
	return v.one(x, "VCVTPS2DQ", 0, fcvtns, "FCVTNS", func(d vec) { VCVTPS2DQ(x, d) })
}

func (v *vm) toFloat(x vec) vec {
	return v.one(x, "VCVTDQ2PS", 0, scvtf, "SCVTF", func(d vec) { VCVTDQ2PS(x, d) })
}

func (v *vm) shl(x vec, n uint64) vec {
	return v.one(x, "VPSLLD", n, shl|uint32(32+n)<<16, "SHL", func(d vec) { VPSLLD(Imm(n), x, d) })
}

func (v *vm) shr(x vec, n uint64) vec {
	return v.one(x, "VPSRLD", n, ushr|uint32(64-n)<<16, "USHR", func(d vec) { VPSRLD(Imm(n), x, d) })
}

func (v *vm) sar(x vec, n uint64) vec {
	return v.one(x, "VPSRAD", n, sshr|uint32(64-n)<<16, "SSHR", func(d vec) { VPSRAD(Imm(n), x, d) })
}

func (v *vm) addInt(a, b any) vec { return v.two(iaddI, a, b) }
func (v *vm) subInt(a, b any) vec { return v.two(isubI, a, b) }

// Comparison predicates; all but unordered and notEqual are false for NaN.
const (
	equal     = 0x00
	unordered = 0x03
	notEqual  = 0x04
	less      = 0x11
	lessEq    = 0x12
	greaterEq = 0x1d
	greater   = 0x1e

	notEqualOrdered = 0x0c
	notLess         = 0x15
	notGreaterEq    = 0x19
)

// cond is the result of a comparison: a mask register or a vector of ones and zeros.
type cond = reg.Register

// condition is a new mask register.
func (v *vm) condition() cond {
	if v.tape != nil {
		return v.tape.names.K()
	}
	return K()
}

// like is a new register of the size of r.
func (v *vm) like(r reg.Register) vec {
	switch r.Size() {
	case 64:
		return ZMM()
	case 32:
		return YMM()
	}
	return XMM()
}

// cmp compares a with b.
func (v *vm) cmp(pred uint64, a vec, b any) cond {
	if v.arm != nil {
		return v.arm.cmp(pred, a, v.reg(b))
	}
	i := inst{
		plain: func(o ...Op) { VCMPPS(append([]Op{Imm(pred)}, o...)...) },
		bcst:  func(o ...Op) { VCMPPS_BCST(append([]Op{Imm(pred)}, o...)...) },
		op:    "VCMPPS",
		imm:   pred,
	}
	var d reg.Register = v.new()
	if v.wide() {
		d = v.condition()
	}
	v.do(i, b, a, d)
	return d
}

// pick is yes where c holds, else no.
func (v *vm) pick(c cond, yes, no any) vec {
	if v.arm != nil {
		d := v.copy(c.(vec))
		v.arm.into(bsl, "BSL", d, v.reg(yes), v.reg(no))
		return d
	}
	d := v.new()
	n := v.reg(no)
	if v.wide() {
		v.do(inst{plain: VBLENDMPS, bcst: VBLENDMPS_BCST, op: "VBLENDMPS"}, yes, n, c, d)
	} else {
		v.do(inst{plain: func(o ...Op) { VBLENDVPS(o[2], o[0], o[1], o[3]) }, op: "VBLENDVPS"}, yes, n, c, d)
	}
	return d
}

// test is set where x and b have a bit in common (AVX-512).
func (v *vm) test(x vec, b bits) cond {
	k := v.condition()
	v.do(inst{plain: VPTESTMD, bcst: VPTESTMD_BCST, op: "VPTESTMD"}, b, x, k)
	return k
}

// where sets d to i of a and b where c holds (AVX-512).
func (v *vm) where(i inst, c cond, b any, a, d vec) { v.do(i, b, a, c, d) }

// only is x where c holds, else +0.
func (v *vm) only(c cond, x any) vec {
	if v.arm != nil {
		return v.arm.set(and, "AND", c.(vec), v.reg(x))
	}
	if v.tape != nil && v.wide() {
		return v.tape.only(c, v.reg(x))
	}
	d := v.new()
	if v.wide() {
		r := v.reg(x)
		v.emit(func() { VMOVAPS_Z(r, c, d) })
	} else {
		v.do(andI, x, c, d)
	}
	return d
}

func (v *vm) zero(r vec) { v.emit(func() { VXORPS(r, r, r) }) }

// imm picks the imm8 or imm32 form of the integer instructions.
func imm(x int) Op {
	if x >= -128 && x < 128 {
		return I8(int8(x))
	}
	return U32(uint32(x))
}

func ptrParam(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

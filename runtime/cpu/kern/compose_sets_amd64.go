package kern

import "ampc/internal/x86"

// The vectors that kernels of AVX-512 read: the places of the odd halves, and of the even words, of two vectors.
const (
	oddHalves = iota
	evenWords
	numWhole
)

// wholeVectors is the memory of these vectors.
var wholeVectors = func() (b [64 * numWhole]byte) {
	for i := range 32 {
		b[64*oddHalves+2*i] = byte(2*i + 1)
	}
	for i := range 16 {
		b[64*evenWords+4*i] = byte(2 * i)
	}
	return b
}()

// loadsAVX are the loads of both sets.
var loadsAVX = [...]opcode{F32: x86.VMOVUPS, F16: x86.VCVTPH2PS, BF16: x86.VPMOVZXWD, Words: x86.VMOVUPS, Bools: x86.VPMOVZXBD}

var avx512Set = instructionSet{
	lanes:     16,
	registers: 32,
	hidden:    48,
	bodies:    bodiesAVX512,
	load:      loadsAVX,
	loaded: [...]body{
		BF16:  {ops: []bodyOp{{x86.VPSLLD, none, none, 0, none, 16}}},
		Words: {whole: []uint32{evenWords}, ops: []bodyOp{{x86.VPERMT2D, 0, -2, 1, none, 0}}},
		Bools: {consts: []uint32{oneBits}, ops: []bodyOp{
			{x86.VPTESTMD, none, 0, 0, none, 0},
			{x86.VMOVAPS, none, none, -2, 1, 0},
		}},
	},
	one: [...]body{
		BF16:  {ops: []bodyOp{{x86.VPSRLD, none, none, 0, none, 16}}},
		Bools: {ops: []bodyOp{{x86.VCVTPS2DQ, none, none, 0, none, 0}}},
	},
	joined: [...]body{
		F16: {ops: []bodyOp{
			{x86.VCVTPS2PH, none, none, 0, none, 0},
			{x86.VCVTPS2PH, none, none, 1, none, 0},
			{x86.VINSERTI64X4, none, 2, 3, none, 1},
		}},
		BF16:  {whole: []uint32{oddHalves}, ops: []bodyOp{{x86.VPERMT2W, 0, -2, 1, none, 0}}},
		Bools: {},
	},
	store: [...]x86.Op{F32: x86.VMOVUPS.Store(), F16: x86.VCVTPS2PH, BF16: x86.VPMOVDW, Bools: x86.VPMOVDB},
	cube:  cubeAVX(x86.VEXTRACTF64X4, x86.VINSERTI64X4),
	words: wordsAVX(x86.VPTERNLOGD),
}

// wordsAVX takes the instruction that can xor three vectors.
func wordsAVX(xor3 opcode) wordSet {
	const xorOfThree = 0x96
	return wordSet{mul: x86.VPMULUDQ, high: wordOp{x86.VSHUFPS, 0xf5}, xor: x86.VXORPS, xor3: wordOp{xor3, xorOfThree},
		even: wordOp{x86.VSHUFPS, 0x88}, odd: wordOp{x86.VSHUFPS, 0xdd}}
}

// cubeAVX takes the instructions that extract and insert half a vector.
func cubeAVX(extract, insert opcode) body {
	return body{ops: []bodyOp{
		{x86.VCVTPS2PD, none, none, 0, none, 0},
		{extract, none, none, 0, none, 1},
		{x86.VCVTPS2PD, none, none, 2, none, 0},
		{x86.VMULPD, none, 1, 1, none, 0},
		{x86.VMULPD, none, 4, 1, none, 0},
		{x86.VMULPD, none, 3, 3, none, 0},
		{x86.VMULPD, none, 6, 3, none, 0},
		{x86.VCVTPD2PS, none, none, 5, none, 0},
		{x86.VCVTPD2PS, none, none, 7, none, 0},
		{insert, none, 8, 9, none, 1},
	}}
}

// inOrder are the quarters of a vector of halves that VPACKUSDW wrote, in order.
const inOrder = 0xd8

var avx2Set = instructionSet{
	lanes:      8,
	registers:  16,
	hidden:     24,
	machineSet: machineSet{vex: true},
	bodies:     bodiesAVX2,
	load:       loadsAVX,
	loaded: [...]body{
		BF16: {ops: []bodyOp{{x86.VPSLLD, none, none, 0, none, 16}}},
		Words: {ops: []bodyOp{
			{x86.VSHUFPS, none, 0, 1, none, 0x88},
			{x86.VPERMQ, none, none, 2, none, inOrder},
		}},
		Bools: {consts: []uint32{0, oneBits}, ops: []bodyOp{
			{x86.VPCMPGTD, none, 0, -2, none, 0},
			{x86.VANDPS, none, 1, -3, none, 0},
		}},
	},
	one: [...]body{
		BF16: {ops: []bodyOp{
			{x86.VPSRLD, none, none, 0, none, 16},
			{x86.VPACKUSDW, none, 1, 1, none, 0},
			{x86.VPERMQ, none, none, 2, none, inOrder},
		}},
		Bools: {ops: []bodyOp{
			{x86.VCVTPS2DQ, none, none, 0, none, 0},
			{x86.VPACKUSDW, none, 1, 1, none, 0},
			{x86.VPERMQ, none, none, 2, none, inOrder},
			{x86.VPACKUSWB, none, 3, 3, none, 0},
		}},
	},
	joined: [...]body{
		F16: {ops: []bodyOp{
			{x86.VCVTPS2PH, none, none, 0, none, 0},
			{x86.VCVTPS2PH, none, none, 1, none, 0},
			{x86.VINSERTI128, none, 2, 3, none, 1},
		}},
		BF16: {ops: []bodyOp{
			{x86.VPSRLD, none, none, 0, none, 16},
			{x86.VPSRLD, none, none, 1, none, 16},
			{x86.VPACKUSDW, none, 2, 3, none, 0},
			{x86.VPERMQ, none, none, 4, none, inOrder},
		}},
		Bools: {},
	},
	store: [...]x86.Op{F32: x86.VMOVUPS.Store(), F16: x86.VCVTPS2PH, BF16: x86.VMOVDQU, Bools: x86.VMOVQ},
	cube:  cubeAVX(x86.VEXTRACTF128, x86.VINSERTI128),
	words: wordsAVX(0),
}

// set is the instructions of which kernels of p are composed.
func (p *Path) set() *instructionSet {
	if p.lanes == avx512Set.lanes {
		return &avx512Set
	}
	return &avx2Set
}

// numberBytes is what a number of the pool takes in memory.
func (s *instructionSet) numberBytes() int {
	if s.vex {
		return 4 * s.lanes
	}
	return 4
}

// isCondition reports whether o writes a condition: all ones or zeros in each lane, or a mask.
func isCondition(o x86.Op) bool { return o.ToMask() || o == x86.VPCMPGTD }

// inMask reports whether the result of o is in a mask register.
func (s *instructionSet) inMask(o x86.Op) bool { return !s.vex && o.ToMask() }

// direct reports whether o may read a number of the pool as operand B from memory.
func (s *instructionSet) direct(o x86.Op, k poolKind) bool {
	return o.Spreads() && (!s.vex || k == constant || k == drawn)
}

// divides reports whether o occupies the divider.
func divides(o x86.Op) bool { return o == x86.VDIVPS || o == x86.VSQRTPS }

// simpler is a value that o, not yet appended, computes again, or none. That a truth value is not zero is its condition, and
// the negative of an absolute value has its sign set.
func (c *composer) simpler(o *lane) int {
	const notEqual = 4
	switch {
	case o.a < 0 || o.b >= none:
	case o.op == x86.VCMPPS && o.imm == notEqual && c.isNumber(o.b, 0):
		return c.condition(&c.ops[o.a])
	case o.op == x86.VXORPS && c.isNumber(o.b, negativeZero):
		if abs := &c.ops[o.a]; abs.op == x86.VANDNPS && c.isNumber(abs.a, negativeZero) {
			return c.add(lane{op: x86.VORPS, old: none, a: abs.b, b: o.b, mask: none})
		}
	}
	return none
}

// condition is the condition of which o makes a truth value, one where it holds, and else zero; none if o does something else.
func (c *composer) condition(o *lane) int {
	mask := o.mask
	if c.set.vex {
		mask = o.a
	}
	switch {
	case mask < 0 || !c.isNumber(o.b, oneBits) || !isCondition(c.ops[mask].op):
	case o.op == x86.VMOVAPS && !c.set.vex, o.op == x86.VANDPS && c.set.vex:
		return mask
	}
	return none
}

package kern

import "ampc/internal/a64"

var neonSet = instructionSet{
	lanes:     4,
	registers: 32,
	hidden:    48,
	bodies:    bodiesNEON,
	load:      [...]opcode{F32: a64.LDRQ, F16: a64.LDRD, BF16: a64.LDRD, Words: a64.LDRQ, Bools: a64.LDRS},
	loaded: [...]body{
		F16:   {ops: []bodyOp{{a64.FCVTL, none, 0, none, none, 0}}},
		BF16:  {ops: []bodyOp{{a64.SHLL, none, 0, none, none, 0}}},
		Words: {ops: []bodyOp{{a64.UZP1, none, 0, 1, none, 0}}},
		Bools: {consts: []uint32{oneBits}, ops: []bodyOp{
			{a64.UXTLB, none, 0, none, none, 0},
			{a64.UXTL, none, 1, none, none, 0},
			{a64.CMTST, none, 2, 2, none, 0},
			{a64.AND, none, 3, -2, none, 0},
		}},
	},
	one: [...]body{
		F16:  {ops: []bodyOp{{a64.FCVTN, none, 0, none, none, 0}}},
		BF16: {ops: []bodyOp{{a64.UZP2H, none, 0, 0, none, 0}}},
		Bools: {ops: []bodyOp{
			{a64.FCVTNS, none, 0, none, none, 0},
			{a64.XTN, none, 1, none, none, 0},
			{a64.XTNB, none, 2, none, none, 0},
		}},
	},
	joined: [...]body{
		F16: {ops: []bodyOp{
			{a64.FCVTN, none, 0, none, none, 0},
			{a64.FCVTN2, 2, 1, none, none, 0},
		}},
		BF16:  {ops: []bodyOp{{a64.UZP2H, none, 0, 1, none, 0}}},
		Bools: {},
	},
	store: [...]opcode{F32: a64.STRQ, F16: a64.STRD, BF16: a64.STRD, Bools: a64.STRS},
	words: wordSet{narrow: a64.XTNS, mul: a64.UMULL, high: wordOp{op: a64.TRN2}, xor: a64.EOR, even: wordOp{op: a64.UZP1}, odd: wordOp{op: a64.UZP2}},
	cube: body{ops: []bodyOp{
		{a64.FCVTLD, none, 0, none, none, 0},
		{a64.FCVTL2D, none, 0, none, none, 0},
		{a64.FMULD, none, 1, 1, none, 0},
		{a64.FMULD, none, 3, 1, none, 0},
		{a64.FMULD, none, 2, 2, none, 0},
		{a64.FMULD, none, 5, 2, none, 0},
		{a64.FCVTND, none, 4, none, none, 0},
		{a64.FCVTN2D, 7, 6, none, none, 0},
	}},
}

// wholeVectors is empty: no instruction reads the places of lanes from a vector.
var wholeVectors [0]byte

// set is the instructions of which kernels of p are composed.
func (p *Path) set() *instructionSet { return &neonSet }

// numberBytes is what a number of the pool takes in memory.
func (s *instructionSet) numberBytes() int { return 4 * s.lanes }

// inMask returns false: conditions are vectors.
func (s *instructionSet) inMask(a64.Op) bool { return false }

// direct returns false: no instruction reads a number of the pool from memory.
func (s *instructionSet) direct(a64.Op, poolKind) bool { return false }

// divides reports whether o occupies the divider.
func divides(o a64.Op) bool { return o == a64.FDIV || o == a64.FSQRT }

// simpler is a value that o, not yet appended, computes again, or none. Truth values that become conditions again are the
// conditions that they were, and selections need no negated ones.
func (c *composer) simpler(o *lane) int {
	is := func(x int, op a64.Op) bool { return x >= 0 && c.ops[x].op == op }
	like := lane{old: none, a: none, b: none, mask: none}
	switch {
	case o.op == a64.FCMEQ && c.isNumber(o.b, 0) && is(o.a, a64.AND):
		if t := c.ops[o.a]; c.isNumber(t.b, oneBits) && c.isCondition(t.a) {
			like.op, like.a = a64.NOT, t.a
			return c.add(like)
		}
	case o.op == a64.NOT && is(o.a, a64.NOT):
		return c.ops[o.a].a
	case o.op == a64.AND && o.a == o.b:
		return o.a
	case o.op == a64.BSL && is(o.old, a64.NOT):
		like.op, like.old, like.a, like.b = a64.BSL, c.ops[o.old].a, o.b, o.a
		return c.add(like)
	}
	return none
}

// isCondition reports whether each lane of x is all ones or zeros.
func (c *composer) isCondition(x int) bool {
	if x < 0 {
		return false
	}
	switch o := &c.ops[x]; o.op {
	case a64.FCMEQ, a64.FCMGE, a64.FCMGT, a64.CMTST:
		return true
	case a64.NOT:
		return c.isCondition(o.a)
	case a64.AND, a64.ORR:
		return c.isCondition(o.a) && c.isCondition(o.b)
	}
	return false
}

package ir

// For rows with code there is no table of their effect on Inf and NaN: the code is run over classes
// of numbers. A class is a set of numbers that arithmetic treats alike. A register is the set of
// classes that its value may be in.
type classes uint8

const (
	cNaN classes = 1 << iota
	cNegInf
	cNeg  // finite, below zero; false of a bool is cZero, true cPos
	cZero // of either sign
	cPos
	cPosInf

	cFinite = cNeg | cZero | cPos
	cAny    = cNaN | cNegInf | cFinite | cPosInf
	cBool   = cZero | cPos
)

func classOf(x float64) classes {
	switch {
	case x != x:
		return cNaN
	case x > maxFloat32:
		return cPosInf
	case x < -maxFloat32:
		return cNegInf
	case x < 0:
		return cNeg
	case x > 0:
		return cPos
	}
	return cZero
}

const maxFloat32 = 0x1.fffffep127

func (c classes) numbers() Numbers {
	var s Numbers
	for _, m := range [...]struct {
		c classes
		n Numbers
	}{{cFinite, Finite}, {cPosInf, PosInf}, {cNegInf, NegInf}, {cNaN, NaN}} {
		if c&m.c != 0 {
			s |= m.n
		}
	}
	return s
}

// elemHandsOn runs the node's code where an element of operand i is of kind k, and other operands
// are anything, except for known flags.
func (n *Node) elemHandsOn(i int, k Numbers, flag func(operand int) (yes, known bool)) Numbers {
	code, results := NodeCode(n)
	regs := make([]classes, len(code.Ins))
	for r := range code.Ins {
		regs[r] = code.Ins[r].classes(regs, func(operand int) classes {
			switch {
			case n.In[operand] != n.In[i]: // the same value twice is the same element, or a broadcast one that may be
			case operand == i || n.In[i].Type.Shape == n.Out[0].Type.Shape:
				return map[Numbers]classes{PosInf: cPosInf, NegInf: cNegInf, NaN: cNaN}[k]
			}
			switch d := n.In[operand].Type.DType; {
			case d == Bool && flag != nil:
				return flagClasses(flag(operand))
			case d == Bool:
				return cBool
			case d.Float():
				return cAny
			}
			return cFinite
		})
	}
	var all Numbers
	for j, r := range results {
		if !n.Out[j].Type.DType.Float() {
			continue
		}
		got := regs[r].numbers()
		if got&Finite == 0 {
			return got // this result surely shows it
		}
		all |= got
	}
	return all
}

// AtZero returns the effect of a 0 in operand i, where other floats are finite and not 0: the kinds
// of number that result 0 may be, and whether it is surely 0. For a row without code it may be any.
func (n *Node) AtZero(i int) (may Numbers, zero bool) {
	if n.Def().Elem == nil {
		return Finite | Nonfinite, false
	}
	code, results := NodeCode(n)
	regs := make([]classes, len(code.Ins))
	for r := range code.Ins {
		regs[r] = code.Ins[r].classes(regs, func(operand int) classes {
			switch d := n.In[operand].Type.DType; {
			case n.In[operand] == n.In[i]:
				return cZero
			case d == Bool:
				return cBool
			case d.Float():
				return cNeg | cPos
			}
			return cFinite
		})
	}
	got := regs[results[0]]
	return got.numbers(), got == cZero
}

func flagClasses(yes, known bool) classes {
	switch {
	case !known:
		return cBool
	case yes:
		return cPos
	}
	return cZero
}

// classes are the possible classes of an instruction's result.
func (i *Instr) classes(regs []classes, in func(operand int) classes) classes {
	var a, b classes
	if args := Prims[i.Op].Args; i.Op != PPhilox && args > 0 {
		a = regs[i.A]
		if args > 1 {
			b = regs[i.B]
		}
	}
	switch i.Op {
	case PIn:
		return in(int(i.Int))
	case PConst:
		if i.Type.Float() {
			return classOf(i.Imm)
		}
		return classOf(float64(i.Int))
	case PIndex, PPhilox:
		return cZero | cPos
	case PSelect:
		return choice(a, b, regs[i.C])
	case PFma:
		return pairs(pairs(a, b, times), regs[i.C], plus)
	case PConv:
		return converted(a, i.Type)
	}
	if !i.Type.Float() && i.Type != Bool {
		return cFinite // integers: every instruction gives one
	}
	if f := ofPair[i.Op]; f != nil {
		return pairs(a, b, f)
	}
	if f := ofOne[i.Op]; f != nil {
		return each(a, f)
	}
	return cAny
}

func choice(cond, a, b classes) classes {
	var got classes
	if cond&cPos != 0 {
		got |= a
	}
	if cond&^cPos != 0 {
		got |= b
	}
	return got
}

// converted is a in another register type: floats saturate as integers, and
// integers and wider floats round.
func converted(a classes, t DType) classes {
	switch {
	case t == F64:
		return a
	case t.Float():
		return each(a, rounded)
	case t == Bool:
		return cBool
	}
	return cFinite
}

func each(a classes, f func(classes) classes) classes {
	var got classes
	for x := cNaN; x <= cPosInf; x <<= 1 {
		if a&x != 0 {
			got |= f(x)
		}
	}
	return got
}

func pairs(a, b classes, f func(x, y classes) classes) classes {
	return each(a, func(x classes) classes { return each(b, func(y classes) classes { return f(x, y) }) })
}

func negated(x classes) classes {
	switch x {
	case cNegInf:
		return cPosInf
	case cPosInf:
		return cNegInf
	case cNeg:
		return cPos
	case cPos:
		return cNeg
	}
	return x
}

// rounded may overflow and underflow to 0.
func rounded(x classes) classes {
	switch x {
	case cPos:
		return cPos | cZero | cPosInf
	case cNeg:
		return cNeg | cZero | cNegInf
	}
	return x
}

func plus(x, y classes) classes {
	switch both := x | y; {
	case both&cNaN != 0, both == cNegInf|cPosInf:
		return cNaN
	case both&(cNegInf|cPosInf) != 0:
		return both & (cNegInf | cPosInf)
	case x == cZero:
		return y
	case y == cZero:
		return x
	case both == cPos|cNeg:
		return cFinite
	case both == cPos:
		return cPos | cPosInf
	}
	return cNeg | cNegInf
}

// sign is -1, 0 or 1; c is not NaN.
func (c classes) sign() int {
	switch c {
	case cNeg, cNegInf:
		return -1
	case cPos, cPosInf:
		return 1
	}
	return 0
}

func signed(sign int, pos classes) classes {
	if sign > 0 {
		return pos
	}
	return each(pos, negated)
}

func times(x, y classes) classes {
	infinite := (x|y)&(cNegInf|cPosInf) != 0
	switch s := x.sign() * y.sign(); {
	case (x|y)&cNaN != 0, infinite && s == 0:
		return cNaN
	case infinite:
		return signed(s, cPosInf)
	case s == 0:
		return cZero
	default:
		return signed(s, cPos|cZero|cPosInf)
	}
}

func over(x, y classes) classes {
	const infinite = cNegInf | cPosInf
	switch s := x.sign() * y.sign(); {
	case (x|y)&cNaN != 0, x&infinite != 0 && y&infinite != 0, x == cZero && y == cZero:
		return cNaN
	case y&infinite != 0:
		return cZero
	case y == cZero:
		return infinite
	case x&infinite != 0:
		return signed(s, cPosInf)
	case x == cZero:
		return cZero
	default:
		return signed(s, cPos|cZero|cPosInf)
	}
}

// power is pow: 1 to any power is 1, and so is any number to the power 0.
func power(x, y classes) classes {
	switch {
	case y == cNaN && x != cPos || x == cNaN && y != cZero:
		return cNaN
	case y == cZero:
		return cPos
	}
	return cAny
}

func lesser(x, y classes) classes {
	if (x|y)&cNaN != 0 {
		return cNaN
	}
	return min(x, y)
}

func greater(x, y classes) classes {
	if (x|y)&cNaN != 0 {
		return cNaN
	}
	return max(x, y)
}

// compared returns the possible results of a comparison of x and y. The classes are in the order of
// their numbers.
func compared(less, equal, greater bool) func(x, y classes) classes {
	truth := map[bool]classes{true: cPos, false: cZero}
	return func(x, y classes) classes {
		switch {
		case (x|y)&cNaN != 0:
			return truth[less && greater] // of the comparisons only ne is true for NaN
		case x < y:
			return truth[less]
		case x > y:
			return truth[greater]
		case x == cZero, x == cNegInf, x == cPosInf:
			return truth[equal]
		}
		return truth[less] | truth[equal] | truth[greater]
	}
}

func logical(f func(x, y bool) bool) func(x, y classes) classes {
	return func(x, y classes) classes {
		if f(x == cPos, y == cPos) {
			return cPos
		}
		return cZero
	}
}

var ofPair = map[Prim]func(x, y classes) classes{
	PAdd: plus, PSub: func(x, y classes) classes { return plus(x, negated(y)) }, PMul: times, PDiv: over,
	PMin: lesser, PMax: greater, PPow: power,
	PLt: compared(true, false, false), PLe: compared(true, true, false), PEq: compared(false, true, false), PNe: compared(true, false, true),
	PAnd: logical(func(x, y bool) bool { return x && y }), POr: logical(func(x, y bool) bool { return x || y }), PXor: logical(func(x, y bool) bool { return x != y }),
}

// becomes is a function, given by its result for each class in their order.
func becomes(nan, negInf, neg, zero, pos, posInf classes) func(classes) classes {
	return func(x classes) classes {
		switch x {
		case cNegInf:
			return negInf
		case cNeg:
			return neg
		case cZero:
			return zero
		case cPos:
			return pos
		case cPosInf:
			return posInf
		}
		return nan
	}
}

var ofOne = map[Prim]func(classes) classes{
	PNeg:   negated,
	PAbs:   becomes(cNaN, cPosInf, cPos, cZero, cPos, cPosInf),
	PSqrt:  becomes(cNaN, cNaN, cNaN, cZero, cPos, cPosInf),
	PFloor: becomes(cNaN, cNegInf, cNeg, cZero, cPos|cZero, cPosInf),
	PCeil:  becomes(cNaN, cNegInf, cNeg|cZero, cZero, cPos, cPosInf),
	PRint:  becomes(cNaN, cNegInf, cNeg|cZero, cZero, cPos|cZero, cPosInf),
	PRound: rounded,
	PExp:   becomes(cNaN, cZero, cPos|cZero, cPos, cPos|cPosInf, cPosInf),
	PExpm1: becomes(cNaN, cNeg, cNeg|cZero, cZero, cPos|cZero|cPosInf, cPosInf),
	PLog:   becomes(cNaN, cNaN, cNaN, cNegInf, cFinite, cPosInf),
	PLog1p: becomes(cNaN, cNaN, cNaN|cNegInf|cNeg|cZero, cZero, cPos|cZero, cPosInf),
	PSin:   becomes(cNaN, cNaN, cFinite, cZero, cFinite, cNaN),
	PCos:   becomes(cNaN, cNaN, cFinite, cPos, cFinite, cNaN),
	PTan:   becomes(cNaN, cNaN, cFinite, cZero, cFinite, cNaN),
	PAtan:  becomes(cNaN, cNeg, cNeg|cZero, cZero, cPos|cZero, cPos),
	PErf:   becomes(cNaN, cNeg, cNeg|cZero, cZero, cPos|cZero, cPos),
	PTanh:  becomes(cNaN, cNeg, cNeg|cZero, cZero, cPos|cZero, cPos),
	PIsNaN: becomes(cPos, cZero, cZero, cZero, cZero, cZero),
	PIsInf: becomes(cZero, cPos, cZero, cZero, cZero, cPos),
	PNot:   becomes(cZero, cZero, cZero, cPos, cZero, cZero),
}

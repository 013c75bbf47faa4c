package ir

import "math"

// Prim is a primitive of elementwise code.
type Prim uint8

const (
	PIn    Prim = iota // operand Int, widened to the register's type
	PConst             // Imm (floats) or Int
	PIndex             // linear row-major index of the element, I64
	PAdd
	PSub
	PMul
	PDiv
	PFma // A*B+C, one rounding
	PSqrt
	PMin // propagates NaN; min(-0,+0) = -0
	PMax // propagates NaN; max(-0,+0) = +0
	PNeg
	PAbs
	PFloor
	PCeil
	PRint // to nearest, ties to even
	PSelect
	PLt
	PLe
	PEq
	PNe
	PAnd
	POr
	PXor
	PNot
	PIsNaN
	PIsInf
	PConv  // A in the register's type: float to int truncates, int to float rounds to nearest
	PRound // A rounded to the dtype To, integers wrapped, and widened back
	PPhilox
	PExp
	PExpm1
	PLog
	PLog1p
	PSin
	PCos
	PTan
	PAtan
	PErf
	PTanh
	PPow
	NumPrims
)

// PrimInfo describes a primitive.
type PrimInfo struct {
	Name  string
	Args  int
	Exact bool    // one IEEE rounding (or none) in f32: the same bits everywhere
	ULP   float64 // error bound of the others, in ulp of f32
}

// Prims describes every primitive. Exact ones round once to f32.
var Prims = [NumPrims]PrimInfo{
	PIn: {"in", 0, true, 0}, PConst: {"const", 0, true, 0}, PIndex: {"index", 0, true, 0},
	PAdd: {"add", 2, true, 0}, PSub: {"sub", 2, true, 0}, PMul: {"mul", 2, true, 0}, PDiv: {"div", 2, true, 0},
	PFma: {"fma", 3, true, 0}, PSqrt: {"sqrt", 1, true, 0}, PMin: {"min", 2, true, 0}, PMax: {"max", 2, true, 0},
	PNeg: {"neg", 1, true, 0}, PAbs: {"abs", 1, true, 0}, PFloor: {"floor", 1, true, 0}, PCeil: {"ceil", 1, true, 0},
	PRint: {"rint", 1, true, 0}, PSelect: {"select", 3, true, 0}, PLt: {"lt", 2, true, 0}, PLe: {"le", 2, true, 0},
	PEq: {"eq", 2, true, 0}, PNe: {"ne", 2, true, 0}, PAnd: {"and", 2, true, 0}, POr: {"or", 2, true, 0},
	PXor: {"xor", 2, true, 0}, PNot: {"not", 1, true, 0}, PIsNaN: {"isnan", 1, true, 0}, PIsInf: {"isinf", 1, true, 0},
	PConv: {"conv", 1, true, 0}, PRound: {"round", 1, true, 0}, PPhilox: {"philox", 3, true, 0},
	PExp: {"exp", 1, false, 2}, PExpm1: {"expm1", 1, false, 2}, PLog: {"log", 1, false, 2}, PLog1p: {"log1p", 1, false, 2},
	PSin: {"sin", 1, false, 2}, PCos: {"cos", 1, false, 2}, PTan: {"tan", 1, false, 4}, PAtan: {"atan", 1, false, 2},
	PErf: {"erf", 1, false, 2}, PTanh: {"tanh", 1, false, 2}, PPow: {"pow", 2, false, 4},
}

func (p Prim) String() string { return Prims[p].Name }

// Reg names the result of an instruction: its index in Code.Ins.
type Reg int32

// Instr is one primitive applied to earlier registers.
//
// PPhilox: A = seed (I64), B = attempt (I32), C = micro-batch in the low 32 bits and, in the
// high ones, the counters that earlier ranks draw by, Int = site;
// the result is an I64 register holding the 32-bit word of the element's index.
type Instr struct {
	Op      Prim
	Type    DType // of the result: F32, F64, I32, I64, U64 or Bool
	To      DType // PRound only
	A, B, C Reg
	Imm     float64
	Int     int64
}

// Same reports whether two instructions compute the same bits. Other than ==, it tells 0 from -0.
func (i Instr) Same(j Instr) bool {
	bits := math.Float64bits(i.Imm) == math.Float64bits(j.Imm)
	i.Imm, j.Imm = 0, 0
	return bits && i == j
}

// Code is straight-line scalar code, applied to every element. A node's code
// is emitted by its row; the code of a cluster is the codes of its members joined.
// Registers of float type compute in f32 (F64 only where an operand is f64):
// every primitive rounds once, and nothing else rounds.
type Code struct {
	Ins []Instr
	in  func(i int) Reg
}

// NewCode returns empty code. in supplies the register of operand i when a row reads it.
func NewCode(in func(i int) Reg) *Code { return &Code{in: in} }

// NodeCode emits the code of one elementwise node with PIn loads for its
// operands, and returns the registers of its results.
func NodeCode(n *Node) (*Code, []Reg) {
	c := &Code{}
	c.in = func(i int) Reg { return c.emit(Instr{Op: PIn, Type: RegType(n.In[i].Type.DType), Int: int64(i)}) }
	return c, n.Def().Elem(c, n)
}

// RegType is the register type an element of dtype d is computed in.
func RegType(d DType) DType {
	switch d {
	case F16, BF16, F32, E4M3, E5M2:
		return F32
	case U8, I8, I16, U16:
		return I32
	case U32:
		return I64
	}
	return d
}

func (c *Code) emit(i Instr) Reg {
	for r := len(c.Ins) - 1; r >= 0 && r >= len(c.Ins)-32; r-- { // the last 32 instructions are enough for common subexpressions of one row
		if c.Ins[r].Same(i) {
			return Reg(r)
		}
	}
	c.Ins = append(c.Ins, i)
	return Reg(len(c.Ins) - 1)
}

// Emit appends an instruction. Passes that join codes use it.
func (c *Code) Emit(i Instr) Reg { return c.emit(i) }

// Type returns a register's type.
func (c *Code) Type(r Reg) DType { return c.Ins[r].Type }

// In is operand i's element.
func (c *Code) In(i int) Reg { return c.in(i) }

// F is a float constant, rounded once to f32.
func (c *Code) F(x float64) Reg {
	return c.emit(Instr{Op: PConst, Type: F32, Imm: float64(float32(x))})
}

// Like is the constant x in the type of register r.
func (c *Code) Like(r Reg, x float64) Reg {
	switch t := c.Type(r); t {
	case F32:
		return c.F(x)
	case F64:
		return c.emit(Instr{Op: PConst, Type: F64, Imm: x})
	default:
		return c.emit(Instr{Op: PConst, Type: t, Int: t.FromFloat(x)})
	}
}

// I is an I32 constant.
func (c *Code) I(x int64) Reg { return c.emit(Instr{Op: PConst, Type: I32, Int: x}) }

// Index is the element's linear row-major index in the cluster's iteration space.
func (c *Code) Index() Reg { return c.emit(Instr{Op: PIndex, Type: I64}) }

func (c *Code) op1(p Prim, a Reg) Reg { return c.emit(Instr{Op: p, Type: c.Type(a), A: a}) }

func (c *Code) op2(p Prim, a, b Reg) Reg {
	a, b = c.meet(a, b)
	return c.emit(Instr{Op: p, Type: c.Type(a), A: a, B: b})
}

func (c *Code) cmp(p Prim, a, b Reg) Reg {
	a, b = c.meet(a, b)
	return c.emit(Instr{Op: p, Type: Bool, A: a, B: b})
}

// meet converts two registers to the wider of their types.
func (c *Code) meet(a, b Reg) (Reg, Reg) {
	order := [...]DType{Bool, I32, U64, I64, F32, F64}
	rank := func(d DType) int {
		for i, x := range order {
			if x == d {
				return i
			}
		}
		return 0
	}
	t := order[max(rank(c.Type(a)), rank(c.Type(b)))]
	return c.Conv(a, t), c.Conv(b, t)
}

func (c *Code) Add(a, b Reg) Reg { return c.op2(PAdd, a, b) }
func (c *Code) Sub(a, b Reg) Reg { return c.op2(PSub, a, b) }
func (c *Code) Mul(a, b Reg) Reg { return c.op2(PMul, a, b) }
func (c *Code) Div(a, b Reg) Reg { return c.op2(PDiv, a, b) }
func (c *Code) Min(a, b Reg) Reg { return c.op2(PMin, a, b) }
func (c *Code) Max(a, b Reg) Reg { return c.op2(PMax, a, b) }
func (c *Code) Pow(a, b Reg) Reg { return c.op2(PPow, a, b) }
func (c *Code) Lt(a, b Reg) Reg  { return c.cmp(PLt, a, b) }
func (c *Code) Le(a, b Reg) Reg  { return c.cmp(PLe, a, b) }
func (c *Code) Eq(a, b Reg) Reg  { return c.cmp(PEq, a, b) }
func (c *Code) Ne(a, b Reg) Reg  { return c.cmp(PNe, a, b) }
func (c *Code) And(a, b Reg) Reg { return c.op2(PAnd, a, b) }
func (c *Code) Or(a, b Reg) Reg  { return c.op2(POr, a, b) }
func (c *Code) Xor(a, b Reg) Reg { return c.op2(PXor, a, b) }
func (c *Code) Not(a Reg) Reg    { return c.op1(PNot, a) }
func (c *Code) Neg(a Reg) Reg    { return c.op1(PNeg, a) }
func (c *Code) Abs(a Reg) Reg    { return c.op1(PAbs, a) }
func (c *Code) Sqrt(a Reg) Reg   { return c.op1(PSqrt, a) }
func (c *Code) Floor(a Reg) Reg  { return c.op1(PFloor, a) }
func (c *Code) Ceil(a Reg) Reg   { return c.op1(PCeil, a) }
func (c *Code) Rint(a Reg) Reg   { return c.op1(PRint, a) }
func (c *Code) Exp(a Reg) Reg    { return c.op1(PExp, a) }
func (c *Code) Expm1(a Reg) Reg  { return c.op1(PExpm1, a) }
func (c *Code) Log(a Reg) Reg    { return c.op1(PLog, a) }
func (c *Code) Log1p(a Reg) Reg  { return c.op1(PLog1p, a) }
func (c *Code) Sin(a Reg) Reg    { return c.op1(PSin, a) }
func (c *Code) Cos(a Reg) Reg    { return c.op1(PCos, a) }
func (c *Code) Tan(a Reg) Reg    { return c.op1(PTan, a) }
func (c *Code) Atan(a Reg) Reg   { return c.op1(PAtan, a) }
func (c *Code) Erf(a Reg) Reg    { return c.op1(PErf, a) }
func (c *Code) Tanh(a Reg) Reg   { return c.op1(PTanh, a) }
func (c *Code) IsNaN(a Reg) Reg  { return c.emit(Instr{Op: PIsNaN, Type: Bool, A: a}) }
func (c *Code) IsInf(a Reg) Reg  { return c.emit(Instr{Op: PIsInf, Type: Bool, A: a}) }
func (c *Code) Finite(a Reg) Reg { return c.Not(c.Or(c.IsNaN(a), c.IsInf(a))) }

// Fma is a*b+x with one rounding.
func (c *Code) Fma(a, b, x Reg) Reg {
	return c.emit(Instr{Op: PFma, Type: c.Type(a), A: a, B: b, C: x})
}

// Select is a if cond is true, otherwise b. It selects bits and multiplies nothing.
func (c *Code) Select(cond, a, b Reg) Reg {
	a, b = c.meet(a, b)
	return c.emit(Instr{Op: PSelect, Type: c.Type(a), A: cond, B: a, C: b})
}

// Conv is a in another register type. It emits no instruction if a has that type.
func (c *Code) Conv(a Reg, t DType) Reg {
	if c.Type(a) == t {
		return a
	}
	return c.emit(Instr{Op: PConv, Type: t, A: a})
}

// Round rounds a to dtype d, or wraps an integer to it, and widens it back.
func (c *Code) Round(a Reg, d DType) Reg {
	return c.emit(Instr{Op: PRound, Type: c.Type(a), To: d, A: a})
}

// Philox is the 32-bit random word of this element (I64 register, 0..2^32-1).
func (c *Code) Philox(seed, attempt, micro Reg, site int64) Reg {
	return c.emit(Instr{Op: PPhilox, Type: I64, A: c.Conv(seed, I64), B: c.Conv(attempt, I64), C: c.Conv(micro, I64), Int: site})
}

// Exact reports whether every instruction rounds in one defined way, so that all backends give the
// same bits. If not, it returns the possible error in ulp: the sum of the bounds of inexact
// instructions, and one for every rounding of an inexact value.
func (c *Code) Exact() (bool, float64) {
	sum := 0.0
	for _, i := range c.Ins {
		switch p := Prims[i.Op]; {
		case !p.Exact:
			sum += p.ULP
		case i.Op >= PAdd && i.Op <= PSqrt && sum > 0:
			sum++
		}
	}
	return sum == 0, sum
}

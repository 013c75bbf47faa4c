package kern

import (
	"fmt"
	"math"
	"strings"
)

// Formula is what an elementwise kernel computes of each element: it loads operands, applies
// primitives, and stores results.
type Formula struct {
	Loads   []Type
	Code    []FormulaOp
	Results []FormulaResult
	Scalars int // operands that are the same for all elements

	Rows bool         // the kernel takes rows, which have scalars and sums of their own
	Sums []FormulaSum // what the kernel adds up for each row; it has no results then
}

// FormulaOp applies the primitive of a name to earlier values.
type FormulaOp struct {
	Name string
	Args []Operand
}

// FormulaResult stores a value.
type FormulaResult struct {
	Type  Type
	Value Operand
}

// FormulaSum adds a value, or its square, which is rounded together with the addition.
type FormulaSum struct {
	Value  Operand
	Square bool
}

// Operand is a value of a Formula.
type Operand struct {
	Kind OperandKind
	N    int // of the load, the op or the scalar, or the bits of a constant
}

// OperandKind says what a value of a Formula is.
type OperandKind byte

// The kinds of values, by the letters that String writes them with.
const (
	Loaded   OperandKind = 'l'
	Computed OperandKind = 'r'
	Scalar   OperandKind = 'u'
	Constant OperandKind = 'c'
)

// ConstantOf is the operand of a constant.
func ConstantOf(x float32) Operand { return Operand{Constant, int(math.Float32bits(x))} }

func (o Operand) String() string { return fmt.Sprintf("%c%d", o.Kind, o.N) }

// String is the formula as text: "l0:f16 r0=mul(l0,u0) s0:f32=r0" multiplies halves by a scalar, and
// "rows l0:f32 a0=l0 a1=l0*l0" sums rows and their squares. c0 is the constant zero.
func (f *Formula) String() string {
	var b strings.Builder
	if f.Rows {
		b.WriteString("rows ")
	}
	for i, t := range f.Loads {
		fmt.Fprintf(&b, "l%d:%v ", i, t)
	}
	for i, op := range f.Code {
		fmt.Fprintf(&b, "r%d=%s(", i, op.Name)
		for k, a := range op.Args {
			if k > 0 {
				b.WriteByte(',')
			}
			b.WriteString(a.String())
		}
		b.WriteString(") ")
	}
	for i, a := range f.Sums {
		fmt.Fprintf(&b, "a%d=%v", i, a.Value)
		if a.Square {
			fmt.Fprintf(&b, "*%v", a.Value)
		}
		b.WriteByte(' ')
	}
	for i, r := range f.Results {
		fmt.Fprintf(&b, "s%d:%v=%v ", i, r.Type, r.Value)
	}
	return strings.TrimSuffix(b.String(), " ")
}

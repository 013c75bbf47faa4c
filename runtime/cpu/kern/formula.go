package kern

import (
	"fmt"
	"strings"
)

// Formula is what an elementwise kernel computes of each element: it loads operands, applies
// primitives, and stores results.
type Formula struct {
	Loads   []Type
	Code    []FormulaOp
	Results []FormulaResult
	Scalars int // operands that are the same for all elements
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

// Operand is a value of a Formula.
type Operand struct {
	Kind OperandKind
	N    int // of the load, the op or the scalar
}

// OperandKind says what a value of a Formula is.
type OperandKind byte

// The kinds of values, by the letters that internal/gen writes them with.
const (
	Loaded   OperandKind = 'l'
	Computed OperandKind = 'r'
	Scalar   OperandKind = 'u'
)

func (o Operand) String() string { return fmt.Sprintf("%c%d", o.Kind, o.N) }

// String is the formula as internal/gen writes it: "l0:f16 r0=mul(l0,u0) s0:f32=r0" multiplies
// halves by a scalar.
func (f *Formula) String() string {
	var b strings.Builder
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
	for i, r := range f.Results {
		fmt.Fprintf(&b, "s%d:%v=%v ", i, r.Type, r.Value)
	}
	return strings.TrimSuffix(b.String(), " ")
}

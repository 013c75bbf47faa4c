package ir

import (
	"fmt"
	"math"
)

// DType is the type of one element as stored.
type DType uint8

// The dtypes of the text form. E4M3 and E5M2 are reserved: they parse and
// print, and no row accepts them yet.
const (
	Invalid DType = iota
	F32
	F16
	BF16
	F64
	I32
	I64
	U8
	Bool
	E4M3
	E5M2
	numDTypes
)

var dtypes = [numDTypes]struct {
	name  string
	size  int64
	float bool
	max   float64 // of a float: the largest finite number
	tiny  float64 // of a float: the smallest above zero
}{
	Invalid: {name: "invalid"},
	F32:     {"f32", 4, true, math.MaxFloat32, math.SmallestNonzeroFloat32},
	F16:     {"f16", 2, true, 65504, 0x1p-24},
	BF16:    {"bf16", 2, true, 0x1.FEp127, 0x1p-133},
	F64:     {"f64", 8, true, math.MaxFloat64, math.SmallestNonzeroFloat64},
	I32:     {name: "i32", size: 4},
	I64:     {name: "i64", size: 8},
	U8:      {name: "u8", size: 1},
	Bool:    {name: "bool", size: 1},
	E4M3:    {"e4m3", 1, true, 448, 0x1p-9},
	E5M2:    {"e5m2", 1, true, 57344, 0x1p-16},
}

func (d DType) String() string {
	if d >= numDTypes {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Size returns the bytes one element occupies.
func (d DType) Size() int64 { return dtypes[d].size }

// Float reports whether d is a floating-point format.
func (d DType) Float() bool { return dtypes[d].float }

// Max returns the largest finite number of a floating-point format, 0 for others.
func (d DType) Max() float64 { return dtypes[d].max }

// Tiny returns the smallest number above zero of a floating-point format, 0 for others.
func (d DType) Tiny() float64 { return dtypes[d].tiny }

// Low reports whether d is one of the 16-bit formats a policy lowers to.
func (d DType) Low() bool { return d == F16 || d == BF16 }

// DTypeOf finds a dtype by its spelling.
func DTypeOf(name string) (DType, bool) {
	for d := F32; d < numDTypes; d++ {
		if dtypes[d].name == name {
			return d, true
		}
	}
	return Invalid, false
}

// Holds reports whether every value of from is exactly representable in d:
// only then may a cast from→d→from be dropped.
func (d DType) Holds(from DType) bool {
	if d == from {
		return true
	}
	switch d {
	case F32:
		return from.Low() || from == U8 || from == Bool
	case F64:
		return from == F32 || from.Low() || from == I32 || from == U8 || from == Bool
	case I64:
		return from == I32 || from == U8 || from == Bool
	case I32, F16:
		return from == U8 || from == Bool
	case BF16:
		return from == U8 || from == Bool
	case U8:
		return from == Bool
	}
	return false
}

// Promote returns the float dtype that results when a and b meet in one
// elementwise op: the wider one, and f32 where f16 meets bf16.
func Promote(a, b DType) DType {
	switch {
	case a == b:
		return a
	case a == F64 || b == F64:
		return F64
	default:
		return F32
	}
}

// Multiple is what the sizes of a product of d operands should be multiples of
// for tensor cores to read them at full speed: 16 bytes' worth, so 8 of 16 bits
// and 4 of tf32; 1 where no tensor core takes part.
func (d DType) Multiple(tf32 bool) int64 {
	if d.Low() || d == F32 && tf32 {
		return 16 / d.Size()
	}
	return 1
}

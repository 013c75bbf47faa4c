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
	I8
	I16
	U16
	U32
	U64
	E4M3
	E5M2
	numDTypes
)

var dtypes = [numDTypes]struct {
	name      string
	size      int64
	float     bool
	unsig     bool    // an integer without a sign
	max       float64 // of a float: the largest finite number
	subnormal float64 // of a float: the smallest above zero
}{
	Invalid: {name: "invalid"},
	F32:     {name: "f32", size: 4, float: true, max: math.MaxFloat32, subnormal: math.SmallestNonzeroFloat32},
	F16:     {name: "f16", size: 2, float: true, max: 65504, subnormal: 0x1p-24},
	BF16:    {name: "bf16", size: 2, float: true, max: 0x1.FEp127, subnormal: 0x1p-133},
	F64:     {name: "f64", size: 8, float: true, max: math.MaxFloat64, subnormal: math.SmallestNonzeroFloat64},
	I32:     {name: "i32", size: 4},
	I64:     {name: "i64", size: 8},
	U8:      {name: "u8", size: 1, unsig: true},
	Bool:    {name: "bool", size: 1},
	I8:      {name: "i8", size: 1},
	I16:     {name: "i16", size: 2},
	U16:     {name: "u16", size: 2, unsig: true},
	U32:     {name: "u32", size: 4, unsig: true},
	U64:     {name: "u64", size: 8, unsig: true},
	E4M3:    {name: "e4m3", size: 1, float: true, max: 448, subnormal: 0x1p-9},
	E5M2:    {name: "e5m2", size: 1, float: true, max: 57344, subnormal: 0x1p-16},
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

// Integer reports whether d is an integer. Bool is not one.
func (d DType) Integer() bool { return d != Invalid && !d.Float() && d != Bool }

// unsigned reports whether d is an integer without a sign.
func (d DType) unsigned() bool { return dtypes[d].unsig }

// Limits returns the least and the largest integer of d. An element of u64 is
// held in an int64 by its bits, so that its largest one is -1 here.
func (d DType) Limits() (lo, hi int64) {
	bits := 8 * d.Size()
	if d.unsigned() {
		return 0, int64(^uint64(0) >> (64 - bits))
	}
	return math.MinInt64 >> (64 - bits), math.MaxInt64 >> (64 - bits)
}

// Wrap keeps the low bits of x that integer d has. For bool it returns 0 or 1, for floats x.
func (d DType) Wrap(x int64) int64 {
	switch {
	case d == Bool && x != 0:
		return 1
	case !d.Integer():
		return x
	}
	free := 64 - 8*d.Size()
	if d.unsigned() {
		return int64(uint64(x) << free >> free)
	}
	return x << free >> free
}

// FromFloat converts to an integer d, or to bool: it cuts towards zero and saturates at the
// limits; NaN becomes 0, and true. A u64 is returned by its bits.
func (d DType) FromFloat(x float64) int64 {
	lo, hi := d.Limits()
	switch {
	case d == Bool && x != 0:
		return 1
	case x != x || d == Bool:
		return 0
	case d == U64 && x >= 1<<64:
		return hi
	case d == U64:
		return int64(uint64(max(x, 0)))
	case x <= float64(lo):
		return lo
	case x >= float64(hi):
		return hi
	}
	return int64(x)
}

// Number is the number that an int64 represents for an integer d. u64 is stored by its bits.
func (d DType) Number(x int64) float64 {
	if d == U64 {
		return float64(uint64(x))
	}
	return float64(x)
}

// Order is a number that grows with the element of integer dtype d that x represents. It is its own
// inverse.
func (d DType) Order(x int64) int64 {
	if d == U64 {
		return x ^ math.MinInt64
	}
	return x
}

// Max returns the largest finite number of a floating-point format, 0 for others.
func (d DType) Max() float64 { return dtypes[d].max }

// SmallestSubnormal returns the smallest number above zero of a floating-point format, 0 for others.
func (d DType) SmallestSubnormal() float64 { return dtypes[d].subnormal }

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

// Holds reports whether d represents every value of from exactly. Only then may a cast from→d→from
// be dropped.
func (d DType) Holds(from DType) bool {
	if d == from {
		return true
	}
	switch {
	case d == Bool || from.Float():
		return d == F64 && (from == F32 || from.Low()) || d == F32 && from.Low()
	case from == Bool:
		return true
	case d.Float():
		return 8*from.Size() <= exact[d]
	case d.unsigned() && !from.unsigned():
		return false
	}
	return d.Size() > from.Size()
}

// exact is the number of bits of an integer that a float represents exactly.
var exact = map[DType]int64{F64: 53, F32: 24, F16: 11, BF16: 8}

// Promote returns the dtype of an elementwise op of floats a and b: the wider one, and f32 for f16
// and bf16.
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

// Multiple is the number that should divide the sizes of a product with operands of d for tensor
// cores to read them at full speed: 16 bytes, so 8 elements of 16 bits and 4 of tf32. It is 1 if
// tensor cores are not used.
func (d DType) Multiple(tf32 bool) int64 {
	if d.Low() || d == F32 && tf32 {
		return 16 / d.Size()
	}
	return 1
}

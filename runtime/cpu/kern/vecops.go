package kern

import (
	"math"

	"ampc/internal/fp"
)

// Unary names a vector primitive of one operand.
type Unary uint8

// The unary primitives. Neg to RoundBF16 are exact: the same bits as Go's float32 arithmetic on every path.
// Exp, Log, Tanh and Erf are within 2 ulp, the others of the second group within the bounds the package tests state.
const (
	Neg Unary = iota
	Abs
	Sqrt
	Rsqrt // 1/sqrt(x), two roundings
	Recip
	Square
	Floor
	Ceil
	Rint  // to the nearest integer, ties to even
	Sign  // -1, 0 or 1 with the sign of zero kept; NaN for NaN
	Relu  // max(x, +0)
	Not   // 1 where x is zero, else 0
	IsNaN // 1 or 0
	IsInf // 1 or 0
	RoundF16
	RoundBF16
	RoundTF32

	Exp
	Expm1
	Log
	Log1p
	Tanh
	Erf
	Sigmoid
	Sin
	Cos
	Tan
	Atan
	Softplus // log(1+exp(x))
	GeluErf  // x*(1+erf(x/sqrt 2))/2
	GeluTanh // x*(1+tanh(sqrt(2/pi)*(x+0.044715x^3)))/2
	Silu     // x*sigmoid(x)
	numUnary
)

// Binary names a vector primitive of two operands.
type Binary uint8

// The binary primitives. Min and Max return NaN if either operand is NaN and order -0 below +0. Comparisons give
// 1 or 0. The Grad rows take (x, dy) and give dy times the derivative at x. All but Pow, Mod, Atan2 and the smooth
// gradients are exact.
const (
	Add Binary = iota
	Sub
	Mul
	Div
	Min
	Max
	Eq
	Ne
	Lt
	Le
	Gt
	Ge
	And      // 1 where both are non-zero
	Or       // 1 where at least one is non-zero
	CopySign // magnitude of a, sign of b
	Larger   // b where it is larger than a, or NaN and a is not, else a
	ReluGrad // dy where x > 0, else +0

	Pow
	Mod // a - b*floor(a/b): the sign of b
	Atan2
	GeluErfGrad
	GeluTanhGrad
	SiluGrad
	numBinary
)

// Ternary names a vector primitive of three operands.
type Ternary uint8

// The ternary primitives, all exact.
const (
	FMA    Ternary = iota // a*b+c, rounded once
	MulAdd                // a*b+c, the product rounded first
	Select                // b where a is non-zero (or NaN), else c
	Clip                  // min(max(a, b), c)
	numTernary
)

// The plain Go forms: the reference of every path and the kernels of the "go" path.
var unaryRows = [numUnary]struct {
	name string
	f    func(float32) float32
}{
	Neg:       {"neg", func(x float32) float32 { return -x }},
	Abs:       {"abs", func(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }},
	Sqrt:      {"sqrt", sqrt32},
	Rsqrt:     {"rsqrt", func(x float32) float32 { return 1 / sqrt32(x) }},
	Recip:     {"recip", func(x float32) float32 { return 1 / x }},
	Square:    {"square", func(x float32) float32 { return x * x }},
	Floor:     {"floor", in64(math.Floor)},
	Ceil:      {"ceil", in64(math.Ceil)},
	Rint:      {"rint", in64(math.RoundToEven)},
	Sign:      {"sign", sign32},
	Relu:      {"relu", func(x float32) float32 { return max(x, 0) }},
	Not:       {"not", func(x float32) float32 { return truth(x == 0) }},
	IsNaN:     {"isnan", func(x float32) float32 { return truth(x != x) }},
	IsInf:     {"isinf", func(x float32) float32 { return truth(math.IsInf(float64(x), 0)) }},
	RoundF16:  {"roundf16", func(x float32) float32 { return fp.F16ToF32(fp.F16(x)) }},
	RoundBF16: {"roundbf16", func(x float32) float32 { return fp.BF16ToF32(fp.BF16(x)) }},
	RoundTF32: {"roundtf32", fp.TF32},
	Exp:       {"exp", in64(math.Exp)},
	Expm1:     {"expm1", in64(math.Expm1)},
	Log:       {"log", in64(math.Log)},
	Log1p:     {"log1p", in64(math.Log1p)},
	Tanh:      {"tanh", in64(math.Tanh)},
	Erf:       {"erf", in64(math.Erf)},
	Sigmoid:   {"sigmoid", in64(sigmoid)},
	Sin:       {"sin", in64(math.Sin)},
	Cos:       {"cos", in64(math.Cos)},
	Tan:       {"tan", in64(math.Tan)},
	Atan:      {"atan", in64(math.Atan)},
	Softplus:  {"softplus", in64(func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) })},
	GeluErf:   {"gelu_erf", in64(func(x float64) float64 { return x * normCDF(x) })},
	GeluTanh:  {"gelu_tanh", in64(func(x float64) float64 { return x * sigmoid(geluArg(x)) })},
	Silu:      {"silu", in64(func(x float64) float64 { return x * sigmoid(x) })},
}

var binaryRows = [numBinary]struct {
	name string
	f    func(a, b float32) float32
}{
	Add:      {"add", func(a, b float32) float32 { return a + b }},
	Sub:      {"sub", func(a, b float32) float32 { return a - b }},
	Mul:      {"mul", func(a, b float32) float32 { return a * b }},
	Div:      {"div", func(a, b float32) float32 { return a / b }},
	Min:      {"min", func(a, b float32) float32 { return min(a, b) }},
	Max:      {"max", func(a, b float32) float32 { return max(a, b) }},
	Eq:       {"eq", func(a, b float32) float32 { return truth(a == b) }},
	Ne:       {"ne", func(a, b float32) float32 { return truth(a != b) }},
	Lt:       {"lt", func(a, b float32) float32 { return truth(a < b) }},
	Le:       {"le", func(a, b float32) float32 { return truth(a <= b) }},
	Gt:       {"gt", func(a, b float32) float32 { return truth(a > b) }},
	Ge:       {"ge", func(a, b float32) float32 { return truth(a >= b) }},
	And:      {"and", func(a, b float32) float32 { return truth(a != 0 && b != 0) }},
	Or:       {"or", func(a, b float32) float32 { return truth(a != 0 || b != 0) }},
	CopySign: {"copysign", copySign32},
	Larger: {"larger", func(a, b float32) float32 {
		if a != a || b <= a {
			return a
		}
		return b
	}},
	ReluGrad: {"relu_grad", func(x, dy float32) float32 {
		if x > 0 {
			return dy
		}
		return 0
	}},
	Pow:   {"pow", func(a, b float32) float32 { return float32(math.Pow(float64(a), float64(b))) }},
	Mod:   {"mod", mod32},
	Atan2: {"atan2", func(a, b float32) float32 { return float32(math.Atan2(float64(a), float64(b))) }},
	GeluErfGrad: {"gelu_erf_grad", timesDy(func(x float64) float64 {
		return normCDF(x) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
	})},
	GeluTanhGrad: {"gelu_tanh_grad", timesDy(func(x float64) float64 {
		s := sigmoid(geluArg(x))
		return s + x*s*(1-s)*geluC*(2+6*0.044715*x*x)
	})},
	SiluGrad: {"silu_grad", timesDy(func(x float64) float64 {
		s := sigmoid(x)
		return s * (1 + x*(1-s))
	})},
}

var ternaryRows = [numTernary]struct {
	name string
	f    func(a, b, c float32) float32
}{
	FMA:    {"fma", fma32},
	MulAdd: {"muladd", func(a, b, c float32) float32 { return float32(a*b) + c }},
	Select: {"select", func(a, b, c float32) float32 {
		if a != 0 {
			return b
		}
		return c
	}},
	Clip: {"clip", func(a, b, c float32) float32 { return min(max(a, b), c) }},
}

func (o Unary) String() string   { return unaryRows[o].name }
func (o Binary) String() string  { return binaryRows[o].name }
func (o Ternary) String() string { return ternaryRows[o].name }

const geluC = 0.7978845608028654 // sqrt(2/pi)

func geluArg(x float64) float64 { return 2 * geluC * (x + 0.044715*x*x*x) }
func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
func normCDF(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
func sqrt32(x float32) float32  { return float32(math.Sqrt(float64(x))) }

func in64(f func(float64) float64) func(float32) float32 {
	return func(x float32) float32 { return float32(f(float64(x))) }
}

// timesDy makes a gradient row of a derivative. A zero dy gives zero even where the derivative is Inf*0.
func timesDy(d func(float64) float64) func(x, dy float32) float32 {
	return func(x, dy float32) float32 { return float32(float64(dy) * d(float64(x))) }
}

func truth(b bool) float32 {
	if b {
		return 1
	}
	return 0
}

func sign32(x float32) float32 {
	if x > 0 {
		return 1
	} else if x < 0 {
		return -1
	}
	return x
}

func copySign32(a, b float32) float32 {
	const s = 1 << 31
	return math.Float32frombits(math.Float32bits(a)&^s | math.Float32bits(b)&s)
}

// mod32 is the remainder of a floored division, exact before its one rounding: it takes the sign of b.
func mod32(a, b float32) float32 {
	r := math.Mod(float64(a), float64(b))
	if r != 0 && (r < 0) != (b < 0) {
		r += float64(b)
	}
	return float32(r)
}

// fma32 is a*b+c rounded once. The product is exact in float64; the sum is rounded to odd there, so that the
// rounding to float32 sees whether it was exact (Boldo and Melquiond, "Emulation of FMA", 2008).
func fma32(a, b, c float32) float32 {
	p, z := float64(a)*float64(b), float64(c)
	s := p + z
	if math.IsInf(s, 0) || s != s || s == 0 {
		return float32(s)
	}
	v := s - p
	err := (p - (s - v)) + (z - v)
	if bits := math.Float64bits(s); err != 0 && bits&1 == 0 {
		if (err > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}

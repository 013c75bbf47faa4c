// Package ptxtest is the catalogue of kernel checks: each case builds a kernel, fills its buffers and
// compares what came out with a reference computed here in float64, or bit for bit where the
// kernel is exact. The interpreter's tests and the checks on a real GPU run the same cases.
package ptxtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"ampc/internal/fp"
	"ampc/ptx"
)

// Tensor is a buffer of elements as stored.
type Tensor struct {
	DType ptx.DType
	Bytes []byte
}

// New makes a tensor of n elements.
func New(d ptx.DType, n int) Tensor { return Tensor{d, make([]byte, n*d.Size())} }

// Len is the number of elements.
func (t Tensor) Len() int { return len(t.Bytes) / t.DType.Size() }

// Bits is element i as stored.
func (t Tensor) Bits(i int) uint64 {
	b := t.Bytes[i*t.DType.Size():]
	switch t.DType.Size() {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// setBits stores element i.
func (t Tensor) setBits(i int, v uint64) {
	b := t.Bytes[i*t.DType.Size():]
	switch t.DType.Size() {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}

// At is the value of element i.
func (t Tensor) At(i int) float64 {
	v := t.Bits(i)
	switch t.DType {
	case ptx.Float16:
		return float64(fp.F16ToF32(uint16(v)))
	case ptx.BFloat16:
		return float64(fp.BF16ToF32(uint16(v)))
	case ptx.Float32:
		return float64(math.Float32frombits(uint32(v)))
	case ptx.Float64:
		return math.Float64frombits(v)
	case ptx.Int32:
		return float64(int32(v))
	case ptx.Int64:
		return float64(int64(v))
	}
	return float64(v)
}

// F32 is At in float32, where the type fits.
func (t Tensor) F32(i int) float32 { return float32(t.At(i)) }

// Set stores a value, rounded to the type.
func (t Tensor) Set(i int, x float64) { t.setBits(i, encode(t.DType, x)) }

func encode(d ptx.DType, x float64) uint64 {
	switch d {
	case ptx.Float16:
		return uint64(fp.F16(float32(x)))
	case ptx.BFloat16:
		return uint64(fp.BF16(float32(x)))
	case ptx.Float32:
		return uint64(math.Float32bits(float32(x)))
	case ptx.Float64:
		return math.Float64bits(x)
	}
	return uint64(int64(x))
}

// isNaN reports whether element i is a NaN of a float type.
func (t Tensor) isNaN(i int) bool { return math.IsNaN(t.At(i)) }

// ulp is the distance between neighbours of x in a float type.
func ulp(d ptx.DType, x float64) float64 {
	digits, least := 24, -149
	switch d {
	case ptx.Float16:
		digits, least = 11, -24
	case ptx.BFloat16:
		digits, least = 8, -133
	}
	if math.IsInf(x, 0) || x == 0 || x != x {
		return math.Ldexp(1, least)
	}
	_, e := math.Frexp(x)
	return math.Ldexp(1, max(e-digits, least))
}

// same checks elements bit for bit; any NaN equals any NaN.
func same(name string, got, want Tensor) error {
	for i := range got.Len() {
		if got.Bits(i) != want.Bits(i) && !(got.isNaN(i) && want.isNaN(i)) {
			return fmt.Errorf("%s[%d] = %g (%#x), want %g (%#x)", name, i, got.At(i), got.Bits(i), want.At(i), want.Bits(i))
		}
	}
	return nil
}

// near checks elements against exact values: the error may be slack(i) plus half a unit of the type.
func near(name string, got Tensor, want func(i int) float64, slack func(i int) float64) error {
	for i := range got.Len() {
		g, w := got.At(i), want(i)
		if g == w || g != g && w != w {
			continue
		}
		limit := slack(i) + 0.5001*ulp(got.DType, w)
		if math.IsInf(g, 0) && math.Abs(w)+limit >= largest(got.DType) {
			continue
		}
		if !(math.Abs(g-w) <= limit) {
			return fmt.Errorf("%s[%d] = %g, want %g within %g", name, i, g, w, limit)
		}
	}
	return nil
}

// largest is where a type overflows when rounding to nearest.
func largest(d ptx.DType) float64 {
	switch d {
	case ptx.Float16:
		return 65520
	case ptx.BFloat16:
		return 0x1.ffp127
	}
	return 0x1.ffffffp127
}

// fill draws n ordinary values of spread s.
func fill(r *rand.Rand, d ptx.DType, n int, s float64) Tensor {
	t := New(d, n)
	for i := range n {
		t.Set(i, r.NormFloat64()*s)
	}
	return t
}

func isFloat(d ptx.DType) bool { return subnormal(d) != 0 }

// subnormal is a value of a float type below its normal numbers.
func subnormal(d ptx.DType) float64 {
	return map[ptx.DType]float64{ptx.Float16: 3e-6, ptx.BFloat16: 1e-39, ptx.Float32: 3e-40, ptx.Float64: 5e-310}[d]
}

// rare is fill with a -Inf, an Inf and a NaN in the first three of rows rows, one each, and subnormals
// among the elements of the fourth, so that the other rows stay ordinary. What does not fit is left out.
func rare(r *rand.Rand, d ptx.DType, rows, cols int, s float64) Tensor {
	t := fill(r, d, rows*cols, s)
	for row, x := range []float64{math.Inf(-1), math.Inf(1), math.NaN()} {
		if row < rows-1 {
			t.Set(row*cols+r.IntN(cols), x)
		}
	}
	for i := 0; i < cols && rows > 4; i += 3 {
		t.Set(3*cols+i, subnormal(d))
	}
	return t
}

// strew puts one of NaN, infinities and a subnormal in every so many elements.
func strew(r *rand.Rand, t Tensor, every int) Tensor {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), subnormal(t.DType)}
	for i := r.IntN(every); i < t.Len(); i += every {
		t.Set(i, odd[r.IntN(len(odd))])
	}
	return t
}

// special is fill with NaN, infinities, zeros and subnormals strewn in.
func special(r *rand.Rand, d ptx.DType, n int, s float64) Tensor {
	t := fill(r, d, n, s)
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1e-45, -3e-40, 6e-8, -2e-6, 3e38, 65519, 65520, -70000}
	for i := range n {
		if r.IntN(4) == 0 {
			t.Set(i, odd[r.IntN(len(odd))])
		}
	}
	return t
}

// ids draws n integers in [0, limit).
func ids(r *rand.Rand, d ptx.DType, n, limit int) Tensor {
	t := New(d, n)
	for i := range n {
		t.Set(i, float64(r.IntN(limit)))
	}
	return t
}

// Fill draws n normal values of spread s.
func Fill(r *rand.Rand, d ptx.DType, n int, s float64) Tensor { return fill(r, d, n, s) }

// Ulp is the distance between neighbours of x in a float type.
func Ulp(d ptx.DType, x float64) float64 { return ulp(d, x) }

// SameBits compares two buffers element by element as stored; any NaN equals any NaN.
func SameBits(name string, got, want Tensor) error { return same(name, got, want) }

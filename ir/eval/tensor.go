package eval

import (
	"encoding/binary"
	"fmt"
	"math"

	"ampc/internal/fp"
	"ampc/ir"
)

// Tensor is a value in row-major order. F holds the elements of the float
// dtypes, each representable in the dtype (unless nothing is rounded, see
// Options); I holds those of the integers (of u64 by their bits) and of bool (0 or 1).
type Tensor struct {
	Type ir.Type
	F    []float64
	I    []int64
}

// New returns zeros of a static type.
func New(t ir.Type) *Tensor {
	n := max(t.Shape.Elements(), 0)
	if t.DType.Float() {
		return &Tensor{Type: t, F: make([]float64, n)}
	}
	return &Tensor{Type: t, I: make([]int64, n)}
}

// Floats returns a tensor of the given elements, rounded to dtype d.
func Floats(d ir.DType, shape []ir.Dim, v ...float64) *Tensor {
	t := &Tensor{Type: ir.Type{DType: d, Shape: ir.MakeShape(shape...)}, F: append([]float64(nil), v...)}
	t.round()
	return t
}

// Ints returns an integer or bool tensor of the given elements.
func Ints(d ir.DType, shape []ir.Dim, v ...int64) *Tensor {
	t := &Tensor{Type: ir.Type{DType: d, Shape: ir.MakeShape(shape...)}, I: append([]int64(nil), v...)}
	t.round()
	return t
}

// Len returns the number of elements.
func (t *Tensor) Len() int { return max(len(t.F), len(t.I)) }

// dims returns the shape as ints.
func (t *Tensor) dims() []int {
	d := t.Type.Shape.Dims()
	out := make([]int, len(d))
	for i, x := range d {
		out[i] = int(x)
	}
	return out
}

// At returns element i as a number, whatever the dtype.
func (t *Tensor) At(i int) float64 {
	if t.F != nil {
		return t.F[i]
	}
	return t.Type.DType.Number(t.I[i])
}

// Clone copies the tensor.
func (t *Tensor) Clone() *Tensor {
	return &Tensor{Type: t.Type, F: append([]float64(nil), t.F...), I: append([]int64(nil), t.I...)}
}

// round stores: every element becomes one that the dtype can hold. Integers
// wrap; bools are 0 or 1.
func (t *Tensor) round() {
	for i, x := range t.F {
		t.F[i] = Round(x, t.Type.DType)
	}
	for i, x := range t.I {
		t.I[i] = t.Type.DType.Wrap(x)
	}
}

// Round returns x as dtype d stores it: first to f32, then to d, both to
// nearest even, except that f64 keeps it.
func Round(x float64, d ir.DType) float64 {
	switch d {
	case ir.F64:
		return x
	case ir.F16:
		return float64(fp.F16ToF32(fp.F16(float32(x))))
	case ir.BF16:
		return float64(fp.BF16ToF32(fp.BF16(float32(x))))
	}
	return float64(float32(x))
}

// Bytes returns the little-endian storage: Type.Bytes() bytes.
func (t *Tensor) Bytes() []byte {
	size := int(t.Type.DType.Size())
	out := make([]byte, t.Len()*size)
	for i := range t.Len() {
		var bits uint64
		switch t.Type.DType {
		case ir.F64:
			bits = math.Float64bits(t.F[i])
		case ir.F32:
			bits = uint64(math.Float32bits(float32(t.F[i])))
		case ir.F16:
			bits = uint64(fp.F16(float32(t.F[i])))
		case ir.BF16:
			bits = uint64(fp.BF16(float32(t.F[i])))
		default:
			bits = uint64(t.I[i])
		}
		for k := range size {
			out[i*size+k] = byte(bits >> (8 * k))
		}
	}
	return out
}

// FromBytes reads little-endian storage. It fails when the length is not the
// type's or a bool is neither 0 nor 1.
func FromBytes(t ir.Type, b []byte) (*Tensor, error) {
	if want := t.Bytes(); want != int64(len(b)) {
		return nil, fmt.Errorf("%s holds %d bytes, got %d", t, want, len(b))
	}
	x := New(t)
	le := binary.LittleEndian
	for i := range x.Len() {
		switch t.DType {
		case ir.F64:
			x.F[i] = math.Float64frombits(le.Uint64(b[8*i:]))
		case ir.F32:
			x.F[i] = float64(math.Float32frombits(le.Uint32(b[4*i:])))
		case ir.F16:
			x.F[i] = float64(fp.F16ToF32(le.Uint16(b[2*i:])))
		case ir.BF16:
			x.F[i] = float64(fp.BF16ToF32(le.Uint16(b[2*i:])))
		case ir.Bool:
			if b[i] > 1 {
				return nil, fmt.Errorf("%s: byte %d is %d, want 0 or 1", t, i, b[i])
			}
			x.I[i] = int64(b[i])
		default:
			if !t.DType.Integer() {
				return nil, fmt.Errorf("%s has no storage", t.DType)
			}
			x.I[i] = stored(t.DType, b[int64(i)*t.DType.Size():])
		}
	}
	return x, nil
}

// stored is the little-endian integer that b begins with.
func stored(d ir.DType, b []byte) int64 {
	bits := uint64(0)
	for k := range d.Size() {
		bits |= uint64(b[k]) << (8 * k)
	}
	return d.Wrap(int64(bits))
}

package ampc

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"unsafe"

	"github.com/x448/float16"

	"ampc/internal/fp"
	"ampc/ir"
)

// HostTensor is a tensor in the program's own memory: row-major, little-endian, as
// wide as its type says.
type HostTensor struct {
	Type  Type
	Bytes []byte
}

// NewHostTensor makes a tensor of what a Feed takes for an input of type t.
func NewHostTensor(t Type, v any) (HostTensor, error) {
	b, err := encode(v, t.t)
	if err != nil {
		return HostTensor{}, fmt.Errorf("the value %w", err)
	}
	return HostTensor{t, b}, nil
}

// Floats returns the elements of a float tensor, widened, or of an integer
// tensor, converted.
func (h HostTensor) Floats() []float32 {
	out := make([]float32, h.Len())
	for i := range out {
		out[i] = float32(h.At(i))
	}
	return out
}

// Len is the number of elements.
func (h HostTensor) Len() int {
	size := int(h.Type.DType().Size())
	if size == 0 {
		return 0
	}
	return len(h.Bytes) / size
}

// At returns element i in row-major order; an integer beyond 2^53 is rounded.
func (h HostTensor) At(i int) float64 {
	b := h.Bytes[i*int(h.Type.DType().Size()):]
	switch h.Type.t.DType {
	case ir.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case ir.F16:
		return float64(fp.F16ToF32(binary.LittleEndian.Uint16(b)))
	case ir.BF16:
		return float64(fp.BF16ToF32(binary.LittleEndian.Uint16(b)))
	case ir.F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	bits, d := uint64(0), h.Type.t.DType
	for k := range d.Size() {
		bits |= uint64(b[k]) << (8 * k)
	}
	return d.Number(d.Wrap(int64(bits)))
}

// Feed holds one micro-batch: a value for every input by name. It may be a
// HostTensor, or a slice of the elements in row-major order: []float32, []float64 or
// []float16.Float16 for float inputs, a slice of any integers for integers,
// []bool, or a single number for a scalar; a *Cache stands under a name of its own. A
// HostTensor or a slice
// whose elements are of the input's own type is read where it is, by Run and by
// a Diagnose or SaveReplay of that step; anything else is converted first.
type Feed map[string]any

// elements counts what is fed, -1 where it is nothing that a Feed takes.
func elements(v any) int64 {
	if h, ok := v.(HostTensor); ok {
		return int64(h.Len())
	}
	if r := reflect.ValueOf(v); r.Kind() == reflect.Slice {
		return int64(r.Len())
	}
	return -1
}

// sizeError is the error of what is fed with the right element type in another size.
type sizeError string

func (e sizeError) Error() string { return string(e) }

// slicesFor lists the slices that may be fed for an element type.
func slicesFor(d ir.DType) string {
	switch {
	case d.Float():
		return "[]float32, []float64 or []float16.Float16"
	case d == ir.Bool:
		return "[]bool"
	}
	return "[]int32, []int64, []int or []uint8"
}

// encode turns a fed value into the bytes of type t.
func encode(v any, t ir.Type) ([]byte, error) {
	if h, ok := v.(HostTensor); ok {
		switch {
		case h.Type.t == t:
			return h.Bytes, nil
		case h.Type.t.Shape == t.Shape && h.Type.DType().Float() && t.DType.Float():
			return appendFloats(h.Floats(), t.DType), nil
		}
		if h.Type.t.DType == t.DType {
			return nil, sizeError(fmt.Sprintf("is %s, want %s", h.Type, t))
		}
		return nil, fmt.Errorf("is %s, want %s", h.Type, t)
	}
	out, err := asFed(v, t.DType), error(nil)
	if out == nil {
		out, err = convert(v, t)
	}
	switch {
	case err != nil:
		return nil, err
	case out == nil:
		return nil, fmt.Errorf("is a %T, want %s: feed %s", v, t, slicesFor(t.DType))
	case int64(len(out)) != t.Bytes():
		return nil, sizeError(fmt.Sprintf("has %d elements, want %s, which has %d", int64(len(out))/t.DType.Size(), t, t.Shape.Elements()))
	}
	return out, nil
}

// asFed shows the bytes of a slice whose elements are those of dtype d; nil where they are not.
func asFed(v any, d ir.DType) []byte {
	switch v := v.(type) {
	case []float32:
		if d == ir.F32 {
			return memory(v)
		}
	case []int32:
		if d == ir.I32 {
			return memory(v)
		}
	case []int8:
		if d == ir.I8 {
			return memory(v)
		}
	case []float16.Float16:
		if d == ir.F16 {
			return memory(v)
		}
	case []uint8:
		if d == ir.U8 {
			return v
		}
	}
	return nil
}

// memory is what a slice lies in. Hosts are little-endian, as every platform of ampc is.
func memory[T float32 | int32 | int8 | float16.Float16](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}

// convert writes what is fed as elements of t. Where no such slice becomes t's dtype, it returns nil.
func convert(v any, t ir.Type) (out []byte, err error) {
	switch v := v.(type) {
	case []float32:
		out = appendFloats(v, t.DType)
	case []float64:
		out = appendFloats(v, t.DType)
	case float32:
		out = appendFloats([]float32{v}, t.DType)
	case float64:
		out = appendFloats([]float64{v}, t.DType)
	case []float16.Float16:
		wide := make([]float32, len(v))
		for i, x := range v {
			wide[i] = x.Float32()
		}
		out = appendFloats(wide, t.DType)
	case []int32:
		out, err = appendInts(v, t.DType)
	case []int64:
		out, err = appendInts(v, t.DType)
	case []int:
		out, err = appendInts(v, t.DType)
	case int:
		out, err = appendInts([]int{v}, t.DType)
	case []uint8:
		out, err = appendInts(v, t.DType)
	case []int8:
		out, err = appendInts(v, t.DType)
	case []int16:
		out, err = appendInts(v, t.DType)
	case []uint16:
		out, err = appendInts(v, t.DType)
	case []uint32:
		out, err = appendInts(v, t.DType)
	case []uint64:
		out, err = appendInts(v, t.DType)
	case []bool:
		out = appendBools(v, t.DType)
	default:
		return nil, fmt.Errorf("is a %T, want a HostTensor or a slice of numbers for %s", v, t)
	}
	return out, err
}

// appendFloats encodes for a float dtype; for any other it returns nil.
func appendFloats[T float32 | float64](v []T, d ir.DType) []byte {
	if !d.Float() {
		return nil
	}
	out := make([]byte, 0, len(v)*int(d.Size()))
	for _, x := range v {
		switch d {
		case ir.F32:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(x)))
		case ir.F16:
			out = binary.LittleEndian.AppendUint16(out, fp.F16(float32(x)))
		case ir.BF16:
			out = binary.LittleEndian.AppendUint16(out, fp.BF16(float32(x)))
		case ir.F64:
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(float64(x)))
		}
	}
	return out
}

// appendInts encodes for an integer dtype, as appendFloats does for floats; a
// number out of its range is an error.
func appendInts[T int | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](v []T, d ir.DType) ([]byte, error) {
	if d.Float() || d == ir.Bool {
		return nil, nil
	}
	out := make([]byte, 0, len(v)*int(d.Size()))
	for i, x := range v {
		if d.Wrap(int64(x)) != int64(x) || (x < 0) != (int64(x) < 0 && d != ir.U64) {
			return nil, fmt.Errorf("holds %d at %d, which does not fit %s", x, i, d)
		}
		for k := range d.Size() {
			out = append(out, byte(uint64(x)>>(8*k)))
		}
	}
	return out, nil
}

func appendBools(v []bool, d ir.DType) []byte {
	if d != ir.Bool {
		return nil
	}
	out := make([]byte, len(v))
	for i, x := range v {
		if x {
			out[i] = 1
		}
	}
	return out
}

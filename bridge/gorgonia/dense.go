package bridge

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/x448/float16"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"ampc"
	"ampc/ir"
)

// FromDense gives the elements of t in row-major order. They are t's own
// memory where t is contiguous and row-major, a copy otherwise (views,
// transposed and column-major tensors). float64 stays ir.F64, int becomes i64,
// float16.Float16 f16. Hosts are little-endian, as every platform of ampc is.
func FromDense(t *tensor.Dense) (ampc.HostTensor, error) {
	var none ampc.HostTensor
	switch {
	case t == nil:
		return none, fmt.Errorf("no tensor")
	case !t.IsNativelyAccessible():
		return none, fmt.Errorf("tensor %v is not in Go's memory", t.Shape())
	case t.IsMasked():
		return none, fmt.Errorf("tensor %v is masked: fill it first", t.Shape())
	}
	shape, err := shapeOf(t.Shape())
	if err != nil {
		return none, err
	}
	d, err := dtypeOf(t.Dtype())
	if err != nil {
		return none, err
	}
	raw, size := memory(t.Data())
	typ := ir.Type{DType: d, Shape: shape}
	strides, err := stridesOf(t)
	if err != nil {
		return none, err
	}
	if slices.Equal(strides, rowMajor(t.Shape())) {
		if int64(len(raw)) < typ.Bytes() {
			return none, fmt.Errorf("tensor %v holds %d bytes, %s takes %d", t.Shape(), len(raw), typ, typ.Bytes())
		}
		return ampc.HostTensor{Type: ampc.TypeFromIR(typ), Bytes: raw[:typ.Bytes()]}, nil
	}
	data, err := gather(raw, size, t.Shape(), strides)
	return ampc.HostTensor{Type: ampc.TypeFromIR(typ), Bytes: data}, err
}

// hostOf is FromDense for every value of Gorgonia: numbers too.
func hostOf(v G.Value) (ampc.HostTensor, error) {
	if v == nil {
		return ampc.HostTensor{}, fmt.Errorf("no value")
	}
	if t, ok := v.(*tensor.Dense); ok {
		return FromDense(t)
	}
	if len(v.Shape()) > 0 {
		return ampc.HostTensor{}, fmt.Errorf("a %T: want a *tensor.Dense or a number", v)
	}
	d, err := dtypeOf(v.Dtype())
	if err != nil {
		return ampc.HostTensor{}, err
	}
	raw, _ := memory(v.Data())
	return ampc.HostTensor{Type: ampc.TypeFromIR(ir.T(d)), Bytes: raw}, nil
}

// ToDense makes a tensor of h. It shares h's memory, except for bf16, which
// becomes float32: Go has no type for it. i64 becomes int64.
func ToDense(h ampc.HostTensor) (*tensor.Dense, error) {
	if want := h.Type.IR().Bytes(); want != int64(len(h.Bytes)) {
		return nil, fmt.Errorf("%s takes %d bytes, not %d", h.Type, want, len(h.Bytes))
	}
	var backing any
	switch h.Type.DType() {
	case ampc.F32:
		backing = elements[float32](h.Bytes)
	case ampc.F64:
		backing = elements[float64](h.Bytes)
	case ampc.F16:
		backing = elements[float16.Float16](h.Bytes)
	case ampc.BF16:
		backing = h.Floats()
	case ampc.I32:
		backing = elements[int32](h.Bytes)
	case ampc.I64:
		backing = elements[int64](h.Bytes)
	case ampc.U8:
		backing = h.Bytes
	case ampc.Bool:
		backing = elements[bool](h.Bytes)
	default:
		return nil, fmt.Errorf("no tensor holds %s", h.Type)
	}
	dims := h.Type.Shape()
	if len(dims) == 0 {
		return tensor.New(tensor.FromScalar(reflect.ValueOf(backing).Index(0).Interface())), nil
	}
	if slices.Contains(dims, 0) {
		return nil, fmt.Errorf("no tensor has the shape of %s", h.Type)
	}
	return tensor.New(tensor.WithShape(dims...), tensor.WithBacking(backing)), nil
}

// elements looks at bytes as a slice of T; it copies where they are not aligned for it.
func elements[T any](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%unsafe.Alignof(zero) == 0 {
		return unsafe.Slice((*T)(p), n)
	}
	out := make([]T, n)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(out))), len(b)), b)
	return out
}

// memory looks at a slice of numbers as bytes; a single number is copied.
func memory(data any) (b []byte, elem int) {
	v := reflect.ValueOf(data)
	if v.Kind() != reflect.Slice {
		s := reflect.MakeSlice(reflect.SliceOf(v.Type()), 1, 1)
		s.Index(0).Set(v)
		v = s
	}
	elem = int(v.Type().Elem().Size())
	return unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*elem), elem
}

// gather copies the elements of a strided tensor in row-major order.
func gather(raw []byte, size int, shape, strides []int) ([]byte, error) {
	last, total := 0, 1
	for i, d := range shape {
		last += (d - 1) * strides[i]
		total *= d
	}
	if total > 0 && (last+1)*size > len(raw) {
		return nil, fmt.Errorf("tensor %v with strides %v reaches beyond its %d bytes", shape, strides, len(raw))
	}
	out := make([]byte, 0, total*size)
	at := make([]int, len(shape))
	for range total {
		off := 0
		for i, k := range at {
			off += k * strides[i]
		}
		out = append(out, raw[off*size:(off+1)*size]...)
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < shape[i] {
				break
			}
			at[i] = 0
		}
	}
	return out, nil
}

func rowMajor(shape []int) []int {
	strides, n := make([]int, len(shape)), 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = n
		n *= shape[i]
	}
	return strides
}

// stridesOf gives one stride per dimension, as row-major ones have it where
// the dimension has one element. Gorgonia leaves the strides of such
// dimensions of vectors out.
func stridesOf(t *tensor.Dense) ([]int, error) {
	shape, have := t.Shape(), t.Strides()
	strides := rowMajor(shape)
	var long []int
	for i, d := range shape {
		if d != 1 {
			long = append(long, i)
		}
	}
	switch {
	case len(have) == len(shape):
		for _, i := range long {
			strides[i] = have[i]
		}
	case len(long) == 1 && len(have) == 1:
		strides[long[0]] = have[0]
	case len(long) > 0:
		return nil, fmt.Errorf("tensor %v has strides %v", shape, have)
	}
	return strides, nil
}

func shapeOf(s tensor.Shape) (ir.Shape, error) {
	d := make([]ir.Dim, len(s))
	for i, n := range s {
		d[i] = ir.Dim(n)
	}
	if err := ir.CheckDims(d); err != nil {
		return ir.Shape{}, err
	}
	return ir.MakeShape(d...), nil
}

// dtypeOf is the element type that holds a tensor's elements as they are.
func dtypeOf(d tensor.Dtype) (ir.DType, error) {
	if d.Type == reflect.TypeFor[float16.Float16]() {
		return ir.F16, nil
	}
	switch d.Type {
	case reflect.TypeFor[float32]():
		return ir.F32, nil
	case reflect.TypeFor[float64]():
		return ir.F64, nil
	case reflect.TypeFor[int32]():
		return ir.I32, nil
	case reflect.TypeFor[int64](), reflect.TypeFor[int]():
		return ir.I64, nil
	case reflect.TypeFor[uint8]():
		return ir.U8, nil
	case reflect.TypeFor[bool]():
		return ir.Bool, nil
	}
	return ir.Invalid, fmt.Errorf("no counterpart of elements of type %v", d)
}

package onnx

import (
	"encoding/binary"
	"fmt"
	"math"

	"ampc/ir"
	"ampc/ir/eval"
)

// DataType is the type of an element in a file.
type DataType int64

var dataTypes = map[DataType]struct {
	name string
	ours ir.DType // Invalid: we have none
}{
	1: {"float", ir.F32}, 2: {"uint8", ir.U8}, 3: {"int8", ir.I8}, 4: {"uint16", ir.U16}, 5: {"int16", ir.I16}, 6: {"int32", ir.I32}, 7: {"int64", ir.I64},
	8: {"string", 0}, 9: {"bool", ir.Bool}, 10: {"float16", ir.F16}, 11: {"double", ir.F64}, 12: {"uint32", ir.U32}, 13: {"uint64", ir.U64},
	14: {"complex64", 0}, 15: {"complex128", 0}, 16: {"bfloat16", ir.BF16}, 17: {"float8e4m3fn", 0}, 18: {"float8e4m3fnuz", 0},
	19: {"float8e5m2", 0}, 20: {"float8e5m2fnuz", 0}, 21: {"uint4", 0}, 22: {"int4", 0}, 23: {"float4e2m1", 0}, 24: {"float8e8m0", 0},
}

func (d DataType) String() string {
	if t, ok := dataTypes[d]; ok {
		return t.name
	}
	return fmt.Sprintf("type %d", int64(d))
}

// ours is the dtype of the graph that holds elements of d.
func (d DataType) ours() (ir.DType, error) {
	if t := dataTypes[d]; t.ours != ir.Invalid {
		return t.ours, nil
	}
	return ir.Invalid, fmt.Errorf("elements of %s are not supported", d)
}

// DType is the dtype that holds elements of d in a graph.
func (d DataType) DType() (ir.DType, error) { return d.ours() }

// Tensor is a constant of the model.
type Tensor struct {
	Name     string
	DType    DataType
	Dims     []int64
	External []Entry // where the elements lie, if not here

	src        message // the whole tensor
	moved      bool    // it does not lie in the file of its model
	raw        message // raw_data
	hasRaw     bool
	typed      []field                // float_data and its kin
	texts      int                    // elements of string_data
	isExternal bool                   // data_location is external
	made       func() ([]byte, error) // elements that are computed; nil: they are in a file
}

// MakeTensor is a tensor of f32 whose elements are computed where they are read:
// little-endian, row-major, dense.
func MakeTensor(name string, dims []int64, elements func() ([]byte, error)) *Tensor {
	return &Tensor{Name: name, DType: 1, Dims: dims, made: elements}
}

// Made reports whether the elements are computed.
func (t *Tensor) Made() bool { return t.made != nil }

func (t *Tensor) read(f field) error {
	t.src = f.m
	return within("tensor", &t.Name, f, func(f field) error {
		switch f.num {
		case 1:
			return f.numbers(&t.Dims)
		case 2:
			return f.number((*int64)(&t.DType))
		case 3:
			return fmt.Errorf("byte %d: tensors in segments are not supported: write the model without them", f.m.at)
		case 4, 5, 7, 10, 11:
			t.typed = append(t.typed, f)
		case 6:
			t.texts++
		case 8:
			return f.text(&t.Name)
		case 9:
			t.raw, t.hasRaw = f.m, true
			return f.want(lengths)
		case 13:
			e, err := entry(f)
			t.External = append(t.External, e)
			return err
		case 14:
			t.isExternal = f.u == 1
		}
		return nil
	})
}

// shape is the tensor's shape as ours.
func (t *Tensor) shape() (ir.Shape, error) {
	d := make([]ir.Dim, len(t.Dims))
	for i, n := range t.Dims {
		if n < 0 {
			return ir.Shape{}, fmt.Errorf("tensor %q: dimension %d is %d, want 0 or more", t.Name, i, n)
		}
		d[i] = ir.Dim(n)
	}
	if err := ir.CheckDims(d); err != nil {
		return ir.Shape{}, fmt.Errorf("tensor %q: %v", t.Name, err)
	}
	return ir.MakeShape(d...), nil
}

// Type is the tensor's type as ours.
func (t *Tensor) Type() (ir.Type, error) {
	d, err := t.DType.ours()
	if err != nil {
		return ir.Type{}, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	s, err := t.shape()
	return ir.Type{DType: d, Shape: s}, err
}

// place is where the elements lie in the file as they are stored in memory:
// raw_data, or the packed numbers of a dtype that fields store at its own width.
func (t *Tensor) place(typ ir.Type) (m message, ok bool, err error) {
	m = t.raw
	if !t.hasRaw {
		if len(t.typed) != 1 || t.typed[0].typ != lengths || (t.typed[0].num != 4 || typ.DType != ir.F32) && (t.typed[0].num != 10 || typ.DType != ir.F64) {
			return m, false, nil
		}
		m = t.typed[0].m
	}
	if int64(len(m.b)) != typ.Bytes() {
		return m, false, fmt.Errorf("tensor %q: %s needs %d bytes, but the file has %d", t.Name, typ, typ.Bytes(), len(m.b))
	}
	return m, true, nil
}

// value decodes the elements.
func (t *Tensor) value() (*eval.Tensor, error) {
	typ, err := t.Type()
	if err != nil {
		return nil, err
	}
	if t.isExternal {
		return nil, fmt.Errorf("tensor %q: its elements are in another file: open the model with Open, which knows its folder", t.Name)
	}
	m, ok, err := t.place(typ)
	if t.made != nil {
		m.b, err = t.made()
		ok = true
	}
	if err != nil {
		return nil, err
	}
	if ok {
		x, err := eval.FromBytes(typ, m.b)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %v", t.Name, err)
		}
		return x, nil
	}
	n, have := typ.Shape.Elements(), int64(0)
	for _, f := range t.typed {
		have += max(int64(len(f.m.b)), 1) // a number takes a byte at least
	}
	if n > have {
		return nil, fmt.Errorf("tensor %q: %s has %d elements, but the file has at most %d", t.Name, typ, n, have)
	}
	x := eval.New(typ)
	if k, err := t.decode(x); err != nil || int64(k) != n {
		if err == nil {
			err = fmt.Errorf("%s has %d elements, but the file has %d", typ, n, k)
		}
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return x, nil
}

// decode reads the numbers of typed fields and counts them. 16-bit floats are
// bit patterns among int32_data.
func (t *Tensor) decode(x *eval.Tensor) (k int, err error) {
	for _, f := range t.typed {
		var ints []int64
		var floats []float64
		switch f.num {
		case 4:
			var s []float32
			err = f.floats(&s)
			for _, v := range s {
				floats = append(floats, float64(v))
			}
		case 10:
			err = f.doubles(&floats)
		default:
			err = f.numbers(&ints)
		}
		if err != nil {
			return k, err
		}
		if k+len(ints)+len(floats) > x.Len() || len(floats) > len(x.F) || len(ints) > 0 && len(x.F) > 0 && !x.Type.DType.Low() {
			return k, fmt.Errorf("the file has numbers in a field that its dtype %s does not use", x.Type)
		}
		for i, v := range ints {
			if x.F != nil {
				x.F[k+i] = half(uint16(v), x.Type.DType)
			} else {
				x.I[k+i] = x.Type.DType.Wrap(v)
			}
		}
		copy(x.F[min(k, len(x.F)):], floats)
		k += len(ints) + len(floats)
	}
	return k, nil
}

// half is the number that a pattern of 16 bits stands for.
func half(bits uint16, d ir.DType) float64 {
	x, err := eval.FromBytes(ir.Type{DType: d, Shape: ir.MakeShape()}, binary.LittleEndian.AppendUint16(nil, bits))
	if err != nil {
		return math.NaN()
	}
	return x.F[0]
}

// ParseTensor reads a serialized TensorProto, as test data and calibration data
// hold them, and its name.
func ParseTensor(b []byte) (*eval.Tensor, string, error) {
	t := &Tensor{}
	if err := t.read(field{typ: lengths, m: message{b: b}}); err != nil {
		return nil, t.Name, err
	}
	x, err := t.value()
	return x, t.Name, err
}

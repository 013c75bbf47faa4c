package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The wire format is that of protobuf.dev/programming-guides/encoding: fields
// of a tag, which is a number and a wire type in one varint, and a value.

// wireType is how the value of a field is stored.
type wireType uint8

// The wire types that ONNX uses.
const (
	varint  wireType = 0
	fixed64 wireType = 1
	lengths wireType = 2 // bytes behind their number
	fixed32 wireType = 5
)

// message is the bytes of one protobuf message and where they begin in the file.
type message struct {
	b  []byte
	at int64
}

// field is one field of a message: a varint or a fixed-width number in u, or
// bytes in m.
type field struct {
	num int
	typ wireType
	u   uint64
	m   message
	raw []byte // tag and value
}

// takeVarint reads a number of 7 bits in each byte; n is the bytes it took, 0
// where b ends first and below 0 where it has more than 64 bits.
func takeVarint(b []byte) (u uint64, n int) { return binary.Uvarint(b) }

// each calls f for every field in the order of the file.
func (m message) each(f func(f field) error) error {
	for rest := m.b; len(rest) > 0; {
		at := m.at + int64(len(m.b)-len(rest))
		x, size, err := take(rest, at)
		if err != nil {
			return err
		}
		x.raw, rest = rest[:size:size], rest[size:]
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}

// take reads one field and says how many bytes it took.
func take(b []byte, at int64) (x field, size int, err error) {
	tag, n := takeVarint(b)
	if n <= 0 {
		return x, 0, badNumber(at, n)
	}
	x = field{num: int(min(tag>>3, math.MaxInt32)), typ: wireType(tag & 7), m: message{at: at}}
	if x.num < 1 || tag>>3 > 1<<29-1 {
		return x, 0, fmt.Errorf("byte %d: a protobuf field has the invalid number %d: the file is damaged or not an ONNX model", at, tag>>3)
	}
	body := b[n:]
	switch x.typ {
	case varint:
		if x.u, size = takeVarint(body); size <= 0 {
			return x, 0, badNumber(at, size)
		}
		return x, n + size, nil
	case fixed32:
		if len(body) < 4 {
			return x, 0, badNumber(at, 0)
		}
		x.u = uint64(binary.LittleEndian.Uint32(body))
		return x, n + 4, nil
	case fixed64:
		if len(body) < 8 {
			return x, 0, badNumber(at, 0)
		}
		x.u = binary.LittleEndian.Uint64(body)
		return x, n + 8, nil
	case lengths:
		length, k := takeVarint(body)
		if k <= 0 {
			return x, 0, badNumber(at, k)
		}
		if length > uint64(len(body)-k) {
			return x, 0, badNumber(at, 0)
		}
		x.m = message{b: body[k : k+int(length) : k+int(length)], at: at + int64(n+k)}
		return x, n + k + int(length), nil
	}
	return x, 0, fmt.Errorf("byte %d: field %d has wire type %d, which ONNX does not use: the file is damaged or not an ONNX model", at, x.num, x.typ)
}

func badNumber(at int64, n int) error {
	if n == 0 {
		return fmt.Errorf("byte %d: the file ends inside a field: it is not complete", at)
	}
	return fmt.Errorf("byte %d: a number has more than 64 bits: the file is damaged or not an ONNX model", at)
}

// want says whether the field has the wire type that its number calls for.
func (f field) want(typ wireType) error {
	if f.typ == typ {
		return nil
	}
	return fmt.Errorf("byte %d: field %d has wire type %d, want %d: the file is damaged or not an ONNX model", f.m.at, f.num, f.typ, typ)
}

// text copies a string field.
func (f field) text(to *string) error {
	*to = string(f.m.b)
	return f.want(lengths)
}

func (f field) number(to *int64) error {
	*to = int64(f.u)
	return f.want(varint)
}

// numbers appends a repeated varint, packed or not.
func (f field) numbers(to *[]int64) error {
	if f.typ == varint {
		*to = append(*to, int64(f.u))
		return nil
	}
	if err := f.want(lengths); err != nil {
		return err
	}
	for b := f.m.b; len(b) > 0; {
		u, n := takeVarint(b)
		if n <= 0 {
			return badNumber(f.m.at, n)
		}
		*to, b = append(*to, int64(u)), b[n:]
	}
	return nil
}

// floats appends a repeated float, packed or not.
func (f field) floats(to *[]float32) error {
	if f.typ == fixed32 {
		*to = append(*to, math.Float32frombits(uint32(f.u)))
		return nil
	}
	if err := f.want(lengths); err != nil {
		return err
	}
	if len(f.m.b)%4 != 0 {
		return fmt.Errorf("byte %d: a list of floats has %d bytes, want a multiple of 4: the file is damaged", f.m.at, len(f.m.b))
	}
	for b := f.m.b; len(b) > 0; b = b[4:] {
		*to = append(*to, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return nil
}

// doubles appends a repeated double, packed or not.
func (f field) doubles(to *[]float64) error {
	if f.typ == fixed64 {
		*to = append(*to, math.Float64frombits(f.u))
		return nil
	}
	if err := f.want(lengths); err != nil {
		return err
	}
	if len(f.m.b)%8 != 0 {
		return fmt.Errorf("byte %d: a list of doubles has %d bytes, want a multiple of 8: the file is damaged", f.m.at, len(f.m.b))
	}
	for b := f.m.b; len(b) > 0; b = b[8:] {
		*to = append(*to, math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}
	return nil
}

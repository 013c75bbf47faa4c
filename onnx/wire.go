package onnx

import (
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is the bytes of one protobuf message and where they begin in the file.
type message struct {
	b  []byte
	at int64
}

// field is one field of a message: a varint or a fixed-width number in u, or
// bytes in m.
type field struct {
	num protowire.Number
	typ protowire.Type
	u   uint64
	m   message
	raw []byte // tag and value
}

// each calls f for every field in the order of the file.
func (m message) each(f func(f field) error) error {
	for rest := m.b; len(rest) > 0; {
		at := m.at + int64(len(m.b)-len(rest))
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return malformed(at, n)
		}
		x := field{num: num, typ: typ}
		size := 0
		switch body := rest[n:]; typ {
		case protowire.VarintType:
			x.u, size = protowire.ConsumeVarint(body)
		case protowire.Fixed32Type:
			var u uint32
			u, size = protowire.ConsumeFixed32(body)
			x.u = uint64(u)
		case protowire.Fixed64Type:
			x.u, size = protowire.ConsumeFixed64(body)
		case protowire.BytesType:
			x.m.b, size = protowire.ConsumeBytes(body)
			x.m.at = at + int64(n+size-len(x.m.b))
		default:
			return fmt.Errorf("byte %d: field %d has wire type %d, which ONNX does not use", at, num, typ)
		}
		if size < 0 {
			return malformed(at, size)
		}
		x.raw, rest = rest[:n+size], rest[n+size:]
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}

func malformed(at int64, code int) error {
	err := protowire.ParseError(code)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("byte %d: the file ends inside a field", at)
	}
	return fmt.Errorf("byte %d: no protobuf field (%v)", at, err)
}

// want says whether the field has the wire type that its number calls for.
func (f field) want(typ protowire.Type) error {
	if f.typ == typ {
		return nil
	}
	return fmt.Errorf("byte %d: field %d has wire type %d, want %d", f.m.at, f.num, f.typ, typ)
}

// text copies a string field.
func (f field) text(to *string) error {
	*to = string(f.m.b)
	return f.want(protowire.BytesType)
}

func (f field) number(to *int64) error {
	*to = int64(f.u)
	return f.want(protowire.VarintType)
}

// numbers appends a repeated varint, packed or not.
func (f field) numbers(to *[]int64) error {
	if f.typ == protowire.VarintType {
		*to = append(*to, int64(f.u))
		return nil
	}
	if err := f.want(protowire.BytesType); err != nil {
		return err
	}
	for b := f.m.b; len(b) > 0; {
		u, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return malformed(f.m.at, n)
		}
		*to, b = append(*to, int64(u)), b[n:]
	}
	return nil
}

// floats appends a repeated float, packed or not.
func (f field) floats(to *[]float32) error {
	if f.typ == protowire.Fixed32Type {
		*to = append(*to, math.Float32frombits(uint32(f.u)))
		return nil
	}
	if err := f.want(protowire.BytesType); err != nil {
		return err
	}
	if len(f.m.b)%4 != 0 {
		return fmt.Errorf("byte %d: %d bytes of floats, want a multiple of 4", f.m.at, len(f.m.b))
	}
	for b := f.m.b; len(b) > 0; b = b[4:] {
		u, _ := protowire.ConsumeFixed32(b)
		*to = append(*to, math.Float32frombits(u))
	}
	return nil
}

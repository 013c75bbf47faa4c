package onnx

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// pieces is a message being written: slices of a file, new bytes, and data that
// is made when its turn comes.
type pieces struct {
	parts []part
	size  int64
}

// part is bytes, or what writes them.
type part struct {
	b     []byte
	size  int64
	write func(w io.Writer) error
}

func (p *pieces) add(b []byte) {
	p.parts = append(p.parts, part{b: b})
	p.size += int64(len(b))
}

// message adds a field that holds a message.
func (p *pieces) message(num int, m *pieces) {
	p.add(head(num, m.size))
	p.parts = append(p.parts, m.parts...)
	p.size += m.size
}

// head is the tag and the length of a field of bytes.
func head(num int, size int64) []byte {
	b := binary.AppendUvarint(nil, uint64(num)<<3|uint64(lengths))
	return binary.AppendUvarint(b, uint64(size))
}

func (p *pieces) text(num int, s string) {
	p.add(head(num, int64(len(s))))
	p.add([]byte(s))
}

func (p *pieces) number(num int, x int64) {
	b := binary.AppendUvarint(nil, uint64(num)<<3|uint64(varint))
	p.add(binary.AppendUvarint(b, uint64(x)))
}

// packed adds a repeated integer in one field.
func (p *pieces) packed(num int, list []int64) {
	var b []byte
	for _, x := range list {
		b = binary.AppendUvarint(b, uint64(x))
	}
	p.add(head(num, int64(len(b))))
	p.add(b)
}

func (p *pieces) float(num int, x float32) {
	b := binary.AppendUvarint(nil, uint64(num)<<3|uint64(fixed32))
	p.add(binary.LittleEndian.AppendUint32(b, math.Float32bits(x)))
}

// data adds a field with the elements of a tensor.
func (p *pieces) data(num int, t NewTensor) {
	p.add(head(num, t.Size))
	p.parts = append(p.parts, part{size: t.Size, write: t.Write})
	p.size += t.Size
}

func (p *pieces) writeTo(w io.Writer) error {
	for _, x := range p.parts {
		if x.write == nil {
			if _, err := w.Write(x.b); err != nil {
				return err
			}
			continue
		}
		n := &counted{w: w}
		if err := x.write(n); err != nil {
			return err
		}
		if n.size != x.size {
			return fmt.Errorf("a tensor has %d bytes, but %d were written", x.size, n.size)
		}
	}
	return nil
}

// counted counts what goes through it.
type counted struct {
	w    io.Writer
	size int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.size += int64(n)
	return n, err
}

// Bytes is a NewTensor of bytes that are there already.
func Bytes(d DataType, b []byte) NewTensor {
	return NewTensor{DType: d, Size: int64(len(b)), Write: func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}}
}

func (n *NewNode) pieces() *pieces {
	p := &pieces{}
	for _, x := range n.In {
		p.text(1, x)
	}
	for _, y := range n.Out {
		p.text(2, y)
	}
	p.text(3, n.Name)
	p.text(4, n.Op)
	if n.Domain != "" {
		p.text(7, n.Domain)
	}
	for _, a := range n.Attrs {
		p.message(5, a.pieces())
	}
	return p
}

func (a *NewAttr) pieces() *pieces {
	p := &pieces{}
	p.text(1, a.Name)
	var t AttrType
	switch x := a.Value.(type) {
	case int64:
		t = AttrInt
		p.number(3, x)
	case float32:
		t = AttrFloat
		p.float(2, x)
	case string:
		t = AttrString
		p.text(4, x)
	case []int64:
		t = AttrInts
		for _, v := range x {
			p.number(8, v)
		}
	case []float32:
		t = AttrFloats
		for _, v := range x {
			p.float(7, v)
		}
	case []string:
		t = AttrStrings
		for _, v := range x {
			p.text(9, v)
		}
	case NewTensor:
		t = AttrTensor
		p.message(5, tensorPieces("", x.Dims, x))
	default:
		panic(fmt.Sprintf("attribute %s is a %T", a.Name, x))
	}
	p.number(20, int64(t))
	return p
}

// tensorPieces is a tensor whose elements stand in the message.
func tensorPieces(name string, dims []int64, t NewTensor) *pieces {
	p := &pieces{}
	p.packed(1, dims)
	p.number(2, int64(t.DType))
	if name != "" {
		p.text(8, name)
	}
	p.data(9, t)
	return p
}

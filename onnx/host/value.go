package host

import (
	"bytes"
	"fmt"
	"strings"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
)

// Kind is what a value is.
type Kind uint8

// The kinds of values.
const (
	Tensor   Kind = iota
	Sequence      // of tensors
	Nothing       // an optional without an element; one with an element is that element
)

func (k Kind) String() string { return [...]string{"tensor", "sequence", "optional"}[k] }

// Value is a value while a model runs. It never changes.
type Value struct {
	Kind Kind
	Type ir.Type  // of a tensor
	Seq  []*Value // of a sequence

	data   []byte       // of a tensor; nil: only elems is there, or init
	elems  *eval.Tensor // the same, decoded
	init   *onnx.Tensor // an initializer that was passed through
	stable bool         // the same in most runs: programs may be made for its elements
	later  bool         // only its type is known (run.ahead)
}

// NewTensor is a tensor of the elements in data: little-endian, row-major, dense.
func NewTensor(t ir.Type, data []byte) *Value { return &Value{Type: t, data: data} }

// NewSequence is a sequence of tensors.
func NewSequence(list ...*Value) *Value { return &Value{Kind: Sequence, Seq: list} }

func decoded(t *eval.Tensor) *Value { return &Value{Type: t.Type, elems: t} }

// Bytes are the elements of a tensor; they must not be changed.
func (v *Value) Bytes() []byte {
	if v.data == nil && v.elems != nil {
		v.data = v.elems.Bytes()
	}
	return v.data
}

// Elements are those of a tensor, decoded; they must not be changed.
func (v *Value) Elements() (*eval.Tensor, error) {
	if v.Kind != Tensor {
		return nil, fmt.Errorf("is a %s, want a tensor", v.Kind)
	}
	if v.elems == nil {
		t, err := eval.FromBytes(v.Type, v.data)
		if err != nil {
			return nil, err
		}
		v.elems = t
	}
	return v.elems, nil
}

// reshaped is the same elements in another shape of as many.
func (v *Value) reshaped(s ir.Shape) *Value {
	return NewTensor(ir.Type{DType: v.Type.DType, Shape: s}, v.Bytes())
}

// size is the memory that a value holds, in bytes; seen are values that count already.
func (v *Value) size(seen map[*Value]bool) int64 {
	if v == nil || seen[v] {
		return 0
	}
	seen[v] = true
	n := int64(len(v.data))
	if v.elems != nil {
		n += 8 * int64(v.elems.Len())
	}
	for _, x := range v.Seq {
		n += x.size(seen)
	}
	return n
}

func (v *Value) String() string {
	switch v.Kind {
	case Tensor:
		return v.Type.String()
	case Sequence:
		var list []string
		for _, x := range v.Seq {
			list = append(list, x.String())
		}
		return "sequence(" + strings.Join(list, ", ") + ")"
	}
	return "optional()"
}

// equal reports whether two tensors have the same elements, bit for bit.
func equal(a *Value, b *eval.Tensor) bool {
	return a.Kind == Tensor && a.Type == b.Type && bytes.Equal(a.Bytes(), b.Bytes())
}

// Package safetensors reads and writes files in the safetensors layout: eight
// bytes with the length of a JSON header, the header, then the tensors' bytes,
// little-endian, row-major, one after another without a hole.
//
// The format is specified at https://huggingface.co/docs/safetensors. Files
// written here carry one extra metadata entry, a CRC-32C of header and data,
// which other readers ignore and Open verifies.
package safetensors

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// DType is an element type in the format's own spelling.
type DType string

// The element types ampc stores.
const (
	F64  DType = "F64"
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	I64  DType = "I64"
	I32  DType = "I32"
	U8   DType = "U8"
	Bool DType = "BOOL"
	I8   DType = "I8"
	I16  DType = "I16"
	U16  DType = "U16"
	U32  DType = "U32"
	U64  DType = "U64"
)

// Named is the element type that the rest of ampc calls name, such as f32; "" where ampc stores no such elements.
func Named(name string) DType {
	d := DType(strings.ToUpper(name))
	switch d {
	case F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, Bool:
		return d
	}
	return ""
}

// Size returns the bytes of one element, 0 for a spelling the format does not have.
func (d DType) Size() int64 {
	switch d {
	case F64, I64, U64:
		return 8
	case F32, I32, U32:
		return 4
	case F16, BF16, I16, U16:
		return 2
	case U8, Bool, I8, "F8_E4M3", "F8_E5M2":
		return 1
	}
	return 0
}

// Info describes one tensor of a file.
type Info struct {
	Name  string
	DType DType
	Shape []int64

	begin, end int64 // in the data section
	parts      bool  // in the shards
}

// Bytes returns the size of the tensor's data.
func (i Info) Bytes() int64 { return i.end - i.begin }

func (i Info) String() string {
	dims := make([]string, len(i.Shape))
	for k, d := range i.Shape {
		dims[k] = fmt.Sprint(d)
	}
	name := i.Name
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` { // what a terminal would take for a command
		name = quoted
	}
	return fmt.Sprintf("%s %s[%s]", name, i.DType, strings.Join(dims, ","))
}

const (
	maxHeader = 100 << 20 // the reference implementation's limit
	metaKey   = "__metadata__"
	crcKey    = "ampc.crc32c"
	crcBlank  = "00000000" // stands in the header while the sum is taken
)

// byteSize multiplies out a shape, reporting false on a negative dimension or overflow.
func byteSize(d DType, shape []int64) (int64, bool) {
	n := uint64(d.Size())
	for _, dim := range shape {
		if dim < 0 {
			return 0, false
		}
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 || lo > 1<<62 {
			return 0, false
		}
		n = lo
	}
	return int64(n), true
}

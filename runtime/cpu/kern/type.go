package kern

import (
	"math"
	"unsafe"

	"ampc/internal/fp"
)

// Type is a storage format.
type Type uint8

// The storage formats.
const (
	F32 Type = iota
	F16
	BF16
	numTypes
)

// Formats that only composed kernels read or write.
const (
	Words  = numTypes + iota // integers of 64 bits, of which the lower half is read
	Bools                    // bytes, of which one that is not zero is true
	Random                   // random words, which the kernel makes (Call.Draw); they are in no memory
)

func (t Type) String() string { return [...]string{"f32", "f16", "bf16", "words", "bool", "random"}[t] }

// Size is the number of bytes of one element.
func (t Type) Size() int {
	return [...]int{4, 2, 2, 8, 1, 0}[t]
}

// Buf is a run of elements: element i lies at i*Type.Size(). The zero Buf stands for an absent operand.
// Data must be aligned to the element size; 64 bytes are fastest.
type Buf struct {
	Type Type
	Data []byte
}

// Len is the number of elements.
func (b Buf) Len() int { return len(b.Data) / b.Type.Size() }

// Integers is a view of integers as a Buf of Words.
func Integers(x []int64) Buf {
	return Buf{Words, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 8*len(x))}
}

// From is b without its first n elements.
func (b Buf) From(n int) Buf { return Buf{b.Type, b.Data[n*b.Type.Size():]} }

// Floats is a view of f32 values as a Buf.
func Floats(x []float32) Buf {
	return Buf{F32, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))}
}

func (b Buf) absent() bool { return b.Data == nil }

// at is the address of element i.
func (b Buf) at(i int) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b.Data)), i*b.Type.Size()))
}

// get is element i as float32.
func (b Buf) get(i int) float32 {
	switch p := unsafe.Pointer(b.at(i)); b.Type {
	case F16:
		return fp.F16ToF32(*(*uint16)(p))
	case BF16:
		return fp.BF16ToF32(*(*uint16)(p))
	case Words: // the bits of a number
		return math.Float32frombits(uint32(*(*uint64)(p)))
	case Bools:
		if *(*byte)(p) != 0 {
			return 1
		}
		return 0
	default:
		return *(*float32)(p)
	}
}

// set rounds x to the format of b and stores it at i.
func (b Buf) set(i int, x float32) {
	switch p := unsafe.Pointer(b.at(i)); b.Type {
	case F16:
		*(*uint16)(p) = fp.F16(x)
	case BF16:
		*(*uint16)(p) = fp.BF16(x)
	case Bools:
		*(*byte)(p) = 0
		if x != 0 {
			*(*byte)(p) = 1
		}
	default:
		*(*float32)(p) = x
	}
}

func floatsAt(p *byte, n int) []float32 { return unsafe.Slice((*float32)(unsafe.Pointer(p)), n) }
func halvesAt(p *byte, n int) []uint16  { return unsafe.Slice((*uint16)(unsafe.Pointer(p)), n) }

// f32 is the view of an F32 buffer as floats.
func (b Buf) f32() []float32 { return floatsAt(unsafe.SliceData(b.Data), len(b.Data)/4) }

// Index is a run of integers: class labels, token numbers.
type Index struct {
	Data  []byte
	Width int // bytes of each: 1 (unsigned), 4 or 8
}

// Len is the number of integers.
func (x Index) Len() int { return len(x.Data) / x.Width }

// At is integer i.
func (x Index) At(i int) int {
	p := unsafe.Pointer(unsafe.SliceData(x.Data))
	switch x.Width {
	case 8:
		return int(*(*int64)(unsafe.Add(p, 8*i)))
	case 4:
		return int(*(*int32)(unsafe.Add(p, 4*i)))
	}
	return int(*(*uint8)(unsafe.Add(p, i)))
}

func after(p *float32, n int) *float32 { return (*float32)(unsafe.Add(unsafe.Pointer(p), 4*n)) }

func ptr(p *byte) unsafe.Pointer { return unsafe.Pointer(p) }
func bytes(p *float32) *byte     { return (*byte)(unsafe.Pointer(p)) }

// byteAt is the address o bytes into b; o may point one past the end.
func (b Buf) byteAt(o int) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b.Data)), o))
}

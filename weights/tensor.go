package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"ampc"
	"ampc/internal/fp"
)

// tensor is where the elements of a tensor lie in a mapped file.
type tensor struct {
	name    string
	dtype   ampc.DType
	shape   []int64
	strides []int64      // in elements; nil: row-major without holes
	data    []byte       // from the first element on, little-endian
	check   func() error // of the bytes' checksum; nil: there is none
}

// Type is the dtype and the shape.
func (t *tensor) Type() ampc.Type {
	dims := make([]int, len(t.shape))
	for i, n := range t.shape {
		dims[i] = int(n)
	}
	return ampc.TypeOf(t.dtype, dims...)
}

func (t *tensor) elements() int64 {
	n := int64(1)
	for _, d := range t.shape {
		n *= d
	}
	return n
}

func (t *tensor) bytes() int64 { return t.elements() * int64(t.dtype.Size()) }

func (t *tensor) verify() error {
	if t.check == nil {
		return nil
	}
	return t.check()
}

// transposed is the tensor with its two dimensions exchanged.
func (t *tensor) transposed() *tensor {
	if len(t.shape) != 2 {
		return t
	}
	s := t.strides
	if s == nil {
		s = rowMajor(t.shape)
	}
	c := *t
	c.shape, c.strides = []int64{t.shape[1], t.shape[0]}, []int64{s[1], s[0]}
	return &c
}

// count multiplies the sizes out. It is an error where one is negative or the bytes
// of all elements overflow.
func count(shape []int64, size int) (int64, error) {
	n := uint64(size)
	zero := false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("the shape %v has a negative size", shape)
		}
		zero = zero || d == 0
		hi, lo := bits.Mul64(n, uint64(max(d, 1)))
		if hi != 0 || lo > math.MaxInt64/2 {
			return 0, fmt.Errorf("the shape %v is impossibly large", shape)
		}
		n = lo
	}
	if zero {
		return 0, nil
	}
	return int64(n) / int64(size), nil
}

// rowMajor are the strides of a dense tensor.
func rowMajor(shape []int64) []int64 {
	s := make([]int64, len(shape))
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

// within checks that a tensor of these strides from an offset lies in n elements.
func within(shape, strides []int64, offset, n int64) error {
	if len(shape) != len(strides) {
		return fmt.Errorf("%d sizes and %d strides", len(shape), len(strides))
	}
	if offset < 0 || offset > n {
		return fmt.Errorf("begins at element %d of a storage of %d", offset, n)
	}
	last := uint64(offset)
	for i, d := range shape {
		if d == 0 {
			return nil
		}
		hi, lo := bits.Mul64(uint64(d-1), uint64(strides[i]))
		var carry uint64
		last, carry = bits.Add64(last, lo, 0)
		if strides[i] < 0 || hi|carry != 0 || last > math.MaxInt64 {
			return fmt.Errorf("shape %v and strides %v lead out of the storage", shape, strides)
		}
	}
	if last >= uint64(n) {
		return fmt.Errorf("shape %v and strides %v from element %d lead out of a storage of %d elements", shape, strides, offset, n)
	}
	return nil
}

// plain says whether the elements lie row-major without holes.
func (t *tensor) plain() bool {
	if t.strides == nil {
		return true
	}
	n := int64(1)
	for i := len(t.shape) - 1; i >= 0; i-- {
		if t.shape[i] != 1 && t.strides[i] != n {
			return false
		}
		n *= t.shape[i]
	}
	return true
}

// dense are the elements row-major: where they lie, or copied to the front of buf,
// which grows as needed.
func (t *tensor) dense(buf []byte) []byte {
	n, size := t.elements(), int64(t.dtype.Size())
	if n == 0 {
		return nil
	}
	if t.plain() {
		return t.data[:n*size]
	}
	out := slices.Grow(buf[:0], int(n*size))[:n*size]
	t.gather(out, 0, 0, 0)
	return out
}

// gather copies what lies under the index of dimensions before dim, from element at
// of the data to element to of out, and returns the next to.
func (t *tensor) gather(out []byte, dim int, at, to int64) int64 {
	size := int64(t.dtype.Size())
	if dim == len(t.shape) {
		copy(out[to*size:], t.data[at*size:(at+1)*size])
		return to + 1
	}
	if dim < len(t.shape)-1 {
		for i := range t.shape[dim] {
			to = t.gather(out, dim+1, at+i*t.strides[dim], to)
		}
		return to
	}
	n, step := t.shape[dim], t.strides[dim]
	switch size {
	case 4:
		for i := range n {
			binary.LittleEndian.PutUint32(out[4*(to+i):], binary.LittleEndian.Uint32(t.data[4*(at+i*step):]))
		}
	case 2:
		for i := range n {
			binary.LittleEndian.PutUint16(out[2*(to+i):], binary.LittleEndian.Uint16(t.data[2*(at+i*step):]))
		}
	default:
		for i := range n {
			copy(out[size*(to+i):size*(to+i+1)], t.data[size*(at+i*step):])
		}
	}
	return to + n
}

// f32 converts dense elements of a float dtype to f32 at the front of buf, which
// grows as needed. It returns how many finite f64 elements became Inf.
func f32(b []byte, d ampc.DType, buf []byte) (out []byte, overflows int) {
	n := len(b) / d.Size()
	out = slices.Grow(buf[:0], 4*n)[:4*n]
	for i := range n {
		var x float32
		switch d {
		case ampc.F16:
			x = fp.F16ToF32(binary.LittleEndian.Uint16(b[2*i:]))
		case ampc.BF16:
			x = fp.BF16ToF32(binary.LittleEndian.Uint16(b[2*i:]))
		case ampc.F32:
			x = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		case ampc.F64:
			wide := math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
			x = float32(wide)
			if math.IsInf(float64(x), 0) && !math.IsInf(wide, 0) {
				overflows++
			}
		}
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(x))
	}
	return out, overflows
}

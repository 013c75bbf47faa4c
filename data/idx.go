package data

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"ampc/internal/file"
)

// The IDX format: two zero bytes, an element type, the number of dimensions, each dimension as a
// big-endian uint32, the big-endian elements. See http://yann.lecun.com/exdb/mnist.

const maxIDX = 1 << 34 // largest number of elements in a file, far above any data set in this format

// IDX reads an array of an IDX file, gzipped or not; its first dimension is that of
// records. Bytes become uint8, 16 and 32-bit integers int32, floats float32 or float64.
func IDX(path string) (Column, int, error) {
	r, closer, err := file.Unpacked(path)
	if err != nil {
		return Column{}, 0, err
	}
	defer closer.Close()
	dims, v, err := readIDX(r)
	if err != nil {
		return Column{}, 0, fmt.Errorf("%s: %w", path, err)
	}
	return Column{v, dims[1:]}, dims[0], nil
}

// IDXImages reads a file of images, such as MNIST's "train-images-idx3-ubyte", and the
// file of their labels beside it, whose name has "labels" and "idx1" instead of
// "images" and "idx3". Records have "x", uint8 of shape [1,rows,columns], and "y", int32.
func IDXImages(path string) (*Columns, error) {
	x, n, err := IDX(path)
	if err != nil {
		return nil, err
	}
	if _, bytes := x.Data.([]uint8); len(x.Shape) != 2 || x.width() == 0 || n == 0 || !bytes {
		return nil, fmt.Errorf("%s: %d records %v of %T, want images of bytes, rows, columns", path, n, x.Shape, x.Data)
	}
	labels, err := labelsBeside(path)
	if err != nil {
		return nil, err
	}
	y, m, err := IDX(labels)
	if err != nil {
		return nil, err
	}
	v, bytes := y.Data.([]uint8)
	if len(y.Shape) != 0 || m != n || !bytes {
		return nil, fmt.Errorf("%s: %d records %v of %T, want a byte for each of the %d images", labels, m, y.Shape, y.Data, n)
	}
	x.Shape = append([]int{1}, x.Shape...)
	return NewColumns(map[string]Column{"x": x, "y": {converted[int32](v), nil}})
}

// labelsBeside finds the label file that belongs to an image file.
func labelsBeside(path string) (string, error) {
	name := strings.Replace(path, "images", "labels", 1)
	name = strings.Replace(name, "idx3", "idx1", 1)
	if name == path {
		return "", fmt.Errorf("%s: cannot tell its label file: the name has no \"images\"", path)
	}
	other, packed := strings.CutSuffix(name, ".gz")
	if !packed {
		other = name + ".gz"
	}
	for _, n := range []string{name, other} {
		if _, err := os.Stat(n); err == nil {
			return n, nil
		}
	}
	return "", fmt.Errorf("%s: its label file %s is missing", path, name)
}

// idxTypes are the element types: the bytes of an element, and how to read it.
var idxTypes = map[byte]struct {
	size   int
	decode func(b []byte) any
}{
	0x08: {1, func(b []byte) any { return b }},
	0x09: {1, func(b []byte) any { return decode(b, 1, func(b []byte) int32 { return int32(int8(b[0])) }) }},
	0x0b: {2, func(b []byte) any {
		return decode(b, 2, func(b []byte) int32 { return int32(int16(binary.BigEndian.Uint16(b))) })
	}},
	0x0c: {4, func(b []byte) any {
		return decode(b, 4, func(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) })
	}},
	0x0d: {4, func(b []byte) any {
		return decode(b, 4, func(b []byte) float32 { return math.Float32frombits(binary.BigEndian.Uint32(b)) })
	}},
	0x0e: {8, func(b []byte) any {
		return decode(b, 8, func(b []byte) float64 { return math.Float64frombits(binary.BigEndian.Uint64(b)) })
	}},
}

// decode reads elements of size bytes.
func decode[T any](b []byte, size int, one func(b []byte) T) []T {
	out := make([]T, len(b)/size)
	for i := range out {
		out[i] = one(b[i*size:])
	}
	return out
}

var errIDXHeader = errors.New("truncated IDX header")

func readIDX(r *bufio.Reader) (dims []int, v any, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, nil, errIDXHeader
	}
	kind, known := idxTypes[head[2]]
	if head[0] != 0 || head[1] != 0 || !known || head[3] == 0 || head[3] > 8 {
		return nil, nil, fmt.Errorf("IDX header % x, want 00 00, a type 08, 09 or 0b to 0e and 1 to 8 dimensions", head)
	}
	size := 1
	for range head[3] {
		var d [4]byte
		if _, err := io.ReadFull(r, d[:]); err != nil {
			return nil, nil, errIDXHeader
		}
		n := int(binary.BigEndian.Uint32(d[:]))
		if n > 0 && size > maxIDX/n {
			return nil, nil, errors.New("IDX dimensions are impossibly large")
		}
		dims, size = append(dims, n), size*n
	}
	// grow with the data that is there, so that a damaged header cannot request much memory
	want := int64(size) * int64(kind.size)
	data, err := io.ReadAll(io.LimitReader(r, want+1))
	if err != nil {
		return nil, nil, err
	}
	if int64(len(data)) != want {
		return nil, nil, fmt.Errorf("holds %d bytes or more of data, its header says %d", len(data), want)
	}
	return dims, kind.decode(data), nil
}

package ir

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"unique"
)

// MaxRank is the largest rank a shape may have.
const MaxRank = 8

// Dim is a size if it is zero or more. A negative Dim is a symbol (see Sym) or UnknownDim, a size
// without a name.
type Dim int64

// UnknownDim prints as "?".
const UnknownDim Dim = -1 << 40

// maxElements is the largest number of elements of a tensor, so that sizes in bytes never overflow.
const maxElements = int64(1) << 44

type dims struct {
	n int8
	d [MaxRank]Dim
}

// Shape is an interned list of dimensions: two shapes are equal exactly if ==. The zero Shape is
// unknown; not even its rank is known.
type Shape struct{ h unique.Handle[dims] }

// MakeShape interns d. More than MaxRank dimensions give the unknown shape. Callers with user input
// call CheckDims first.
func MakeShape(d ...Dim) Shape {
	if len(d) > MaxRank {
		return Shape{}
	}
	x := dims{n: int8(len(d))}
	copy(x.d[:], d)
	recent := &recentShapes[x.hash()%uint64(len(recentShapes))]
	if r := recent.Load(); r != nil && r.dims == x {
		return r.shape
	}
	s := Shape{unique.Make(x)}
	recent.Store(&recentShape{x, s})
	return s
}

// recentShapes are shapes that were interned, by the hash of their dimensions. A graph has few
// different ones, and to find one here takes a fraction of the time of interning it again.
var recentShapes [1 << 10]atomic.Pointer[recentShape]

type recentShape struct {
	dims
	shape Shape
}

func (x *dims) hash() uint64 {
	h := uint64(x.n)
	for _, d := range x.d[:x.n] {
		h = (h ^ uint64(d)) * 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio: its high bits are mixed
	}
	return h >> 32
}

// CheckDims returns what is wrong with d as a shape, or nil.
func CheckDims(d []Dim) error {
	if len(d) > MaxRank {
		return fmt.Errorf("rank %d, the largest is %d", len(d), MaxRank)
	}
	n := int64(1)
	for _, x := range d {
		if x < 0 {
			continue
		}
		if x > 0 && n > maxElements/int64(x) {
			return fmt.Errorf("%s holds more than %d elements", dimsString(d, nil), maxElements)
		}
		n *= max(int64(x), 1)
	}
	return nil
}

// check is CheckDims of s.
func (s Shape) check() error {
	if !s.Known() {
		return nil
	}
	x := s.h.Value()
	return CheckDims(x.d[:x.n])
}

// Known reports whether the rank is known.
func (s Shape) Known() bool { return s != Shape{} }

// Rank returns the number of dimensions; 0 for scalars and for unknown shapes.
func (s Shape) Rank() int {
	if !s.Known() {
		return 0
	}
	return int(s.h.Value().n)
}

// Dims returns a copy of the dimensions.
func (s Shape) Dims() []Dim {
	if !s.Known() {
		return nil
	}
	x := s.h.Value()
	return append(make([]Dim, 0, MaxRank), x.d[:x.n]...)
}

// Dim returns dimension i. A negative i counts from the end. Dimensions of an unknown shape are
// unknown.
func (s Shape) Dim(i int) Dim {
	if !s.Known() {
		return UnknownDim
	}
	x := s.h.Value()
	if i < 0 {
		i += int(x.n)
	}
	return x.d[i]
}

// Static reports whether the rank and every dimension are known numbers.
func (s Shape) Static() bool {
	if !s.Known() {
		return false
	}
	x := s.h.Value()
	for _, d := range x.d[:x.n] {
		if d < 0 {
			return false
		}
	}
	return true
}

// Elements returns the number of elements of a static shape, and -1 otherwise.
func (s Shape) Elements() int64 {
	if !s.Known() {
		return -1
	}
	x := s.h.Value()
	n := int64(1)
	for _, d := range x.d[:x.n] {
		if d < 0 {
			return -1
		}
		n *= int64(d)
	}
	return n
}

// Type is the type of a value. It is comparable and usable as a map key.
type Type struct {
	DType DType
	Shape Shape
}

// T is shorthand for a Type with the given dimensions.
func T(d DType, dim ...Dim) Type { return Type{d, MakeShape(dim...)} }

// Bytes returns the size in memory, -1 if a dimension is not known.
func (t Type) Bytes() int64 {
	n := t.Shape.Elements()
	if n < 0 {
		return -1
	}
	return n * t.DType.Size()
}

// With returns t with another dtype.
func (t Type) With(d DType) Type { return Type{d, t.Shape} }

// String prints the type with symbols as s1, s2, ...; Graph.TypeString knows their names.
func (t Type) String() string { return typeString(t, nil) }

// Sym is a named dimension of a graph. Nominal is the size that costs use
// until the symbol is bound (0: defaultNominal).
type Sym struct {
	Name    string
	Nominal int64
}

// defaultNominal is the size of a symbolic dimension in costs.
const defaultNominal = 128

// unknownElements is the number of elements of an unknown shape in costs.
const unknownElements = 1024

func typeString(t Type, syms []Sym) string {
	if !t.Shape.Known() {
		return t.DType.String() + "[*]"
	}
	return t.DType.String() + dimsString(t.Shape.Dims(), syms)
}

func dimsString(d []Dim, syms []Sym) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, x := range d {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(dimString(x, syms))
	}
	b.WriteByte(']')
	return b.String()
}

func dimString(d Dim, syms []Sym) string {
	switch {
	case d >= 0:
		return strconv.FormatInt(int64(d), 10)
	case d == UnknownDim:
		return "?"
	case int(-d) <= len(syms):
		return syms[-d-1].Name
	}
	return "s" + strconv.FormatInt(int64(-d), 10)
}

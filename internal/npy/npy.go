// Package npy reads NumPy's .npy arrays and .npz archives of them, in the
// element types a graph's inputs may have.
//
// The format is described in NumPy's documentation, numpy.lib.format: a magic
// string, a version, a header that is a Python dict literal, then the elements.
package npy

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"ampc/internal/file"
)

// Array is one array, little-endian.
type Array struct {
	DType   string // as ampc spells it: f16 f32 f64 bool, i8 to i64, u8 to u64
	Shape   []int64
	Fortran bool // the first index runs fastest, else the last; false from ReadFile
	Data    []byte
}

var dtypes = map[string]struct {
	name string
	size int64
}{
	"f2": {"f16", 2}, "f4": {"f32", 4}, "f8": {"f64", 8}, "i4": {"i32", 4}, "i8": {"i64", 8}, "u1": {"u8", 1}, "b1": {"bool", 1},
	"i1": {"i8", 1}, "i2": {"i16", 2}, "u2": {"u16", 2}, "u4": {"u32", 4}, "u8": {"u64", 8},
}

const maxElements = 1 << 34

// ReadFile reads a .npy file as the array named "", or every array of a .npz.
func ReadFile(path string) (map[string]Array, error) {
	data, err := file.Read(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	out, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

func parse(data []byte) (map[string]Array, error) {
	if !bytes.HasPrefix(data, []byte("PK")) {
		a, err := Parse(data)
		return map[string]Array{"": a}, cmp.Or(err, a.rowMajor())
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	if err := CheckMembers(z, len(data)); err != nil {
		return nil, err
	}
	out := map[string]Array{}
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return nil, fmt.Errorf("%q: %w", f.Name, err)
		}
		member, err := io.ReadAll(io.LimitReader(r, maxElements))
		r.Close()
		if err != nil {
			return nil, fmt.Errorf("%q: %w", f.Name, err)
		}
		if out[name], err = Parse(member); err == nil {
			err = out[name].rowMajor()
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", f.Name, err)
		}
	}
	return out, nil
}

// CheckMembers returns an error if the members of an archive of n bytes overlap: else the memory that they are unpacked to
// is not bounded by the archive.
func CheckMembers(z *zip.Reader, n int) error {
	packed := uint64(0)
	for _, m := range z.File {
		if packed += m.CompressedSize64; m.CompressedSize64 > uint64(n) || packed > uint64(n) {
			return fmt.Errorf("damaged: its members have more bytes than the archive's %d", n)
		}
	}
	return nil
}

// The header's three entries; NumPy writes them in this form.
var (
	descr   = regexp.MustCompile(`'descr':\s*'([<>|=])([a-z]\d+)'`)
	fortran = regexp.MustCompile(`'fortran_order':\s*(True|False)`)
	shape   = regexp.MustCompile(`'shape':\s*\(([\d,\s]*)\)`)
)

func (a Array) rowMajor() error {
	if a.Fortran {
		return errors.New("npy array is in Fortran order: save it with numpy.ascontiguousarray")
	}
	return nil
}

// Parse reads one array. Data is a part of data unless its bytes must be turned.
func Parse(data []byte) (Array, error) {
	header, rest, err := split(data)
	if err != nil {
		return Array{}, err
	}
	d, f, s := descr.FindStringSubmatch(header), fortran.FindStringSubmatch(header), shape.FindStringSubmatch(header)
	if d == nil || f == nil || s == nil {
		return Array{}, fmt.Errorf("npy header %.60q: no plain dtype, order or shape in it", header)
	}
	t, ok := dtypes[d[2]]
	if !ok {
		return Array{}, fmt.Errorf("npy dtype %s%s is not one of f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1", d[1], d[2])
	}
	a := Array{DType: t.name}
	n := int64(1)
	words := strings.FieldsFunc(s[1], func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	for _, word := range words {
		dim, err := strconv.ParseInt(word, 10, 64)
		if err != nil || dim > 0 && n > maxElements/dim {
			return Array{}, fmt.Errorf("npy shape (%.60s) is impossibly large", strings.Join(words, ", "))
		}
		a.Shape, n = append(a.Shape, dim), n*dim
	}
	a.Fortran = f[1] == "True" && len(a.Shape) > 1
	if int64(len(rest)) != n*t.size {
		return Array{}, fmt.Errorf("npy array %s%v needs %d bytes, %d follow the header", t.name, a.Shape, n*t.size, len(rest))
	}
	a.Data = rest
	if d[1] == ">" {
		a.Data = swapped(rest, int(t.size))
	}
	return a, nil
}

func split(data []byte) (header string, rest []byte, err error) {
	if len(data) < 10 || !bytes.HasPrefix(data, []byte("\x93NUMPY")) {
		return "", nil, errors.New("not an npy or npz file")
	}
	at, n := 10, int(binary.LittleEndian.Uint16(data[8:]))
	if data[6] >= 2 {
		if len(data) < 12 {
			return "", nil, errors.New("truncated npy header")
		}
		at, n = 12, int(binary.LittleEndian.Uint32(data[8:]))
	}
	if n > len(data)-at {
		return "", nil, errors.New("truncated npy header")
	}
	return string(data[at : at+n]), data[at+n:], nil
}

// swapped reverses the bytes of each element.
func swapped(b []byte, size int) []byte {
	out := slices.Clone(b)
	for i := 0; i+size <= len(out); i += size {
		slices.Reverse(out[i : i+size])
	}
	return out
}

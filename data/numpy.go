package data

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"ampc/internal/fp"
	"ampc/internal/npy"
)

// NumPy reads the arrays of a .npz file, or the one of a .npy file under the name
// "x". The first dimension is that of records, equally many in each array. Floats
// become float32 or float64, i8, i16, u16 and i32 int32, other integers int64, u8 and bool
// stay.
func NumPy(path string) (*Columns, error) {
	arrays, err := npy.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if a, alone := arrays[""]; alone && len(arrays) == 1 {
		arrays = map[string]npy.Array{"x": a}
	}
	fields := map[string]Column{}
	for _, name := range slices.Sorted(maps.Keys(arrays)) {
		a := arrays[name]
		if len(a.Shape) == 0 {
			return nil, fmt.Errorf("%s: array %q is a single number: want records in its first dimension", path, name)
		}
		c := Column{}
		for _, d := range a.Shape[1:] {
			c.Shape = append(c.Shape, int(d))
		}
		if c.Data, err = elementsOf(a); err != nil {
			return nil, fmt.Errorf("%s: array %q: %w", path, name, err)
		}
		fields[name] = c
	}
	c, err := NewColumns(fields)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if c.Len() == 0 {
		return nil, fmt.Errorf("%s: no records", path)
	}
	return c, nil
}

// elementsOf decodes an array.
func elementsOf(a npy.Array) (any, error) {
	le := binary.LittleEndian
	switch a.DType {
	case "f16":
		return decode(a.Data, 2, func(b []byte) float32 { return fp.F16ToF32(le.Uint16(b)) }), nil
	case "f32":
		return decode(a.Data, 4, func(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) }), nil
	case "f64":
		return decode(a.Data, 8, func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }), nil
	case "u8":
		return a.Data, nil
	case "bool":
		return decode(a.Data, 1, func(b []byte) bool { return b[0] != 0 }), nil
	case "i8":
		return decode(a.Data, 1, func(b []byte) int32 { return int32(int8(b[0])) }), nil
	case "i16":
		return decode(a.Data, 2, func(b []byte) int32 { return int32(int16(le.Uint16(b))) }), nil
	case "u16":
		return decode(a.Data, 2, func(b []byte) int32 { return int32(le.Uint16(b)) }), nil
	case "i32":
		return decode(a.Data, 4, func(b []byte) int32 { return int32(le.Uint32(b)) }), nil
	case "u32":
		return decode(a.Data, 4, func(b []byte) int64 { return int64(le.Uint32(b)) }), nil
	case "i64":
		return decode(a.Data, 8, func(b []byte) int64 { return int64(le.Uint64(b)) }), nil
	}
	return nil, fmt.Errorf("dtype %s is not read", a.DType)
}

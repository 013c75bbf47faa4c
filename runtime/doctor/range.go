package doctor

import (
	"encoding/binary"
	"fmt"
	"math"

	"ampc/internal/fp"
	"ampc/ir"
)

// Range is what a tensor holds. Min, Max and AbsMax are over its finite
// elements, 0 where there is none.
type Range struct {
	Name     string   `json:"name"`
	DType    ir.DType `json:"-"`
	Stored   string   `json:"dtype"`
	Min      float64  `json:"min"`
	Max      float64  `json:"max"`
	AbsMax   float64  `json:"absmax"`
	NaN      int      `json:"nan"`
	Inf      int      `json:"inf"` // of either sign
	NegInf   int      `json:"neg_inf"`
	Zeros    int      `json:"zeros"`
	Elements int      `json:"elements"`
}

// Finite reports whether every element is.
func (r Range) Finite() bool { return r.NaN == 0 && r.Inf == 0 }

// masked reports whether all that is not finite is −Inf, as masks have it.
func (r Range) masked() bool { return r.NaN == 0 && r.Inf > 0 && r.Inf == r.NegInf }

func (r Range) String() string {
	s := fmt.Sprintf("%s %s [%.5g, %.5g]", r.Name, r.Stored, r.Min, r.Max)
	if r.NaN+r.Inf == r.Elements {
		s = fmt.Sprintf("%s %s", r.Name, r.Stored)
	}
	for _, c := range []struct {
		n    int
		what string
	}{{r.NaN, "NaN"}, {r.Inf - r.NegInf, "Inf"}, {r.NegInf, "-Inf"}, {r.Zeros, "zero"}} {
		if c.n > 0 {
			s += fmt.Sprintf(", %d of %d %s", c.n, r.Elements, c.what)
		}
	}
	return s
}

// scan looks at every element once.
func scan(name string, d ir.DType, data []byte) Range {
	r := Range{Name: name, DType: d, Stored: d.String()}
	switch d {
	case ir.F16:
		r.scan16(data, 0x7c00, fp.F16ToF32)
	case ir.BF16:
		r.scan16(data, 0x7f80, fp.BF16ToF32)
	case ir.F32:
		r.scan32(data)
	}
	r.AbsMax = max(-r.Min, r.Max)
	return r
}

// ordered maps the bits of a float, sign apart, to integers in its order.
func ordered(magnitude uint32, negative bool) int32 {
	if negative {
		return -int32(magnitude)
	}
	return int32(magnitude)
}

// scan16 compares bits: those of finite floats of one sign are in their order.
func (r *Range) scan16(data []byte, inf uint16, widen func(uint16) float32) {
	lo, hi := int32(math.MaxInt32), int32(math.MinInt32)
	r.Elements = len(data) / 2
	for i := 0; i+1 < len(data); i += 2 {
		bits := binary.LittleEndian.Uint16(data[i:])
		m, negative := bits&0x7fff, bits>>15 == 1
		if m >= inf {
			r.count(m > inf, negative)
			continue
		}
		if m == 0 {
			r.Zeros++
		}
		x := ordered(uint32(m), negative)
		lo, hi = min(lo, x), max(hi, x)
	}
	value := func(x int32) float64 {
		if x < 0 {
			return -float64(widen(uint16(-x)))
		}
		return float64(widen(uint16(x)))
	}
	if lo <= hi {
		r.Min, r.Max = value(lo), value(hi)
	}
}

func (r *Range) scan32(data []byte) {
	lo, hi := int32(math.MaxInt32), int32(math.MinInt32)
	r.Elements = len(data) / 4
	for i := 0; i+3 < len(data); i += 4 {
		bits := binary.LittleEndian.Uint32(data[i:])
		m, negative := bits&0x7fffffff, bits>>31 == 1
		if m >= 0x7f800000 {
			r.count(m > 0x7f800000, negative)
			continue
		}
		if m == 0 {
			r.Zeros++
		}
		x := ordered(m, negative)
		lo, hi = min(lo, x), max(hi, x)
	}
	value := func(x int32) float64 {
		if x < 0 {
			return -float64(math.Float32frombits(uint32(-x)))
		}
		return float64(math.Float32frombits(uint32(x)))
	}
	if lo <= hi {
		r.Min, r.Max = value(lo), value(hi)
	}
}

func (r *Range) count(nan, negative bool) {
	switch {
	case nan:
		r.NaN++
	case negative:
		r.NegInf++
		fallthrough
	default:
		r.Inf++
	}
}

// largest is the largest finite number of a dtype.
func largest(d ir.DType) float64 {
	switch d {
	case ir.F16:
		return 65504
	case ir.BF16:
		return 0x1.FEp127
	}
	return math.MaxFloat32
}

// widened is data of a 16-bit dtype as f32; other data is returned as it is.
func widened(d ir.DType, data []byte) []byte {
	widen := fp.F16ToF32
	switch d {
	case ir.F16:
	case ir.BF16:
		widen = fp.BF16ToF32
	default:
		return data
	}
	out := make([]byte, 0, 2*len(data))
	for i := 0; i+1 < len(data); i += 2 {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(widen(binary.LittleEndian.Uint16(data[i:]))))
	}
	return out
}

package doctor

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

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

// scan looks at every element once, in parallel where there are many.
func scan(name string, d ir.DType, data []byte) Range {
	const piece = 1 << 17
	parts := make([]Range, 1+len(data)/piece)
	var wait sync.WaitGroup
	for i := range parts {
		look := func() { parts[i].scan(d, data[i*piece:min((i+1)*piece, len(data))]) }
		if len(parts) == 1 {
			look()
			continue
		}
		wait.Go(look)
	}
	wait.Wait()
	r := Range{Name: name, DType: d, Stored: d.String()}
	for _, p := range parts {
		r.join(p)
	}
	r.AbsMax = max(-r.Min, r.Max)
	return r
}

// finite reports whether every element is, eight bytes at a time: an exponent of
// ones, and no other, carries into the place of the sign.
func finite(d ir.DType, data []byte) bool {
	var exponents, one, signs uint64
	switch d {
	case ir.F16:
		exponents, one, signs = 0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400, 0x8000_8000_8000_8000
	case ir.BF16:
		exponents, one, signs = 0x7f80_7f80_7f80_7f80, 0x0080_0080_0080_0080, 0x8000_8000_8000_8000
	case ir.F32:
		exponents, one, signs = 0x7f80_0000_7f80_0000, 0x0080_0000_0080_0000, 0x8000_0000_8000_0000
	default:
		return true
	}
	seen := uint64(0)
	for ; len(data) >= 8; data = data[8:] {
		seen |= binary.LittleEndian.Uint64(data)&exponents + one
	}
	var last [8]byte
	copy(last[:], data)
	seen |= binary.LittleEndian.Uint64(last[:])&exponents + one
	return seen&signs == 0
}

// join adds what was seen of another part of the tensor.
func (r *Range) join(p Range) {
	switch seen, more := r.Elements-r.NaN-r.Inf, p.Elements-p.NaN-p.Inf; {
	case seen == 0:
		r.Min, r.Max = p.Min, p.Max
	case more > 0:
		r.Min, r.Max = min(r.Min, p.Min), max(r.Max, p.Max)
	}
	r.NaN, r.Inf, r.NegInf = r.NaN+p.NaN, r.Inf+p.Inf, r.NegInf+p.NegInf
	r.Zeros, r.Elements = r.Zeros+p.Zeros, r.Elements+p.Elements
}

func (r *Range) scan(d ir.DType, data []byte) {
	switch d {
	case ir.F16:
		r.scan16(data, 0x7c00, fp.F16ToF32)
	case ir.BF16:
		r.scan16(data, 0x7f80, fp.BF16ToF32)
	case ir.F32:
		r.scan32(data)
	}
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

// converted is float data of one dtype as another; data that has it already, or
// is not of floats, is returned as it is.
func converted(from, to ir.DType, data []byte) []byte {
	if from == to || !from.Float() {
		return data
	}
	wide := widened(from, data)
	if to != ir.BF16 {
		return wide
	}
	out := make([]byte, 0, len(wide)/2)
	for i := 0; i+3 < len(wide); i += 4 {
		out = binary.LittleEndian.AppendUint16(out, fp.BF16(math.Float32frombits(binary.LittleEndian.Uint32(wide[i:]))))
	}
	return out
}

package doctor

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"ampc/internal/fp"
	"ampc/ir"
	"ampc/runtime/cpu"
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

// hands are the workers that look at values: those of the backend, which is locked
// while a replay runs.
type hands struct {
	b      *cpu.Backend
	inside *cpu.Backend // b.Inside()
	busy   bool         // a replay is running
}

func newHands(b *cpu.Backend) *hands { return &hands{b: b, inside: b.Inside()} }

// chunk is how many bytes one worker looks at.
const chunk = 1 << 16

func chunks(data []byte) int { return (len(data) + chunk - 1) / chunk }

// inChunks calls look for every chunk of data, at the same time.
func (h *hands) inChunks(data []byte, look func(i int, chunk []byte)) {
	b := h.b
	if h.busy {
		b = h.inside
	}
	b.Each(chunks(data), func(i int) { look(i, data[i*chunk:min((i+1)*chunk, len(data))]) })
}

// scan looks at every element once.
func (h *hands) scan(name string, d ir.DType, data []byte) Range {
	parts := make([]Range, chunks(data))
	h.inChunks(data, func(i int, chunk []byte) { parts[i].scan(h.b, d, chunk) })
	r := Range{Name: name, DType: d, Stored: d.String()}
	for _, p := range parts {
		r.join(p)
	}
	r.AbsMax = max(-r.Min, r.Max)
	return r
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

// scan looks at a chunk piece by piece. Where some elements are not finite it
// compares bits, those of 16-bit floats moved up: those of finite floats of one sign
// are in their order.
func (r *Range) scan(b *cpu.Backend, d ir.DType, data []byte) {
	width, inf := layout(d)
	if width == 0 {
		return
	}
	for size := width * cpu.LookAt; len(data) > 0; data = data[min(size, len(data)):] {
		head := data[:min(size, len(data))]
		p := Range{Elements: len(head) / width}
		if lo, hi, zeros := b.Ends(d, head); number(lo) && number(hi) {
			p.Min, p.Max, p.Zeros = float64(lo), float64(hi), zeros
		} else {
			p.sort(d, inf, head)
		}
		r.join(p)
	}
}

// number reports whether x is finite.
func number(x float32) bool { return x-x == 0 }

// sort is scan of a piece that is not all finite.
func (r *Range) sort(d ir.DType, inf int32, data []byte) {
	var space [cpu.LookAt]int32
	width, _ := layout(d)
	lo, hi, zeros := order(r.sift(unpack(&space, width, data), inf))
	r.Zeros = zeros
	if lo <= hi {
		r.Min, r.Max = float(d, lo), float(d, hi)
	}
}

// unpack is the bits of the elements of a piece, their signs at the top; it
// writes them into space. Memory is little-endian, as the kernels have it.
func unpack(space *[cpu.LookAt]int32, width int, data []byte) []int32 {
	all := space[:len(data)/width]
	if width == 4 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(space)), 4*len(all)), data)
		return all
	}
	bits := all
	for ; len(data) >= 8 && len(bits) >= 4; data, bits = data[8:], bits[4:] {
		x := binary.LittleEndian.Uint64(data)
		bits[0], bits[1], bits[2], bits[3] = int32(uint32(x)<<16), int32(uint32(x)&^0xffff), int32(uint32(x>>32)<<16), int32(uint32(x>>32)&^0xffff)
	}
	for i := range bits {
		bits[i] = int32(binary.LittleEndian.Uint16(data[2*i:])) << 16
	}
	return all
}

// order returns the least and the largest of some elements, as integers in the
// order of the floats, and the number of zeros. NaN is beyond the infinities.
func order(elements []int32) (lo, hi int32, zeros int) {
	lo, hi = math.MaxInt32, math.MinInt32
	lo1, hi1 := lo, hi
	minus := int32(0)
	for ; len(elements) >= 2; elements = elements[2:] { // two chains of minima and maxima
		a, b := elements[0], elements[1]
		ma, sa, mb, sb := a&math.MaxInt32, a>>31, b&math.MaxInt32, b>>31
		x, y := ma^sa-sa, mb^sb-sb
		lo, hi, lo1, hi1 = min(lo, x), max(hi, x), min(lo1, y), max(hi1, y)
		minus += (ma-1)>>31 + (mb-1)>>31
	}
	zeros = -int(minus)
	for _, bits := range elements {
		m, sign := bits&math.MaxInt32, bits>>31
		lo, hi = min(lo, m^sign-sign), max(hi, m^sign-sign)
		zeros -= int((m - 1) >> 31)
	}
	return min(lo, lo1), max(hi, hi1), zeros
}

// sift counts the elements that are not finite and returns the others, which it
// moves down. No branch depends on what an element is: there is no foreseeing it.
func (r *Range) sift(elements []int32, inf int32) []int32 {
	var nans, infs, negInfs, kept int32
	for _, bits := range elements {
		m, sign := bits&math.MaxInt32, bits>>31
		beyond, nan := (inf-1-m)>>31, (inf-m)>>31 // −1 where it is Inf or NaN, where it is NaN
		elements[kept] = bits
		kept += 1 + beyond
		nans -= nan
		infs -= beyond &^ nan
		negInfs -= beyond &^ nan & sign
	}
	r.NaN, r.Inf, r.NegInf = r.NaN+int(nans), r.Inf+int(infs), r.NegInf+int(negInfs)
	return elements[:kept]
}

// layout is the bytes of an element of d, 0 where it is not a float that is scanned,
// and the bits of an infinity as unpack has them.
func layout(d ir.DType) (width int, inf int32) {
	switch d {
	case ir.F16:
		return 2, 0x7c00 << 16
	case ir.BF16:
		return 2, 0x7f80 << 16
	case ir.F32:
		return 4, 0x7f80 << 16
	}
	return 0, 0
}

// float is the float of dtype d whose magnitude has the bits of x's.
func float(d ir.DType, x int32) float64 {
	m := uint32(max(x, -x))
	f := math.Float32frombits(m) // bf16 is the upper half of f32
	if d == ir.F16 {
		f = fp.F16ToF32(uint16(m >> 16))
	}
	if x < 0 {
		return -float64(f)
	}
	return float64(f)
}

// widened is data of a 16-bit dtype as f32; other data is returned as it is.
func (h *hands) widened(d ir.DType, data []byte) []byte {
	if !d.Low() {
		return data
	}
	out := make([]byte, 2*len(data))
	h.inChunks(data, func(i int, part []byte) { h.b.Widen(out[2*i*chunk:2*i*chunk+2*len(part)], d, part) })
	return out
}

// convert returns 16-bit float data as f32 or bf16, in the memory of into where
// that has the size.
func (h *hands) convert(from, to ir.DType, data, into []byte) []byte {
	n := len(data)
	if to == ir.F32 {
		n *= 2
	}
	if len(into) != n {
		into = make([]byte, n)
	}
	wide := h.widened(from, data)
	if to == ir.F32 {
		copy(into, wide)
		return into
	}
	h.inChunks(wide, func(i int, part []byte) { h.b.Narrow(into[i*chunk/2:i*chunk/2+len(part)/2], to, part) })
	return into
}

package doctor

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"ampc/internal/fp"
	"ampc/ir"
	"ampc/runtime/cpu"
)

func open(t *testing.T) *workers {
	t.Helper()
	b, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return newWorkers(b)
}

// What is scanned in pieces and by bits is what one finds element by element.
func TestScan(t *testing.T) {
	h := open(t)
	r := rand.New(rand.NewPCG(5, 6))
	for _, d := range []ir.DType{ir.F16, ir.BF16, ir.F32} {
		for _, n := range []int{0, 1, 7, 1 << 16, 1<<16 + 1, 200_001} {
			var data []byte
			want := Range{Name: "v", DType: d, Stored: d.String(), Elements: n}
			lo, hi := math.Inf(1), math.Inf(-1)
			for range n {
				x, bits := drawn(r, d)
				data = append(data, bits...)
				switch {
				case math.IsNaN(x):
					want.NaN++
				case math.IsInf(x, 0):
					want.Inf++
					if x < 0 {
						want.NegInf++
					}
				default:
					lo, hi = min(lo, x), max(hi, x)
					if x == 0 {
						want.Zeros++
					}
				}
			}
			if lo <= hi {
				want.Min, want.Max, want.AbsMax = lo, hi, max(-lo, hi)
			}
			if got := h.scan("v", d, data); got != want {
				t.Errorf("%d of %s: %+v, want %+v", n, d, got, want)
			}
			if got := h.flawOf(d, data); got != want.flaw() {
				t.Errorf("%d of %s: flaw %d, want %d", n, d, got, want.flaw())
			}
		}
	}
}

// The worst element decides, wherever it stands.
func TestFlaw(t *testing.T) {
	h := open(t)
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	for _, c := range []struct {
		holds []float32
		want  flaw
	}{
		{nil, fine}, {[]float32{-math.MaxFloat32, 0}, fine}, {[]float32{-inf, 1}, onlyNegInf}, {[]float32{inf}, hasInf},
		{[]float32{inf, -inf}, hasInf}, {[]float32{-inf, nan}, hasNaN}, {[]float32{-nan, inf}, hasNaN},
	} {
		for _, gap := range []int{0, 1 << 10, 3 << 10} {
			var data []byte
			for _, x := range c.holds {
				data = append(data, make([]byte, 4*gap)...)
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
			}
			if got := h.flawOf(ir.F32, data); got != c.want || got != h.scan("v", ir.F32, data).flaw() {
				t.Errorf("%v, %d zeros between: flaw %d, want %d", c.holds, gap, got, c.want)
			}
		}
	}
}

// One element that is not finite is seen wherever it stands.
func TestFinite(t *testing.T) {
	for d, values := range map[ir.DType]struct{ finite, special []uint32 }{
		ir.F16:  {[]uint32{0x7bff, 0xfbff, 0, 0x8000, 1}, []uint32{0x7c00, 0xfc00, 0x7e00, 0x7c01}},
		ir.BF16: {[]uint32{0x7f7f, 0xff7f, 0, 0x8000, 1}, []uint32{0x7f80, 0xff80, 0x7fc0, 0x7f81}},
		ir.F32:  {[]uint32{0x7f7fffff, 0xff7fffff, 0, 0x80000000, 1}, []uint32{0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001}},
	} {
		put := func(b []byte, x uint32) []byte {
			if d == ir.F32 {
				return binary.LittleEndian.AppendUint32(b, x)
			}
			return binary.LittleEndian.AppendUint16(b, uint16(x))
		}
		for n := range 12 {
			for at := range n + 1 {
				for _, x := range values.special {
					var b []byte
					for i := range n + 1 {
						if i == at {
							b = put(b, x)
						} else {
							b = put(b, values.finite[(i+n)%len(values.finite)])
						}
					}
					if finite(d, b) {
						t.Errorf("%s: %#x at %d of %d is not seen", d, x, at, n+1)
					}
				}
			}
			var b []byte
			for i := range n {
				b = put(b, values.finite[i%len(values.finite)])
			}
			if !finite(d, b) {
				t.Errorf("%s: %d finite elements are said not to be", d, n)
			}
		}
	}
}

// drawn is any bit pattern of d, zero once in eight times.
func drawn(r *rand.Rand, d ir.DType) (float64, []byte) {
	bits := r.Uint32()
	if r.IntN(8) == 0 {
		bits &= 0x8000_8000 & (bits << 16)
	}
	switch d {
	case ir.F16:
		return float64(fp.F16ToF32(uint16(bits))), binary.LittleEndian.AppendUint16(nil, uint16(bits))
	case ir.BF16:
		return float64(fp.BF16ToF32(uint16(bits))), binary.LittleEndian.AppendUint16(nil, uint16(bits))
	}
	return float64(math.Float32frombits(bits)), binary.LittleEndian.AppendUint32(nil, bits)
}

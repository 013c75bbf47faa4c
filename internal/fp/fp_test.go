package fp

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/x448/float16"
)

// patterns yields float32 bit patterns: every exponent with mantissas around
// each rounding boundary of both 16-bit formats, then seeded random ones.
func patterns(yield func(uint32) bool) {
	edges := []uint32{0, 1, 0x7fffff}
	for _, shift := range []uint{13, 16} { // bits that binary16 and bfloat16 drop
		for _, kept := range []uint32{0, 1, 2, 3, 0x7f, 0x3ff} {
			mid := (kept<<shift | 1<<(shift-1)) & 0x7fffff
			edges = append(edges, mid-1, mid, mid+1, kept<<shift&0x7fffff)
		}
	}
	for e := range uint32(256) {
		for _, m := range edges {
			for _, sign := range []uint32{0, 1 << 31} {
				if !yield(sign | e<<23 | m&0x7fffff) {
					return
				}
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2_000_000 {
		if !yield(r.Uint32()) {
			return
		}
	}
}

func TestEveryHalfWidens(t *testing.T) {
	for h := range 1 << 16 {
		got, want := F16ToF32(uint16(h)), float16.Frombits(uint16(h)).Float32()
		if math.IsNaN(float64(want)) {
			if !math.IsNaN(float64(got)) {
				t.Fatalf("half %04x: got %v, want NaN", h, got)
			}
		} else if math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("half %04x: got %08x, want %08x", h, math.Float32bits(got), math.Float32bits(want))
		}
	}
}

func TestEveryHalfComesBack(t *testing.T) {
	for h := range 1 << 16 {
		f := F16ToF32(uint16(h))
		if math.IsNaN(float64(f)) {
			if back := F16(f); back&0x7c00 != 0x7c00 || back&0x3ff == 0 {
				t.Fatalf("half NaN %04x came back as %04x", h, back)
			}
		} else if back := F16(f); back != uint16(h) {
			t.Fatalf("half %04x came back as %04x", h, back)
		}
		if b := BF16ToF32(uint16(h)); !math.IsNaN(float64(b)) && BF16(b) != uint16(h) {
			t.Fatalf("bfloat %04x came back as %04x", h, BF16(b))
		}
	}
}

func TestF16MatchesReference(t *testing.T) {
	for bits := range patterns {
		f := math.Float32frombits(bits)
		got, want := F16(f), float16.Fromfloat32(f)
		if want.IsNaN() {
			if !float16.Frombits(got).IsNaN() {
				t.Fatalf("%08x: got %04x, want NaN", bits, got)
			}
		} else if got != want.Bits() {
			t.Fatalf("%08x (%g): got %04x, want %04x", bits, f, got, want.Bits())
		}
	}
}

// nearestEven rounds x to a binary format of the given precision (bits with
// the leading one) and smallest exponent by exact arithmetic, as an oracle
// that shares no code with the bit tricks. Overflow is not handled.
func nearestEven(x float32, precision, minExp int) float64 {
	_, exp := math.Frexp(float64(x)) // x = f * 2^exp, 0.5 <= f < 1
	ulp := max(exp-precision, minExp-precision+1)
	q := new(big.Float).SetPrec(400).SetMantExp(big.NewFloat(float64(x)), -ulp)
	n, _ := q.Int(nil) // towards zero
	rest, _ := new(big.Float).SetPrec(400).Sub(q, new(big.Float).SetInt(n)).Float64()
	if a := math.Abs(rest); a > 0.5 || a == 0.5 && n.Bit(0) == 1 {
		n.Add(n, big.NewInt(int64(math.Copysign(1, rest))))
	}
	f, _ := new(big.Float).SetPrec(400).SetMantExp(new(big.Float).SetInt(n), ulp).Float64()
	return f
}

func TestBF16AndTF32MatchExactArithmetic(t *testing.T) {
	count := 0
	for bits := range patterns {
		f := math.Float32frombits(bits)
		if count++; count > 200_000 {
			break
		}
		if f != f {
			if b := BF16ToF32(BF16(f)); b == b {
				t.Fatalf("%08x: BF16 lost a NaN", bits)
			}
			if r := TF32(f); r == r {
				t.Fatalf("%08x: TF32 lost a NaN", bits)
			}
			continue
		}
		checkRounding(t, "BF16", f, BF16ToF32(BF16(f)), 8)
		checkRounding(t, "TF32", f, TF32(f), 11)
	}
}

func checkRounding(t *testing.T, name string, f, got float32, precision int) {
	t.Helper()
	want := float64(f)
	if !math.IsInf(want, 0) {
		want = nearestEven(f, precision, -126)
		if math.Abs(want) >= 0x1p128 {
			want = math.Inf(int(math.Copysign(1, want)))
		}
	}
	if float64(got) != want || math.Signbit(float64(got)) != math.Signbit(float64(f)) {
		t.Fatalf("%s(%g = %08x) = %g, want %g", name, f, math.Float32bits(f), got, want)
	}
}

// The boundaries that conversions commonly get wrong, spelled out.
func TestNamedBoundaries(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		in   float32
		want float64
	}{
		{65504, 65504},
		{65519.996, 65504},          // below half way to 65536
		{65520, inf},                // half way goes to even, which is 65536: Inf
		{0x1p-24, 0x1p-24},          // smallest subnormal
		{0x1p-25, 0},                // half of it: ties to even
		{0x1.000002p-25, 0x1p-24},   // just above half
		{0x1.8p-24, 0x1p-23},        // 1.5 subnormals: ties to 2
		{0x1.ff8p-15, 0x1.ff8p-15},  // largest subnormal
		{0x1.ffcp-15, 0x1p-14},      // half way to the smallest normal: ties to it
		{1 + 0x1p-11, 1},            // tie to even below
		{1 + 3*0x1p-11, 1 + 0x1p-9}, // tie to even above
	} {
		if got := float64(F16ToF32(F16(c.in))); got != c.want {
			t.Errorf("F16(%g) = %g, want %g", c.in, got, c.want)
		}
	}
	if got := BF16ToF32(BF16(math.MaxFloat32)); !math.IsInf(float64(got), 1) {
		t.Errorf("BF16(MaxFloat32) = %g, want +Inf", got)
	}
	if got := TF32(math.MaxFloat32); !math.IsInf(float64(got), 1) {
		t.Errorf("TF32(MaxFloat32) = %g, want +Inf", got)
	}
	if got := BF16(float32(math.Copysign(0, -1))); got != 0x8000 {
		t.Errorf("BF16(-0) = %04x, want 8000", got)
	}
}

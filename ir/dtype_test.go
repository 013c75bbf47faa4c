package ir

import (
	"math"
	"testing"
)

// Conversions to integers agree with Go's own types.
func TestIntegersWrapAndSaturate(t *testing.T) {
	wraps := map[DType]func(int64) int64{
		U8: func(x int64) int64 { return int64(uint8(x)) }, I8: func(x int64) int64 { return int64(int8(x)) }, U16: func(x int64) int64 { return int64(uint16(x)) },
		I16: func(x int64) int64 { return int64(int16(x)) }, U32: func(x int64) int64 { return int64(uint32(x)) }, I32: func(x int64) int64 { return int64(int32(x)) },
		U64: func(x int64) int64 { return x }, I64: func(x int64) int64 { return x },
	}
	for d, wrap := range wraps {
		for _, x := range []int64{0, 1, -1, 127, 128, 255, 256, -128, -129, 32767, 32768, 65535, 65536, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxUint32 + 1, math.MinInt32, math.MinInt64, math.MaxInt64} {
			if got := d.Wrap(x); got != wrap(x) {
				t.Errorf("%s: %d wraps to %d, want %d", d, x, got, wrap(x))
			}
		}
		lo, hi := d.Limits()
		if wrap(lo) != lo || wrap(hi) != hi || wrap(hi+1) != lo {
			t.Errorf("%s: limits %d and %d are not neighbours", d, lo, hi)
		}
		for x, want := range map[float64]int64{math.Inf(-1): lo, math.Inf(1): hi, 1e30: hi, -1e30: lo, 2.9: 2, -0.9: 0} {
			if got := d.FromFloat(x); got != want {
				t.Errorf("%s: %g becomes %d, want %d", d, x, got, want)
			}
		}
		if got := d.FromFloat(math.NaN()); got != 0 {
			t.Errorf("%s: NaN becomes %d", d, got)
		}
	}
	if got := U64.FromFloat(0x1p63 + 0x1p62); uint64(got) != 1<<63+1<<62 {
		t.Errorf("u64: 2⁶³+2⁶² becomes %d", uint64(got))
	}
	if got := U64.Number(-1); got != math.MaxUint64 {
		t.Errorf("u64: all bits are %g", got)
	}
}

// A dtype holds another where casting there and back loses nothing.
func TestHolds(t *testing.T) {
	holds := map[DType][]DType{
		F32: {F16, BF16, U8, I8, U16, I16, Bool}, F64: {F32, F16, BF16, U8, I8, U16, I16, U32, I32, Bool}, F16: {U8, I8, Bool}, BF16: {U8, I8, Bool},
		U8: {Bool}, I8: {Bool}, U16: {U8, Bool}, I16: {U8, I8, Bool}, U32: {U8, U16, Bool}, I32: {U8, I8, U16, I16, Bool},
		U64: {U8, U16, U32, Bool}, I64: {U8, I8, U16, I16, U32, I32, Bool},
	}
	for d, from := range holds {
		for f := F32; f <= U64; f++ {
			want := f == d
			for _, x := range from {
				want = want || x == f
			}
			if d.Holds(f) != want {
				t.Errorf("%s holds %s: %t", d, f, !want)
			}
		}
	}
}

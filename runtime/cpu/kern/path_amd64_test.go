package kern

import "testing"

// Products of bf16 by tile registers are the default where there are any, those of pairs on AMD's processors and not on
// Intel's, where they are slower than f32.
func TestFastPairs(t *testing.T) {
	for _, c := range []struct {
		vendor  string
		b, c, d uint32
		want    bool
	}{
		{"AuthenticAMD", 0x68747541, 0x444d4163, 0x69746e65, true},
		{"GenuineIntel", 0x756e6547, 0x6c65746e, 0x49656e69, false},
	} {
		if got := fastPairs(13, c.b, c.c, c.d); got != c.want {
			t.Errorf("%s: %t, want %t", c.vendor, got, c.want)
		}
	}
	_, avx512, bf16 := features()
	if !bf16 {
		t.Skip("this processor has no AVX512_BF16: the order of its paths is not tested")
	}
	want := "avx512"
	switch {
	case TileRegisters().Usable:
		want = "amx"
	case fastPairs(cpuid(0, 0)):
		want = "avx512bf16"
	}
	if got := Paths()[0].Name(); !avx512 || got != want {
		t.Errorf("the default path is %s, want %s", got, want)
	}
}

package main

import (
	"bytes"
	"testing"
)

// Codes of the AMX instructions are those of GNU as 2.40.
func TestAMXCodes(t *testing.T) {
	for _, c := range []struct {
		text string
		got  []byte
		want []byte
	}{
		{"ldtilecfg (%rax)", tileConfig("AX"), []byte{0xc4, 0xe2, 0x78, 0x49, 0x00}},
		{"tilerelease", tileRelease(), []byte{0xc4, 0xe2, 0x78, 0x49, 0xc0}},
		{"tilezero %tmm3", tileZero(3), []byte{0xc4, 0xe2, 0x7b, 0x49, 0xd8}},
		{"tileloadd (%rsi,%r8,1),%tmm4", tileLoad(4, "SI", "R8", 0), []byte{0xc4, 0xa2, 0x7b, 0x4b, 0x24, 0x06}},
		{"tileloadd 64(%rbx,%r10,1),%tmm7", tileLoad(7, "BX", "R10", 64), []byte{0xc4, 0xa2, 0x7b, 0x4b, 0x7c, 0x13, 0x40}},
		{"tileloadd (%r13,%r12,1),%tmm2", tileLoad(2, "R13", "R12", 0), []byte{0xc4, 0x82, 0x7b, 0x4b, 0x54, 0x25, 0x00}},
		{"tilestored %tmm1,64(%rdx,%r12,1)", tileStore(1, "DX", "R12", 64), []byte{0xc4, 0xa2, 0x7a, 0x4b, 0x4c, 0x22, 0x40}},
		{"tilestored %tmm3,(%r9,%r12,1)", tileStore(3, "R9", "R12", 0), []byte{0xc4, 0x82, 0x7a, 0x4b, 0x1c, 0x21}},
		{"tdpbf16ps %tmm6,%tmm4,%tmm0", tileProduct(0, 4, 6), []byte{0xc4, 0xe2, 0x4a, 0x5c, 0xc4}},
		{"tdpbf16ps %tmm7,%tmm5,%tmm3", tileProduct(3, 5, 7), []byte{0xc4, 0xe2, 0x42, 0x5c, 0xdd}},
	} {
		if !bytes.Equal(c.got, c.want) {
			t.Errorf("%s is % x, want % x", c.text, c.got, c.want)
		}
	}
}

// The code of VDPBF16PS %zmm17,%zmm9,%zmm30, as GNU as has it.
func TestPairProductCode(t *testing.T) {
	if got, want := dotProduct(17, 9, 30), [6]byte{0x62, 0x22, 0x36, 0x48, 0x52, 0xf1}; got != want {
		t.Errorf("% x, want % x", got, want)
	}
}

package ir_test

import (
	"math"
	"testing"

	"ampc/ir"
)

// Equal instructions are emitted once. The constants 0 and -0 are two.
func TestCodeTellsZerosApart(t *testing.T) {
	var c ir.Code
	zero := c.F(0)
	if minus := c.F(math.Copysign(0, -1)); minus == zero || !math.Signbit(c.Ins[minus].Imm) {
		t.Errorf("-0 is register %d, which is %v", minus, c.Ins[minus])
	}
	if again := c.F(0); again != zero {
		t.Errorf("0 is in registers %d and %d", zero, again)
	}
}

// Nodes with a factor of 0 and of -0 are two, however a pass compares attributes.
func TestAttrsTellZerosApart(t *testing.T) {
	g, err := ir.Parse("zeros.ir", []byte("graph @t {\n  input %x : f32[4]\nforward:\n  %a = affine %x {scale=0} : f32[4]\n  %b = affine %x {scale=-0} : f32[4]\n  return %a, %b\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := g.Return[0].Def.Attrs, g.Return[1].Def.Attrs
	if a.Equal(b) || !a.Equal(a) {
		t.Errorf("%v and %v: equal %t; the first and itself: %t", a, b, a.Equal(b), a.Equal(a))
	}
}

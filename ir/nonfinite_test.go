package ir

import "testing"

// What rows hand on depends on attributes, and on which operands are one value.
func TestHandsOnByAttributes(t *testing.T) {
	for _, c := range []struct {
		node    string
		operand int
		x, want Numbers
	}{
		{"clip %x {lo=-1.0}", 0, PosInf, PosInf},
		{"clip %x {lo=-1.0}", 0, NegInf, Finite},
		{"clip %x {lo=-1.0 hi=1.0}", 0, NaN, NaN},
		{"affine %x {scale=-2.0}", 0, PosInf, NegInf},
		{"affine %x {scale=-2.0}", 0, PosInf | NegInf, PosInf | NegInf},
		{"mul %x, %x", 0, NegInf, PosInf}, // the same element twice
		{"sub %x, %x", 0, PosInf, NaN},
		{"mul %x, %y", 0, NegInf, Nonfinite},
		{"add %x, %y", 1, PosInf, PosInf | NaN},
		{"where %b, %x, %y", 1, NaN, cAny.numbers()}, // who is not chosen is lost
		{"cast %x {to=f16}", 0, PosInf, PosInf},
		{"cast %x {to=i32}", 0, NaN, Finite | NaN},
		{"eq %x, %y", 0, NaN, Finite | NaN},
		{"relu %y", 0, PosInf | NegInf, PosInf | Finite},
		{"relu_grad %x, %y", 0, PosInf, PosInf | Finite},
		{"slice %x {starts=[0] ends=[4]}", 0, NaN, NaN},
		{"slice %x {starts=[0] ends=[3]}", 0, NaN, Finite | NaN},
		{"pad %x {lo=[0] hi=[2]}", 0, NegInf, NegInf},
		{"pad %x {lo=[0] hi=[-2]}", 0, NegInf, Finite | NegInf},
		{"cumsum %x", 0, PosInf, PosInf | NaN},
		{"cumsum %x {exclusive}", 0, PosInf, Finite | PosInf},
		{"mul %x, %none", 0, PosInf, Finite | PosInf}, // nothing to show it in
	} {
		g, err := Parse("t.ir", []byte("graph @t {\ninput %x : f32[4]\ninput %y : f32[4]\ninput %b : bool[4]\ninput %none : f32[0,4]\nforward:\n%r = "+c.node+"\n}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Body[Forward][0].HandsOn(c.operand, c.x); got != c.want {
			t.Errorf("%s: %s in operand %d leaves %s, want %s", c.node, c.x, c.operand, got, c.want)
		}
	}
}

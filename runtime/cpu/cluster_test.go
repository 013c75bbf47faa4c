package cpu

import (
	"math"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/runtime/runtimetest"
)

// A result may lie over an operand of its cluster that other members still read:
// it must not be written before they have.
func TestResultsOverOperands(t *testing.T) {
	g, err := ir.Parse("over.ir", []byte(`graph @over {
  input %x : f32[3000]
  state %s : f32[3000] = 2
forward:
  %a = neg %x : f32[3000]
  %y = add %a, %x {cluster=1} : f32[3000]
  %q = add %a, %a {cluster=1} : f32[3000]
  %z = mul %q, %y {cluster=1} : f32[3000]
  %n = neg %a {cluster=1} : f32[3000]
update:
  %s' = add %s, %x {cluster=2}
  %t = mul %s, %s {cluster=2} : f32[3000]
  return %y, %q, %z, %n, %t
}
`))
	if err != nil {
		t.Fatal(err)
	}
	l := runtimetest.Load(t, open(t, 2), g, 1)
	x := eval.New(ir.T(ir.F32, 3000))
	for i := range x.F {
		x.F[i] = float64(float32(math.Sin(float64(i))))
	}
	feed := map[string]*eval.Tensor{"x": x}
	for step := range 3 {
		got, want := l.Step(t, feed), l.Want(t, feed)
		got["%s"], want["%s"] = l.Variables(t)["%s"], l.WantVariables()["%s"]
		for name, w := range want {
			for i := range w.F {
				if got[name].F[i] != w.F[i] {
					t.Fatalf("step %d: %s[%d] is %g, want %g", step, name, i, got[name].F[i], w.F[i])
				}
			}
		}
	}
}

// Every primitive has a vector form for floats, and those that integers and
// doubles meet have one there.
func TestEveryPrimitive(t *testing.T) {
	for p := ir.Prim(0); p < ir.NumPrims; p++ {
		switch p {
		case ir.PIn, ir.PConst, ir.PIndex, ir.PPhilox, ir.PConv, ir.PRound:
			continue
		}
		_, one := unaryOps[p]
		_, two := binaryOps[p]
		_, three := ternaryOps[p]
		if !one && !two && !three {
			t.Errorf("no vector form of %s", p)
		}
		if doubleOps[p] == nil && doubleTests[p] == nil && p != ir.PSelect && p != ir.PAnd && p != ir.POr && p != ir.PXor && p != ir.PNot {
			t.Errorf("no form of %s for doubles", p)
		}
	}
}

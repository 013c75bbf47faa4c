package eval

import (
	"fmt"
	"math"
	"testing"

	"ampc/ir"
)

// entryNodes has a node of every row with an operand or a number that says how it
// enters. Its operands are scalars: the first is 8, the second 2.
var entryNodes = []string{"add %x, %y", "sub %x, %y", "mul %x, %y", "div %x, %y", "mod %x, %y", "pow %x, %y", "add_n %x, %y",
	"reciprocal %x", "affine %x {scale=3.0 shift=5.0}", "full {shape=[] value=7.0}", "pad %v {lo=[1] hi=[0] value=7.0}"}

// What a row says of how a number enters is how its result changes with it.
func TestEntries(t *testing.T) {
	tested := map[ir.Op]bool{}
	for _, text := range entryNodes {
		n := entryNode(t, text)
		tested[n.Op] = true
		for i := range n.In {
			was := []float64{8, 2}
			now := append([]float64{}, was...)
			now[i] *= 4
			if e := n.OperandDef(i).Entry; e != ir.NoEntry {
				checkEntry(t, fmt.Sprintf("%s, operand %d", text, i), e, was[i], scalarResult(t, n, was), scalarResult(t, n, now))
			}
		}
		for _, a := range n.Def().Attrs {
			if a.Entry == ir.NoEntry {
				continue
			}
			x := n.Float(a.Name)
			was := scalarResult(t, n, []float64{8, 2})
			if a.Entry == ir.Multiplied { // without what is added
				for _, name := range n.Numbers(ir.Added) {
					n.Attrs = n.Attrs.With(name, 0.0)
				}
				was = scalarResult(t, n, []float64{8, 2})
			}
			n.Attrs = n.Attrs.With(a.Name, 4*x)
			checkEntry(t, text+", "+a.Name, a.Entry, x, was, scalarResult(t, n, []float64{8, 2}))
			n.Attrs = n.Attrs.With(a.Name, x)
		}
	}
	for _, op := range ir.Ops() {
		d := op.Def()
		if d == nil {
			continue
		}
		says := false
		for _, o := range d.In {
			says = says || o.Entry != ir.NoEntry
		}
		for _, a := range d.Attrs {
			says = says || a.Entry != ir.NoEntry
		}
		if says != tested[op] {
			t.Errorf("%s: the row says how a number enters: %t, tested: %t", d.Name, says, tested[op])
		}
	}
}

// checkEntry: x became 4x, and the result was y and is z.
func checkEntry(t *testing.T, what string, e ir.Entry, x, y, z float64) {
	t.Helper()
	want := math.NaN()
	switch e {
	case ir.Added:
		want = y + 3*x
	case ir.Subtracted:
		want = y - 3*x
	case ir.Multiplied:
		want = 4 * y
	case ir.Divides:
		want = y / 4
	case ir.Fills:
		want = 4 * x
	case ir.Reduced: // a number that is large may leave one that is not
		return
	}
	if z != want {
		t.Errorf("%s: with 4 times %g the result goes from %g to %g, want %g", what, x, y, z, want)
	}
}

func entryNode(t *testing.T, text string) *ir.Node {
	t.Helper()
	g, err := ir.Parse("t.ir", []byte("graph @t {\ninput %x : f32[]\ninput %y : f32[]\ninput %v : f32[1]\nforward:\n%r = "+text+"\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return g.Body[ir.Forward][0]
}

// scalarResult is the first element that n makes of operands that hold numbers.
func scalarResult(t *testing.T, n *ir.Node, x []float64) float64 {
	t.Helper()
	var in []*Tensor
	for i, v := range n.In {
		if v == nil {
			in = append(in, nil)
			continue
		}
		in = append(in, Floats(ir.F32, v.Type.Shape.Dims(), x[i]))
	}
	out, err := Node(n, in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return out[0].F[0]
}

// AtZero says what the evaluator computes at 0, of every elementwise row of one
// or two floats.
func TestAtZero(t *testing.T) {
	poles := 0
	for _, op := range ir.Ops() {
		d := op.Def()
		if d == nil || d.Elem == nil {
			continue
		}
		for _, operands := range []string{"%x", "%x, %y"} {
			g, err := ir.Parse("t.ir", []byte("graph @t {\ninput %x : f32[]\ninput %y : f32[]\nforward:\n%r = "+d.Name+" "+operands+"\n}\n"))
			if err != nil {
				continue
			}
			n := g.Body[ir.Forward][0]
			if len(n.In) > 2 { // some are absent
				continue
			}
			for i := range n.In {
				may, zero := n.AtZero(i)
				if may&ir.Finite == 0 {
					poles++
				}
				for _, other := range []float64{-2, -0.5, 0.5, 3} {
					x := []float64{other, other}
					x[i] = 0
					switch y := scalarAt(n, x); {
					case math.IsNaN(y) && may&ir.NaN == 0, math.IsInf(y, 1) && may&ir.PosInf == 0, math.IsInf(y, -1) && may&ir.NegInf == 0,
						!math.IsNaN(y) && !math.IsInf(y, 0) && may&ir.Finite == 0, zero && y != 0:
						t.Errorf("%s, operand %d is 0, another %g: the result is %g, AtZero says %s, zero %t", d.Name, i, other, y, may, zero)
					}
				}
			}
		}
	}
	for text, want := range map[string]struct {
		operand    int
		pole, zero bool
	}{"div %x, %y": {1, true, false}, "log %x": {0, true, false}, "rsqrt %x": {0, true, false}, "reciprocal %x": {0, true, false}, "mod %x, %y": {1, true, false},
		"sqrt %x": {0, false, true}, "mul %x, %y": {1, false, true}, "div %x, %x": {0, true, false}, "add %x, %y": {0, false, false}, "cast %x {to=f16}": {0, false, true}} {
		if may, zero := entryNode(t, text).AtZero(want.operand); (may&ir.Finite == 0) != want.pole || zero != want.zero {
			t.Errorf("%s: may be %s, zero %t", text, may, zero)
		}
	}
	if poles < 5 {
		t.Errorf("%d poles at 0", poles)
	}
}

func scalarAt(n *ir.Node, x []float64) float64 {
	var in []*Tensor
	for i := range n.In {
		in = append(in, Floats(ir.F32, nil, x[i]))
	}
	out, err := Node(n, in, Options{})
	if err != nil || out[0].F == nil {
		return 0
	}
	return out[0].F[0]
}

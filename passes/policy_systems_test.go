package passes

import (
	"testing"

	"ampc/ir"
	"ampc/passes/systems"
)

// oneOp finds a graph of one node per op among the row cases.
func oneOp(t *testing.T) map[ir.Op]string {
	out := map[ir.Op]string{}
	rowCases(t, func(t *testing.T, name, text string) {
		g, err := ir.Parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range g.Nodes {
			if _, ok := out[n.Op]; !ok || name == n.Op.String() {
				out[n.Op] = text
			}
		}
	})
	return out
}

// compileOne compiles a graph of one node under p, its f32 operands narrowed
// first where narrow is set: with every precision pass, which must succeed, and with amp
// alone, whose node it returns. (Later passes drop casts that lose nothing.)
func compileOne(t *testing.T, text string, op ir.Op, p Policy, narrow bool) *ir.Node {
	t.Helper()
	compile := func(only []string) *ir.Graph {
		g, err := ir.Parse(op.String(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if narrow {
			narrowInputs(t, g, p.Low)
		}
		if err := Run(g, Config{Policy: p, Only: only}); err != nil {
			t.Fatalf("%s under %s: %v\n%s", op, p.Name, err, g)
		}
		return g
	}
	compile(precisionPasses)
	g := compile([]string{"amp"})
	for _, n := range g.Nodes {
		if n.Op == op {
			return n
		}
	}
	t.Fatalf("%s is not in the compiled graph\n%s", op, g)
	return nil
}

// narrowInputs has every operand that may be 16 bits wide be so.
func narrowInputs(t *testing.T, g *ir.Graph, low ir.DType) {
	t.Helper()
	for _, n := range g.Body[ir.Forward] {
		for i, v := range n.In {
			if v != nil && v.Kind == ir.Input && v.Type.DType == ir.F32 && n.OperandClass(i) != ir.Fixed {
				v.Type = v.Type.With(low)
			}
		}
		if err := n.Retype(); err != nil {
			t.Fatal(err)
		}
	}
}

// stores is what a node of the class stores in an eager system, from operands
// that are wide or low.
func stores(c ir.Class, low ir.DType, narrow bool) ir.DType {
	if c == ir.Low || narrow && c != ir.Keep {
		return low
	}
	return ir.F32
}

// Every name of another system that maps to an op of ours: a graph of that op
// alone, compiled under the system's preset, has the class that the system's
// list gives the name, and stores what that class stores, whether its operands
// are f32 or low.
func TestMappedOpsCompileAsListed(t *testing.T) {
	graphs := oneOp(t)
	for _, system := range systems.Names() {
		for _, low := range []ir.DType{ir.F16, ir.BF16} {
			p, err := PolicyNamed(system + "-" + low.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Run(p.Name, func(t *testing.T) { checkSystem(t, graphs, p, system) })
		}
	}
}

func checkSystem(t *testing.T, graphs map[ir.Op]string, p Policy, system string) {
	list, err := systems.Load(system, p.Low)
	if err != nil {
		t.Fatal(err)
	}
	want, by := map[ir.Op]ir.Class{}, map[ir.Op]string{}
	for _, theirs := range list.Mapped() {
		_, listed := list.Category[theirs]
		for _, op := range list.Ops[theirs] {
			if _, seen := want[op]; !seen || listed {
				want[op], by[op] = list.Of(theirs).Class(), theirs
			}
		}
	}
	for op, class := range want {
		text, ok := graphs[op]
		if !ok {
			t.Errorf("%s: no graph of this op in testdata/ops", op)
			continue
		}
		for _, narrow := range []bool{false, true} {
			n := compileOne(t, text, op, p, narrow)
			got := n.Why.Class
			if got == ir.Clear {
				got = ir.PromoteC
			}
			if got != class {
				t.Errorf("%s (%s): class %s, listed as %s", op, by[op], got, class)
			}
			v := n.Out[0]
			if !v.Type.DType.Float() || n.ResultClass(0) == ir.Fixed {
				continue
			}
			if d := stores(class, p.Low, narrow); v.Type.DType != d {
				t.Errorf("%s (%s), low operands %v: stores %s, want %s", op, by[op], narrow, v.Type.DType, d)
			}
		}
	}
}

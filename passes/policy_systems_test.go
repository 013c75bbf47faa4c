package passes

import (
	"fmt"
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
		if err := Run(g, Config{Policy: p, Debugging: Debugging{Only: only}}); err != nil {
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
			class := class
			for _, c := range p.Cases {
				if c.Holds(n) {
					class = c.Class
				}
			}
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
			d := stores(class, p.Low, narrow)
			for i, in := range n.In {
				if in != nil && in.Def != nil && in.Def.Op == ir.OpCast {
					in = in.Def.In[0]
				}
				if in != nil && p.widens(n, i) && in.Type.DType == ir.F32 {
					d = ir.F32
				}
			}
			if v.Type.DType != d {
				t.Errorf("%s (%s), low operands %v: stores %s, want %s", op, by[op], narrow, v.Type.DType, d)
			}
		}
	}
}

// Decisions that one op of ours has several of in another system, or that hang
// on how that system is built: what the named node stores. %x is f32, %l is its
// 16-bit copy, made by a product.
func TestDecisionsOfSystems(t *testing.T) {
	for _, c := range []struct {
		policy, node string
		want         ir.DType
	}{
		{"torch-f16", "%y = square %l", ir.F32}, // square calls pow
		{"torch-cpu-f16", "%y = square %l", ir.F16},
		{"torch-f16", "%y = softplus %l", ir.F32},
		{"torch-cpu-f16", "%y = softplus %l", ir.F16}, // its list has soft_margin_loss alone
		{"torch-cpu-bf16", "%y = softplus %x", ir.F32},
		{"torch-f16", "%y, %s = rms_norm %l, %scale", ir.F32},
		{"torch-cpu-f16", "%y, %s = rms_norm %l, %scale", ir.F32}, // the f32 weight widens
		{"torch-cpu-f16", "%y, %s = rms_norm %l, _", ir.F16},
		{"torch-cpu-f16", "%y, %m, %s = layer_norm %l, %scale, _", ir.F16},
		{"torch-f16", "%y, %g = gru %x4, %r, _, _", ir.F16},
		{"torch-cpu-f16", "%y, %g = gru %x4, %r, _, _", ir.F32}, // the state is as wide as the sequence
		{"torch-cpu-f16", "%y, %g = gru %l4, %r, _, _", ir.F16},
		{"torch-f16", "%y = rnn %x4, %r1", ir.F16},
		{"torch-cpu-f16", "%y = rnn %x4, %r1", ir.F16}, // a sum of two linears, whatever the sequence
		{"torch-cpu-f16", "%y = rnn %l4, %r1", ir.F16},
		{"apex-o1-f16", "%y = rnn %x4, %r1", ir.F16},
		{"tensorflow-f16", "%y = rnn %x4, %r1", ir.F16},
		{"oneflow-f16", "%y = pow %l, %l", ir.F32}, // broadcast_pow is in no list
		{"oneflow-f16", "%y = pow %l, %three", ir.F16},
		{"oneflow-f16", "%y = resize %l3 {sizes=[4]}", ir.F16},
		{"oneflow-f16", "%y = resize %l3 {sizes=[4] mode=linear}", ir.F32},
		{"paddle-f16", "%y = pow %l, %l", ir.F16}, // elementwise_pow is gray
		{"paddle-f16", "%y = pow %l, %three", ir.F32},
		{"paddle-f16", "%y = matmul %x3, %x3 {ta}", ir.F32}, // bmm is gray, matmul white
		{"paddle-f16", "%y = matmul %l3, %l3 {ta}", ir.F16},
		{"paddle-f16", "%y = matmul %x, %w", ir.F16},
		{"tensorflow-f16", "%y = resize %l3 {sizes=[4]}", ir.F16},
		{"tensorflow-f16", "%y = resize %l3 {sizes=[4] mode=linear}", ir.F32},
		{"tensorflow-bf16", "%y = resize %l3 {sizes=[4] mode=linear}", ir.BF16},
		{"torch-f16", "%y = resize %l3 {sizes=[4]}", ir.F32},
	} {
		p, err := PolicyNamed(c.policy)
		if err != nil {
			t.Fatal(err)
		}
		g, err := ir.Parse("decision", fmt.Appendf(nil, `graph @d {
  input %%x : f32[8,8]
  param %%w : f32[8,8] = ones()
  param %%scale : f32[8] = ones()
  param %%r : f32[1,2,6] = ones()
  param %%r1 : f32[1,6,6] = ones()
  const %%three : f32[] = 3
forward:
  %%l = linear %%x, %%w, _
  %%x3 = reshape %%x {shape=[2,4,8]}
  %%l3 = reshape %%l {shape=[2,4,8]}
  %%w6 = slice %%w {starts=[0] ends=[6] axes=[1]}
  %%p = linear %%x, %%w6, _
  %%q = linear %%l, %%w6, _
  %%x4 = reshape %%p {shape=[4,2,1,6]}
  %%l4 = reshape %%q {shape=[4,2,1,6]}
  %s
}
`, c.node))
		if err != nil {
			t.Fatalf("%s: %v", c.node, err)
		}
		if err := Run(g, Config{Policy: p, Debugging: Debugging{Only: []string{"amp"}}}); err != nil {
			t.Fatalf("%s: %s: %v", c.policy, c.node, err)
		}
		body := g.Body[ir.Forward]
		if got := body[len(body)-1].Out[0].Type.DType; got != c.want {
			t.Errorf("%s: %s stores %s, want %s\n%s", c.policy, c.node, got, c.want, g)
		}
	}
}

package onnx_test

import (
	"bytes"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/onnx"
	"ampc/onnx/convert"
	"ampc/passes"
)

// foreignModel has an operator of another domain between two that are known; what it makes has
// the given declaration.
func foreignModel(infos ...msg) []byte {
	g := msg(nil).str(2, "g").
		raw(1, nodeOf("Relu", []string{"x"}, []string{"h"})).
		raw(1, nodeOf("Frob", []string{"h", "", "words", "w"}, []string{"f", ""}, intAttr("k", 3), strAttr("mode", "soft"), floatAttr("alpha", 0.5), intsAttr("pads", 1, 2)).str(7, "com.acme")).
		raw(1, nodeOf("Exp", []string{"f"}, []string{"y"})).
		raw(5, tensorOf("w", []int64{2}, 1, 2)).
		raw(5, msg(nil).num(2, 8).str(8, "words").num(1, 1).str(6, "hello")).
		raw(11, infoOf("x", 1, "N", 4)).raw(11, infoOf("text", 8, 3)).raw(12, infoOf("y", 1, "N", 4))
	for _, x := range infos {
		g = g.raw(13, x)
	}
	return modelOf(g).raw(8, msg(nil).str(1, "com.acme").num(2, 1))
}

// An operator that is not known is carried with its types and attributes, and refused by name and
// position where something must run it.
func TestForeignIsCarried(t *testing.T) {
	x, err := importFile(t, save(t, foreignModel(infoOf("f", 1, "N", 4))), onnx.Options{Dims: map[string]int64{"N": 2}, Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	text := x.Graph.String()
	if want := `%f = foreign %h, _, _, %w {alpha=0.5 domain=com.acme k=3 mode=soft op=Frob opset=1 pads=[1,2]} : f32[2,4]`; !strings.Contains(text, want) {
		t.Errorf("the graph has no %s:\n%s", want, text)
	}
	if len(x.Foreign) != 1 || x.Foreign[0] != 1 {
		t.Errorf("foreign nodes %v", x.Foreign)
	}
	again, err := ir.Parse("again.ir", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := ir.Equal(x.Graph, again); err != nil {
		t.Error(err)
	}
	if _, err = lower.Lower(x.Graph, lower.CPU); err == nil || !strings.Contains(err.Error(), "m.onnx:1: Frob of operator set com.acme is not known here: it is kept, and cannot be computed") {
		t.Errorf("lowering: %v", err)
	}
}

// A reader of a value of open size is carried, too, as far as the model says types.
func TestForeignOfOpenSize(t *testing.T) {
	path := save(t, foreignModel(infoOf("f", 1, "rows", 4)))
	x, err := importFile(t, path, onnx.Options{Dims: map[string]int64{"N": 2}, Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	if text := x.Graph.String(); !strings.Contains(text, "%f = foreign") || !strings.Contains(text, ": f32[?,4]") || !strings.Contains(text, "%y = foreign %f {domain=ai.onnx op=Exp opset=17} : f32[2,4]") {
		t.Error(text)
	}
	for name, want := range map[string]string{
		string(foreignModel()):                      `node 1 (com.acme.Frob): the operator is not known, and it cannot be carried: its result "f" is a value without a type in the model, which ONNX's shape inference may give it`,
		string(foreignModel(infoOf("f", 17, 2, 4))): `its result "f" is a tensor of float8e4m3fn`,
	} {
		if _, err := importFile(t, save(t, []byte(name)), onnx.Options{Dims: map[string]int64{"N": 2}, Foreign: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := importFile(t, path, onnx.Options{Dims: map[string]int64{"N": 2}, Shapes: map[string][]int64{"text": {3}}}); err == nil {
		t.Error("without Foreign, the model is imported")
	}
}

// What is fed for an initializer that is also an input replaces it.
func TestInitializerThatIsFed(t *testing.T) {
	w := tensorOf("w", []int64{2}, 10, 20)
	m := modelOf(msg(nil).str(2, "sum").raw(1, nodeOf("Add", []string{"x", "w"}, []string{"y"})).raw(5, w).raw(11, infoOf("x", 1, 1, 2)).raw(11, infoOf("w", 1, 2)).raw(12, infoOf("y", 1, 1, 2)))
	kept, err := importFile(t, save(t, m), onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(kept.Inputs) != 1 || kept.Graph.Var("w").Kind != ir.Param {
		t.Errorf("inputs %v, w is a %s", kept.Inputs, kept.Graph.Var("w").Kind)
	}
	fed, err := importFile(t, save(t, m), onnx.Options{Shapes: map[string][]int64{"w": {2}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(fed.Inputs) != 2 || fed.Graph.Var("w").Kind != ir.Input {
		t.Errorf("inputs %v, w is a %s", fed.Inputs, fed.Graph.Var("w").Kind)
	}
}

// Operators of an opset after 24 may mean something else.
func TestNewOpset(t *testing.T) {
	g := msg(nil).str(2, "g").raw(1, nodeOf("Relu", []string{"x"}, []string{"y"})).raw(11, infoOf("x", 1, 2)).raw(12, infoOf("y", 1, 2))
	for opset, want := range map[int64]string{1: "", 6: "", 24: "", 25: "operators of opset 25: the newest that is read is 24"} {
		_, err := importFile(t, save(t, msg(nil).num(1, 8).raw(7, g).raw(8, msg(nil).num(2, opset))), onnx.Options{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("opset %d: %v", opset, err)
		}
	}
}

// A conversion keeps a foreign node as it is, in f32, between products of 16 bits.
func TestConvertKeepsForeign(t *testing.T) {
	square := func(name string) msg { return tensorOf(name, []int64{64, 64}, ramp(64*64, -1, 2.0/4096)...) }
	frob := nodeOf("Frob", []string{"a"}, []string{"b"}, strAttr("mode", "soft")).str(7, "com.acme").raw(99, []byte("kept"))
	g := msg(nil).str(2, "g").raw(1, nodeOf("MatMul", []string{"x", "v"}, []string{"a"})).raw(1, frob).raw(1, nodeOf("MatMul", []string{"b", "w"}, []string{"y"})).
		raw(5, square("v")).raw(5, square("w")).raw(11, infoOf("x", 1, 64, 64)).raw(12, infoOf("y", 1, 64, 64)).raw(13, infoOf("b", 1, 64, 64))
	m, err := onnx.Open(save(t, modelOf(g).raw(8, msg(nil).str(1, "com.acme").num(2, 1))))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := onnx.Import(m, onnx.Options{Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	e, r, err := convert.Plan(m, x, passes.MixedF16(), convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Low != 2 {
		t.Errorf("%d nodes in 16 bits, want 2: %v", r.Low, r.Kept)
	}
	out := rewritten(t, m, e)
	if i := bytes.Index(out, []byte("Frob")); i < 0 || !bytes.Contains(out, []byte("kept")) {
		t.Error("the node lost its name or a field that is not known")
	}
	back, err := importFile(t, save(t, out), onnx.Options{Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range back.Graph.Nodes {
		if n.Op == ir.OpForeign && (n.In[0].Type.DType != ir.F32 || n.Out[0].Type.DType != ir.F32) {
			t.Errorf("%s reads %s and makes %s", n.Name(), n.In[0].Type, n.Out[0].Type)
		}
	}
}

// What graphs cannot hold passes through a conversion: strings, complex numbers, elements of 8 and 4
// bits, and results that the model gives no type. What reads such a result stays, too.
func TestConvertPassesThrough(t *testing.T) {
	const text, complex64, float8, int4 = 8, 14, 17, 22
	square := func(name string) msg { return tensorOf(name, []int64{64, 64}, ramp(64*64, -1, 2.0/4096)...) }
	product := nodeOf("MatMul", []string{"x", "v"}, []string{"a"})
	base := func(nodes ...msg) msg {
		g := msg(nil).str(2, "g").raw(1, product).raw(5, square("v")).raw(11, infoOf("x", 1, 64, 64))
		for _, n := range nodes {
			g = g.raw(1, n)
		}
		return g
	}
	raw := func(name string, d int64, dims []int64, data []byte) msg {
		m := msg(nil)
		for _, n := range dims {
			m = m.num(1, n)
		}
		return m.num(2, d).str(8, name).raw(9, data)
	}
	y, scale := infoOf("y", 1, 64, 64), tensorOf("s", nil, 0.5)
	through := func(d int64) msg {
		return base(nodeOf("Identity", []string{"c"}, []string{"o"})).raw(11, infoOf("c", d, 2)).raw(12, infoOf("a", 1, 64, 64)).raw(12, infoOf("o", d, 2))
	}
	quantized := base(nodeOf("QuantizeLinear", []string{"a", "s", "z"}, []string{"q"}), nodeOf("DequantizeLinear", []string{"q", "s", "z"}, []string{"b"}), nodeOf("MatMul", []string{"b", "w"}, []string{"y"})).
		raw(5, scale).raw(5, raw("z", float8, nil, []byte{0})).raw(5, square("w")).raw(12, y)
	leaf := func(op, out string) msg {
		return msg(nil).str(2, out).raw(1, nodeOf(op, []string{"b"}, []string{out})).raw(12, infoOf(out, 1, 64, 64))
	}
	choice := msg(nil).str(1, "Cond").str(10, "mine").str(4, "b").str(5, "r").
		raw(7, nodeOf("ReduceSum", []string{"b"}, []string{"sum"}, intAttr("keepdims", 0))).raw(7, nodeOf("Cast", []string{"sum"}, []string{"yes"}, intAttr("to", 9))).
		raw(7, nodeOf("If", []string{"yes"}, []string{"r"}, graphAttr("then_branch", leaf("Relu", "p")), graphAttr("else_branch", leaf("Neg", "q")))).
		raw(9, msg(nil).num(2, 21))
	for name, c := range map[string]struct {
		graph msg
		low   int // nodes in 16 bits
	}{
		"a function's If":  {base(nodeOf("Cond", []string{"a"}, []string{"y"}).str(7, "mine")).raw(12, y), 1},
		"strings":          {through(text), 1},
		"complex":          {through(complex64), 1},
		"float8":           {quantized.raw(13, infoOf("q", float8, 64, 64)).raw(13, infoOf("b", 1, 64, 64)), 2},
		"float8, no types": {quantized, 1},
		"int4":             {base(nodeOf("DequantizeLinear", []string{"z", "s"}, []string{"b"}), nodeOf("MatMul", []string{"a", "b"}, []string{"y"})).raw(5, scale).raw(5, raw("z", int4, []int64{64, 64}, make([]byte, 2048))).raw(12, y), 1},
		"unknown sizes": {base(nodeOf("NonZero", []string{"a"}, []string{"i"}), nodeOf("Cast", []string{"i"}, []string{"j"}, intAttr("to", 1)), nodeOf("MatMul", []string{"j", "w"}, []string{"y"})).
			raw(5, tensorOf("w", []int64{4096, 2}, ramp(8192, 0, 1)...)).raw(12, infoOf("y", 1, 2, 2)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := onnx.Parse(at(21, c.graph).raw(8, msg(nil).str(1, "mine").num(2, 1)).raw(25, choice))
			if err != nil {
				t.Fatal(err)
			}
			carry := onnx.Options{Foreign: true, Carry: true}
			x, err := onnx.Import(m, carry)
			if err != nil {
				t.Fatal(err)
			}
			e, r, err := convert.Plan(m, x, passes.MixedF16(), convert.Options{})
			if err != nil {
				t.Fatal(err)
			}
			out := rewritten(t, m, e)
			back, err := onnx.Parse(out)
			if err != nil {
				t.Fatal(err)
			}
			again, err := onnx.Import(back, carry)
			if err != nil {
				t.Fatal(err)
			}
			if err := convert.Check(back, again); err != nil {
				t.Error(err)
			}
			if r.Low != c.low || len(again.Foreign) != len(x.Foreign) {
				t.Errorf("%d nodes in 16 bits, want %d; %d carried, were %d; kept %v", r.Low, c.low, len(again.Foreign), len(x.Foreign), r.Kept)
			}
		})
	}
}

// A node that was carried is written as it was read: its domain and version, its
// attributes and absent operands, the types of its results. An attribute that graphs do
// not hold is an error that names it.
func TestExportForeign(t *testing.T) {
	frob := func(more ...msg) msg {
		attrs := append([]msg{strAttr("mode", "soft"), intAttr("n", 7), intsAttr("axes", 1, 2), floatAttr("alpha", 0.25)}, more...)
		return nodeOf("Frob", []string{"a", "", "x"}, []string{"b", "c"}, attrs...).str(7, "com.acme")
	}
	model := func(node msg) string {
		g := msg(nil).str(2, "g").raw(1, nodeOf("Relu", []string{"x"}, []string{"a"})).raw(1, node).raw(1, nodeOf("Neg", []string{"b"}, []string{"y"})).
			raw(11, infoOf("x", 1, 4, 4)).raw(12, infoOf("y", 1, 4, 4)).raw(12, infoOf("c", 7, 4)).raw(13, infoOf("b", 1, 4, 4))
		return save(t, modelOf(g).raw(8, msg(nil).str(1, "com.acme").num(2, 3)))
	}
	x, err := importFile(t, model(frob()), onnx.Options{Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := onnx.Export(&b, x.Graph, onnx.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	m, err := onnx.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	back, err := onnx.Import(m, onnx.Options{Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := ir.Equal(x.Graph, back.Graph); err != nil || m.Opsets["com.acme"] != 3 {
		t.Errorf("%v, opset %d\n%s%s", err, m.Opsets["com.acme"], x.Graph, back.Graph)
	}
	if x, err = importFile(t, model(frob(floatsAttr("weights", 1, 2))), onnx.Options{Foreign: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := onnx.Export(&b, x.Graph, onnx.ExportOptions{}); err == nil || !strings.Contains(err.Error(), "its attributes weights were not kept when the model was read") {
		t.Error(err)
	}
}

// Operators of ai.onnx.ml are carried, and named where something must run them.
func TestTraditionalOperators(t *testing.T) {
	g := msg(nil).str(2, "g").raw(1, nodeOf("Scaler", []string{"x"}, []string{"s"}, floatsAttr("offset", 1, 1), floatsAttr("scale", 2, 2)).str(7, "ai.onnx.ml").str(3, "scale")).
		raw(1, nodeOf("Relu", []string{"s"}, []string{"y"})).raw(11, infoOf("x", 1, 4, 2)).raw(12, infoOf("y", 1, 4, 2)).raw(13, infoOf("s", 1, 4, 2))
	path := save(t, modelOf(g).raw(8, msg(nil).str(1, "ai.onnx.ml").num(2, 3)))
	x, err := importFile(t, path, onnx.Options{Foreign: true})
	if err != nil || len(x.Foreign) != 1 || x.Foreign[0] != 0 {
		t.Fatalf("%v", err)
	}
	if _, err := importFile(t, path, onnx.Options{}); err == nil || !strings.Contains(err.Error(), "node 0 scale (ai.onnx.ml.Scaler): the operator is not known") {
		t.Error(err)
	}
}

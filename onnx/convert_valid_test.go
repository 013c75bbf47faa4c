package onnx_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
)

// converted converts a model to f16, runs it beside the source and reads it again.
func converted(t *testing.T, model msg) *ampc.ConvertReport {
	t.Helper()
	in := save(t, model)
	r, err := ampc.ConvertONNX(context.Background(), in, filepath.Join(filepath.Dir(in), "out.onnx"), ampc.ConvertOptions{Policy: ampc.MixedF16(), MaxError: 5e-3})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Statistics of a BatchNormalization may stay f32 from opset 14 on, its scale and bias from 15 on:
// what is written is valid in each, and the norm between two convolutions is in 16 bits.
func TestConvertBatchNormalization(t *testing.T) {
	weights := func(name string) msg { return tensorOf(name, []int64{16, 16, 3, 3}, ramp(16*16*9, 0.01, 0.02)...) }
	pads := intsAttr("pads", 1, 1, 1, 1)
	g := msg(nil).raw(1, nodeOf("Conv", []string{"x", "w"}, []string{"c"}, pads)).
		raw(1, nodeOf("BatchNormalization", []string{"c", "scale", "bias", "mean", "var"}, []string{"n"})).
		raw(1, nodeOf("Conv", []string{"n", "v"}, []string{"y"}, pads)).
		raw(5, weights("w")).raw(5, weights("v")).
		raw(11, infoOf("x", 1, 2, 16, 16, 16)).raw(12, infoOf("y", 1, 2, 16, 16, 16))
	for _, name := range []string{"scale", "bias", "mean", "var"} {
		g = g.raw(5, tensorOf(name, []int64{16}, ramp(16, 1, 0.1)...))
	}
	for _, n := range []int64{9, 13, 14, 15, 17} {
		if r := converted(t, opset(n, g)); r.Low != 3 {
			t.Errorf("opset %d: %d nodes in 16 bits, want 3: %v", n, r.Low, r.Kept)
		}
	}
}

// A call of a function may leave operands out, at the end or between others: nodes in the function
// that read them have no such operand.
func TestFunctionWithoutOperand(t *testing.T) {
	square := msg(nil).str(1, "value").raw(5, tensorOf("", []int64{64, 64}, ramp(64*64, 0.02, 0.01)...)).num(20, 4)
	f := msg(nil).str(1, "F").str(10, "mine").str(4, "a").str(4, "least").str(4, "most").str(5, "c").
		raw(7, nodeOf("Constant", nil, []string{"w"}, square)).raw(7, nodeOf("MatMul", []string{"a", "w"}, []string{"p"})).
		raw(7, nodeOf("Clip", []string{"p", "least", "most"}, []string{"c"})).raw(9, msg(nil).num(2, 17))
	for _, operands := range [][]string{{"x"}, {"x", ""}, {"x", "", "k"}, {"x", "k"}, {"x", "", ""}} {
		g := msg(nil).raw(1, nodeOf("F", operands, []string{"y"}).str(7, "mine")).raw(5, tensorOf("k", nil, 0.5)).
			raw(11, infoOf("x", 1, 64, 64)).raw(12, infoOf("y", 1, 64, 64))
		model := modelOf(g).raw(8, msg(nil).str(1, "mine").num(2, 1)).raw(25, f)
		if r := converted(t, model); r.Low == 0 || r.Weights == 0 {
			t.Errorf("%q: %d nodes and %d weights in 16 bits: %v", operands, r.Low, r.Weights, r.Kept)
		}
		s, err := ampc.OpenONNX(save(t, model), ampc.ONNXRun{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		x := make([]float32, 64*64)
		for i := range x {
			x[i] = float32(i/64-32) / 16
		}
		out, err := s.Run(context.Background(), ampc.Feed{"x": x})
		if err != nil {
			t.Fatalf("%q: %v", operands, err)
		}
		got := out.Tensors["y"].Floats()
		least, most := slices.Min(got), slices.Max(got)
		if bounded := len(operands) == 3 && operands[2] == "k"; most == 0.5 != bounded {
			t.Errorf("%q: the most is %g", operands, most)
		}
		if bounded := len(operands) > 1 && operands[1] == "k"; least == 0.5 && !bounded {
			t.Errorf("%q: the least is %g", operands, least)
		}
	}
}

// Sums of squares near 1e4 are products in some models: they stay f32, and what is computed of them.
func TestConvertSumsOfSquares(t *testing.T) {
	self := nodeOf("Einsum", []string{"x", "x"}, []string{"s"}, msg(nil).str(1, "equation").str(4, "ni,ni->n").num(20, 3))
	byOnes := nodeOf("MatMul", []string{"q", "ones"}, []string{"s"})
	for name, nodes := range map[string][]msg{
		"einsum": {self},
		"mul":    {nodeOf("Mul", []string{"x", "x"}, []string{"q"}), byOnes},
		"pow":    {nodeOf("Pow", []string{"x", "two"}, []string{"q"}), byOnes},
		"moved":  {nodeOf("Mul", []string{"x", "x"}, []string{"p"}), nodeOf("Unsqueeze", []string{"p", "first"}, []string{"u"}), nodeOf("Squeeze", []string{"u", "first"}, []string{"q"}), byOnes},
	} {
		g := msg(nil).raw(5, tensorOf("ones", []int64{64}, ramp(64, 1, 0)...)).raw(5, tensorOf("two", nil, 2)).
			raw(5, tensorOf("w", []int64{64, 64}, ramp(64*64, 0.5, 0.1)...)).raw(11, infoOf("x", 1, 64, 64)).raw(12, infoOf("y", 1, 64, 1)).
			raw(5, msg(nil).num(1, 2).num(2, 7).str(8, "column").raw(9, []byte{64, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0})).
			raw(5, msg(nil).num(1, 1).num(2, 7).str(8, "first").raw(9, make([]byte, 8)))
		for _, n := range append(nodes, nodeOf("Sqrt", []string{"s"}, []string{"r"}), nodeOf("Div", []string{"r", "k"}, []string{"d"}), nodeOf("Reshape", []string{"d", "column"}, []string{"c"}), nodeOf("MatMul", []string{"w", "c"}, []string{"y"})) {
			g = g.raw(1, n)
		}
		g = g.raw(5, tensorOf("k", nil, 1e4))
		want, got, e, r := low(t, modelOf(g), eval.Floats(ir.F32, []ir.Dim{64, 64}, wide(ramp(64*64, 1e4, 2e3))...))
		near(t, got, want, 2e-3)
		if _, stored := e.Tensors["w"]; !stored || r.Low != 1 {
			t.Errorf("%s: %d nodes in 16 bits, want the last product: %v", name, r.Low, r.Kept)
		}
	}
}

// A norm whose statistics the model asks for in 16 bits is not lowered, as its sums would be, too.
func TestConvertStashType(t *testing.T) {
	for stash, want := range map[int64]int{1: 3, 10: 2, 16: 2} {
		g := msg(nil).raw(1, nodeOf("MatMul", []string{"x", "w"}, []string{"p"})).
			raw(1, nodeOf("LayerNormalization", []string{"p", "scale"}, []string{"n"}, intAttr("stash_type", stash))).
			raw(1, nodeOf("MatMul", []string{"n", "w"}, []string{"y"})).
			raw(5, tensorOf("w", []int64{64, 64}, ramp(64*64, 0.01, 0.1)...)).raw(5, tensorOf("scale", []int64{64}, ramp(64, 1, 0.1)...)).
			raw(11, infoOf("x", 1, 64, 64)).raw(12, infoOf("y", 1, 64, 64))
		if r := converted(t, modelOf(g)); r.Low != want {
			t.Errorf("stash_type %d: %d nodes in 16 bits, want %d: %v", stash, r.Low, want, r.Kept)
		}
	}
}

// A report lists nodes that read f32, not those that are in 16 bits in the source, and outputs by
// their names in the file, also those that no node computes.
func TestConvertReportNames(t *testing.T) {
	g := msg(nil).raw(1, nodeOf("Cast", []string{"x"}, []string{"h"}, intAttr("to", 10))).raw(1, nodeOf("Relu", []string{"h"}, []string{"q"})).
		raw(1, nodeOf("Cast", []string{"q"}, []string{"f"}, intAttr("to", 1))).raw(1, nodeOf("Exp", []string{"f"}, []string{"e"})).
		raw(1, nodeOf("MatMul", []string{"e", "w"}, []string{"y"})).raw(5, tensorOf("w", []int64{64, 64}, ramp(64*64, 0.01, 0.1)...)).raw(11, infoOf("x", 1, 64, 64))
	for _, name := range []string{"y", "x", "w"} {
		g = g.raw(12, infoOf(name, 1, 64, 64))
	}
	r := converted(t, modelOf(g))
	var outputs []string
	for _, e := range r.Errors {
		outputs = append(outputs, e.Name)
	}
	if !slices.Equal(outputs, []string{"y", "x", "w"}) {
		t.Errorf("outputs %v", outputs)
	}
	for _, k := range r.Kept {
		if k.Op == "Relu" {
			t.Errorf("a node of f16 is listed: %v", k)
		}
	}
}

// Weights that branches and loops read from around them are stored in 16 bits once, where all nodes
// that read them compute so, and no graph of a node casts them.
func TestConvertCapturedWeights(t *testing.T) {
	square := func(name string) msg { return tensorOf(name, []int64{64, 64}, ramp(64*64, 0.01, 0.02)...) }
	branch := func(name, w string) msg {
		return graphAttr(name, msg(nil).str(2, name).raw(1, nodeOf("MatMul", []string{"x", w}, []string{name})).raw(12, infoOf(name, 1, 64, 64)))
	}
	body := msg(nil).str(2, "body").raw(1, nodeOf("MatMul", []string{"s", "v"}, []string{"p"})).raw(1, nodeOf("Tanh", []string{"p"}, []string{"next"})).
		raw(1, nodeOf("Identity", []string{"go"}, []string{"on"})).raw(11, infoOf("i", 7)).raw(11, infoOf("go", 9)).raw(11, infoOf("s", 1, 64, 64)).
		raw(12, infoOf("on", 9)).raw(12, infoOf("next", 1, 64, 64))
	count := msg(nil).num(2, 7).str(8, "n").raw(9, []byte{3, 0, 0, 0, 0, 0, 0, 0})
	models := map[string]msg{
		"if": msg(nil).raw(1, nodeOf("Equal", []string{"n", "n"}, []string{"c"})).
			raw(1, nodeOf("If", []string{"c"}, []string{"b"}, branch("then_branch", "w"), branch("else_branch", "v"))),
		"loop": msg(nil).raw(1, nodeOf("Loop", []string{"n", "", "x"}, []string{"b"}, graphAttr("body", body))),
	}
	for name, g := range models {
		for _, wide := range []bool{false, true} { // w and v are also read in f32
			g := g.raw(1, nodeOf("MatMul", []string{"b", "w"}, []string{"y"})).raw(5, square("w")).raw(5, square("v")).raw(5, count).
				raw(11, infoOf("x", 1, 64, 64)).raw(12, infoOf("y", 1, 64, 64)).raw(13, infoOf("b", 1, 64, 64))
			if wide {
				g = g.raw(1, nodeOf("Exp", []string{"v"}, []string{"e"})).raw(12, infoOf("e", 1, 64, 64))
			}
			in := save(t, modelOf(g))
			out := filepath.Join(filepath.Dir(in), "out.onnx")
			r, err := ampc.ConvertONNX(context.Background(), in, out, ampc.ConvertOptions{Policy: ampc.MixedF16(), MaxError: 5e-3})
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]int{false: 2, true: 1}[wide]; r.Weights != want {
				t.Errorf("%s, %v: %d weights in 16 bits, want %d: %v", name, wide, r.Weights, want, r.Kept)
			}
			m, err := onnx.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for _, n := range m.Graph.Nodes {
				for _, a := range n.Attrs {
					if a.G == nil {
						continue
					}
					for _, x := range a.G.Nodes {
						if x.Op == "Cast" && (strings.HasPrefix(x.In[0], "w") || strings.HasPrefix(x.In[0], "v")) {
							t.Errorf("%s, %v: a cast of %s is in %s", name, wide, x.In[0], a.Name)
						}
					}
				}
			}
		}
	}
}

// A branch whose weight stands around it and is larger than f16 holds stays f32.
func TestConvertCapturedLargeWeight(t *testing.T) {
	branch := func(name, w string) msg {
		return graphAttr(name, msg(nil).str(2, name).raw(1, nodeOf("MatMul", []string{"x", w}, []string{name})).raw(12, infoOf(name, 1, 64, 64)))
	}
	g := msg(nil).raw(1, nodeOf("ReduceMax", []string{"x"}, []string{"s"}, intAttr("keepdims", 0))).raw(1, nodeOf("Less", []string{"s", "large"}, []string{"c"})).
		raw(1, nodeOf("If", []string{"c"}, []string{"y"}, branch("then_branch", "w"), branch("else_branch", "v"))).raw(5, tensorOf("large", nil, 1e9)).
		raw(5, tensorOf("w", []int64{64, 64}, ramp(64*64, 1e6, 10)...)).raw(5, tensorOf("v", []int64{64, 64}, ramp(64*64, 0.01, 0.02)...)).
		raw(11, infoOf("x", 1, 64, 64)).raw(12, infoOf("y", 1, 64, 64))
	if r := converted(t, modelOf(g)); r.Low != 1 || r.Weights != 1 || !slices.ContainsFunc(r.Kept, func(k ampc.KeptNode) bool { return strings.Contains(k.Why, `its operand "w" holds`) }) {
		t.Errorf("%d nodes and %d weights in 16 bits: %v", r.Low, r.Weights, r.Kept)
	}
}

package onnx_test

import (
	"bytes"
	"strings"
	"testing"

	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/onnx/convert"
)

// at is a model of an opset.
func at(opset int64, graph msg) msg {
	return msg(nil).num(1, 4).raw(7, graph).raw(8, msg(nil).num(2, opset))
}

// A node of an older opset computes the same when its model is raised, in the form
// that it has there. Weights are the source's own bytes.
func TestRaise(t *testing.T) {
	w := tensorOf("w", []int64{2}, 1.5, -2)
	for name, c := range map[string]struct {
		opset int64
		node  msg
		dims  []any
		out   []any
		has   string
	}{
		"softmax over two axes": {11, nodeOf("Softmax", []string{"x"}, []string{"y"}, intAttr("axis", 1)), []any{2, 4, 3, 1}, []any{2, 4, 3, 1}, "Flatten"},
		"softmax":               {9, nodeOf("Softmax", []string{"x"}, []string{"y"}, intAttr("axis", 3)), []any{2, 4, 3, 3}, []any{2, 4, 3, 3}, "Softmax"},
		"axes":                  {12, nodeOf("ReduceSum", []string{"x"}, []string{"y"}, intsAttr("axes", 1, 2), intAttr("keepdims", 1)), []any{2, 4, 3, 1}, []any{2, 1, 1, 1}, "axes"},
		"mean":                  {13, nodeOf("ReduceMean", []string{"x"}, []string{"y"}, intsAttr("axes", -1), intAttr("keepdims", 1)), []any{2, 4, 3, 2}, []any{2, 4, 3, 1}, "axes"},
		"squeeze":               {11, nodeOf("Squeeze", []string{"x"}, []string{"y"}, intsAttr("axes", 3)), []any{2, 4, 3, 1}, []any{2, 4, 3}, "axes"},
		"dropout, no mask":      {9, nodeOf("Dropout", []string{"x"}, []string{"y", "m"}), []any{2, 4, 3, 3}, []any{2, 4, 3, 3}, "Dropout"},
		"upsample":              {7, nodeOf("Upsample", []string{"x"}, []string{"y"}, floatsAttr("scales", 1, 1, 2, 2)), []any{1, 2, 3, 3}, []any{1, 2, 6, 6}, "Resize"},
		"resize, smaller":       {10, nodeOf("Resize", []string{"x", "s"}, []string{"y"}), []any{1, 2, 5, 4}, []any{1, 2, 3, 2}, "ceil"},
		"resize, linear":        {10, nodeOf("Resize", []string{"x", "q"}, []string{"y"}, msg(nil).str(1, "mode").str(4, "linear").num(20, 3)), []any{1, 2, 5, 4}, []any{1, 2, 10, 2}, "asymmetric"},
		"group norm":            {18, nodeOf("GroupNormalization", []string{"x", "w", "w"}, []string{"y"}, intAttr("num_groups", 2)), []any{2, 4, 3, 3}, []any{2, 4, 3, 3}, "Expand"},
	} {
		g := msg(nil).raw(1, c.node).raw(5, w).raw(5, tensorOf("s", []int64{4}, 1, 1, 0.6, 0.6)).raw(5, tensorOf("q", []int64{4}, 1, 1, 2, 0.6)).raw(11, infoOf("x", 1, c.dims...)).raw(12, infoOf("y", 1, c.out...))
		m, err := onnx.Parse(at(c.opset, g))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		x, err := onnx.Import(m, onnx.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		up, err := convert.Raise(m, x, 22)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		written := rewritten(t, up, nil)
		back, err := onnx.Parse(written)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if back.Opsets[""] != 22 || back.IR != 10 || !bytes.Contains(written, []byte(c.has)) || !bytes.Contains(written, w) {
			t.Errorf("%s: opset %d, format %d, %q in it: %t", name, back.Opsets[""], back.IR, c.has, bytes.Contains(written, []byte(c.has)))
		}
		y, err := onnx.Import(back, onnx.Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		in := eval.New(x.Inputs[0].Value.Type)
		copy(in.F, wide(ramp(len(in.F), 0.3, 2)))
		want, err := (&example{g: x.Graph, in: map[string]*eval.Tensor{"x": in}}).evaluate()
		if err != nil {
			t.Fatal(err)
		}
		got, err := (&example{g: y.Graph, in: map[string]*eval.Tensor{"x": in}}).evaluate()
		if err == nil {
			err = node.differ(got, want)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What cannot be said in the later opset, or is not known, is an error.
func TestRaiseRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		opset int64
		node  msg
	}{
		"before opset 7 operands broadcast by attributes": {6, nodeOf("Relu", []string{"x"}, []string{"y"})},
		"node 0 (Resize): it enlarges one axis and":       {10, nodeOf("Resize", []string{"x", "q"}, []string{"y"})},
		"node 0 (Resize): there is no mode tf_half_pix":   {11, nodeOf("Resize", []string{"x", "r", "s"}, []string{"y"}, msg(nil).str(1, "coordinate_transformation_mode").str(4, "tf_half_pixel_for_nn").num(20, 3))},
	} {
		g := msg(nil).raw(1, c.node).raw(5, tensorOf("r", []int64{0})).raw(5, tensorOf("s", []int64{4}, 1, 1, 2, 2)).raw(5, tensorOf("q", []int64{4}, 1, 1, 2, 0.5)).raw(11, infoOf("x", 1, 1, 1, 2, 2)).raw(12, infoOf("y", 1, 1, 1, 4, 4))
		m, err := onnx.Parse(at(c.opset, g))
		if err != nil {
			t.Fatal(err)
		}
		x, err := onnx.Import(m, onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := convert.Raise(m, x, 22); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A branch is raised although its types are not known, such as one for other sizes than those that
// are given; what needs a type refuses.
func TestRaiseUntyped(t *testing.T) {
	branch := func(n msg) msg { return msg(nil).raw(1, n).raw(12, infoOf("b", 1, 2, "k")) }
	for want, n := range map[string]msg{
		"": nodeOf("ReduceMean", []string{"q"}, []string{"b"}, intsAttr("axes", 2), intAttr("keepdims", 0)),
		"node 2: its branch: node 0 (Clip): the type of its operand is not known": nodeOf("Clip", []string{"q"}, []string{"b"}, floatAttr("min", 1)),
	} {
		g := msg(nil).raw(1, nodeOf("ReduceMax", []string{"x"}, []string{"s"}, intAttr("keepdims", 0))).raw(1, nodeOf("Cast", []string{"s"}, []string{"c"}, intAttr("to", 9))).
			raw(1, nodeOf("If", []string{"c"}, []string{"y"}, graphAttr("then_branch", branch(nodeOf("Neg", []string{"x"}, []string{"b"}))), graphAttr("else_branch", branch(n)))).
			raw(11, infoOf("x", 1, 2, 3)).raw(12, infoOf("y", 1, 2, 3)).
			raw(1, nodeOf("NonZero", []string{"x"}, []string{"z"})).raw(1, nodeOf("Cast", []string{"z"}, []string{"q"}, intAttr("to", 1))).raw(13, infoOf("z", 7, 2, "k")).raw(13, infoOf("q", 1, 2, "k"))
		m, err := onnx.Parse(at(10, g))
		if err != nil {
			t.Fatal(err)
		}
		x, err := onnx.Import(m, onnx.Options{Foreign: true, Carry: true})
		if err != nil {
			t.Fatal(err)
		}
		up, err := convert.Raise(m, x, 22)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		raised := up.Graph.Nodes[2].Attr("else_branch").G
		if n := raised.Nodes[0]; len(n.In) != 2 || n.Attr("axes") != nil || len(raised.Initializers) != 1 || raised.Initializers[0].Name != n.In[1] {
			t.Errorf("the branch has %+v and %d initializers", n, len(raised.Initializers))
		}
	}
}

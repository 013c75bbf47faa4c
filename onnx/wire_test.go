package onnx_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
)

// msg is a protobuf message being written.
type msg []byte

func (m msg) num(n protowire.Number, x int64) msg {
	return protowire.AppendVarint(protowire.AppendTag(m, n, protowire.VarintType), uint64(x))
}

func (m msg) raw(n protowire.Number, b []byte) msg {
	return protowire.AppendBytes(protowire.AppendTag(m, n, protowire.BytesType), b)
}

func (m msg) str(n protowire.Number, s string) msg { return m.raw(n, []byte(s)) }

// node is a NodeProto; attrs are AttributeProtos.
func nodeOf(op string, in, out []string, attrs ...msg) msg {
	var m msg
	for _, x := range in {
		m = m.str(1, x)
	}
	for _, y := range out {
		m = m.str(2, y)
	}
	m = m.str(4, op)
	for _, a := range attrs {
		m = m.raw(5, a)
	}
	return m
}

func intAttr(name string, x int64) msg { return msg(nil).str(1, name).num(3, x).num(20, 2) }

// info is a ValueInfoProto: of float elements, with sizes, or names below zero.
func infoOf(name string, dtype int64, dims ...any) msg {
	var shape msg
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			shape = shape.raw(1, msg(nil).num(1, int64(d)))
		case string:
			shape = shape.raw(1, msg(nil).str(2, d))
		}
	}
	return msg(nil).str(1, name).raw(2, msg(nil).raw(1, msg(nil).num(1, dtype).raw(2, shape)))
}

// tensorOf is a TensorProto of floats in raw_data.
func tensorOf(name string, dims []int64, x ...float32) msg {
	m := msg(nil).num(2, 1).str(8, name)
	for _, d := range dims {
		m = m.num(1, d)
	}
	var b []byte
	for _, v := range x {
		b = protowire.AppendFixed32(b, math.Float32bits(v))
	}
	return m.raw(9, b)
}

// modelOf puts fields of a GraphProto into a model of opset 17.
func modelOf(graph msg) msg {
	return msg(nil).num(1, 8).raw(7, graph).raw(8, msg(nil).num(2, 17))
}

// addModel computes y = x + w over [N,2].
func addModel(w msg) msg {
	return modelOf(msg(nil).str(2, "sum").raw(1, nodeOf("Add", []string{"x", "w"}, []string{"y"})).raw(5, w).raw(11, infoOf("x", 1, "N", 2)).raw(12, infoOf("y", 1, "N", 2)))
}

func save(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func importFile(t *testing.T, path string, o onnx.Options) (*onnx.Imported, error) {
	t.Helper()
	m, err := onnx.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return onnx.Import(m, o)
}

// sum evaluates addModel's graph on x = 1, 2.
func sum(t *testing.T, g *ir.Graph) []float64 {
	t.Helper()
	r, err := eval.Run(g, map[string]*eval.Tensor{"x": eval.Floats(ir.F32, []ir.Dim{1, 2}, 1, 2)}, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Value(g.Return[0]).F
}

func TestWeightsStayInTheFile(t *testing.T) {
	path := save(t, append(msg(nil).str(2, "p"), addModel(tensorOf("w", []int64{2}, 10, 20))...))
	x, err := importFile(t, path, onnx.Options{Dims: map[string]int64{"N": 1}})
	if err != nil {
		t.Fatal(err)
	}
	w := x.Graph.Var("w")
	if w == nil || w.Kind != ir.Param || w.Init == nil || w.Init.Func != "file" || w.Init.File != path {
		t.Fatalf("w is %+v, want a parameter that names the file", w)
	}
	if w.Init.Offset%4 == 0 {
		t.Error("the test wants bytes that are not aligned")
	}
	if got := sum(t, x.Graph); got[0] != 11 || got[1] != 22 {
		t.Errorf("x + w is %v", got)
	}
	if y := x.Outputs[0]; y.Name != "y" || y.Value.Name != "y" {
		t.Errorf("output %+v", y)
	}
}

func TestExternalData(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret.bin")
	var data []byte
	for _, v := range []float32{0, 10, 20} {
		data = protowire.AppendFixed32(data, math.Float32bits(v))
	}
	for _, p := range []string{outside, filepath.Join(dir, "w.bin")} {
		if err := os.WriteFile(p, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link.bin")); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if _, err := onnx.Open(socket.Addr().String()); err == nil || !strings.HasSuffix(err.Error(), "socket: it is not a regular file") {
		t.Error(err)
	}
	rel, err := filepath.Rel(dir, outside)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(k, v string) msg { return msg(nil).str(1, k).str(2, v) }
	for _, c := range []struct{ location, offset, length, want string }{
		{"w.bin", "4", "8", ""},
		{"w.bin", "4", "12", "needs 8 bytes, its external data has 12"},
		{"w.bin", "8", "8", `bytes 8 to 16 of "w.bin", which has 12`},
		{"w.bin", "-4", "8", "bytes -4 to 4"},
		{"w.bin", "x", "8", "want a number"},
		{rel, "4", "8", "escapes"},
		{outside, "4", "8", "escapes"},
		{"link.bin", "4", "8", "escapes"},
		{".", "4", "8", "is not a regular file"},
		{"socket", "4", "8", "is not a regular file"},
		{"/dev/zero", "4", "8", "escapes"},
		{"none.bin", "4", "8", "no such file"},
	} {
		w := msg(nil).num(1, 2).num(2, 1).str(8, "w").num(14, 1).raw(13, entry("location", c.location)).raw(13, entry("offset", c.offset)).raw(13, entry("length", c.length))
		path := filepath.Join(dir, "m.onnx")
		if err := os.WriteFile(path, addModel(w), 0o666); err != nil {
			t.Fatal(err)
		}
		x, err := importFile(t, path, onnx.Options{Dims: map[string]int64{"N": 1}})
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%+v: %v", c, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", c, err)
		default:
			if got := sum(t, x.Graph); got[0] != 11 || got[1] != 22 {
				t.Errorf("x + w is %v", got)
			}
		}
	}
}

// Tensors that share a part of their bytes in another file are refused; those that share all are one
// tensor with two names.
func TestExternalOverlap(t *testing.T) {
	entry := func(k, v string) msg { return msg(nil).str(1, k).str(2, v) }
	tensor := func(name, location string, offset, elements int) msg {
		return msg(nil).num(1, int64(elements)).num(2, 1).str(8, name).num(14, 1).raw(13, entry("location", location)).raw(13, entry("offset", fmt.Sprint(offset)))
	}
	inside := func(x msg) msg {
		return nodeOf("Constant", nil, []string{"c"}, msg(nil).str(1, "value").raw(5, x).num(20, 4))
	}
	for name, c := range map[string]struct {
		graph msg
		want  string
	}{
		"beside":            {msg(nil).raw(5, tensor("a", "w", 0, 2)).raw(5, tensor("b", "w", 8, 2)), ""},
		"equal":             {msg(nil).raw(5, tensor("a", "w", 0, 2)).raw(5, tensor("b", "w", 0, 2)), ""},
		"other file":        {msg(nil).raw(5, tensor("a", "w", 0, 2)).raw(5, tensor("b", "v", 4, 2)), ""},
		"a part":            {msg(nil).raw(5, tensor("b", "w", 4, 2)).raw(5, tensor("a", "w", 0, 2)), `tensors "a" and "b": their external data overlaps: bytes 0 to 8 and 4 to 12 of "w"`},
		"another way":       {msg(nil).raw(5, tensor("a", "w", 0, 2)).raw(5, tensor("b", "./x/../w", 4, 2)), "overlaps"},
		"within, not first": {msg(nil).raw(5, tensor("a", "w", 0, 9)).raw(5, tensor("b", "w", 0, 9)).raw(5, tensor("c", "w", 12, 1)), "overlaps"},
		"by a link":         {msg(nil).raw(5, tensor("a", "w", 0, 2)).raw(5, tensor("b", "soft", 4, 2)), "overlaps"},
		"by a hard link":    {msg(nil).raw(5, tensor("a", "hard", 0, 2)).raw(5, tensor("b", "w", 4, 2)), "overlaps"},
		"beside, by a link": {msg(nil).raw(5, tensor("a", "w", 0, 2)).raw(5, tensor("b", "soft", 8, 2)), ""},
		"in a node":         {msg(nil).raw(1, inside(tensor("b", "w", 4, 2))).raw(5, tensor("a", "w", 0, 2)), "overlaps"},
	} {
		path := save(t, modelOf(c.graph))
		w := filepath.Join(filepath.Dir(path), "w")
		if err := errors.Join(os.WriteFile(w, make([]byte, 64), 0o666), os.Symlink("w", filepath.Join(filepath.Dir(w), "soft")), os.Link(w, filepath.Join(filepath.Dir(w), "hard"))); err != nil {
			t.Fatal(err)
		}
		m, err := onnx.Open(path)
		if err == nil {
			m.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A file that becomes shorter while it is mapped is an error, not the end of the process.
func TestTruncatedWhileMapped(t *testing.T) {
	w := make([]float32, 1<<16)
	big := msg(nil).num(2, 1).str(8, "w").num(1, 2)
	for range 2 {
		big = big.raw(4, tensorOf("", nil, w...)) // unpacked twice: decoded, not located
	}
	path := save(t, addModel(big))
	m, err := onnx.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := onnx.Import(m, onnx.Options{Dims: map[string]int64{"N": 1}}); err == nil || !strings.Contains(err.Error(), "made shorter") {
		t.Errorf("import: %v", err)
	}
}

// Faults of a file are one line each.
func TestFaults(t *testing.T) {
	add := func(in, out string) msg { return nodeOf("Relu", []string{in}, []string{out}) }
	io := msg(nil).raw(11, infoOf("x", 1, 2)).raw(12, infoOf("y", 1, 2))
	deep := msg(nil)
	for range 100 {
		deep = msg(nil).raw(1, nodeOf("If", []string{"x"}, []string{"y"}, msg(nil).str(1, "then_branch").raw(6, deep).num(20, 5)))
	}
	for name, c := range map[string]struct {
		model msg
		want  string
	}{
		"empty":              {nil, "the file has no graph"},
		"not protobuf":       {msg("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "not an ONNX model"},
		"cut":                {addModel(tensorOf("w", []int64{2}, 1, 2))[:60], "ends inside a field"},
		"two graphs":         {append(addModel(tensorOf("w", []int64{2}, 1, 2)), addModel(tensorOf("w", []int64{2}, 1, 2))...), "a second graph"},
		"deep":               {modelOf(append(deep, io...)), "nested more than 32 deep"},
		"short tensor":       {addModel(tensorOf("w", []int64{2}, 1)), "needs 8 bytes, but the file has 4"},
		"lying size":         {addModel(tensorOf("w", []int64{1 << 40, 1 << 30}, 1)), "more than"},
		"negative size":      {addModel(tensorOf("w", []int64{-2}, 1)), "dimension 0 is -2"},
		"too many elements":  {addModel(msg(nil).num(2, 1).str(8, "w").num(1, 1<<30).raw(4, []byte{0, 0, 0, 0})), "needs 4294967296 bytes"},
		"initializer twice":  {modelOf(io.raw(5, tensorOf("w", []int64{1}, 1)).raw(5, tensorOf("w", []int64{1}, 1))), "two initializers"},
		"value twice":        {modelOf(io.raw(1, add("x", "y")).raw(1, add("x", "y"))), "two values have the name"},
		"cycle":              {modelOf(io.raw(1, add("z", "y")).raw(1, add("y", "z"))), "depends on itself"},
		"nothing computes":   {modelOf(io.raw(1, add("z", "y"))), "operand \"z\" is neither"},
		"no output":          {modelOf(io), `output "y" is neither an input nor an initializer nor the result of a node`},
		"unknown operator":   {modelOf(io.raw(1, nodeOf("Frob", []string{"x"}, []string{"y"}))), "node 0 (Frob): the operator is not known"},
		"line in a name":     {modelOf(io.raw(1, nodeOf("Fr\nob", []string{"x"}, []string{"y"}).str(3, "a\nb"))), `node 0 "a\nb" ("Fr\nob"): the operator is not known`},
		"no opset":           {msg(nil).raw(7, io.raw(1, add("x", "y"))).raw(8, msg(nil).str(1, "other").num(2, 1)), "the model does not import operator set"},
		"unbound":            {addModel(tensorOf("w", []int64{2}, 1, 2)), `dimension "N" has no size`},
		"text dtype":         {modelOf(msg(nil).raw(11, infoOf("x", 8, 2)).raw(12, infoOf("y", 8, 2)).raw(1, add("x", "y"))), "elements of string"},
		"wrong wire type":    {msg(nil).num(7, 3), "want 2"},
		"operand is absent":  {modelOf(io.raw(1, nodeOf("Add", []string{"x"}, []string{"y"}))), "operand 1 is missing"},
		"attribute's type":   {modelOf(io.raw(1, nodeOf("LeakyRelu", []string{"x"}, []string{"y"}, intAttr("alpha", 1)))), "attribute alpha has type INT, want FLOAT"},
		"result not made":    {modelOf(io.raw(1, nodeOf("Relu", []string{"x"}, []string{"y", "z"}))), "result 1 is not computed"},
		"axis out of bounds": {modelOf(io.raw(1, nodeOf("Softmax", []string{"x"}, []string{"y"}, intAttr("axis", 3)))), "axis 3 is out of range for a tensor of rank 1"},
	} {
		o := onnx.Options{}
		if name != "unbound" && bytes.Contains(c.model, []byte("N")) {
			o.Dims = map[string]int64{"N": 1}
		}
		_, err := importFile(t, save(t, c.model), o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\nwant one line with %q", name, err, c.want)
		}
	}
}

// What is not sorted is put in order.
func TestUnsortedNodes(t *testing.T) {
	g := msg(nil).raw(1, nodeOf("Neg", []string{"z"}, []string{"y"})).raw(1, nodeOf("Exp", []string{"x"}, []string{"z"})).raw(11, infoOf("x", 1, 2)).raw(12, infoOf("y", 1, 2))
	x, err := importFile(t, save(t, modelOf(g)), onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := x.Graph.String(); !strings.Contains(got, "%z = exp %x") || !strings.Contains(got, "%y = neg %z") {
		t.Error(got)
	}
}

// A function of the model's own stands for its nodes, with the attributes of the call.
func TestFunction(t *testing.T) {
	ref := msg(nil).str(1, "alpha").str(21, "slope").num(20, 1)
	f := msg(nil).str(1, "Twice").str(10, "mine").str(4, "a").str(5, "b").str(6, "slope").
		raw(7, nodeOf("LeakyRelu", []string{"a"}, []string{"t"}, ref)).raw(7, nodeOf("LeakyRelu", []string{"t"}, []string{"b"}, ref)).raw(9, msg(nil).num(2, 17))
	slope := protowire.AppendFixed32(protowire.AppendTag(msg(nil).str(1, "slope"), 2, protowire.Fixed32Type), math.Float32bits(0.5))
	call := nodeOf("Twice", []string{"x"}, []string{"y"}, msg(slope).num(20, 1)).str(7, "mine")
	m := modelOf(msg(nil).raw(1, call).raw(11, infoOf("x", 1, 1, 2)).raw(12, infoOf("y", 1, 1, 2))).raw(8, msg(nil).str(1, "mine").num(2, 1)).raw(25, f)
	x, err := importFile(t, save(t, m), onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := eval.Run(x.Graph, map[string]*eval.Tensor{"x": eval.Floats(ir.F32, []ir.Dim{1, 2}, -8, 3)}, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Value(x.Graph.Return[0]).F; got[0] != -2 || got[1] != 3 {
		t.Errorf("%v\n%s", got, x.Graph)
	}
}

// The elements of an input may be what a shape is made of; the import says so.
func TestBoundValues(t *testing.T) {
	g := msg(nil).raw(1, nodeOf("Neg", []string{"s"}, []string{"m"})).raw(1, nodeOf("Neg", []string{"m"}, []string{"p"})).raw(1, nodeOf("Reshape", []string{"x", "p"}, []string{"y"})).
		raw(11, infoOf("x", 1, 6)).raw(11, infoOf("s", 7, 2)).raw(12, infoOf("y", 1, "a", "b"))
	path := save(t, modelOf(g))
	if _, err := importFile(t, path, onnx.Options{}); err == nil || !strings.Contains(err.Error(), "the shape (operand 1) depends on data") {
		t.Errorf("without the elements: %v", err)
	}
	x, err := importFile(t, path, onnx.Options{Values: map[string]*eval.Tensor{"s": eval.Ints(ir.I64, []ir.Dim{2}, 2, 3)}})
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Bound) != 1 || x.Bound[0] != "s" || x.Outputs[0].Value.Type.String() != "f32[2,3]" {
		t.Errorf("bound %v, output %s", x.Bound, x.Outputs[0].Value.Type)
	}
}

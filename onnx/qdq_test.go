package onnx_test

import (
	"testing"

	"ampc/internal/ort"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/onnx/convert"
	"ampc/passes"
)

// qdqModel is a product of quantized operands as exporters write it: x is quantized and
// dequantized, the weights are stored as bytes.
func qdqModel() []byte {
	const n = 64
	w := bytesOf(ir.I8, 0, n, n)
	q := []string{"s", "z"}
	g := msg(nil).str(2, "g").
		raw(1, nodeOf("QuantizeLinear", append([]string{"x"}, q...), []string{"xq"})).
		raw(1, nodeOf("DequantizeLinear", append([]string{"xq"}, q...), []string{"xd"})).
		raw(1, nodeOf("DequantizeLinear", []string{"w", "ws", "wz"}, []string{"wd"}, intAttr("axis", 1))).
		raw(1, nodeOf("MatMul", []string{"xd", "wd"}, []string{"h"})).
		raw(1, nodeOf("Relu", []string{"h"}, []string{"r"})).
		raw(1, nodeOf("QuantizeLinear", []string{"r", "rs", "rz"}, []string{"y"})).
		raw(5, constantOf("s", scalarOf(ir.F32, 0.01))).raw(5, constantOf("z", scalarOf(ir.U8, 128))).raw(5, constantOf("w", w)).
		raw(5, constantOf("ws", eval.Floats(ir.F32, []ir.Dim{n}, ramped(n)...))).raw(5, constantOf("wz", eval.New(ir.T(ir.I8, n)))).
		raw(5, constantOf("rs", scalarOf(ir.F32, 0.05))).raw(5, constantOf("rz", scalarOf(ir.U8, 3))).
		raw(11, infoOf("x", 1, 64, n)).raw(12, infoOf("y", 2, 64, n))
	return modelOf(g)
}

func ramped(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = 0.001 + 0.0001*float64(i)
	}
	return x
}

// A conversion leaves quantized elements and their scales as they are: the file is read again,
// loads in onnxruntime where that is, and differs by one step of the last scale at most.
func TestConvertQuantized(t *testing.T) {
	m, err := onnx.Open(save(t, qdqModel()))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := onnx.Import(m, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, r, err := convert.Plan(m, x, passes.MixedF16(), convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Low == 0 {
		t.Errorf("nothing is converted: %v", r.Kept)
	}
	path := save(t, rewritten(t, m, e))
	back, err := importFile(t, path, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := waves(0.37, 64, 64)
	run := func(g *ir.Graph) *eval.Tensor {
		res, err := eval.Run(g, map[string]*eval.Tensor{"x": in}, eval.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return res.Value(g.Return[0])
	}
	want, got := run(x.Graph), run(back.Graph)
	if err := (limit{abs: 1}).differ([]*eval.Tensor{got}, []*eval.Tensor{want}); err != nil {
		t.Error(err)
	}
	peer, err := ort.Start()
	if err != nil {
		t.Logf("not loaded in onnxruntime: %v", err)
		return
	}
	defer peer.Close()
	theirs, err := peer.Run(path, map[string]ort.Tensor{"x": {Type: "float32", Dims: []int64{64, 64}, Data: in.Bytes()}})
	if err != nil {
		t.Fatal(err)
	}
	y, err := eval.FromBytes(want.Type, theirs[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	if err := (limit{abs: 1}).differ([]*eval.Tensor{y}, []*eval.Tensor{want}); err != nil {
		t.Errorf("onnxruntime: %v", err)
	}
}

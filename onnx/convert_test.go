package onnx_test

import (
	"bytes"
	"math"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/onnx/convert"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// low converts a model to f16 and evaluates both on x.
func low(t *testing.T, src []byte, x *eval.Tensor) (want, got []float64, e *onnx.Edit, r *convert.Report) {
	t.Helper()
	run := func(b []byte) (*onnx.Model, *onnx.Imported, []float64) {
		m, err := onnx.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		g, err := onnx.Import(m, onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		res, err := eval.Run(g.Graph, map[string]*eval.Tensor{"x": x}, eval.Options{})
		if err != nil {
			t.Fatalf("%v\n%s", err, g.Graph)
		}
		return m, g, res.Value(g.Graph.Return[0]).F
	}
	m, g, want := run(src)
	e, r, err := convert.Plan(m, g, passes.MixedF16(), convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, _, got = run(rewritten(t, m, e))
	return want, got, e, r
}

func near(t *testing.T, got, want []float64, share float64) {
	t.Helper()
	most := 0.0
	for _, w := range want {
		most = max(most, math.Abs(w))
	}
	for i, w := range want {
		if !(math.Abs(got[i]-w) <= share*most) {
			t.Fatalf("element %d is %g, was %g", i, got[i], w)
		}
	}
}

func ramp(n int, at, step float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(at + step*math.Sin(float64(i)))
	}
	return x
}

func wide(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// A norm that is written out squares numbers near 10000, which f16 does not
// hold: the squares, their mean and the root stay f32, the product behind does not. The
// weights have one sign, so that sums do not cancel.
func TestConvertWrittenOutNorm(t *testing.T) {
	g := msg(nil).raw(1, nodeOf("Mul", []string{"x", "x"}, []string{"s"})).
		raw(1, nodeOf("ReduceMean", []string{"s"}, []string{"m"}, msg(nil).str(1, "axes").num(8, -1).num(20, 7))).
		raw(1, nodeOf("Sqrt", []string{"m"}, []string{"r"})).
		raw(1, nodeOf("Div", []string{"x", "r"}, []string{"n"})).
		raw(1, nodeOf("MatMul", []string{"n", "w"}, []string{"y"})).
		raw(5, tensorOf("w", []int64{64, 64}, ramp(4096, 0.5, 0.1)...)).
		raw(11, infoOf("x", 1, 4, 64)).raw(12, infoOf("y", 1, 4, 64))
	want, got, e, r := low(t, modelOf(g), eval.Floats(ir.F32, []ir.Dim{4, 64}, wide(ramp(256, 1e4, 2e3))...))
	near(t, got, want, 2e-3)
	if _, stored := e.Tensors["w"]; !stored || r.Low < 1 {
		t.Errorf("the product is not in 16 bits: %+v", r)
	}
}

// A mask of the lowest f32 would be −Inf in f16, and a row of it NaN.
func TestConvertMask(t *testing.T) {
	mask := make([]float32, 64)
	for i := range mask {
		if i%8 > i/8 || i < 8 {
			mask[i] = -math.MaxFloat32
		}
	}
	g := msg(nil).raw(1, nodeOf("MatMul", []string{"x", "k"}, []string{"s"})).
		raw(1, nodeOf("Add", []string{"s", "mask"}, []string{"a"})).
		raw(1, nodeOf("Softmax", []string{"a"}, []string{"p"})).
		raw(1, nodeOf("MatMul", []string{"p", "v"}, []string{"y"})).
		raw(5, tensorOf("k", []int64{64, 8}, ramp(512, 0, 1)...)).raw(5, tensorOf("mask", []int64{8, 8}, mask...)).raw(5, tensorOf("v", []int64{8, 64}, ramp(512, 0, 1)...)).
		raw(11, infoOf("x", 1, 8, 64)).raw(12, infoOf("y", 1, 8, 64))
	want, got, e, r := low(t, modelOf(g), eval.Floats(ir.F32, []ir.Dim{8, 64}, wide(ramp(512, 0, 0.1))...))
	near(t, got, want, 5e-3)
	if _, stored := e.Tensors["mask"]; stored || r.Low < 2 {
		t.Errorf("want the mask in f32 and the products in 16 bits: %+v", r)
	}
}

// A model that is half f16 already keeps its casts and their types.
func TestConvertHalfLow(t *testing.T) {
	g := msg(nil).raw(1, nodeOf("Cast", []string{"x"}, []string{"h"}, intAttr("to", 10))).
		raw(1, nodeOf("Relu", []string{"h"}, []string{"q"})).
		raw(1, nodeOf("Cast", []string{"q"}, []string{"f"}, intAttr("to", 1))).
		raw(1, nodeOf("MatMul", []string{"f", "w"}, []string{"z"})).
		raw(1, nodeOf("Exp", []string{"z"}, []string{"y"})).
		raw(5, tensorOf("w", []int64{64, 64}, ramp(4096, 0, 0.05)...)).
		raw(11, infoOf("x", 1, 8, 64)).raw(12, infoOf("y", 1, 8, 64))
	want, got, _, r := low(t, modelOf(g), eval.Floats(ir.F32, []ir.Dim{8, 64}, wide(ramp(512, 0, 0.1))...))
	near(t, got, want, 5e-3)
	if r.Low != 1 {
		t.Errorf("%d nodes are new in 16 bits, want the product alone: %+v", r.Low, r)
	}
}

// Kernels convert weights to the same bytes as plain Go does, at any address and up to the
// last element; infinities and NaN are no reason to keep a weight.
func TestConvertKernels(t *testing.T) {
	b, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const rows, cols = 67, 129
	w := make([]float32, rows*cols)
	for i := range w {
		w[i] = math.Float32frombits(uint32(i) * 0x9e3779b1)
		if a := math.Abs(float64(w[i])); a > 6e4 && i%64 != 0 { // f16 holds all but NaN and infinities
			w[i] = float32(math.Mod(a, 6e4))
		}
		if a := math.Abs(float64(w[i])); i%64 == 0 && a > 6e4 && a <= math.MaxFloat32 {
			w[i] = float32(math.Inf(1))
		}
	}
	for shift, p := range map[string]passes.Policy{"": passes.MixedF16(), "x": passes.MixedBF16(), "xyz": passes.MixedF16()} {
		g := msg(nil).str(10, shift).raw(1, nodeOf("MatMul", []string{"x", "w"}, []string{"y"})).
			raw(5, tensorOf("w", []int64{rows, cols}, w...)).
			raw(11, infoOf("x", 1, 4, rows)).raw(12, infoOf("y", 1, 4, cols))
		m, err := onnx.Parse(msg(nil).num(1, 10).raw(7, g).raw(8, msg(nil).num(2, 22)))
		if err != nil {
			t.Fatal(err)
		}
		var got [2][]byte
		for i, kernels := range []convert.Kernels{nil, b} {
			x, err := onnx.Import(m, onnx.Options{})
			if err != nil {
				t.Fatal(err)
			}
			e, _, err := convert.Plan(m, x, p, convert.Options{Kernels: kernels})
			if err != nil {
				t.Fatal(err)
			}
			if _, stored := e.Tensors["w"]; !stored {
				t.Fatalf("%s, kernels %v: the weight is not stored in 16 bits", p.Low, kernels)
			}
			got[i] = rewritten(t, m, e)
		}
		if !bytes.Equal(got[0], got[1]) {
			t.Errorf("%s: kernels give other bytes", p.Low)
		}
	}
}

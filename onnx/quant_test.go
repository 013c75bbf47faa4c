package onnx_test

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// quantCases are quantized operators: every dtype, per tensor, axis and block, zero points,
// saturation, ties, and sums that f32 does not hold.
func quantCases() []peerCase {
	f := func(x ...float64) *eval.Tensor { return eval.Floats(ir.F32, []ir.Dim{ir.Dim(len(x))}, x...) }
	n := func(d ir.DType, x ...int64) *eval.Tensor { return eval.Ints(d, []ir.Dim{ir.Dim(len(x))}, x...) }
	ties := f(0.5, 1.5, -0.5, -1.5, 2.5, 1e9, -1e9, 63.4, 200, -200, 127.5, 128.5, 0)
	var list []peerCase
	for _, d := range []ir.DType{ir.U8, ir.I8, ir.U16, ir.I16} {
		zero := scalarOf(d, 3)
		list = append(list,
			peerCase{name: "quantize-" + d.String(), op: "QuantizeLinear", in: []*eval.Tensor{ties, scalarOf(ir.F32, 1), zero}},
			peerCase{name: "quantize-axis-" + d.String(), op: "QuantizeLinear", attrs: []msg{intAttr("axis", 1)}, in: []*eval.Tensor{waves(0.7, 2, 3, 4), f(0.01, 0.1, 0.003), n(d, 0, 5, 9)}},
			peerCase{name: "quantize-block-" + d.String(), op: "QuantizeLinear", attrs: []msg{intAttr("axis", 1), intAttr("block_size", 2)}, in: []*eval.Tensor{waves(0.7, 2, 5), eval.Floats(ir.F32, []ir.Dim{2, 3}, 0.01, 0.1, 0.003, 0.05, 0.5, 1), bytesOf(d, 9, 2, 3)}},
			peerCase{name: "dequantize-" + d.String(), op: "DequantizeLinear", in: []*eval.Tensor{bytesOf(d, 0, 3, 5), scalarOf(ir.F32, 0.05), zero}},
			peerCase{name: "dequantize-axis-" + d.String(), op: "DequantizeLinear", attrs: []msg{intAttr("axis", -1)}, in: []*eval.Tensor{bytesOf(d, 0, 2, 3), f(0.01, 0.1, 0.003), n(d, 0, 5, 9)}},
			peerCase{name: "dequantize-block-" + d.String(), op: "DequantizeLinear", attrs: []msg{intAttr("axis", 0), intAttr("block_size", 2)}, in: []*eval.Tensor{bytesOf(d, 0, 5, 2), eval.Floats(ir.F32, []ir.Dim{3, 2}, 0.01, 0.1, 0.003, 0.05, 0.5, 1), bytesOf(d, 9, 3, 2)}})
	}
	for name, d := range map[string][2]ir.DType{"uu": {ir.U8, ir.U8}, "us": {ir.U8, ir.I8}, "ss": {ir.I8, ir.I8}} {
		a, b := d[0], d[1]
		scale := func(x float64) *eval.Tensor { return scalarOf(ir.F32, x) }
		list = append(list,
			// 700 products of bytes leave the integers that f32 holds.
			peerCase{name: "matmulinteger-" + name, op: "MatMulInteger", in: []*eval.Tensor{bytesOf(a, 0, 3, 700), bytesOf(b, 0, 700, 4), scalarOf(a, 12), scalarOf(b, 5)}, fixed: []int{2, 3}},
			peerCase{name: "qlinearmatmul-" + name, op: "QLinearMatMul", in: []*eval.Tensor{bytesOf(a, 0, 2, 3, 9), scale(0.02), scalarOf(a, 12), bytesOf(b, 0, 2, 9, 4), scale(0.03), scalarOf(b, 5), scale(0.2), scalarOf(a, 7)}},
			peerCase{name: "qlinearconv-" + name, op: "QLinearConv", attrs: []msg{intsAttr("pads", 1, 1, 1, 1), intsAttr("strides", 2, 1)},
				in: []*eval.Tensor{bytesOf(a, 0, 1, 80, 5, 6), scale(0.02), scalarOf(a, 12), bytesOf(b, 0, 4, 80, 3, 3), scale(0.03), scalarOf(b, 0), scale(5), scalarOf(a, 7), n(ir.I32, 1000, -2000, 30000, 7)}, fixed: []int{1, 2, 3, 4, 5, 6, 7, 8}})
	}
	scales, zeros := f(0.03, 0.05, 0.01, 0.2), n(ir.I8, 0, 0, 0, 0)
	return append(list,
		peerCase{name: "matmulinteger-columns", op: "MatMulInteger", in: []*eval.Tensor{bytesOf(ir.U8, 0, 3, 9), bytesOf(ir.I8, 0, 9, 4), scalarOf(ir.U8, 100), n(ir.I8, 1, -2, 3, 4)}},
		peerCase{name: "convinteger", op: "ConvInteger", attrs: []msg{intsAttr("pads", 1, 1, 1, 1), intAttr("group", 2)}, in: []*eval.Tensor{bytesOf(ir.U8, 0, 1, 4, 5, 6), bytesOf(ir.U8, 0, 4, 2, 3, 3), scalarOf(ir.U8, 7), scalarOf(ir.U8, 3)}},
		peerCase{name: "qlinearconv-filters", op: "QLinearConv", attrs: []msg{intAttr("group", 4)}, in: []*eval.Tensor{bytesOf(ir.U8, 0, 1, 4, 5, 6), scalarOf(ir.F32, 0.02), scalarOf(ir.U8, 128), bytesOf(ir.I8, 0, 4, 1, 3, 3), scales, zeros, scalarOf(ir.F32, 0.1), scalarOf(ir.U8, 10)}, fixed: []int{1, 2, 3, 4, 5, 6, 7}},
		peerCase{name: "dynamicquantize", op: "DynamicQuantizeLinear", in: []*eval.Tensor{waves(0.9, 3, 7)}, outs: 3, limit: limit{rel: 1e-6}},
		peerCase{name: "dynamicquantize-positive", op: "DynamicQuantizeLinear", in: []*eval.Tensor{f(1, 2, 3.5, 9)}, outs: 3, limit: limit{rel: 1e-6}},
		peerCase{name: "dynamicquantize-zeros", op: "DynamicQuantizeLinear", in: []*eval.Tensor{f(0, 0, 0)}, outs: 3},
		peerCase{name: "dequantize-i32", op: "DequantizeLinear", in: []*eval.Tensor{n(ir.I32, 1<<23, -70000, 5), scalarOf(ir.F32, 0.25)}},
		peerCase{name: "qlinearadd", domain: "com.microsoft", op: "QLinearAdd", in: []*eval.Tensor{bytesOf(ir.U8, 0, 3, 5), scalarOf(ir.F32, 0.0213), scalarOf(ir.U8, 12), bytesOf(ir.U8, 0, 5), scalarOf(ir.F32, 0.03), scalarOf(ir.U8, 100), scalarOf(ir.F32, 0.0437), scalarOf(ir.U8, 7)}},
		peerCase{name: "qlinearmul", domain: "com.microsoft", op: "QLinearMul", in: []*eval.Tensor{bytesOf(ir.I8, 0, 3, 5), scalarOf(ir.F32, 0.02), scalarOf(ir.I8, 12), bytesOf(ir.I8, 0, 5), scalarOf(ir.F32, 0.03), scalarOf(ir.I8, -7), scalarOf(ir.F32, 0.04), scalarOf(ir.I8, 7)}})
}

// No policy changes a sum of integers, or what is rounded to them.
func TestQuantizedUnderPolicies(t *testing.T) {
	b, err := cpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	want := peerResults(t)
	for _, p := range quantCases() {
		if strings.HasPrefix(p.name, "dequantize") {
			continue // which gives numbers
		}
		e, _, err := p.open(t, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, policy := range map[string]passes.Policy{"mixed-bf16": passes.MixedBF16(), "mixed-f16": passes.MixedF16()} {
			got, err := e.under(b, policy)
			if err == nil {
				err = p.limit.differ(got, want[p.name])
			}
			if err != nil {
				t.Errorf("%s under %s: %v", p.name, name, err)
			}
		}
	}
}

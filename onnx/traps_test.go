package onnx_test

import (
	"fmt"

	"ampc/ir"
	"ampc/ir/eval"
)

// trapCases are what importers get wrong.
func trapCases() []peerCase {
	near := limit{rel: 1e-4, abs: 1e-6}
	w := waves
	n64 := func(d []ir.Dim, x ...int64) *eval.Tensor { return eval.Ints(ir.I64, d, x...) }
	list64 := func(x ...int64) *eval.Tensor { return n64([]ir.Dim{ir.Dim(len(x))}, x...) }
	lengths := func(x ...int64) *eval.Tensor { return eval.Ints(ir.I32, []ir.Dim{ir.Dim(len(x))}, x...) }
	f := func(x ...float64) *eval.Tensor { return eval.Floats(ir.F32, []ir.Dim{ir.Dim(len(x))}, x...) }
	var none *eval.Tensor
	const steps, batch, in, hidden = 4, 2, 3, 5
	recurrent := func(name, op string, gates ir.Dim, both bool, rest []*eval.Tensor, outs int, attrs ...msg) peerCase {
		dirs := ir.Dim(1)
		attrs = append(attrs, intAttr("hidden_size", hidden))
		if both {
			dirs = 2
			attrs = append(attrs, strAttr("direction", "bidirectional"))
		}
		x := []*eval.Tensor{w(0.7, steps, batch, in), w(0.41, dirs, gates*hidden, in), w(0.23, dirs, gates*hidden, hidden), w(0.9, dirs, 2*gates*hidden)}
		return peerCase{name: name, op: op, attrs: attrs, in: append(x, rest...), outs: outs, limit: near}
	}
	h0 := func(dirs ir.Dim) *eval.Tensor { return w(0.57, dirs, batch, hidden) }
	var list []peerCase
	for _, both := range []bool{false, true} {
		dirs, suffix := ir.Dim(1), ""
		if both {
			dirs, suffix = 2, "-both"
		}
		list = append(list,
			recurrent("gru-reset-before"+suffix, "GRU", 3, both, []*eval.Tensor{none, h0(dirs)}, 2, intAttr("linear_before_reset", 0)),
			recurrent("gru-reset-after"+suffix, "GRU", 3, both, []*eval.Tensor{none, h0(dirs)}, 2, intAttr("linear_before_reset", 1)),
			recurrent("gru-lengths"+suffix, "GRU", 3, both, []*eval.Tensor{lengths(2, 4)}, 2),
			recurrent("lstm"+suffix, "LSTM", 4, both, []*eval.Tensor{none, h0(dirs), w(0.33, dirs, batch, hidden)}, 3),
			recurrent("lstm-peepholes"+suffix, "LSTM", 4, both, []*eval.Tensor{none, none, none, w(0.77, dirs, 3*hidden)}, 3),
			recurrent("lstm-lengths"+suffix, "LSTM", 4, both, []*eval.Tensor{lengths(1, 3)}, 3),
			recurrent("rnn-lengths"+suffix, "RNN", 1, both, []*eval.Tensor{lengths(3, 2)}, 2))
	}
	image := w(0.7, 1, 2, 4, 6)
	for _, scales := range [][]float64{{1, 1, 0.6, 0.4}, {1, 1, 1.7, 2.3}, {1, 1, 1.7, 0.6}} {
		list = append(list, peerCase{name: fmt.Sprintf("resize-10-nearest-%g-%g", scales[2], scales[3]), op: "Resize", opset: 10, attrs: []msg{strAttr("mode", "nearest")}, in: []*eval.Tensor{image, f(scales...)}, fixed: []int{1}})
	}
	for _, mode := range []string{"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"} {
		for _, at := range []string{"half_pixel", "asymmetric", "align_corners"} {
			list = append(list, peerCase{name: "resize-nearest-" + mode + "-" + at, op: "Resize", attrs: []msg{strAttr("mode", "nearest"), strAttr("nearest_mode", mode), strAttr("coordinate_transformation_mode", at)},
				in: []*eval.Tensor{image, none, none, list64(1, 2, 7, 9)}, fixed: []int{3}})
		}
	}
	for _, mode := range []string{"linear", "cubic"} {
		for _, at := range []string{"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"} {
			list = append(list, peerCase{name: "resize-" + mode + "-" + at, op: "Resize", attrs: []msg{strAttr("mode", mode), strAttr("coordinate_transformation_mode", at)}, in: []*eval.Tensor{image, none, none, list64(1, 2, 7, 9)}, fixed: []int{3}, limit: near})
		}
		list = append(list, peerCase{name: "resize-" + mode + "-antialias", op: "Resize", attrs: []msg{strAttr("mode", mode), intAttr("antialias", 1)}, in: []*eval.Tensor{w(0.7, 1, 1, 8, 12), none, none, list64(1, 1, 3, 5)}, fixed: []int{3}, limit: near})
	}
	for _, pad := range []string{"SAME_UPPER", "SAME_LOWER"} {
		list = append(list,
			peerCase{name: "conv-" + pad, op: "Conv", attrs: []msg{strAttr("auto_pad", pad), intsAttr("strides", 2, 3)}, in: []*eval.Tensor{image, w(0.4, 3, 2, 2, 4)}, limit: near},
			peerCase{name: "maxpool-" + pad, op: "MaxPool", attrs: []msg{strAttr("auto_pad", pad), intsAttr("strides", 2, 1), intsAttr("kernel_shape", 3, 2)}, in: []*eval.Tensor{image}},
			peerCase{name: "averagepool-" + pad, op: "AveragePool", attrs: []msg{strAttr("auto_pad", pad), intsAttr("strides", 1, 2), intsAttr("kernel_shape", 2, 4)}, in: []*eval.Tensor{image}, limit: near},
			peerCase{name: "convtranspose-" + pad, op: "ConvTranspose", attrs: []msg{strAttr("auto_pad", pad), intsAttr("strides", 2, 2)}, in: []*eval.Tensor{image, w(0.4, 2, 3, 3, 3)}, limit: near})
	}
	q, k, v := w(0.7, 1, 2, 3, 4), w(0.4, 1, 2, 5, 4), w(0.3, 1, 2, 5, 4)
	attention := func(name string, in []*eval.Tensor, attrs ...msg) peerCase {
		return peerCase{name: "attention23-" + name, op: "Attention", opset: 23, attrs: attrs, in: in, limit: near}
	}
	list = append(list,
		attention("causal-top-left", []*eval.Tensor{q, k, v}, intAttr("is_causal", 1)),
		attention("softcap", []*eval.Tensor{q, k, v}, floatAttr("softcap", 0.4)),
		peerCase{name: "attention23-causal-past", op: "Attention", opset: 23, attrs: []msg{intAttr("is_causal", 1)}, in: []*eval.Tensor{q, w(0.4, 1, 2, 3, 4), w(0.3, 1, 2, 3, 4), none, w(0.2, 1, 2, 6, 4), w(0.1, 1, 2, 6, 4)}, outs: 3, limit: near},
		peerCase{name: "rotary23", op: "RotaryEmbedding", opset: 23, in: []*eval.Tensor{w(0.7, 2, 2, 3, 8), w(0.8, 9, 4), w(0.5, 9, 4), n64([]ir.Dim{2, 3}, 0, 1, 2, 5, 4, 3)}, limit: near},
		peerCase{name: "batchnorm-momentum", op: "BatchNormalization", opset: 15, attrs: []msg{intAttr("training_mode", 1), floatAttr("momentum", 0.75)}, in: []*eval.Tensor{image, f(1, 2), f(0.5, -1), f(3, 5), f(2, 4)}, outs: 3, limit: near},
		peerCase{name: "resize-crop", op: "Resize", attrs: []msg{strAttr("mode", "linear"), strAttr("coordinate_transformation_mode", "tf_crop_and_resize"), floatAttr("extrapolation_value", 9)}, in: []*eval.Tensor{image, f(0, 0, 0.4, -0.2, 1, 1, 0.6, 1.3), none, list64(1, 2, 3, 5)}, fixed: []int{1, 3}, limit: near},
		peerCase{name: "gather-negative", op: "Gather", attrs: []msg{intAttr("axis", 1)}, in: []*eval.Tensor{w(0.7, 2, 5, 3), n64([]ir.Dim{2, 2}, -1, 0, -5, 3)}},
		peerCase{name: "gather-negative-i32", op: "Gather", in: []*eval.Tensor{w(0.7, 4, 3), eval.Ints(ir.I32, []ir.Dim{2}, -2, 1)}, fixed: []int{1}},
		peerCase{name: "gatherelements-negative", op: "GatherElements", attrs: []msg{intAttr("axis", -1)}, in: []*eval.Tensor{w(0.7, 2, 5), n64([]ir.Dim{2, 3}, -1, 0, 2, -5, -2, 1)}},
		peerCase{name: "gathernd-negative", op: "GatherND", in: []*eval.Tensor{w(0.7, 3, 4, 2), n64([]ir.Dim{2, 2}, -1, -4, 0, 3)}},
		peerCase{name: "scatternd-negative", op: "ScatterND", opset: 18, attrs: []msg{strAttr("reduction", "add")}, in: []*eval.Tensor{w(0.7, 4, 2), n64([]ir.Dim{2, 1}, -1, 1), w(0.3, 2, 2)}, limit: near},
		peerCase{name: "scatterelements-negative", op: "ScatterElements", in: []*eval.Tensor{w(0.7, 4, 2), n64([]ir.Dim{1, 2}, -1, -4), w(0.3, 1, 2)}},
		peerCase{name: "slice-back", op: "Slice", in: []*eval.Tensor{w(0.7, 5, 7), list64(-1, 5), list64(-100, 0), list64(0, 1), list64(-2, -3)}, fixed: []int{1, 2, 3, 4}},
		peerCase{name: "slice-back-whole", op: "Slice", in: []*eval.Tensor{w(0.7, 5, 7), list64(100), list64(-100), list64(-1), list64(-1)}, fixed: []int{1, 2, 3, 4}},
		peerCase{name: "slice-none", op: "Slice", in: []*eval.Tensor{w(0.7, 5, 7), list64(2), list64(4), list64(0), list64(-1)}, fixed: []int{1, 2, 3, 4}},
		peerCase{name: "onehot-i64", op: "OneHot", in: []*eval.Tensor{list64(0, -1, 3, 7), list64(4), f(-0.5, 2)}, fixed: []int{1}},
		peerCase{name: "topk-ties", op: "TopK", in: []*eval.Tensor{f(1, 3, 3, 2, 3), list64(3)}, fixed: []int{1}, outs: 2},
		peerCase{name: "argmax-last", op: "ArgMax", attrs: []msg{intAttr("select_last_index", 1), intAttr("axis", 0), intAttr("keepdims", 0)}, in: []*eval.Tensor{f(1, 3, 3, 2, 3)}},
		peerCase{name: "softmax-12", op: "Softmax", opset: 12, attrs: []msg{intAttr("axis", 1)}, in: []*eval.Tensor{w(0.7, 2, 3, 4)}, limit: near},
		peerCase{name: "mod-signs", op: "Mod", in: []*eval.Tensor{list64(-7, 7, -7, 7), list64(3, -3, -3, 3)}},
		peerCase{name: "div-i32-signs", op: "Div", in: []*eval.Tensor{lengths(-7, 7, -7, 7), lengths(3, -3, -3, 3)}},
		peerCase{name: "cast-saturates-not", op: "Cast", attrs: []msg{intAttr("to", 3)}, in: []*eval.Tensor{lengths(300, -300, 127, -1)}},
		peerCase{name: "clip-crossed", op: "Clip", in: []*eval.Tensor{f(-3, 0, 3), scalarOf(ir.F32, 2), scalarOf(ir.F32, 1)}},
		peerCase{name: "reducesum-noop", op: "ReduceSum", attrs: []msg{intAttr("noop_with_empty_axes", 1)}, in: []*eval.Tensor{w(0.7, 2, 3), list64()}, fixed: []int{1}},
		peerCase{name: "pad-reflect", op: "Pad", attrs: []msg{strAttr("mode", "reflect")}, in: []*eval.Tensor{w(0.7, 4, 5), list64(1, 2, 2, 0)}, fixed: []int{1}},
		peerCase{name: "groupnorm-20", op: "GroupNormalization", opset: 18, attrs: []msg{intAttr("num_groups", 2)}, in: []*eval.Tensor{w(0.7, 1, 4, 3), f(1, 2), f(0.5, -1)}, limit: near},
		peerCase{name: "dropout-seed", op: "Dropout", in: []*eval.Tensor{w(0.7, 3, 4), scalarOf(ir.F32, 0.5)}, fixed: []int{1}},
		peerCase{name: "lppool", op: "LpPool", opset: 18, attrs: []msg{intsAttr("kernel_shape", 2, 3), intAttr("p", 3), intsAttr("pads", 1, 1, 1, 1)}, in: []*eval.Tensor{image}, limit: near})
	return list
}

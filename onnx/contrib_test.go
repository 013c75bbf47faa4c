package onnx_test

import (
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
)

// contribCases are operators of onnxruntime's own domain.
func contribCases() []peerCase {
	const ms = "com.microsoft"
	near := limit{rel: 1e-5, abs: 1e-6}
	w := waves
	ids := func(top int64, d ...ir.Dim) *eval.Tensor { return bytesOf(ir.I32, top, d...) }
	ints := func(x ...int64) *eval.Tensor { return eval.Ints(ir.I32, []ir.Dim{ir.Dim(len(x))}, x...) }
	var none *eval.Tensor
	list := []peerCase{
		{name: "fusedmatmul", op: "FusedMatMul", attrs: []msg{floatAttr("alpha", 0.5), intAttr("transA", 1), intAttr("transB", 1)}, in: []*eval.Tensor{w(0.7, 2, 5, 3), w(0.3, 2, 4, 5)}},
		{name: "fusedmatmul-batch", op: "FusedMatMul", attrs: []msg{intAttr("transBatchA", 1), intAttr("transBatchB", 1), intAttr("transB", 1)}, in: []*eval.Tensor{w(0.7, 3, 2, 5), w(0.3, 4, 2, 5)}},
		{name: "fusedconv", op: "FusedConv", attrs: []msg{strAttr("activation", "Relu"), intsAttr("pads", 1, 1, 1, 1)}, in: []*eval.Tensor{w(0.7, 1, 2, 5, 4), w(0.3, 3, 2, 3, 3), w(0.9, 3), w(1.3, 1, 3, 5, 4)}},
		{name: "fusedconv-leaky", op: "FusedConv", attrs: []msg{strAttr("activation", "LeakyRelu"), floatsAttr("activation_params", 0.25)}, in: []*eval.Tensor{w(0.7, 1, 2, 5, 4), w(0.3, 3, 2, 3, 3)}},
		{name: "fusedconv-clip", op: "FusedConv", attrs: []msg{strAttr("activation", "Clip"), floatsAttr("activation_params", -0.5, 0.75)}, in: []*eval.Tensor{w(0.7, 1, 2, 5, 4), w(0.3, 3, 2, 3, 3), w(0.9, 3)}},
		{name: "gelu", op: "Gelu", in: []*eval.Tensor{w(0.7, 3, 8)}},
		{name: "fastgelu", op: "FastGelu", in: []*eval.Tensor{w(0.7, 3, 8), w(0.4, 8)}},
		{name: "quickgelu", op: "QuickGelu", in: []*eval.Tensor{w(0.7, 3, 8)}},
		{name: "biasgelu", op: "BiasGelu", in: []*eval.Tensor{w(0.7, 3, 8), w(0.4, 8)}},
		{name: "skiplayernorm", op: "SkipLayerNormalization", in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 2, 3, 8), w(0.3, 8), w(0.2, 8), w(0.9, 8)}, outs: 4, blank: []int{1, 2}},
		{name: "skipsimplified", op: "SkipSimplifiedLayerNormalization", attrs: []msg{floatAttr("epsilon", 1e-5)}, in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 2, 3, 8), w(0.3, 8), w(0.9, 8)}},
		{name: "embedlayernorm", op: "EmbedLayerNormalization", in: []*eval.Tensor{ids(11, 2, 4), ids(2, 2, 4), w(0.7, 11, 8), w(0.4, 6, 8), w(0.3, 2, 8), w(0.2, 8), w(0.9, 8), eval.Ints(ir.I32, []ir.Dim{2, 4}, 1, 1, 1, 0, 1, 1, 0, 0)}, outs: 3},
		{name: "embedlayernorm-places", op: "EmbedLayerNormalization", in: []*eval.Tensor{ids(11, 2, 4), none, w(0.7, 11, 8), w(0.4, 6, 8), none, w(0.2, 8), w(0.9, 8), none, ids(6, 2, 4)}, outs: 2},
		{name: "matmulnbits", op: "MatMulNBits", attrs: []msg{intAttr("K", 40), intAttr("N", 5), intAttr("bits", 4), intAttr("block_size", 16)}, in: []*eval.Tensor{w(0.7, 2, 3, 40), bytesOf(ir.U8, 0, 5, 3, 8), w(0.37, 15)}, fixed: []int{1, 2}},
		{name: "matmulnbits-zeros", op: "MatMulNBits", attrs: []msg{intAttr("K", 48), intAttr("N", 5), intAttr("bits", 4), intAttr("block_size", 16)}, in: []*eval.Tensor{w(0.7, 3, 48), bytesOf(ir.U8, 0, 5, 3, 8), w(0.37, 15), bytesOf(ir.U8, 0, 10)}, fixed: []int{1, 2, 3}},
		{name: "matmulnbits-8", op: "MatMulNBits", attrs: []msg{intAttr("K", 32), intAttr("N", 3), intAttr("bits", 8), intAttr("block_size", 16)}, in: []*eval.Tensor{w(0.7, 3, 32), bytesOf(ir.U8, 0, 3, 2, 16), w(0.37, 6)}, fixed: []int{1, 2}},

		{name: "attention", op: "Attention", attrs: []msg{intAttr("num_heads", 2)}, in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 8, 24), w(0.3, 24)}},
		{name: "attention-mask", op: "Attention", attrs: []msg{intAttr("num_heads", 2)}, in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 8, 24), w(0.3, 24), eval.Ints(ir.I32, []ir.Dim{2, 3}, 1, 1, 0, 1, 1, 1)}},
		{name: "attention-lengths", op: "Attention", attrs: []msg{intAttr("num_heads", 2)}, in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 8, 24), w(0.3, 24), ints(2, 3)}},
		{name: "attention-past", op: "Attention", attrs: []msg{intAttr("num_heads", 2), intAttr("unidirectional", 1)}, in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 8, 24), w(0.3, 24), none, w(0.6, 2, 2, 2, 5, 4)}, outs: 2},
		{name: "attention-bias", op: "Attention", attrs: []msg{intAttr("num_heads", 2)}, in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 8, 24), w(0.3, 24), none, none, w(0.8, 2, 2, 3, 3)}},
		{name: "multihead", op: "MultiHeadAttention", attrs: []msg{intAttr("num_heads", 2)}, in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 2, 5, 8), w(0.3, 2, 5, 8), w(0.9, 24), eval.Ints(ir.I32, []ir.Dim{2, 5}, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1)}},
		{name: "multihead-causal", op: "MultiHeadAttention", attrs: []msg{intAttr("num_heads", 2), intAttr("unidirectional", 1), floatAttr("scale", 0.3)}, in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 2, 3, 8), w(0.3, 2, 3, 8), none, none, none, w(0.2, 2, 2, 4, 4), w(0.6, 2, 2, 4, 4)}, outs: 3},
		{name: "multihead-cross", op: "MultiHeadAttention", attrs: []msg{intAttr("num_heads", 2)}, in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 2, 2, 5, 4), w(0.3, 2, 2, 5, 4)}},
		{name: "groupquery", op: "GroupQueryAttention", attrs: []msg{intAttr("num_heads", 4), intAttr("kv_num_heads", 2)}, in: []*eval.Tensor{w(0.7, 1, 5, 32), w(0.4, 1, 5, 16), w(0.3, 1, 5, 16), none, none, ints(4), ints(5)}, outs: 3},
		{name: "groupquery-past", op: "GroupQueryAttention", attrs: []msg{intAttr("num_heads", 4), intAttr("kv_num_heads", 2), intAttr("do_rotary", 1)}, in: []*eval.Tensor{w(0.7, 1, 1, 64), w(0.4, 1, 1, 32), w(0.3, 1, 1, 32), w(0.2, 1, 2, 6, 16), w(0.6, 1, 2, 6, 16), ints(6), ints(7), w(0.8, 16, 8), w(0.5, 16, 8)}, outs: 3},
		{name: "groupquery-lengths", op: "GroupQueryAttention", attrs: []msg{intAttr("num_heads", 4), intAttr("kv_num_heads", 2), intAttr("do_rotary", 1), intAttr("rotary_interleaved", 1)}, in: []*eval.Tensor{w(0.7, 2, 1, 64), w(0.4, 2, 1, 32), w(0.3, 2, 1, 32), w(0.2, 2, 2, 8, 16), w(0.6, 2, 2, 8, 16), ints(4, 6), ints(7), w(0.8, 16, 8), w(0.5, 16, 8)}, outs: 3, judged: 1},
		{name: "groupquery-window", op: "GroupQueryAttention", attrs: []msg{intAttr("num_heads", 2), intAttr("kv_num_heads", 2), intAttr("local_window_size", 3), floatAttr("softcap", 1.5)}, in: []*eval.Tensor{w(0.7, 1, 7, 16), w(0.4, 1, 7, 16), w(0.3, 1, 7, 16), none, none, ints(6), ints(7)}},
		{name: "groupquery-packed", op: "GroupQueryAttention", attrs: []msg{intAttr("num_heads", 4), intAttr("kv_num_heads", 2), floatAttr("scale", 0.2)}, in: []*eval.Tensor{w(0.7, 1, 5, 64), none, none, none, none, ints(4), ints(5)}},
		{name: "rotary", op: "RotaryEmbedding", in: []*eval.Tensor{w(0.7, 2, 3, 32), eval.Ints(ir.I64, []ir.Dim{2, 3}, 0, 1, 2, 3, 4, 5), w(0.8, 9, 8), w(0.5, 9, 8)}},
		{name: "rotary-offset", op: "RotaryEmbedding", attrs: []msg{intAttr("interleaved", 1)}, in: []*eval.Tensor{w(0.7, 2, 2, 3, 16), eval.Ints(ir.I64, []ir.Dim{1}, 4), w(0.8, 9, 8), w(0.5, 9, 8)}},
		{name: "rotary-part", op: "RotaryEmbedding", attrs: []msg{intAttr("num_heads", 2), intAttr("rotary_embedding_dim", 8)}, in: []*eval.Tensor{w(0.7, 2, 3, 32), eval.Ints(ir.I64, []ir.Dim{2, 3}, 0, 1, 2, 3, 4, 5), w(0.8, 9, 4), w(0.5, 9, 4)}},
	}
	for i := range list {
		list[i].domain, list[i].limit = ms, near
	}
	return append(list,
		peerCase{name: "simplifiedlayernorm", op: "SimplifiedLayerNormalization", opset: 16, in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 8)}, limit: near},
		peerCase{name: "layernorm-16", op: "LayerNormalization", opset: 16, in: []*eval.Tensor{w(0.7, 2, 3, 8), w(0.4, 8), w(0.3, 8)}, limit: near})
}

// Queries, keys and values in one operand, which onnxruntime has no CPU kernel for, are those apart.
func TestPackedHeads(t *testing.T) {
	packed := waves(0.7, 2, 3, 2, 3, 4)
	apart := make([]*eval.Tensor, 3)
	for i := range apart {
		apart[i] = eval.New(ir.T(ir.F32, 2, 3, 8))
		for k := range apart[i].F {
			apart[i].F[k] = packed.F[k/4*12+i*4+k%4]
		}
	}
	var results [2][]*eval.Tensor
	for i, in := range [][]*eval.Tensor{{packed}, apart} {
		p := peerCase{name: "packed", domain: "com.microsoft", op: "MultiHeadAttention", attrs: []msg{intAttr("num_heads", 2)}, in: in}
		e, _, err := p.open(t, nil)
		if err != nil {
			t.Fatal(err)
		}
		if results[i], err = e.evaluate(); err != nil {
			t.Fatal(err)
		}
	}
	if err := (limit{}).differ(results[0], results[1]); err != nil {
		t.Error(err)
	}
}

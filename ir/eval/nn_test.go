package eval

import (
	"testing"

	"ampc/ir"
)

func TestLinearRows(t *testing.T) {
	for _, c := range []rowCase{
		{name: "matmul", op: ir.OpMatmul, in: []*Tensor{normal(3, 4), normal(4, 5)}},
		{name: "matmul ta tb", op: ir.OpMatmul, in: []*Tensor{normal(2, 4, 3), normal(2, 5, 4)}, attrs: ir.A("ta", true, "tb", true)},
		{name: "matmul ta", op: ir.OpMatmul, in: []*Tensor{normal(4, 3), normal(4, 5)}, attrs: ir.A("ta", true)},
		{name: "matmul broadcast", op: ir.OpMatmul, in: []*Tensor{normal(2, 1, 3, 4), normal(3, 4, 2)}},
		{name: "matmul shared", op: ir.OpMatmul, in: []*Tensor{normal(2, 3, 4), normal(5, 4)}, attrs: ir.A("tb", true)},
		{name: "linear", op: ir.OpLinear, in: []*Tensor{normal(2, 3, 4), normal(4, 5), normal(5)}},
		{name: "linear tb", op: ir.OpLinear, in: []*Tensor{normal(3, 4), normal(5, 4)}, attrs: ir.A("tb", true)},
		{name: "embedding", op: ir.OpEmbedding, in: []*Tensor{normal(5, 3), indices(5, 2, 4)}},
		{name: "embedding_grad", op: ir.OpEmbeddingGrad, in: []*Tensor{normal(2, 4, 3), indices(5, 2, 4)}, attrs: ir.A("rows", 5)},
	} {
		t.Run(c.name, func(t *testing.T) { checkRow(t, c) })
	}
}

func TestConvRows(t *testing.T) {
	strided := ir.A("strides", []int{2, 1}, "pads", []int{1, 0, 1, 2}, "dilations", []int{1, 2})
	nhwc := ir.A("strides", []int{2, 2}, "pads", []int{1, 1, 1, 1}, "groups", 2, "layout", "NHWC")
	for _, c := range []rowCase{
		{name: "conv 2d", op: ir.OpConv, in: []*Tensor{normal(2, 3, 5, 6), normal(4, 3, 3, 2), normal(4)}, attrs: strided},
		{name: "conv groups", op: ir.OpConv, in: []*Tensor{normal(1, 4, 5, 5), normal(6, 2, 3, 3)}, attrs: ir.A("groups", 2)},
		{name: "conv nhwc", op: ir.OpConv, in: []*Tensor{normal(2, 5, 5, 4), normal(6, 3, 3, 2), normal(6)}, attrs: nhwc},
		{name: "conv 1d", op: ir.OpConv, in: []*Tensor{normal(2, 3, 7), normal(4, 3, 3)}, attrs: ir.A("pads", []int{2, 0})},
		{name: "conv 3d", op: ir.OpConv, in: []*Tensor{normal(1, 2, 3, 4, 3), normal(2, 2, 2, 2, 2)}},
		{name: "conv_grad_x", op: ir.OpConvGradX, in: []*Tensor{normal(2, 4, 3, 6), normal(4, 3, 3, 2)}, attrs: strided.With("size", []int64{5, 6})},
		{name: "conv_grad_w", op: ir.OpConvGradW, in: []*Tensor{normal(2, 3, 5, 6), normal(2, 4, 3, 6)}, attrs: strided.With("kernel", []int64{3, 2})},
		{name: "conv_transpose", op: ir.OpConvTranspose, in: []*Tensor{normal(2, 4, 3, 3), normal(4, 2, 3, 3), normal(4)},
			attrs: ir.A("strides", []int{2, 2}, "pads", []int{1, 1, 1, 1}, "groups", 2, "output_padding", []int{1, 0})},
		{name: "conv_transpose beyond", op: ir.OpConvTranspose, in: []*Tensor{normal(1, 2, 3, 2), normal(2, 2, 2, 3), normal(2)},
			attrs: ir.A("strides", []int{1, 2}, "dilations", []int{3, 4}, "pads", []int{0, 1, 0, 2}, "output_padding", []int{2, 3})},
		{name: "conv_transpose padded", op: ir.OpConvTranspose, in: []*Tensor{normal(2, 4, 3), normal(4, 3, 3)},
			attrs: ir.A("dilations", []int{3}, "pads", []int{1, 3}, "output_padding", []int{1})},
		{name: "conv_transpose nhwc", op: ir.OpConvTranspose, in: []*Tensor{normal(1, 3, 3, 4), normal(4, 2, 2, 3), normal(3)}, attrs: ir.A("layout", "NHWC", "strides", []int{2, 2})},
	} {
		t.Run(c.name, func(t *testing.T) { checkRow(t, c) })
	}
}

func TestNormRows(t *testing.T) {
	groups, last := ir.A("groups", 2), ir.A("groups", 2, "layout", "NHWC")
	for _, c := range []rowCase{
		{name: "softmax", op: ir.OpSoftmax, in: []*Tensor{normal(3, 5)}},
		{name: "softmax axis", op: ir.OpSoftmax, in: []*Tensor{normal(3, 4, 2)}, attrs: ir.A("axis", 1)},
		{name: "softmax_grad", op: ir.OpSoftmaxGrad, in: []*Tensor{normal(3, 4, 2), normal(3, 4, 2)}, attrs: ir.A("axis", 1)},
		{name: "log_softmax", op: ir.OpLogSoftmax, in: []*Tensor{normal(3, 5)}},
		{name: "log_softmax_grad", op: ir.OpLogSoftmaxGrad, in: []*Tensor{normal(3, 5), normal(3, 5)}, attrs: ir.A("axis", 0)},
		{name: "layer_norm", op: ir.OpLayerNorm, in: []*Tensor{normal(3, 5), normal(5), normal(5)}},
		{name: "layer_norm bare", op: ir.OpLayerNorm, in: []*Tensor{normal(3, 5)}, attrs: ir.A("eps", 0.1)},
		{name: "layer_norm dims", op: ir.OpLayerNorm, in: []*Tensor{normal(2, 3, 2, 3), normal(2, 3), normal(2, 3)}, attrs: ir.A("dims", 2)},
		{name: "layer_norm all", op: ir.OpLayerNorm, in: []*Tensor{normal(6), normal(6)}},
		{name: "layer_norm_grad", op: ir.OpLayerNormGrad, in: []*Tensor{normal(3, 5), normal(3, 5), normal(3), normal(3), normal(5)}},
		{name: "layer_norm_grad bare", op: ir.OpLayerNormGrad, in: []*Tensor{normal(3, 5), normal(3, 5), normal(3), normal(3)}},
		{name: "rms_norm", op: ir.OpRMSNorm, in: []*Tensor{normal(3, 5), normal(5)}},
		{name: "rms_norm_grad", op: ir.OpRMSNormGrad, in: []*Tensor{normal(3, 5), normal(3, 5), normal(3), normal(5)}},
		{name: "group_norm", op: ir.OpGroupNorm, in: []*Tensor{normal(2, 4, 3, 2), normal(4), normal(4)}, attrs: groups},
		{name: "group_norm nhwc", op: ir.OpGroupNorm, in: []*Tensor{normal(2, 3, 2, 4), normal(4), normal(4)}, attrs: last},
		{name: "group_norm_grad", op: ir.OpGroupNormGrad, in: []*Tensor{normal(2, 4, 3), normal(2, 4, 3), normal(2, 2), normal(2, 2), normal(4)}, attrs: groups},
		{name: "instance_norm", op: ir.OpInstanceNorm, in: []*Tensor{normal(2, 3, 4), normal(3), normal(3)}},
		{name: "batch_norm", op: ir.OpBatchNorm, in: []*Tensor{normal(2, 3, 4), normal(3), normal(3), normal(3), uniform(0.5, 2, 3)}, fixed: []int{3, 4}},
		{name: "batch_norm nhwc", op: ir.OpBatchNorm, in: []*Tensor{normal(4, 2, 3), normal(3), normal(3)}, attrs: ir.A("layout", "NHWC")},
		{name: "batch_norm 2d", op: ir.OpBatchNorm, in: []*Tensor{normal(4, 3)}},
		{name: "batch_norm_grad", op: ir.OpBatchNormGrad, in: []*Tensor{normal(2, 3, 4), normal(2, 3, 4), normal(3), normal(3), normal(3)}},
		{name: "batch_norm_infer", op: ir.OpBatchNormInfer, in: []*Tensor{normal(2, 3, 4), normal(3), normal(3), normal(3), uniform(0.5, 2, 3)}},
	} {
		t.Run(c.name, func(t *testing.T) { checkRow(t, c) })
	}
}

func TestAttentionRows(t *testing.T) {
	causal := ir.A("causal", true)
	for _, c := range []rowCase{
		{name: "attention", op: ir.OpAttention, in: []*Tensor{normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 3)}},
		{name: "attention causal shared", op: ir.OpAttention, in: []*Tensor{normal(1, 4, 3, 2), normal(1, 2, 4, 2), normal(1, 2, 4, 2)}, attrs: causal},
		{name: "attention mask", op: ir.OpAttention, in: []*Tensor{normal(2, 4, 3, 2), normal(2, 2, 3, 2), normal(2, 2, 3, 2), normal(4, 1, 3)}, attrs: causal.With("scale", 0.5)},
		{name: "attention_grad", op: ir.OpAttentionGrad, in: []*Tensor{normal(1, 4, 3, 2), normal(1, 2, 4, 2), normal(1, 2, 4, 3), normal(1, 4, 3, 3), normal(1, 4, 3, 3), normal(1, 4, 3)}, attrs: causal.With("scale", 0.5)}, // exact in f32: the expansion rounds it
		{name: "rope", op: ir.OpRope, in: []*Tensor{normal(2, 2, 3, 6)}},
		{name: "rope part", op: ir.OpRope, in: []*Tensor{normal(2, 2, 3, 6), indices(9, 2, 3)}, attrs: ir.A("dims", 4, "interleaved", true, "base", 100)},
	} {
		t.Run(c.name, func(t *testing.T) { checkRow(t, c) })
	}
}

func TestPoolRows(t *testing.T) {
	overlap := ir.A("kernel", []int{3, 2}, "strides", []int{2, 1}, "pads", []int{1, 0, 1, 1})
	for _, c := range []rowCase{
		{name: "max_pool", op: ir.OpMaxPool, in: []*Tensor{normal(2, 2, 5, 4)}, attrs: overlap, first: true},
		{name: "max_pool nhwc", op: ir.OpMaxPool, in: []*Tensor{normal(2, 5, 4, 3)}, attrs: overlap.With("layout", "NHWC").With("ceil", true), first: true},
		{name: "max_pool_grad", op: ir.OpMaxPoolGrad, in: []*Tensor{normal(2, 3, 2, 2), indices(12, 2, 3, 2, 2)}, attrs: ir.A("size", []int{4, 3})},
		{name: "max_pool_grad nhwc", op: ir.OpMaxPoolGrad, in: []*Tensor{normal(2, 2, 2, 3), indices(12, 2, 2, 2, 3)}, attrs: ir.A("size", []int{4, 3}, "layout", "NHWC")},
		{name: "avg_pool", op: ir.OpAvgPool, in: []*Tensor{normal(2, 2, 5, 4)}, attrs: overlap},
		{name: "avg_pool padded", op: ir.OpAvgPool, in: []*Tensor{normal(1, 6, 5, 2)}, attrs: overlap.With("count_include_pad", true).With("ceil", true).With("layout", "NHWC")},
		{name: "avg_pool 1d", op: ir.OpAvgPool, in: []*Tensor{normal(1, 2, 6)}, attrs: ir.A("kernel", []int{2}, "dilations", []int{2})},
		{name: "avg_pool_grad", op: ir.OpAvgPoolGrad, in: []*Tensor{normal(2, 2, 3, 4)}, attrs: overlap.With("size", []int64{5, 4})},
		{name: "adaptive_avg_pool", op: ir.OpAdaptiveAvgPool, in: []*Tensor{normal(2, 2, 5, 4)}, attrs: ir.A("size", []int{2, 3})},
		{name: "adaptive_avg_pool_grad", op: ir.OpAdaptiveAvgPoolGrad, in: []*Tensor{normal(2, 2, 2, 3)}, attrs: ir.A("size", []int{5, 4})},
	} {
		t.Run(c.name, func(t *testing.T) { checkRow(t, c) })
	}
}

func TestLossRows(t *testing.T) {
	labels := Ints(ir.I64, []ir.Dim{2, 3}, 0, 3, -100, 2, 2, 1)
	smooth := ir.A("axis", 1, "smoothing", 0.2)
	for _, c := range []rowCase{
		{name: "cross_entropy", op: ir.OpCrossEntropy, in: []*Tensor{normal(2, 3, 4), labels}},
		{name: "cross_entropy axis", op: ir.OpCrossEntropy, in: []*Tensor{normal(2, 4, 3), labels}, attrs: smooth},
		{name: "cross_entropy_grad", op: ir.OpCrossEntropyGrad, in: []*Tensor{normal(2, 4, 3), labels, normal()}, attrs: smooth},
		{name: "cross_entropy weights", op: ir.OpCrossEntropy, in: []*Tensor{normal(2, 3, 4), labels, uniform(0.5, 2, 4)}, fixed: []int{1}},
		{name: "cross_entropy weights axis", op: ir.OpCrossEntropy, in: []*Tensor{normal(2, 4, 3), labels, uniform(0.5, 2, 4)}, attrs: smooth, fixed: []int{1}},
		{name: "cross_entropy_grad weights", op: ir.OpCrossEntropyGrad, in: []*Tensor{normal(2, 3, 4), labels, normal(), uniform(0.5, 2, 4)}},
		{name: "cross_entropy_grad weights axis", op: ir.OpCrossEntropyGrad, in: []*Tensor{normal(2, 4, 3), labels, normal(), uniform(0.5, 2, 4)}, attrs: smooth},
		{name: "nll", op: ir.OpNLL, in: []*Tensor{normal(2, 3, 4), labels}},
		{name: "bce_with_logits", op: ir.OpBCEWithLogits, in: []*Tensor{normal(2, 3), uniform(0, 1, 2, 3)}},
		{name: "bce", op: ir.OpBCE, in: []*Tensor{uniform(0.1, 0.9, 2, 3), uniform(0, 1, 2, 3)}},
		{name: "mse", op: ir.OpMSE, in: []*Tensor{normal(2, 3), normal(2, 3)}},
		{name: "l1_loss", op: ir.OpL1Loss, in: []*Tensor{normal(2, 3), normal(2, 3)}},
		{name: "huber", op: ir.OpHuber, in: []*Tensor{normal(2, 5), normal(2, 5)}, attrs: ir.A("delta", 0.7)},
		{name: "kl_div", op: ir.OpKLDiv, in: []*Tensor{normal(2, 3), uniform(0.1, 0.9, 2, 3)}},
		{name: "kl_div log", op: ir.OpKLDiv, in: []*Tensor{normal(2, 3), normal(2, 3)}, attrs: ir.A("log_target", true)},
		{name: "soft_cross_entropy", op: ir.OpSoftCrossEntropy, in: []*Tensor{normal(2, 3, 4), uniform(0, 1, 2, 3, 4)}},
		{name: "soft_cross_entropy axis", op: ir.OpSoftCrossEntropy, in: []*Tensor{normal(2, 4, 3), uniform(0, 1, 2, 4, 3)}, attrs: ir.A("axis", 1)},
	} {
		t.Run(c.name, func(t *testing.T) { checkRow(t, c) })
	}
}

func TestRecurrentRows(t *testing.T) {
	back := ir.A("reverse", true)
	for _, c := range []rowCase{
		{name: "lstm", op: ir.OpLSTM, in: []*Tensor{normal(3, 2, 1, 8), normal(1, 2, 8)}},
		{name: "lstm both ways", op: ir.OpLSTM, in: []*Tensor{normal(3, 2, 2, 8), normal(2, 2, 8), normal(2, 2, 2), normal(2, 2, 2)}},
		{name: "lstm reverse", op: ir.OpLSTM, in: []*Tensor{normal(2, 2, 1, 8), normal(1, 2, 8), nil, normal(1, 2, 2)}, attrs: back},
		{name: "lstm_grad", op: ir.OpLSTMGrad, in: []*Tensor{normal(2, 2, 8), uniform(0.1, 0.9, 3, 1, 2, 8), normal(3, 1, 2, 2), normal(2, 1, 2), normal(3, 1, 2, 2), normal(3, 1, 2, 2), normal(3, 1, 2, 8)}},
		{name: "lstm_grad dc alone", op: ir.OpLSTMGrad, in: []*Tensor{normal(1, 2, 8), uniform(0.1, 0.9, 3, 1, 1, 8), normal(3, 1, 1, 2), nil, nil, normal(3, 1, 1, 2)}},
		{name: "gru", op: ir.OpGRU, in: []*Tensor{normal(3, 2, 1, 6), normal(1, 2, 6)}},
		{name: "gru both ways", op: ir.OpGRU, in: []*Tensor{normal(3, 2, 2, 6), normal(2, 2, 6), normal(2, 2), normal(2, 2, 2)}},
		{name: "gru reverse", op: ir.OpGRU, in: []*Tensor{normal(2, 1, 1, 6), normal(1, 2, 6), normal(1, 2)}, attrs: back},
		{name: "gru_grad", op: ir.OpGRUGrad, in: []*Tensor{normal(2, 2, 6), uniform(0.1, 0.9, 3, 1, 2, 8), normal(3, 1, 2, 2), normal(2, 1, 2), normal(3, 1, 2, 2), normal(3, 1, 2, 8)}},
		{name: "rnn", op: ir.OpRNN, in: []*Tensor{normal(3, 2, 1, 3), normal(1, 3, 3)}},
		{name: "rnn both ways", op: ir.OpRNN, in: []*Tensor{normal(3, 2, 2, 3), normal(2, 3, 3), normal(2, 2, 3)}},
		{name: "rnn relu reverse", op: ir.OpRNN, in: []*Tensor{normal(3, 2, 1, 3), normal(1, 3, 3), normal(1, 2, 3)}, attrs: back.With("activation", "relu"), first: true},
		{name: "rnn_grad", op: ir.OpRNNGrad, in: []*Tensor{normal(2, 3, 3), uniform(-0.9, 0.9, 3, 1, 2, 3), normal(3, 1, 2, 3)}},
		{name: "rnn_grad relu", op: ir.OpRNNGrad, in: []*Tensor{normal(1, 3, 3), normal(3, 2, 1, 3), normal(3, 2, 1, 3)}, attrs: back.With("activation", "relu"), first: true},
		{name: "gru_grad gates alone", op: ir.OpGRUGrad, in: []*Tensor{normal(1, 2, 6), uniform(0.1, 0.9, 2, 1, 1, 8), normal(2, 1, 1, 2), nil, nil, normal(2, 1, 1, 8)}},
	} {
		t.Run(c.name, func(t *testing.T) { checkRow(t, c) })
	}
}

package main

import (
	"ampc/ir"
)

// shapeCases are reductions and ops that move elements.
func shapeCases() []opCase {
	x := input(24, 50)
	reduce := func(name string, f func(b *ir.Builder, x *ir.Value, keep bool, axes ...int64) *ir.Value, x opInput) opCase {
		return unaryOp(name, func(b *ir.Builder, x *ir.Value) *ir.Value { return f(b, x, false, 1) }, x)
	}
	nearest := func(coords, ties string, to int64) one {
		return func(b *ir.Builder, x *ir.Value) *ir.Value { return b.ResizeNearest(x, coords, ties, to, to) }
	}
	return []opCase{
		reduce("sum", (*ir.Builder).ReduceSum, x), reduce("mean", (*ir.Builder).ReduceMean, x), reduce("amax", (*ir.Builder).ReduceMax, x), reduce("amin", (*ir.Builder).ReduceMin, x),
		reduce("prod", (*ir.Builder).ReduceProd, between(0.8, 1.2, 24, 50)), reduce("norm1", (*ir.Builder).ReduceL1, x), reduce("norm2", (*ir.Builder).ReduceL2, x),
		unaryOp("var", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.ReduceVar(x, 1, false, 1) }, x),
		unaryOp("logsumexp", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.LogSumExp(x, 1) }, x),
		unaryOp("cumsum", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Cumsum(x, 1, false, false) }, x),
		unaryOp("softmax", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Softmax(x, -1) }, x),
		unaryOp("log_softmax", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.LogSoftmax(x, -1) }, x),
		unaryOp("transpose", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Transpose(x, 1, 0) }, x),
		unaryOp("pad", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Pad(x, []int64{0, 2}, []int64{0, 1}, 0) }, x),
		unaryOp("pow_number", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Pow(x, b.Scalar(ir.F32, 3)) }, x),
		unaryOp("interpolate_nearest", nearest("asymmetric", "down", 7), input(2, 3, 10, 10)),
		unaryOp("interpolate_nearest_exact", nearest("half_pixel", "up", 5), input(2, 3, 10, 10)),
		unaryOp("interpolate_bilinear", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Resize(x, "linear", "half_pixel", 7, 13) }, input(2, 3, 10, 10)),
		unaryOp("max_pool2d", func(b *ir.Builder, x *ir.Value) *ir.Value {
			return b.MaxPool(x, ir.A("kernel", []int64{2, 2}, "strides", []int64{2, 2}))
		}, input(2, 3, 10, 10)),
		unaryOp("avg_pool2d", func(b *ir.Builder, x *ir.Value) *ir.Value {
			return b.AvgPool(x, ir.A("kernel", []int64{2, 2}, "strides", []int64{2, 2}))
		}, input(2, 3, 10, 10)),
		unaryOp("adaptive_avg_pool2d", func(b *ir.Builder, x *ir.Value) *ir.Value { return b.AdaptiveAvgPool(x, []int64{3, 4}, "NCHW") }, input(2, 3, 10, 10)),
		of("cat", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.Concat(1, v...) }, input(8, 5), input(8, 7)),
		of("where", func(b *ir.Builder, v []*ir.Value) *ir.Value {
			return b.Where(b.Gt(v[0], b.Scalar(ir.F32, 0)), v[1], v[2])
		}, given(-1, 1, 8, 5), input(8, 5), input(8, 5)),
		of("gather", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.GatherElements(v[0], v[1], 1) }, input(8, 12), index(12, 8, 5)),
		of("index_select", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.Gather(v[0], v[1], 1) }, input(8, 12), index(12, 5)),
		of("scatter_add", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.ScatterAdd(v[0], v[1], v[2], 1) }, input(8, 12), index(12, 8, 5), input(8, 5)),
		of("embedding", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.Embedding(v[0], v[1]) }, weight(12, 16), index(12, 8, 5)),
	}
}

// layerCases are products, norms, recurrences and losses with labels.
func layerCases() []opCase {
	conv := func(a ir.Attrs) func(b *ir.Builder, v []*ir.Value) *ir.Value {
		return func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.Conv(v[0], v[1], v[2], a) }
	}
	image := input(2, 4, 10, 10)
	plain := func(activation string) opCase {
		return of("rnn_"+activation, func(b *ir.Builder, v []*ir.Value) *ir.Value {
			y, _ := b.RNN(v[0], v[1], v[2], v[3], nil, activation, nil)
			return y
		}, input(5, 3, 8), between(-0.5, 0.5, 8, 6).weight(), between(-0.5, 0.5, 1, 6, 6).weight(), weight(6))
	}
	return []opCase{
		of("linear", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.Linear(v[0], v[1], v[2], false) }, input(24, 64), weight(64, 16), weight(16)),
		of("conv1d", conv(ir.A("pads", []int64{1, 1})), input(2, 4, 20), weight(6, 4, 3), weight(6)),
		of("conv2d", conv(ir.A("strides", []int64{2, 2}, "pads", []int64{1, 1, 1, 1})), image, weight(6, 4, 3, 3), weight(6)),
		of("conv2d_groups", conv(ir.A("groups", 2)), image, weight(6, 2, 3, 3), weight(6)),
		of("conv_transpose2d", func(b *ir.Builder, v []*ir.Value) *ir.Value {
			return b.ConvTranspose(v[0], v[1], v[2], ir.A("strides", []int64{2, 2}, "pads", []int64{1, 1, 1, 1}, "dilations", []int64{3, 3}, "output_padding", []int64{2, 1}))
		}, input(2, 4, 5, 5), weight(4, 6, 3, 3), weight(6)),
		of("attention", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.Attention(v[0], v[1], v[2], nil, nil) }, input(2, 3, 16, 8), input(2, 3, 16, 8), input(2, 3, 16, 8)),
		of("layer_norm", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.LayerNorm(v[0], v[1], v[2], nil) }, input(16, 64), weight(64), weight(64)),
		of("rms_norm", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.RMSNorm(v[0], v[1], nil) }, input(16, 64), weight(64)),
		of("group_norm", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.GroupNorm(v[0], v[1], v[2], ir.A("groups", 2)) }, image, weight(4), weight(4)),
		of("instance_norm", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.InstanceNorm(v[0], v[1], v[2], nil) }, image, weight(4), weight(4)),
		of("batch_norm", func(b *ir.Builder, v []*ir.Value) *ir.Value {
			return b.BatchNormInfer(v[0], v[1], v[2], v[3], v[4], nil)
		},
			image, weight(4), weight(4), given(-1, 1, 4), given(0.5, 2, 4)),
		of("lstm", func(b *ir.Builder, v []*ir.Value) *ir.Value {
			y, _, _ := b.LSTM(v[0], v[1], v[2], v[3], nil, nil, nil)
			return y
		}, input(5, 3, 8), weight(8, 24), weight(1, 6, 24), weight(24)),
		of("gru", func(b *ir.Builder, v []*ir.Value) *ir.Value {
			y, _ := b.GRU(v[0], v[1], v[2], v[3], v[4], nil, nil)
			return y
		}, input(5, 3, 8), weight(8, 18), weight(1, 6, 18), weight(18), weight(1, 6)),
		plain("tanh"), plain("relu"),
		of("cross_entropy", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.CrossEntropy(v[0], v[1], nil) }, input(16, 20), index(20, 16)),
		of("cross_entropy_weight", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.WeightedCrossEntropy(v[0], v[1], v[2], nil) },
			input(16, 20), index(20, 16), given(0.5, 2, 20)),
		of("cross_entropy_weight_smooth", func(b *ir.Builder, v []*ir.Value) *ir.Value {
			return b.WeightedCrossEntropy(v[0], v[1], v[2], ir.A("smoothing", 0.1))
		}, input(16, 20), index(20, 16), given(0.5, 2, 20)),
		of("bce_with_logits_pos_weight", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.WeightedBCE(v[0], v[1], v[2]) },
			input(16, 20), between(0, 1, 16, 20), given(0.5, 4, 20)),
		of("cross_entropy_smooth", func(b *ir.Builder, v []*ir.Value) *ir.Value {
			return b.CrossEntropy(v[0], v[1], ir.A("smoothing", 0.1))
		}, input(16, 20), index(20, 16)),
		of("nll_loss", func(b *ir.Builder, v []*ir.Value) *ir.Value { return b.NLL(v[0], v[1], nil) }, between(-4, -0.1, 16, 20), index(20, 16)),
	}
}

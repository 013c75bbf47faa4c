package ampc

import (
	"cmp"

	"ampc/ir"
)

// NormWithOptions are the options of the norms that take scale and bias as operands.
type NormWithOptions struct {
	Eps      *float64 // added to the variance, in f32: new(1e-12); nil: 1e-5
	Dims     int      // of LayerNormWith and RMSNormWith: how many of the last dimensions are normalized together; 0: 1
	Momentum *float64 // of BatchNormWith: weight of this batch in the running statistics: new(0.01); nil: 0.1
	Layout   Layout   // of the norms over channels
}

// defaultEps is what norms add to the variance where options do not say.
const defaultEps = 1e-5

// given is an option that may be 0, or its default.
func given(x *float64, def float64) float64 {
	if x != nil {
		return *x
	}
	return def
}

func (c NormWithOptions) rows() ir.Attrs {
	return ir.A("eps", given(c.Eps, defaultEps), "dims", cmp.Or(c.Dims, 1))
}

func (c NormWithOptions) channels() ir.Attrs {
	return ir.A("eps", given(c.Eps, defaultEps), "layout", c.Layout.String())
}

// LayerNormWith is the layer LayerNorm with scale and bias that the caller
// gives: it normalizes the last dimensions to mean 0 and variance 1.
//
//   - Shapes: x[...,n], scale[n], bias[n] (the zero Tensor: none) to x's.
//   - DTypes: floats; statistics are f32, the result has x's.
//   - Errors: scale or bias does not have the shape of what is normalized.
//   - PyTorch: F.layer_norm; normalized_shape is that of the last Dims dimensions.
func (o ops) LayerNormWith(x, scale, bias Tensor, opts ...NormWithOptions) Tensor {
	return o.tensor(o.b.LayerNorm(x.v, scale.v, bias.v, option(o, "layer_norm", opts).rows()))
}

// RMSNormWith is the layer RMSNorm with a scale that the caller gives: it
// divides the last dimensions by the root of their mean square.
//
//   - Shapes: x[...,n], scale[n] (the zero Tensor: none) to x's.
//   - DTypes: floats; statistics are f32, the result has x's.
//   - Errors: scale does not have the shape of what is normalized.
//   - PyTorch: F.rms_norm, whose eps is the smallest step of its dtype by default.
func (o ops) RMSNormWith(x, scale Tensor, opts ...NormWithOptions) Tensor {
	return o.tensor(o.b.RMSNorm(x.v, scale.v, option(o, "rms_norm", opts).rows()))
}

// GroupNormWith is the layer GroupNorm with scale and bias that the caller
// gives: it normalizes groups of channels of each image.
//
//   - Shapes: x[N,C,...], scale[C], bias[C] (the zero Tensor: none) to x's.
//   - DTypes: floats; statistics are f32, the result has x's.
//   - Errors: channels that do not divide into groups, or scale and bias that are not of C.
//   - PyTorch: F.group_norm.
func (o ops) GroupNormWith(x, scale, bias Tensor, groups int, opts ...NormWithOptions) Tensor {
	a := option(o, "group_norm", opts).channels().With("groups", groups)
	return o.tensor(o.b.GroupNorm(x.v, scale.v, bias.v, a))
}

// InstanceNormWith is the layer InstanceNorm with scale and bias that the caller gives:
// it normalizes each channel of each image.
//
//   - Shapes: x[N,C,...], scale[C], bias[C] (the zero Tensor: none) to x's.
//   - DTypes: floats; statistics are f32, the result has x's.
//   - Errors: scale and bias that are not of C.
//   - PyTorch: F.instance_norm; without running statistics.
func (o ops) InstanceNormWith(x, scale, bias Tensor, opts ...NormWithOptions) Tensor {
	return o.tensor(o.b.InstanceNorm(x.v, scale.v, bias.v, option(o, "instance_norm", opts).channels()))
}

// BatchNormWith is the layer BatchNorm with variables that the caller declares:
// it normalizes each channel over the batch and moves mean and variance, which
// are states, towards those of the batch.
//
//   - Shapes: x[N,C,...], scale[C], bias[C], mean[C], variance[C] to x's.
//   - DTypes: floats; statistics are f32, the result has x's.
//   - Errors: an operand that is not of C, or mean and variance that are not states.
//   - PyTorch: F.batch_norm(training=True); the running variance is that of a sample, as there.
func (o ops) BatchNormWith(x, scale, bias, mean, variance Tensor, opts ...NormWithOptions) Tensor {
	c := option(o, "batch_norm", opts)
	a := c.channels().With("momentum", given(c.Momentum, 0.1))
	return o.tensor(o.b.BatchNorm(x.v, scale.v, bias.v, mean.v, variance.v, a))
}

// BatchNormInfer normalizes each channel by a mean and a variance that are given.
//
//   - Shapes: x[N,C,...], scale[C], bias[C], mean[C], variance[C] to x's.
//   - DTypes: floats; computed in f32, the result has x's.
//   - Errors: an operand that is not of C.
//   - PyTorch: F.batch_norm(training=False); inference compiles BatchNorm to it.
func (o ops) BatchNormInfer(x, scale, bias, mean, variance Tensor, opts ...NormWithOptions) Tensor {
	return o.tensor(o.b.BatchNormInfer(x.v, scale.v, bias.v, mean.v, variance.v, option(o, "batch_norm_infer", opts).channels()))
}

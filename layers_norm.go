package ampc

// LayerNormOptions are the options of LayerNorm.
type LayerNormOptions struct {
	Eps    *float64 // added to the variance, in f32: new(1e-12); nil: 1e-5
	NoBias bool
}

// LayerNorm normalises the last dimension to mean 0 and variance 1, with
// parameters scale[n] and bias[n].
//
//   - Shapes: x[...,n] to the same; n is a number.
//   - DTypes: float; statistics are f32, the result has x's.
//   - Errors: a name that is taken, or x without a last dimension of known size.
//   - PyTorch: nn.LayerNorm(n).
func (m *Model) LayerNorm(name string, x Tensor, opts ...LayerNormOptions) Tensor {
	o := option(m.ops, "layer_norm", opts)
	l, ok := m.layer("layer_norm", name)
	n := l.size("layer_norm", name, x, -1)
	if !ok || n < 0 {
		return Tensor{}
	}
	scale, bias := l.affine(n, o.NoBias)
	return m.at(name).LayerNormWith(x, scale, bias, NormWithOptions{Eps: o.Eps})
}

// RMSNormOptions are the options of RMSNorm.
type RMSNormOptions struct {
	Eps *float64 // added to the mean square, in f32: new(1e-12); nil: 1e-5
}

// RMSNorm divides the last dimension by the root of its mean square, with a
// parameter scale[n].
//
//   - Shapes: x[...,n] to the same; n is a number.
//   - DTypes: float; statistics are f32, the result has x's.
//   - Errors: a name that is taken, or x without a last dimension of known size.
//   - PyTorch: nn.RMSNorm(n), whose eps is the smallest step of its dtype unless told otherwise.
func (m *Model) RMSNorm(name string, x Tensor, opts ...RMSNormOptions) Tensor {
	o := option(m.ops, "rms_norm", opts)
	l, ok := m.layer("rms_norm", name)
	n := l.size("rms_norm", name, x, -1)
	if !ok || n < 0 {
		return Tensor{}
	}
	return m.at(name).RMSNormWith(x, l.Param("scale", Fill(1), n), NormWithOptions{Eps: o.Eps})
}

// GroupNormOptions are the options of GroupNorm.
type GroupNormOptions struct {
	Eps *float64 // added to the variance, in f32: new(1e-12); nil: 1e-5
}

// GroupNorm normalises groups of channels of each image, with parameters
// scale[C] and bias[C].
//
//   - Shapes: x[N,C,...] to the same; C is a number.
//   - DTypes: float; statistics are f32, the result has x's.
//   - Errors: a name that is taken, or channels that do not divide into groups.
//   - PyTorch: nn.GroupNorm.
func (m *Model) GroupNorm(name string, x Tensor, groups int, opts ...GroupNormOptions) Tensor {
	o := option(m.ops, "group_norm", opts)
	l, ok := m.layer("group_norm", name)
	n := l.channels("group_norm", name, x, groups)
	if !ok || n < 0 {
		return Tensor{}
	}
	scale, bias := l.affine(n, false)
	return m.at(name).GroupNormWith(x, scale, bias, groups, NormWithOptions{Eps: o.Eps})
}

// BatchNormOptions are the options of BatchNorm.
type BatchNormOptions struct {
	Eps      *float64 // added to the variance, in f32: new(1e-12); nil: 1e-5
	Momentum *float64 // weight of this batch in the running statistics: new(0.01); nil: 0.1
}

// BatchNorm normalises each channel over the batch, with parameters scale[C] and
// bias[C], and keeps running statistics, the states mean[C] and var[C], which
// inference normalises by.
//
//   - Shapes: x[N,C,...] to the same; C is a number.
//   - DTypes: float; statistics are f32, the result has x's.
//   - Errors: a name that is taken, or x without channels of known number.
//   - PyTorch: nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d; a skipped step leaves the running statistics as they were.
func (m *Model) BatchNorm(name string, x Tensor, opts ...BatchNormOptions) Tensor {
	o := option(m.ops, "batch_norm", opts)
	l, ok := m.layer("batch_norm", name)
	n := l.channels("batch_norm", name, x, 1)
	if !ok || n < 0 {
		return Tensor{}
	}
	scale, bias := l.affine(n, false)
	mean, variance := l.State("mean", Fill(0), n), l.State("var", Fill(1), n)
	return m.at(name).BatchNormWith(x, scale, bias, mean, variance, NormWithOptions{Eps: o.Eps, Momentum: o.Momentum})
}

func (m *Model) affine(n int, noBias bool) (scale, bias Tensor) {
	scale = m.Param("scale", Fill(1), n)
	if !noBias {
		bias = m.Param("bias", Fill(0), n)
	}
	return scale, bias
}

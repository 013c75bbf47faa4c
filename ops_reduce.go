package ampc

// ReduceOptions are the options of the reductions.
type ReduceOptions struct {
	Axes []int // which dimensions are reduced, negative ones counted from the end; nil: all
	Keep bool  // they stay, with size 1
}

// Axes are the options of a reduction over some dimensions, which vanish.
func Axes(axes ...int) ReduceOptions { return ReduceOptions{Axes: axes} }

func (o ops) reduced(op string, opts []ReduceOptions) (keep bool, axes []int64) {
	c := option(o, op, opts)
	return c.Keep, wide(c.Axes)
}

// ReduceSum sums along axes.
//
//   - Shapes: x[...] to what is left of it; all axes unless options name some.
//   - DTypes: float or integer; floats are summed in f32, the result has x's.
//   - Errors: an axis that x does not have, or one named twice.
//   - PyTorch: torch.sum.
func (o ops) ReduceSum(x Tensor, opts ...ReduceOptions) Tensor {
	keep, axes := o.reduced("reduce_sum", opts)
	return o.tensor(o.b.ReduceSum(x.v, keep, axes...))
}

// ReduceMean averages along axes.
//
//   - Shapes: x[...] to what is left of it; all axes unless options name some.
//   - DTypes: float; summed in f32, the result has x's.
//   - Errors: an axis that x does not have, or one named twice.
//   - PyTorch: torch.mean.
func (o ops) ReduceMean(x Tensor, opts ...ReduceOptions) Tensor {
	keep, axes := o.reduced("reduce_mean", opts)
	return o.tensor(o.b.ReduceMean(x.v, keep, axes...))
}

// ReduceVar is the variance along axes, with the number of elements less
// correction as divisor: 0 for that of a population, 1 for that of a sample.
//
//   - Shapes: x[...] to what is left of it; all axes unless options name some.
//   - DTypes: float; computed in f32, the result has x's.
//   - Errors: an axis that x does not have, or one named twice.
//   - PyTorch: torch.var, whose correction is 1 by default.
func (o ops) ReduceVar(x Tensor, correction int, opts ...ReduceOptions) Tensor {
	keep, axes := o.reduced("reduce_var", opts)
	return o.tensor(o.b.ReduceVar(x.v, int64(correction), keep, axes...))
}

// ReduceMax is the largest element along axes; NaN where one is NaN.
//
//   - Shapes: x[...] to what is left of it; all axes unless options name some.
//   - DTypes: float or integer; the result has x's.
//   - Errors: an axis that x does not have, or one named twice.
//   - PyTorch: torch.amax; equal largest elements share the gradient, as there.
func (o ops) ReduceMax(x Tensor, opts ...ReduceOptions) Tensor {
	keep, axes := o.reduced("reduce_max", opts)
	return o.tensor(o.b.ReduceMax(x.v, keep, axes...))
}

// ReduceMin is the smallest element along axes; NaN where one is NaN.
//
//   - Shapes: x[...] to what is left of it; all axes unless options name some.
//   - DTypes: float or integer; the result has x's.
//   - Errors: an axis that x does not have, or one named twice.
//   - PyTorch: torch.amin; equal smallest elements share the gradient, as there.
func (o ops) ReduceMin(x Tensor, opts ...ReduceOptions) Tensor {
	keep, axes := o.reduced("reduce_min", opts)
	return o.tensor(o.b.ReduceMin(x.v, keep, axes...))
}

// ReduceProd multiplies along axes.
//
//   - Shapes: x[...] to what is left of it; all axes unless options name some.
//   - DTypes: float or integer; floats are multiplied in f32, the result has x's.
//   - Errors: an axis that x does not have, or one named twice.
//   - PyTorch: torch.prod, over any number of axes.
func (o ops) ReduceProd(x Tensor, opts ...ReduceOptions) Tensor {
	keep, axes := o.reduced("reduce_prod", opts)
	return o.tensor(o.b.ReduceProd(x.v, keep, axes...))
}

// ReduceL1 sums absolute values along axes.
//
//   - Shapes: x[...] to what is left of it; all axes unless options name some.
//   - DTypes: float; summed in f32, the result has x's.
//   - Errors: an axis that x does not have, or one named twice.
//   - PyTorch: torch.linalg.vector_norm(ord=1).
func (o ops) ReduceL1(x Tensor, opts ...ReduceOptions) Tensor {
	keep, axes := o.reduced("reduce_l1", opts)
	return o.tensor(o.b.ReduceL1(x.v, keep, axes...))
}

// ReduceL2 is the Euclidean norm along axes.
//
//   - Shapes: x[...] to what is left of it; all axes unless options name some.
//   - DTypes: float; summed in f32, the result has x's.
//   - Errors: an axis that x does not have, or one named twice.
//   - PyTorch: torch.linalg.vector_norm.
func (o ops) ReduceL2(x Tensor, opts ...ReduceOptions) Tensor {
	keep, axes := o.reduced("reduce_l2", opts)
	return o.tensor(o.b.ReduceL2(x.v, keep, axes...))
}

// LogSumExp is log Σ eˣ along axes, computed without leaving the range.
//
//   - Shapes: x[...] to what is left of it; all axes unless options name some.
//   - DTypes: float; computed in f32.
//   - Errors: an axis that x does not have, or one named twice.
//   - PyTorch: torch.logsumexp.
func (o ops) LogSumExp(x Tensor, opts ...ReduceOptions) Tensor {
	keep, axes := o.reduced("log_sum_exp", opts)
	y := o.tensor(o.b.LogSumExp(x.v, axes...))
	if !keep || y.v == nil {
		return y
	}
	if len(axes) == 0 {
		for i := range x.Rank() {
			axes = append(axes, int64(i))
		}
	}
	return o.tensor(o.b.Unsqueeze(y.v, axes...))
}

// GlobalNorm is the Euclidean norm of all elements of all tensors together.
//
//   - Shapes: any to a scalar.
//   - DTypes: floats; summed and returned in f32.
//   - Errors: no tensor.
//   - PyTorch: what nn.utils.clip_grad_norm_ returns; TrainConfig.Clip clips by it.
func (o ops) GlobalNorm(x ...Tensor) Tensor { return o.tensor(o.b.GlobalNorm(nil, values(x)...)) }

// ArgOptions are the options of Argmax and Argmin.
type ArgOptions struct {
	Keep bool // the axis stays, with size 1
}

// Argmax is the index of the largest element along an axis, the first of equal ones.
//
//   - Shapes: x[...] to x's without the axis.
//   - DTypes: x float or integer; the result is i64.
//   - Errors: an axis that x does not have.
//   - PyTorch: torch.argmax, with an axis.
func (o ops) Argmax(x Tensor, axis int, opts ...ArgOptions) Tensor {
	return o.tensor(o.b.Argmax(x.v, int64(axis), option(o, "argmax", opts).Keep))
}

// Argmin is the index of the smallest element along an axis, the first of equal ones.
//
//   - Shapes: x[...] to x's without the axis.
//   - DTypes: x float or integer; the result is i64.
//   - Errors: an axis that x does not have.
//   - PyTorch: torch.argmin, with an axis.
func (o ops) Argmin(x Tensor, axis int, opts ...ArgOptions) Tensor {
	return o.tensor(o.b.Argmin(x.v, int64(axis), option(o, "argmin", opts).Keep))
}

// CumsumOptions are the options of Cumsum.
type CumsumOptions struct {
	Exclusive bool // without the element itself
	Reverse   bool // from the end
}

// Cumsum is the running sum along an axis.
//
//   - Shapes: x[...] to the same.
//   - DTypes: float or integer; floats are summed in f32, the result has x's.
//   - Errors: an axis that x does not have.
//   - PyTorch: torch.cumsum.
func (o ops) Cumsum(x Tensor, axis int, opts ...CumsumOptions) Tensor {
	c := option(o, "cumsum", opts)
	return o.tensor(o.b.Cumsum(x.v, int64(axis), c.Exclusive, c.Reverse))
}

// TopKOptions are the options of TopK.
type TopKOptions struct {
	Smallest bool // the k smallest elements, the smallest first
}

// TopK returns the k largest elements along an axis, the largest first, and their indices.
//
//   - Shapes: x[...,n,...] to [...,k,...], twice.
//   - DTypes: x float or integer; values have x's, indices are i64.
//   - Errors: an axis that x does not have, or k outside 1 to n.
//   - PyTorch: torch.topk, sorted.
func (o ops) TopK(x Tensor, k, axis int, opts ...TopKOptions) (values, indices Tensor) {
	v, i := o.b.TopK(x.v, int64(k), int64(axis), option(o, "topk", opts).Smallest)
	return o.tensor(v), o.tensor(i)
}

package ampc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
)

// ops is what builds: every op of the op set is a method of it. A Model embeds
// it, and so does Update. Methods whose attributes fit their parameters are
// generated from those of ir.Builder (ops_gen.go); those with options stand in
// the files ops_*.go. Options are a struct, given at most once; its zero fields
// are the defaults.
type ops struct{ b *ir.Builder }

//go:generate go run ./internal/genops ir ops_gen.go

func (o ops) tensor(v *ir.Value) Tensor {
	if v == nil {
		return Tensor{}
	}
	return Tensor{o.b.Graph(), v}
}

func (o ops) tensors(v []*ir.Value) []Tensor {
	out := make([]Tensor, len(v))
	for i, x := range v {
		out[i] = o.tensor(x)
	}
	return out
}

func values(t []Tensor) []*ir.Value {
	out := make([]*ir.Value, len(t))
	for i, x := range t {
		out[i] = x.v
	}
	return out
}

func wide(n []int) []int64 {
	out := make([]int64, len(n))
	for i, x := range n {
		out[i] = int64(x)
	}
	return out
}

// option returns what a call was given as its options, the zero T for nothing.
func option[T any](o ops, op string, opts []T) T {
	switch len(opts) {
	case 0:
		return *new(T)
	case 1:
	default:
		o.Fail("%s: options are given %d times, want once", op, len(opts))
	}
	return opts[0]
}

// Err returns the first mistake made while building, with the line that made
// it; nil where there is none. Train and Infer return it too.
func (o ops) Err() error {
	err := o.b.Err()
	if e := (*ir.Error)(nil); errors.As(err, &e) && len(e.Unsized) > 0 {
		return fmt.Errorf("%w: give Input numbers instead of names there", err)
	}
	return err
}

// Fail records a mistake of the caller's own, such as a width that a layer of
// theirs cannot have. The first mistake stays; calls after it build nothing.
func (o ops) Fail(format string, args ...any) { o.b.Fail(format, args...) }

// IR returns the builder of the compiler's own graph, for code that uses package
// ir. Tensor.IR and FromIR convert between tensors and its values.
func (o ops) IR() *ir.Builder { return o.b }

// FromIR returns the tensor that stands for a value of the graph being built;
// the zero Tensor for nil.
func (o ops) FromIR(v *ir.Value) Tensor { return o.tensor(v) }

// Gelu is the exact Gaussian error linear unit, x·Φ(x).
//
//   - Shapes: x[...] to the same.
//   - DTypes: float; the result has x's.
//   - Errors: x is not a float.
//   - PyTorch: nn.GELU, F.gelu.
func (o ops) Gelu(x Tensor) Tensor { return o.tensor(o.b.Gelu(x.v, "erf")) }

// GeluTanh is the tanh approximation of Gelu, which GPT-2 was trained with. On a
// GPU it is fused into a linear layer before it.
//
//   - Shapes: x[...] to the same.
//   - DTypes: float; the result has x's.
//   - Errors: x is not a float.
//   - PyTorch: nn.GELU(approximate="tanh"), F.gelu(approximate="tanh").
func (o ops) GeluTanh(x Tensor) Tensor { return o.tensor(o.b.Gelu(x.v, "tanh")) }

// draw names the variables that random ops draw with, declaring them once, and
// a site of its own.
func (m *Model) draw() ir.Draw {
	declare := func(kind ir.VarKind, d ir.DType, role string) *ir.Value {
		for _, v := range m.Graph().Vars {
			if v.Attr.Get("role") == role {
				return v
			}
		}
		var init *ir.Init
		if kind == ir.State {
			init = Fill(0).f
		}
		return m.root.Declare(kind, ir.Reserved+role, ir.T(d), init, ir.A("role", role))
	}
	return ir.Draw{Seed: declare(ir.State, ir.I64, "seed"), Attempt: declare(ir.State, ir.I32, "attempt"), Micro: declare(ir.Input, ir.I32, "micro"), Site: m.b.Site()}
}

// RandUniform draws evenly from lo to hi, other numbers in every step.
//
//   - Shapes: to [dims...].
//   - DTypes: float.
//   - Errors: d is not a float, lo above hi, or a dimension below 1.
//   - PyTorch: torch.rand, Tensor.uniform_.
func (m *Model) RandUniform(d DType, lo, hi float64, dims ...int) Tensor {
	return m.tensor(m.b.Uniform(d.ir(), lo, hi, m.draw(), wide(dims)...))
}

// RandNormal draws from a normal distribution, other numbers in every step.
//
//   - Shapes: to [dims...].
//   - DTypes: float.
//   - Errors: d is not a float, std below 0, or a dimension below 1.
//   - PyTorch: torch.randn, torch.normal.
func (m *Model) RandNormal(d DType, mean, std float64, dims ...int) Tensor {
	return m.tensor(m.b.Normal(d.ir(), mean, std, m.draw(), wide(dims)...))
}

// RandBernoulli draws 1 with probability p, else 0, other numbers in every step.
//
//   - Shapes: to [dims...].
//   - DTypes: float.
//   - Errors: d is not a float, p outside 0 to 1, or a dimension below 1.
//   - PyTorch: torch.bernoulli of one probability.
func (m *Model) RandBernoulli(d DType, p float64, dims ...int) Tensor {
	return m.tensor(m.b.Bernoulli(d.ir(), p, m.draw(), wide(dims)...))
}

// The methods of this file are compositions of a few ops. Gradients, dtypes and
// fusion are those of the ops that they build.

// composed returns what builds the inner values of a composition, and what
// builds its result, with the name that Named gave or else with name.
func (o ops) composed(name string) (inner, last ops) {
	return o.at(""), o.at(cmp.Or(o.b.NextName(), name))
}

// Stack joins tensors of one shape along a new axis.
//
//   - Shapes: n tensors x[...] to x's with a dimension of size n at axis; a negative axis counts from the end of the result.
//   - DTypes: any; the result has the widest.
//   - Errors: no tensor, shapes that differ, or an axis that the result does not have.
//   - PyTorch: torch.stack.
func (o ops) Stack(axis int, x ...Tensor) Tensor {
	inner, last := o.composed("stack")
	parts := make([]Tensor, len(x))
	for i, t := range x {
		if !o.given("stack", "", t) {
			return Tensor{}
		}
		parts[i] = inner.Unsqueeze(t, axis)
	}
	return last.Concat(axis, parts...)
}

// MaskedFill replaces the elements of x at which mask is true by value. No
// gradient flows into what is replaced.
//
//   - Shapes: x[...], mask broadcast with x to the broadcast shape.
//   - DTypes: x any, mask bool; the result has x's.
//   - Errors: mask is not a bool, or shapes that do not broadcast.
//   - PyTorch: torch.masked_fill, Tensor.masked_fill; value is a number.
func (o ops) MaskedFill(x, mask Tensor, value float64) Tensor {
	inner, last := o.composed("masked_fill")
	if !o.given("masked_fill", "", x) {
		return Tensor{}
	}
	return last.Where(mask, inner.Scalar(x.DType(), value), x)
}

// SmoothL1 is the mean of d²/(2·beta) where |d| is below beta, else |d| − beta/2,
// with d the difference of x and target. A beta of 0 makes it L1Loss.
//
//   - Shapes: x[...], target[...] of one shape to a scalar.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ, or beta below 0.
//   - PyTorch: nn.SmoothL1Loss, F.smooth_l1_loss; its beta is 1 by default.
func (o ops) SmoothL1(x, target Tensor, beta float64) Tensor {
	inner, last := o.composed("smooth_l1")
	if beta == 0 {
		return last.L1Loss(x, target)
	}
	return last.Affine(inner.Huber(x, target, beta), 1/beta, 0)
}

// NormalizeOptions are the options of Normalize.
type NormalizeOptions struct {
	Eps *float64 // the least norm that is divided by: new(1e-6); nil: 1e-12
}

// Normalize divides x by its Euclidean norm along an axis, or by Eps where the
// norm is smaller.
//
//   - Shapes: x[...] to the same.
//   - DTypes: float; squares are summed in f32, the result has x's.
//   - Errors: an axis that x does not have, or Eps below 1e-18, whose square f32 does not hold.
//   - PyTorch: F.normalize with p=2.
func (o ops) Normalize(x Tensor, axis int, opts ...NormalizeOptions) Tensor {
	eps := given(option(o, "normalize", opts).Eps, 1e-12)
	if !(eps >= 1e-18) {
		o.Fail("normalize: Eps is %g, want 1e-18 or more", eps)
	}
	inner, last := o.composed("normalize")
	squares := inner.ReduceSum(inner.Square(x), ReduceOptions{Axes: []int{axis}, Keep: true})
	return last.Mul(x, inner.Rsqrt(inner.Max(squares, inner.Scalar(F32, eps*eps))))
}

// ReduceStd is the standard deviation along axes, the root of ReduceVar. Its
// gradient is not finite where the deviation is 0.
//
//   - Shapes: x[...] to what is left of it; all axes unless options name some.
//   - DTypes: float; computed in f32, the result has x's.
//   - Errors: an axis that x does not have, or one named twice.
//   - PyTorch: torch.std, whose correction is 1 by default.
func (o ops) ReduceStd(x Tensor, correction int, opts ...ReduceOptions) Tensor {
	inner, last := o.composed("reduce_std")
	return last.Sqrt(inner.ReduceVar(x, correction, opts...))
}

// SwapAxes exchanges two dimensions.
//
//   - Shapes: x[...] to x's with dimensions i and j exchanged; negative ones count from the end.
//   - DTypes: any; the result has x's.
//   - Errors: a dimension that x does not have.
//   - PyTorch: torch.transpose, Tensor.mT with -2 and -1.
func (o ops) SwapAxes(x Tensor, i, j int) Tensor {
	if !o.given("swap_axes", "", x) {
		return Tensor{}
	}
	perm := make([]int, x.Rank())
	for k := range perm {
		perm[k] = k
	}
	for _, k := range []*int{&i, &j} {
		if *k < 0 {
			*k += len(perm)
		}
		if !slices.Contains(perm, *k) {
			o.Fail("swap_axes: %s has dimensions 0 to %d, and -1 to %d", x, len(perm)-1, -len(perm))
			return Tensor{}
		}
	}
	perm[i], perm[j] = j, i
	return o.Transpose(x, perm...)
}

// SortOptions are the options of Sort.
type SortOptions struct {
	Descending bool // the largest first
}

// Sort returns the elements in ascending order along an axis, and their indices.
//
//   - Shapes: x[...,n,...] to the same, twice; n is a number.
//   - DTypes: x float or integer; values have x's, indices are i32.
//   - Errors: an axis that x does not have, or one whose size is not known.
//   - PyTorch: torch.sort, torch.argsort; NaN is the largest; equal elements keep their order.
func (o ops) Sort(x Tensor, axis int, opts ...SortOptions) (values, indices Tensor) {
	if !o.given("sort", "", x) {
		return Tensor{}, Tensor{}
	}
	n := x.Dim(axis)
	if n < 1 {
		o.Fail("sort: axis %d of %s is not a dimension with a number for a size", axis, x)
		return Tensor{}, Tensor{}
	}
	return o.TopK(x, n, axis, TopKOptions{Smallest: !option(o, "sort", opts).Descending})
}

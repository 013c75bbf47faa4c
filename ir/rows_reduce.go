package ir

import (
	"fmt"
	"math"
	"slices"
)

const whySums = "long sums lose bits"

var keepAttr = AttrDef{Name: "keep", Kind: AttrBool, Doc: "reduced axes stay with size 1"}

// reduction completes the row of a function of all elements along axes.
func reduction(d Def) Def {
	if d.In == nil {
		d.In = in(Operand{Name: "x", ReadsLow: true})
	}
	d.Out = out(Result{Name: "y", StoresLow: true})
	d.Flags |= Equivariant | ReadsRows
	d.Items = reducesItems
	d.Attrs = append([]AttrDef{axesAttr, keepAttr}, d.Attrs...)
	if d.Infer == nil {
		d.Infer = inferReduce
	}
	if d.Class == NoClass {
		d.Class, d.Why = Keep, whySums
	}
	if d.Bound == nil {
		d.Bound = boundReduce
	}
	if d.Cost == nil {
		d.Cost = flops(0, 1)
	}
	return d
}

// ordering completes the row of a selection among the elements along axes.
func ordering(d Def) Def {
	d.In, d.Class, d.Why, d.Range = in(number("x")), Clear, whyOrder, within(0)
	d.Bound = func(*Node) Bound { return Bound{} }
	return reduction(d)
}

var reduceRows = map[Op]Def{
	OpReduceSum: reduction(Def{Name: "reduce_sum", Nonfinite: addedAsIs, Doc: "Sum along axes; integers wrap.", In: in(Operand{Name: "x", Kinds: KNum, ReadsLow: true}), Unit: UnitSame,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value { return []*Value{b.spread(n, d[0])} },
		Range: func(n *Node, in []Interval) []Interval {
			k := sure(n.In[0].Type.Shape, n.reduced())
			return []Interval{finite(k*in[0].Lo, k*in[0].Hi, in)}
		}}),
	OpReduceMean: reduction(Def{Name: "reduce_mean", Nonfinite: addedAsIs, Doc: "Mean along axes.", Unit: UnitSame, Range: within(0),
		Grad: func(b *Builder, n *Node, d []*Value) []*Value { return []*Value{b.perElement(n, b.spread(n, d[0]), 0)} }}),
	OpReduceVar: reduction(Def{Name: "reduce_var", Nonfinite: spoils, Doc: "Variance along axes: squared distances from the mean, summed and divided by their number less correction.", Unit: unitPower(2),
		Attrs: []AttrDef{{Name: "correction", Kind: AttrInt, Default: int64(0), Doc: "0: of the population, 1: of a sample"}}, Cost: flops(0, 4),
		Bound: func(n *Node) Bound { return Bound{ULP: 4, K: 2 * n.reduced()} },
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			x := n.In[0]
			centred := b.Sub(x, b.ReduceMean(x, true, ints64(n.Axes())...))
			return []*Value{b.perElement(n, b.Mul(b.Affine(b.spread(n, d[0]), 2, 0), centred), n.Int("correction"))}
		}}),
	OpReduceMax: ordering(Def{Name: "reduce_max", Nonfinite: largest, Doc: "Largest element along axes; NaN wins; equal ones share the gradient, which is NaN where the result is.", Unit: UnitSame, Grad: gradExtreme}),
	OpReduceMin: ordering(Def{Name: "reduce_min", Nonfinite: smallest, Doc: "Smallest element along axes; NaN wins; equal ones share the gradient, which is NaN where the result is.", Unit: UnitSame, Grad: gradExtreme}),
	OpReduceProd: reduction(Def{Name: "reduce_prod", Nonfinite: added, Doc: "Product along axes; integers wrap.", In: in(Operand{Name: "x", Kinds: KNum, ReadsLow: true}), Why: "products leave f16's range", Class: Keep, Grad: gradProd,
		Bound: func(n *Node) Bound { return Bound{ULP: float64(n.reduced())} }}),
	OpReduceL1: reduction(Def{Name: "reduce_l1", Nonfinite: addedUp, Doc: "Sum of absolute values along axes.", Unit: UnitSame,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.Mul(b.spread(n, d[0]), b.Sign(n.In[0]))}
		}}),
	OpReduceL2: reduction(Def{Name: "reduce_l2", Nonfinite: addedUp, Doc: "Square root of the sum of squares along axes; the gradient at zero is zero.", Unit: UnitSame, Cost: flops(0, 2),
		Bound: func(n *Node) Bound { return Bound{ULP: 2 + float64(n.reduced())} },
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			y := b.Clip(b.keptAxes(n, n.Out[0]), math.SmallestNonzeroFloat32, math.Inf(1))
			return []*Value{b.Mul(b.spread(n, d[0]), b.Div(n.In[0], y))}
		}}),
	OpLogSumExp: reduction(Def{Name: "logsumexp", Nonfinite: largest, Doc: "log Σ eˣ along axes, the largest x taken out first.", Class: Keep, Why: whyRange, Cost: flops(0, 4),
		Bound: func(n *Node) Bound { return Bound{ULP: 4 + float64(n.reduced()), K: 4} },
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.Mul(b.spread(n, d[0]), b.Exp(b.Sub(n.In[0], b.keptAxes(n, n.Out[0]))))}
		}}),
	OpArgmax: arg(Def{Name: "argmax", Doc: "Index of the largest element along an axis: the first of equal ones; NaN counts as the largest."}),
	OpArgmin: arg(Def{Name: "argmin", Doc: "Index of the smallest element along an axis: the first of equal ones; NaN counts as the smallest."}),
	OpCumsum: {
		Name: "cumsum", Nonfinite: whole(addedAsIs, func(n *Node) bool { return !n.Flag("exclusive") }), Doc: "Running sum along an axis; integers wrap.", In: in(Operand{Name: "x", Kinds: KNum, ReadsLow: true}), Out: out(Result{Name: "y", StoresLow: true}),
		Attrs: []AttrDef{alongAxis, {Name: "exclusive", Kind: AttrBool, Doc: "without the element itself"}, {Name: "reverse", Kind: AttrBool, Doc: "from the end"}},
		Class: Keep, Why: whySums, Unit: UnitSame, Infer: inferCumsum, Cost: flops(0, 1),
		Bound: func(n *Node) Bound { return Bound{K: size(dimOrUnknown(n.In[0], n.Int("axis")))} },
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.Cumsum(d[0], n.Int("axis"), n.Flag("exclusive"), !n.Flag("reverse"))}
		},
	},
	OpCummax: cumulative(Def{Name: "cummax", Nonfinite: largest, Doc: "Largest element so far along an axis, and its index: the last of equal ones; NaN wins."}),
	OpCummin: cumulative(Def{Name: "cummin", Nonfinite: smallest, Doc: "Smallest element so far along an axis, and its index: the last of equal ones; NaN wins."}),
	OpLinearScan: {
		Name: "linear_scan", Doc: "y[i] = a[i]·y[i−1] + x[i] along an axis, from y = 0: a linear recurrence.",
		In:  in(Operand{Name: "x", ReadsLow: true}, Operand{Name: "a", ReadsLow: true}),
		Out: out(Result{Name: "y", StoresLow: true}), Attrs: []AttrDef{alongAxis, {Name: "reverse", Kind: AttrBool, Doc: "from the end"}},
		Class: Keep, Why: whySums, Unit: unitLinearScan, Infer: inferLinearScan, Cost: flops(0, 2),
		Nonfinite: func(n *Node, i int, x Numbers) Numbers {
			if i == 0 || x == NaN {
				return addedAsIs(n, i, x)
			}
			return Nonfinite // an infinite factor of a number below 0, of 0, of one above
		},
		Bound: func(n *Node) Bound { return Bound{K: 2 * size(dimOrUnknown(n.In[0], n.Int("axis")))} },
		Grad:  gradLinearScan, Expand: expandLinearScan,
	},
	OpTopK: {
		Name: "topk", Doc: "The k largest elements along an axis, in descending order, and their indices; equal ones in index order; NaN counts as the largest.",
		In: in(number("x")), Out: out(Result{Name: "values"}, Result{Name: "indices", Class: Fixed}),
		Attrs: []AttrDef{{Name: "k", Kind: AttrInt, Required: true, Doc: "how many"}, {Name: "axis", Kind: AttrInt, Default: int64(-1), Doc: "counts from the end where negative"},
			{Name: "smallest", Kind: AttrBool, Doc: "the smallest in ascending order instead, NaN last"}},
		Class: Clear, Why: whyOrder, Unit: UnitSame, Infer: inferTopK, Bound: noBound,
		Range: func(_ *Node, in []Interval) []Interval { return []Interval{in[0], {Lo: 0, Hi: math.Inf(1)}} },
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			if d[0] == nil {
				return []*Value{nil}
			}
			return []*Value{b.ScatterAdd(b.zerosLike(n.In[0]), n.Out[1], d[0], n.Int("axis"))}
		},
	},
	OpSumTo: {
		Name: "sum_to", Nonfinite: only(addedAsIs, "x"), Doc: "Sums the dimensions away that broadcasting to the operand's shape had added: the gradient of broadcasting.",
		In: in(Operand{Name: "x", ReadsLow: true}, likeIn), Out: out(Result{Name: "y", StoresLow: true}), Attrs: []AttrDef{shapeAttr},
		Class: Keep, Why: whySums, Unit: unitFirst, Infer: inferSumTo, Cost: flops(0, 1),
		Bound: func(n *Node) Bound { return Bound{K: count(n.In[0].Type) / max(count(n.Out[0].Type), 1)} },
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.broadcastLike(d[0], n.In[0]), nil}
		},
	},
}

// arg completes the row of an index along an axis.
func arg(d Def) Def {
	d.In, d.Out = in(number("x")), out(Result{Name: "index", Class: Fixed})
	d.Attrs = []AttrDef{alongAxis, keepAttr}
	d.Class, d.Why, d.Unit, d.NoGrad = Clear, whyOrder, UnitAny, "not a float"
	d.Infer, d.Bound = inferArg, noBound
	return d
}

// cumulative completes the row of a running extremum.
func cumulative(d Def) Def {
	d.In, d.Out = in(number("x")), out(Result{Name: "values"}, Result{Name: "indices", Class: Fixed})
	d.Attrs = []AttrDef{alongAxis}
	d.Class, d.Why, d.Unit, d.Bound = Clear, whyOrder, UnitSame, noBound
	d.Range = func(_ *Node, in []Interval) []Interval { return []Interval{in[0], {Lo: 0, Hi: math.Inf(1)}} }
	d.Infer = func(n *Node) ([]Type, error) {
		x := n.In[0]
		if x.Type.Shape.Known() {
			if _, err := axisOf(n.Int("axis"), x.Type.Shape.Rank()); err != nil {
				return nil, err
			}
		}
		return []Type{x.Type, x.Type.With(I64)}, n.bare()
	}
	d.Grad = func(b *Builder, n *Node, d []*Value) []*Value {
		if d[0] == nil {
			return []*Value{nil}
		}
		return []*Value{b.ScatterAdd(b.zerosLike(n.In[0]), n.Out[1], d[0], n.Int("axis"))}
	}
	return d
}

func inferArg(n *Node) ([]Type, error) {
	if err := n.bare(); err != nil {
		return nil, err
	}
	s := n.In[0].Type.Shape
	if !s.Known() {
		return []Type{{DType: I64}}, nil
	}
	d := s.Dims()
	axis, err := axisOf(n.Int("axis"), len(d))
	switch {
	case err != nil:
		return nil, err
	case d[axis] == 0:
		return nil, fmt.Errorf("axis %d of %s %s is empty", axis, n.In[0], n.In[0].Type)
	case n.Flag("keep"):
		d[axis] = 1
	default:
		d = slices.Delete(d, axis, axis+1)
	}
	return []Type{{I64, MakeShape(d...)}}, nil
}

func inferCumsum(n *Node) ([]Type, error) {
	x := n.In[0]
	if x.Type.Shape.Known() {
		if _, err := axisOf(n.Int("axis"), x.Type.Shape.Rank()); err != nil {
			return nil, err
		}
	}
	if !x.Type.DType.Float() {
		return []Type{x.Type}, n.checkElemOut(x.Type.DType)
	}
	return []Type{x.Type.With(n.keptDType())}, n.checkOut()
}

func inferLinearScan(n *Node) ([]Type, error) {
	x, a := n.In[0], n.In[1]
	if s, t := x.Type.Shape, a.Type.Shape; s.Known() && t.Known() && (s.Rank() != t.Rank() || !sameSizes(s, t)) {
		return nil, fmt.Errorf("shapes differ: x %s %s, a %s %s", x, x.Type, a, a.Type)
	}
	return inferCumsum(n)
}

// unitLinearScan is the unit of x. a has none: it is multiplied as often as there are elements.
func unitLinearScan(n *Node) (Unit, error) {
	if a := n.In[1]; a.Unit != "" {
		return "", fmt.Errorf("%s multiplies by %s again and again, which carries the loss scale %s; unscale it first", n.Name(), at(a), a.Unit)
	}
	return n.In[0].Unit, nil
}

// gradLinearScan sums the gradients of everything computed from y[i]: s[i] = d[i] + a[i+1]·s[i+1],
// a scan in the other direction. The gradient of x[i] is s[i], that of a[i] is s[i]·y[i−1].
func gradLinearScan(b *Builder, n *Node, d []*Value) []*Value {
	before := int64(1) // shifted by one, so that y[i−1] has index i
	if n.Flag("reverse") {
		before = -1
	}
	s := b.linearScan(d[0], b.shifted(n.In[1], n.Axis(), -before), n.Int("axis"), !n.Flag("reverse"))
	return []*Value{s, b.Mul(s, b.shifted(n.Out[0], n.Axis(), before))}
}

// expandLinearScan doubles the number of elements summed in each pass, after Hillis and Steele,
// "Data parallel algorithms" (1986).
func expandLinearScan(b *Builder, n *Node) []*Value {
	axis := n.Axis()
	size := n.In[0].Type.Shape.Dim(axis)
	if size < 0 {
		b.needsSizes(n.In[0].Type, "linear_scan: needs the size of axis %d of %s, which has type %s", axis, n.In[0], b.g.TypeString(n.In[0].Type))
		return nil
	}
	y, a := b.castTo(n.In[0], n.statDType()), b.castTo(n.In[1], n.statDType())
	for step := int64(1); step < int64(size); step *= 2 {
		by := step
		if n.Flag("reverse") {
			by = -step
		}
		y, a = b.Add(y, b.Mul(a, b.shifted(y, axis, by))), b.Mul(a, b.shifted(a, axis, by))
	}
	return []*Value{y}
}

// shifted moves the elements of x along an axis by some places towards the end,
// or the front where by is below 0; zeros follow.
func (b *Builder) shifted(x *Value, axis int, by int64) *Value {
	if b.err != nil || x == nil {
		return nil
	}
	if x.Type.Shape.Rank() <= axis {
		b.Fail("linear_scan: needs the rank of %s, which has type %s", x, b.g.TypeString(x.Type))
		return nil
	}
	lo, hi := make([]int64, x.Type.Shape.Rank()), make([]int64, x.Type.Shape.Rank())
	lo[axis], hi[axis] = by, -by
	return b.Pad(x, lo, hi, 0)
}

func inferTopK(n *Node) ([]Type, error) {
	x, k := n.In[0], n.Int("k")
	t := x.Type
	if t.Shape.Known() {
		d := t.Shape.Dims()
		axis, err := axisOf(n.Int("axis"), len(d))
		if err != nil {
			return nil, err
		}
		if k < 0 || d[axis] >= 0 && k > int64(d[axis]) {
			return nil, fmt.Errorf("k is %d, axis %d of %s %s has %d", k, axis, x, x.Type, d[axis])
		}
		d[axis] = Dim(k)
		t.Shape = MakeShape(d...)
	}
	return []Type{t, t.With(I64)}, n.bare()
}

// inferReduce infers the type of a reduction: f32 by default, the operand's dtype for selections
// and integers.
func inferReduce(n *Node) ([]Type, error) {
	d := n.In[0].Type.DType
	switch {
	case !d.Float():
	case n.Def().Class == Clear:
		d = n.outDType(d)
	default:
		d = n.keptDType()
	}
	s, err := n.reducedShape()
	if err != nil {
		return nil, err
	}
	return []Type{{d, s}}, n.checkElemOut(d)
}

func (n *Node) reducedShape() (Shape, error) {
	s := n.In[0].Type.Shape
	if !s.Known() {
		return s, nil
	}
	if _, err := axesOf(n.Ints("axes"), s.Rank()); err != nil {
		return s, err
	}
	d := s.Dims()
	gone := map[int]bool{}
	for _, a := range n.Axes() {
		gone[a] = true
	}
	kept := make([]Dim, 0, len(d))
	for i, x := range d {
		switch {
		case !gone[i]:
			kept = append(kept, x)
		case n.Flag("keep"):
			kept = append(kept, 1)
		}
	}
	return MakeShape(kept...), nil
}

// reduced is the number of elements of one result, with symbols at their default.
func (n *Node) reduced() int64 { return count(n.In[0].Type) / max(count(n.Out[0].Type), 1) }

func boundReduce(n *Node) Bound { return Bound{K: n.reduced()} }

// keptAxes gives a reduction's result (or its gradient) the axes of size 1 back.
func (b *Builder) keptAxes(n *Node, v *Value) *Value {
	axes := n.Axes()
	if v == nil || n.Flag("keep") || len(axes) == 0 {
		return v
	}
	return b.Unsqueeze(v, ints64(axes)...)
}

// spread repeats a reduction's gradient over the elements reduced.
func (b *Builder) spread(n *Node, d *Value) *Value { return b.broadcastLike(b.keptAxes(n, d), n.In[0]) }

// perElement divides v by how many elements n reduces to one, less correction.
func (b *Builder) perElement(n *Node, v *Value, correction int64) *Value {
	return b.share(v, n.In[0], correction, ints64(n.Axes()))
}

// share divides v by the number of x's elements along axes, less correction: a
// constant where the sizes are known, else counted when the graph runs.
func (b *Builder) share(v, x *Value, correction int64, axes []int64) *Value {
	if b.err != nil || v == nil {
		return nil
	}
	k := Dim(1)
	for _, a := range axes {
		k = mulDims(k, x.Type.Shape.Dim(int(a)))
	}
	if k >= 0 {
		return b.Affine(v, 1/float64(int64(k)-correction), 0)
	}
	ones := b.one(OpFull, []*Value{x}, A("value", 1.0, "dtype", F32))
	return b.Div(v, b.Affine(b.ReduceSum(ones, true, axes...), 1, -float64(correction)))
}

// gradExtreme divides the gradient among the elements equal to the result. If the result is NaN,
// none is equal, and all gradients are NaN, which a check finds.
func gradExtreme(b *Builder, n *Node, d []*Value) []*Value {
	hit := b.Eq(n.In[0], b.keptAxes(n, n.Out[0]))
	ties := b.ReduceSum(b.Cast(hit, F32), true, ints64(n.Axes())...)
	return []*Value{b.Mul(b.Div(b.keptAxes(n, d[0]), ties), b.Cast(hit, F32))}
}

// gradProd is the product of the other elements, zeros included: if one element is zero, only it
// has a nonzero gradient; if several are, none has.
func gradProd(b *Builder, n *Node, d []*Value) []*Value {
	x, axes := n.In[0], ints64(n.Axes())
	zero := b.Eq(x, b.Scalar(x.Type.DType, 0))
	zeros := b.ReduceSum(b.Cast(zero, F32), true, axes...)
	filled := b.Where(zero, b.Scalar(x.Type.DType, 1), x)
	rest := b.Div(b.ReduceProd(filled, true, axes...), filled)
	others := b.Sub(zeros, b.Cast(zero, F32))
	return []*Value{b.Mul(b.spread(n, d[0]), b.Where(b.Eq(others, b.Scalar(F32, 0)), rest, nil))}
}

func inferSumTo(n *Node) ([]Type, error) {
	x := n.In[0]
	if err := firstError(n.checkOut(), n.checkShapeAttr(1)); err != nil {
		return nil, err
	}
	t := Type{n.keptDType(), MakeShape(dimsOf(n.Ints("shape"))...)}
	if v := n.like(); v != nil {
		t.Shape = v.Type.Shape
	}
	if got, ok := Broadcast(t.Shape, x.Type.Shape); !ok || x.Type.Shape.Known() && t.Shape.Known() && (got.Rank() != x.Type.Shape.Rank() || !sameSizes(got, x.Type.Shape)) {
		return nil, fmt.Errorf("%s does not broadcast to %s %s", t, x, x.Type)
	}
	return []Type{t}, nil
}

func (b *Builder) reduce(op Op, x *Value, keep bool, axes []int64) *Value {
	return b.one(op, []*Value{x}, reduceAttrs(keep, axes))
}

func reduceAttrs(keep bool, axes []int64) Attrs {
	a := A("keep", keep)
	if len(axes) > 0 {
		a = a.With("axes", axes)
	}
	return a
}

// ReduceSum sums along axes (none: all); keep leaves them with size 1.
func (b *Builder) ReduceSum(x *Value, keep bool, axes ...int64) *Value {
	return b.reduce(OpReduceSum, x, keep, axes)
}

// ReduceMean averages along axes (none: all).
func (b *Builder) ReduceMean(x *Value, keep bool, axes ...int64) *Value {
	return b.reduce(OpReduceMean, x, keep, axes)
}

// ReduceVar is the variance along axes (none: all), with the number of
// elements less correction as divisor.
func (b *Builder) ReduceVar(x *Value, correction int64, keep bool, axes ...int64) *Value {
	return b.one(OpReduceVar, []*Value{x}, reduceAttrs(keep, axes).With("correction", correction))
}

// ReduceMax is the largest element along axes (none: all).
func (b *Builder) ReduceMax(x *Value, keep bool, axes ...int64) *Value {
	return b.reduce(OpReduceMax, x, keep, axes)
}

// ReduceMin is the smallest element along axes (none: all).
func (b *Builder) ReduceMin(x *Value, keep bool, axes ...int64) *Value {
	return b.reduce(OpReduceMin, x, keep, axes)
}

// ReduceProd multiplies along axes (none: all).
func (b *Builder) ReduceProd(x *Value, keep bool, axes ...int64) *Value {
	return b.reduce(OpReduceProd, x, keep, axes)
}

// ReduceL1 sums absolute values along axes (none: all).
func (b *Builder) ReduceL1(x *Value, keep bool, axes ...int64) *Value {
	return b.reduce(OpReduceL1, x, keep, axes)
}

// ReduceL2 is the Euclidean norm along axes (none: all).
func (b *Builder) ReduceL2(x *Value, keep bool, axes ...int64) *Value {
	return b.reduce(OpReduceL2, x, keep, axes)
}

// LogSumExp is log Σ eˣ along axes (none: all), which vanish.
func (b *Builder) LogSumExp(x *Value, axes ...int64) *Value {
	return b.reduce(OpLogSumExp, x, false, axes)
}

// Argmax is the index of the largest element along an axis.
func (b *Builder) Argmax(x *Value, axis int64, keep bool) *Value {
	return b.one(OpArgmax, []*Value{x}, A("axis", axis, "keep", keep))
}

// Argmin is the index of the smallest element along an axis.
func (b *Builder) Argmin(x *Value, axis int64, keep bool) *Value {
	return b.one(OpArgmin, []*Value{x}, A("axis", axis, "keep", keep))
}

// Cumsum is the running sum along an axis; exclusive leaves the element itself
// out, reverse starts at the end.
func (b *Builder) Cumsum(x *Value, axis int64, exclusive, reverse bool) *Value {
	return b.one(OpCumsum, []*Value{x}, A("axis", axis, "exclusive", exclusive, "reverse", reverse))
}

// Cummax is the largest element so far along an axis, and its index: the last of equal ones. NaN wins.
//
//   - Shapes: x[...] to the same, twice.
//   - DTypes: x float or integer; values have x's, indices are i64.
//   - Errors: an axis that x does not have.
//   - PyTorch: torch.cummax.
func (b *Builder) Cummax(x *Value, axis int64) (values, indices *Value) {
	y := b.Emit(OpCummax, []*Value{x}, A("axis", axis))
	return y[0], y[1]
}

// Cummin is the smallest element so far along an axis, and its index: the last of equal ones. NaN wins.
//
//   - Shapes: x[...] to the same, twice.
//   - DTypes: x float or integer; values have x's, indices are i64.
//   - Errors: an axis that x does not have.
//   - PyTorch: torch.cummin.
func (b *Builder) Cummin(x *Value, axis int64) (values, indices *Value) {
	y := b.Emit(OpCummin, []*Value{x}, A("axis", axis))
	return y[0], y[1]
}

// LinearScan is the recurrence y[i] = a[i]·y[i−1] + x[i] along an axis, which
// starts from 0: state space models, moving averages, discounted returns. With
// x zero except for its first element it is the running product of a.
//
//   - Shapes: x[...], a[...] of one shape to the same.
//   - DTypes: floats; computed in f32, the result has x's.
//   - Errors: shapes that differ, or an axis that x does not have.
//   - PyTorch: none; a loop of y = a[i] * y + x[i]. torch.cumprod is one of 1 and zeros.
func (b *Builder) LinearScan(x, a *Value, axis int64) *Value {
	return b.linearScan(x, a, axis, false)
}

func (b *Builder) linearScan(x, a *Value, axis int64, reverse bool) *Value {
	return b.one(OpLinearScan, []*Value{x, a}, A("axis", axis, "reverse", reverse))
}

// TopK returns the k largest (or smallest) elements along an axis, in order,
// and their indices.
func (b *Builder) TopK(x *Value, k, axis int64, smallest bool) (values, indices *Value) {
	y := b.Emit(OpTopK, []*Value{x}, A("k", k, "axis", axis, "smallest", smallest))
	return y[0], y[1]
}

// sumTo sums d to the shape that v had before broadcasting; nil stays nil.
func (b *Builder) sumTo(d, v *Value) *Value {
	if b.err != nil || d == nil || d.Type.Shape == v.Type.Shape {
		return d
	}
	a, like := shapeOf(v)
	if v.Type.Shape.Rank() == 0 && v.Type.Shape.Known() {
		return b.ReduceSum(d, false)
	}
	return b.one(OpSumTo, values(d, like), a)
}

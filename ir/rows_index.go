package ir

import (
	"fmt"
	"slices"
)

// ids is an operand of integers that select elements of operand 0.
func ids(name string) Operand { return Operand{Name: name, Kinds: KInt, Class: Fixed, Selects: true} }

var alongAxis = AttrDef{Name: "axis", Kind: AttrInt, Doc: "counts from the end where negative"}

var indexRows = map[Op]Def{
	OpFull: {
		Name: "full", Doc: "One number everywhere.", In: in(likeIn), Out: out(Result{Name: "y"}),
		Attrs: []AttrDef{shapeAttr, {Name: "value", Kind: AttrFloat, Default: 0.0, Entry: Fills, Doc: "the number, rounded to the dtype"}, {Name: "dtype", Kind: AttrDType, Default: F32, Doc: "of the result"}},
		Class: Fixed, Why: "a constant has the dtype it was given", Unit: UnitAny, NoGrad: "reads no float", Infer: inferFull,
		Elem: func(c *Code, n *Node) []Reg { return []Reg{c.number(RegType(n.DT("dtype")), n.Float("value"))} },
		Range: func(n *Node, _ []Interval) []Interval {
			v := n.Float("value")
			return []Interval{{v, v, v != v}}
		},
	},
	OpIota: {
		Name: "iota", Doc: "The index along an axis: 0, 1, 2, ...", In: nil, Out: out(Result{Name: "y"}),
		Attrs: []AttrDef{{Name: "shape", Kind: AttrInts, Required: true, Doc: "of the result"}, alongAxis, {Name: "dtype", Kind: AttrDType, Default: I32, Doc: "of the result"}},
		Class: Fixed, Why: "a constant has the dtype it was given", Unit: UnitAny, NoGrad: "reads no float", Infer: inferIota,
		Bound: noBound,
	},
	OpOneHot: {
		Name: "one_hot", Doc: "1 at the id along a new axis of size depth, 0 elsewhere; an id outside 0..depth-1 gives zeros only.",
		In: in(Operand{Name: "ids", Kinds: KInt, Class: Fixed}), Out: out(Result{Name: "y"}),
		Attrs: []AttrDef{{Name: "depth", Kind: AttrInt, Required: true, Doc: "size of the new axis"}, {Name: "axis", Kind: AttrInt, Default: int64(-1), Doc: "its place in the result"},
			{Name: "dtype", Kind: AttrDType, Default: F32, Doc: "of the result"}},
		Class: Fixed, Why: "0 and 1 are exact in every dtype", Unit: UnitAny, NoGrad: "reads no float", Infer: inferOneHot, Range: bit, Bound: noBound,
	},
	OpGather: moving(Def{
		Name: "gather", Doc: "Picks whole slices along an axis: the ids' shape stands in place of the axis; an id outside the axis is an error on the host.",
		In: in(Operand{Name: "x", Kinds: KAny}, ids("ids")), Attrs: []AttrDef{alongAxis}, Infer: inferGather, Grad: gradGather,
	}),
	OpGatherElements: moving(Def{
		Name: "gather_elements", Doc: "Picks single elements along an axis: y[i,j] = x[ids[i,j],j] for axis 0; an id outside the axis is an error on the host.",
		In: in(Operand{Name: "x", Kinds: KAny}, ids("ids")), Attrs: []AttrDef{alongAxis}, Infer: inferGatherElements,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.ScatterAdd(b.zerosLike(n.In[0]), n.In[1], d[0], n.Int("axis")), nil}
		},
	}),
	OpScatter: {
		Name: "scatter", Doc: "x with single elements along an axis replaced: y[ids[i,j],j] = updates[i,j] for axis 0; where an id comes twice the later one stays, and both get its gradient.",
		In: in(Operand{Name: "x", Kinds: KAny}, ids("ids"), Operand{Name: "updates", Kinds: KAny}), Out: out(Result{Name: "y"}), Attrs: []AttrDef{alongAxis},
		Flags: Moves | InPlace, Class: PromoteC, Why: whyWider, Unit: UnitSame, Infer: inferScatter,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			axis := n.Int("axis")
			return []*Value{b.Scatter(d[0], n.In[1], b.zerosLike(n.In[2]), axis), nil, b.GatherElements(d[0], n.In[1], axis)}
		},
	},
	OpScatterAdd: {
		Name: "scatter_add", Nonfinite: only(addedAsIs, "x", "updates"), Doc: "x with updates added to single elements along an axis, in the order of updates: y[ids[i,j],j] += updates[i,j] for axis 0.",
		In:  in(Operand{Name: "x", ReadsLow: true}, ids("ids"), Operand{Name: "updates", ReadsLow: true}),
		Out: out(Result{Name: "y", StoresLow: true}), Attrs: []AttrDef{alongAxis},
		Flags: InPlace, Class: Keep, Why: whySums, Unit: UnitSame, Infer: inferScatter,
		Bound: func(n *Node) Bound { return Bound{K: size(dimOrUnknown(n.In[1], n.Int("axis"))) + 1} },
		Cost:  flops(2, 1),
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{d[0], nil, b.GatherElements(d[0], n.In[1], n.Int("axis"))}
		},
	},
	OpResize: {
		Name: "resize", Doc: "Samples the spatial axes at another size, to the nearest element or linearly.",
		In: in(Operand{Name: "x", ReadsLow: true}), Out: out(Result{Name: "y", StoresLow: true}), Attrs: resizeAttrs,
		Class: Keep, Why: "weights need their bits", Unit: UnitSame, Infer: inferResize, Range: within(0),
		Bound: boundResize, Cost: flops(0, 4),
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.resampled(OpResizeGrad, n, d[0], n.In[0])}
		},
	},
	OpResizeGrad: {
		Name: "resize_grad", Doc: "The transpose of resize: every element of dy goes back to those it was sampled from.",
		In: in(Operand{Name: "dy", ReadsLow: true}), Out: out(Result{Name: "dx", StoresLow: true}), Attrs: resizeAttrs,
		Class: Keep, Why: whySums, Unit: UnitSame, GradOf: OpResize, Infer: inferResize,
		Bound: boundResize, Cost: flops(0, 4),
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.resampled(OpResize, n, d[0], n.In[0])}
		},
	},
}

func noBound(*Node) Bound { return Bound{} }

func bit(*Node, []Interval) []Interval { return []Interval{{Lo: 0, Hi: 1}} }

// number is a constant register of type t.
func (c *Code) number(t DType, x float64) Reg {
	if t.Float() {
		return c.Conv(c.F(x), t)
	}
	return c.emit(Instr{Op: PConst, Type: t, Int: int64(x)})
}

func dimOrUnknown(v *Value, axis int64) Dim {
	a, err := axisOf(axis, v.Type.Shape.Rank())
	if err != nil {
		return UnknownDim
	}
	return v.Type.Shape.Dim(a)
}

// checkDType fails if the dtype attribute cannot be computed.
func (n *Node) checkDType() error {
	if d := n.DT("dtype"); d == E4M3 || d == E5M2 {
		return fmt.Errorf("%s is reserved and cannot be computed yet", d)
	}
	if n.Has("out") {
		return fmt.Errorf("the attribute dtype gives the dtype of the result: out does not apply")
	}
	return nil
}

func sizesOf(shape []int64) ([]Dim, error) {
	for _, k := range shape {
		if k < 0 {
			return nil, fmt.Errorf("shape %s has the size %d", literal(shape), k)
		}
	}
	return dimsOf(shape), CheckDims(dimsOf(shape))
}

func inferFull(n *Node) ([]Type, error) {
	if err := n.checkDType(); err != nil {
		return nil, err
	}
	if v := n.like(); v != nil {
		return []Type{v.Type.With(n.DT("dtype"))}, n.checkShapeAttr(0)
	}
	d, err := sizesOf(n.Ints("shape"))
	return []Type{{n.DT("dtype"), MakeShape(d...)}}, err
}

func inferIota(n *Node) ([]Type, error) {
	d, err := sizesOf(n.Ints("shape"))
	if err == nil {
		_, err = axisOf(n.Int("axis"), len(d))
	}
	if n.DT("dtype") == Bool && err == nil {
		err = fmt.Errorf("cannot count in bool")
	}
	return []Type{{n.DT("dtype"), MakeShape(d...)}}, firstError(err, n.checkDType())
}

func inferOneHot(n *Node) ([]Type, error) {
	if err := n.checkDType(); err != nil {
		return nil, err
	}
	if n.Int("depth") < 0 {
		return nil, fmt.Errorf("depth is %d", n.Int("depth"))
	}
	t := Type{DType: n.DT("dtype")}
	if n.In[0].Type.Shape.Known() {
		d := n.In[0].Type.Shape.Dims()
		axis, err := axisOf(n.Int("axis"), len(d)+1)
		if err == nil {
			d = slices.Insert(d, axis, Dim(n.Int("depth")))
			err = CheckDims(d)
		}
		if err != nil {
			return nil, err
		}
		t.Shape = MakeShape(d...)
	}
	return []Type{t}, nil
}

func inferGather(n *Node) ([]Type, error) {
	x, at := n.In[0].Type, n.In[1].Type
	t := Type{DType: x.DType}
	if !x.Shape.Known() || !at.Shape.Known() {
		return []Type{t}, n.bare()
	}
	d := x.Shape.Dims()
	axis, err := axisOf(n.Int("axis"), len(d))
	if err != nil {
		return nil, err
	}
	d = slices.Replace(d, axis, axis+1, at.Shape.Dims()...)
	if err := CheckDims(d); err != nil {
		return nil, err
	}
	t.Shape = MakeShape(d...)
	return []Type{t}, n.bare()
}

// gradGather sums slices with the same id. It is the gradient of an embedding after the axis is
// moved to the front.
func gradGather(b *Builder, n *Node, d []*Value) []*Value {
	x := n.In[0]
	if !b.staticFor(n, x) || !b.staticFor(n, n.In[1]) {
		return []*Value{nil, nil}
	}
	axis := n.Axis()
	s := x.Type.Shape.Dims()
	outer, rows := MakeShape(s[:axis]...).Elements(), int64(s[axis])
	inner, picks := MakeShape(s[axis+1:]...).Elements(), n.In[1].Type.Shape.Elements()
	dy := b.Reshape(b.Transpose(b.reshapeTo(d[0], []Dim{Dim(outer), Dim(picks), Dim(inner)}), 1, 0, 2), picks, outer*inner)
	g := b.embeddingGrad(dy, b.Reshape(n.In[1], picks), rows)
	g = b.Transpose(b.Reshape(g, rows, outer, inner), 1, 0, 2)
	return []*Value{b.reshapeLike(g, x), nil}
}

// checkIds checks that ids has x's rank and the same sizes beside the axis.
func (n *Node) checkIds() error {
	x, at := n.In[0], n.In[1]
	if !x.Type.Shape.Known() || !at.Type.Shape.Known() {
		return nil
	}
	d, e := x.Type.Shape.Dims(), at.Type.Shape.Dims()
	axis, err := axisOf(n.Int("axis"), len(d))
	if err != nil {
		return err
	}
	ok := len(d) == len(e)
	for i := 0; ok && i < len(d); i++ {
		ok = i == axis || fits(d[i], e[i]) || e[i] >= 0 && e[i] <= d[i]
	}
	if !ok {
		return fmt.Errorf("ids %s %s do not fit into %s %s beside axis %d", at, at.Type, x, x.Type, axis)
	}
	return nil
}

func inferGatherElements(n *Node) ([]Type, error) {
	return []Type{n.In[1].Type.With(n.In[0].Type.DType)}, firstError(n.checkIds(), n.bare())
}

func inferScatter(n *Node) ([]Type, error) {
	at, u := n.In[1], n.In[2]
	if at.Type.Shape.Known() && u.Type.Shape.Known() && at.Type.Shape != u.Type.Shape && at.Type.Shape.Static() && u.Type.Shape.Static() {
		return nil, fmt.Errorf("ids %s %s and updates %s %s differ in shape", at, at.Type, u, u.Type)
	}
	x := n.In[0]
	if (x.Type.DType == Bool) != (u.Type.DType == Bool) || x.Type.DType.Float() != u.Type.DType.Float() {
		return nil, fmt.Errorf("cannot put %s %s into %s %s", u, u.Type, x, x.Type)
	}
	d := meetDTypes(x.Type.DType, u.Type.DType)
	switch {
	case !d.Float():
	case n.Def().Class == Keep:
		d = n.keptDType()
	default:
		d = n.outDType(d)
	}
	return []Type{x.Type.With(d)}, firstError(n.checkIds(), n.checkElemOut(d))
}

// Full returns a tensor of one number.
//
//   - Shapes: to shape.
//   - DTypes: d.
//   - Errors: a dimension below 1.
//   - PyTorch: torch.full, torch.zeros, torch.ones.
func (b *Builder) Full(d DType, value float64, shape ...int64) *Value {
	a := A("dtype", d, "value", value)
	if len(shape) > 0 {
		a = a.With("shape", shape)
	}
	return b.one(OpFull, nil, a)
}

// Scalar returns one number without axes.
//
//   - Shapes: to a scalar.
//   - DTypes: d.
//   - Errors: none.
//   - PyTorch: torch.tensor of one number.
func (b *Builder) Scalar(d DType, value float64) *Value { return b.Full(d, value) }

// zerosLike returns zeros of v's type.
func (b *Builder) zerosLike(v *Value) *Value {
	if b.err != nil || v == nil {
		return nil
	}
	a, like := shapeOf(v)
	return b.one(OpFull, values(like), a.With("dtype", v.Type.DType))
}

// Iota returns the index along an axis of a shape.
//
//   - Shapes: to shape.
//   - DTypes: d.
//   - Errors: an axis that the shape does not have.
//   - PyTorch: torch.arange, in any shape.
func (b *Builder) Iota(d DType, axis int64, shape ...int64) *Value {
	return b.one(OpIota, nil, A("dtype", d, "axis", axis, "shape", shape))
}

// OneHot returns 1 at the id along a new axis of size depth.
//
//   - Shapes: ids[...] to ids' with an axis of size depth more.
//   - DTypes: ids i32 or i64; the result is d.
//   - Errors: an axis that the result does not have.
//   - PyTorch: F.one_hot, whose axis is the last.
func (b *Builder) OneHot(ids *Value, depth, axis int64, d DType) *Value {
	return b.one(OpOneHot, []*Value{ids}, A("depth", depth, "axis", axis, "dtype", d))
}

// Gather picks whole slices of x along an axis.
//
//   - Shapes: x[...,n,...], ids[...] to [...,ids...,...].
//   - DTypes: x any, ids i32 or i64; the result has x's.
//   - Errors: an axis that x does not have. An id outside the axis is an error of the step's result on the CPU.
//   - PyTorch: torch.index_select, whose index has one dimension.
func (b *Builder) Gather(x, ids *Value, axis int64) *Value {
	return b.one(OpGather, []*Value{x, ids}, A("axis", axis))
}

// GatherElements picks single elements of x along an axis.
//
//   - Shapes: x[...,n,...], ids of x's rank to ids'.
//   - DTypes: x any, ids i32 or i64; the result has x's.
//   - Errors: ranks that differ, or an axis that x does not have.
//   - PyTorch: torch.gather.
func (b *Builder) GatherElements(x, ids *Value, axis int64) *Value {
	return b.one(OpGatherElements, []*Value{x, ids}, A("axis", axis))
}

// Scatter is x with single elements along an axis replaced.
//
//   - Shapes: x[...], ids and updates of one shape to x's.
//   - DTypes: x and updates any one, ids i32 or i64.
//   - Errors: shapes that do not fit.
//   - PyTorch: torch.scatter.
func (b *Builder) Scatter(x, ids, updates *Value, axis int64) *Value {
	return b.one(OpScatter, []*Value{x, ids, updates}, A("axis", axis))
}

// ScatterAdd is x with updates added to single elements along an axis.
//
//   - Shapes: x[...], ids and updates of one shape to x's.
//   - DTypes: x and updates floats or integers, ids i32 or i64.
//   - Errors: shapes that do not fit.
//   - PyTorch: torch.scatter_add.
func (b *Builder) ScatterAdd(x, ids, updates *Value, axis int64) *Value {
	return b.one(OpScatterAdd, []*Value{x, ids, updates}, A("axis", axis))
}

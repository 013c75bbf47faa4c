package ir

import (
	"fmt"
	"math"
	"slices"
)

var shapeRows = map[Op]Def{
	OpReshape: moving(Def{
		Name: "reshape", Nonfinite: only(passed, "x"), Doc: "The same elements in row-major order under another shape; -1 stands for what is left, 0 for the operand's size at that place.",
		In: in(Operand{Name: "x", Kinds: KAny}, likeIn), Flags: View, Attrs: []AttrDef{shapeAttr}, Infer: inferReshape, Items: sameItems,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value { return []*Value{b.reshapeLike(d[0], n.In[0]), nil} },
	}),
	OpTranspose: moving(Def{
		Name: "transpose", Nonfinite: passed, Doc: "Permutes the axes: result axis i is operand axis perm[i].",
		Attrs: []AttrDef{{Name: "perm", Kind: AttrInts, Required: true, Doc: "a permutation of 0..rank-1"}, viewAttr}, Part: &PartRow{transposed, transposedBack}, Infer: inferTranspose,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.Transpose(d[0], inversePerm(n.Ints("perm"))...)}
		},
	}),
	OpBroadcast: moving(Def{
		Name: "broadcast", Nonfinite: only(passed, "x"), Doc: "Repeats along axes of size 1 and new leading axes; -1 keeps the operand's size.",
		In: in(Operand{Name: "x", Kinds: KAny}, likeIn), Attrs: []AttrDef{shapeAttr}, Infer: inferBroadcastTo,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value { return []*Value{b.sumTo(d[0], n.In[0]), nil} },
	}),
	OpSqueeze: moving(Def{
		Name: "squeeze", Nonfinite: passed, Doc: "Drops axes of size 1.", Flags: View, Attrs: []AttrDef{requiredAxes}, Infer: inferSqueeze,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			if len(n.Ints("axes")) == 0 { // no dimension was dropped
				return d[:1]
			}
			return []*Value{b.Unsqueeze(d[0], ints64(n.Axes())...)}
		},
	}),
	OpUnsqueeze: moving(Def{
		Name: "unsqueeze", Nonfinite: passed, Doc: "Inserts axes of size 1 at those places of the result.", Flags: View, Attrs: []AttrDef{requiredAxes}, Infer: inferUnsqueeze,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value { return []*Value{b.Squeeze(d[0], n.Ints("axes")...)} },
	}),
	OpSlice: moving(Def{
		Name: "slice", Nonfinite: whole(passed, takesAll), Doc: "Takes elements from starts to before ends in steps, along axes (none given: the first ones); below zero counts from the end, limits outside are clipped.",
		Attrs: []AttrDef{{Name: "starts", Kind: AttrInts, Required: true, Doc: "first index of each axis"}, {Name: "ends", Kind: AttrInts, Required: true, Doc: "index after the last"},
			{Name: "steps", Kind: AttrInts, Doc: "above zero; none: 1"}, {Name: "axes", Kind: AttrInts, Doc: "none: 0, 1, ..."}, viewAttr},
		Flags: Equivariant, Part: &PartRow{Through: slicedPart}, Infer: inferSlice, Grad: gradSlice,
	}),
	OpPad: moving(Def{
		Name: "pad", Nonfinite: whole(passed, dropsNone), Doc: "Adds lo elements before, hi after and inner between neighbours of each axis (a negative lo or hi drops some): a constant, the edge, or a reflection.",
		Attrs: []AttrDef{{Name: "lo", Kind: AttrInts, Required: true, Doc: "per axis"}, {Name: "hi", Kind: AttrInts, Required: true, Doc: "per axis"},
			{Name: "inner", Kind: AttrInts, Doc: "per axis, constant mode only; none: 0"}, {Name: "mode", Kind: AttrString, Default: "constant", Doc: "constant, edge or reflect"},
			{Name: "value", Kind: AttrFloat, Default: 0.0, Entry: Fills, Doc: "the constant"}},
		Infer: inferPad, Grad: gradPad, Unit: unitPad,
		Range: func(n *Node, in []Interval) []Interval {
			v := n.Float("value")
			return []Interval{{min(in[0].Lo, v), max(in[0].Hi, v), in[0].NaN}}
		},
	}),
	OpConcat: {
		Name: "concat", Nonfinite: passed, Doc: "Joins operands along an axis.", In: in(Operand{Name: "x", Kinds: KAny, Variadic: true}), Out: out(Result{Name: "y"}),
		Attrs: []AttrDef{{Name: "axis", Kind: AttrInt, Doc: "counts from the end where negative"}, viewAttr, inPlaceAttr},
		Flags: Moves | Equivariant, Part: &PartRow{Back: joinedPart}, Class: PromoteC, Why: whyWider, Unit: UnitSame, Infer: inferConcat, Grad: gradConcat,
	},
	OpSplit: moving(Def{
		Name: "split", Nonfinite: passed, Doc: "Cuts into pieces of the given sizes along an axis.",
		Attrs: []AttrDef{{Name: "axis", Kind: AttrInt, Doc: "counts from the end where negative"}, {Name: "sizes", Kind: AttrInts, Required: true, Doc: "they add up to the axis"}, viewAttr},
		Flags: Equivariant, Part: &PartRow{Through: splitPart}, Infer: inferSplit,
		Range: func(n *Node, in []Interval) []Interval { return slices.Repeat(in[:1], len(n.Out)) },
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			for i, g := range d {
				if g == nil {
					d[i] = b.zerosLike(n.Out[i])
				}
			}
			return []*Value{b.Concat(n.Int("axis"), d...)}
		},
	}),
	OpTile: moving(Def{
		Name: "tile", Nonfinite: passed, Doc: "Repeats the whole operand reps[i] times along axis i.",
		Attrs: []AttrDef{{Name: "reps", Kind: AttrInts, Required: true, Doc: "per axis, above zero"}}, Infer: inferTile, Grad: gradTile,
	}),
	OpFlip: moving(Def{
		Name: "flip", Nonfinite: passed, Doc: "Reverses the order along axes.", Attrs: []AttrDef{requiredAxes}, Infer: inferSameShape,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value { return []*Value{b.Flip(d[0], n.Ints("axes")...)} },
	}),
	OpTril: moving(Def{
		Name: "tril", Doc: "Keeps the lower triangle of the last two axes up to diagonal k, zero elsewhere.", Attrs: []AttrDef{diagonal}, Infer: inferTriangle,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value { return []*Value{b.Tril(d[0], n.Int("k"))} }, Range: withZero,
	}),
	OpTriu: moving(Def{
		Name: "triu", Doc: "Keeps the upper triangle of the last two axes from diagonal k, zero elsewhere.", Attrs: []AttrDef{diagonal}, Infer: inferTriangle,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value { return []*Value{b.Triu(d[0], n.Int("k"))} }, Range: withZero,
	}),
	OpDepthToSpace: moving(Def{
		Name: "depth_to_space", Nonfinite: passed, Doc: "Moves blocks of channels into blocks of pixels: [N,C·b²,H,W] to [N,C,H·b,W·b].", Attrs: blockAttrs, Infer: inferBlocks,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.SpaceToDepth(d[0], n.Int("block"), n.Str("mode"))}
		},
	}),
	OpSpaceToDepth: moving(Def{
		Name: "space_to_depth", Nonfinite: passed, Doc: "Moves blocks of pixels into channels: [N,C,H·b,W·b] to [N,C·b²,H,W].", Attrs: blockAttrs, Infer: inferBlocks,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.DepthToSpace(d[0], n.Int("block"), n.Str("mode"))}
		},
	}),
}

var (
	viewAttr     = AttrDef{Name: "view", Kind: AttrBool, Doc: "nothing is copied where kernels find it by strides: the pass views sets it"}
	inPlaceAttr  = AttrDef{Name: "inplace", Kind: AttrBool, Doc: "the nodes that compute its operands store them in its result: the pass views sets it in inference"}
	requiredAxes = AttrDef{Name: "axes", Kind: AttrInts, Required: true, Doc: "axes, counted from the end where negative"}
	diagonal     = AttrDef{Name: "k", Kind: AttrInt, Default: int64(0), Doc: "diagonal: 0 the main one, above zero to its right"}
	blockAttrs   = []AttrDef{{Name: "block", Kind: AttrInt, Required: true, Doc: "side of a block"},
		{Name: "mode", Kind: AttrString, Default: "dcr", Doc: "which factor of the channels is outermost: dcr the block, crd the channel"}}
)

func withZero(_ *Node, in []Interval) []Interval {
	return []Interval{{min(in[0].Lo, 0), max(in[0].Hi, 0), in[0].NaN}}
}

func inferSameShape(n *Node) ([]Type, error) {
	if n.In[0].Type.Shape.Known() {
		if _, err := axesOf(n.Ints("axes"), n.In[0].Type.Shape.Rank()); err != nil {
			return nil, err
		}
	}
	return []Type{n.In[0].Type}, n.bare()
}

func inferReshape(n *Node) ([]Type, error) {
	x := n.In[0]
	if err := firstError(n.bare(), n.checkShapeAttr(-1)); err != nil {
		return nil, err
	}
	t := Type{DType: x.Type.DType}
	if v := n.like(); v != nil {
		t.Shape = v.Type.Shape
	} else {
		d, err := resolveShape(x, n.Ints("shape"))
		if err != nil {
			return nil, err
		}
		t.Shape = MakeShape(d...)
	}
	if from, to := x.Type.Shape.Elements(), t.Shape.Elements(); from >= 0 && to >= 0 && from != to {
		return nil, fmt.Errorf("%s %s has %d elements, %s has %d", x, x.Type, from, t, to)
	}
	return []Type{t}, nil
}

// resolveShape replaces 0 and -1 in a reshape's attribute. A symbol of the operand that the given
// sizes do not use is the remaining dimension.
func resolveShape(x *Value, want []int64) ([]Dim, error) {
	have := x.Type.Shape.Dims()
	d := dimsOf(want)
	hole := -1
	for i, w := range want {
		switch {
		case w == 0 && i < len(have):
			d[i] = have[i]
		case w == 0 && x.Type.Shape.Known():
			return nil, fmt.Errorf("shape %s copies axis %d, which %s %s does not have", literal(want), i, x, x.Type)
		case w == 0:
			d[i] = UnknownDim
		case w < 0 && hole >= 0:
			return nil, fmt.Errorf("shape %s has two sizes -1", literal(want))
		case w < 0:
			hole = i
		}
	}
	if hole < 0 {
		return d, nil
	}
	d[hole] = 1
	left, rest := quotient(have, d)
	switch {
	case !x.Type.Shape.Known() || rest > 1:
		d[hole] = UnknownDim
	case rest < 0:
		return nil, fmt.Errorf("shape %s does not divide %s %s", literal(want), x, x.Type)
	default:
		d[hole] = left
	}
	return d, nil
}

// quotient divides the product of have by that of d; equal symbols cancel. rest is -1 if it is not
// divisible, 2 if the quotient is not a single dimension.
func quotient(have, d []Dim) (left Dim, rest int) {
	num, den := int64(1), int64(1)
	syms := slices.Clone(have)
	for _, x := range d {
		if x >= 0 {
			den *= int64(x)
		} else if i := slices.Index(syms, x); i >= 0 && x != UnknownDim {
			syms = slices.Delete(syms, i, i+1)
		} else {
			return 0, 2
		}
	}
	left = 1
	for _, x := range syms {
		switch {
		case x >= 0:
			num *= int64(x)
		case left != 1:
			return 0, 2
		default:
			left = x
		}
	}
	switch {
	case den == 0 || left == 1 && num%den != 0:
		return 0, -1
	case left == 1:
		return Dim(num / den), 1
	case num == den:
		return left, 1
	}
	return 0, 2
}

func inferTranspose(n *Node) ([]Type, error) {
	x, perm := n.In[0], n.Ints("perm")
	d := x.Type.Shape.Dims()
	if !x.Type.Shape.Known() {
		d = slices.Repeat([]Dim{UnknownDim}, len(perm))
	}
	to := make([]Dim, len(perm))
	seen := make([]bool, len(perm))
	ok := len(perm) == len(d)
	for i, p := range perm {
		if ok = ok && p >= 0 && p < int64(len(d)) && !seen[p]; !ok {
			break
		}
		seen[p], to[i] = true, d[p]
	}
	if !ok {
		return nil, fmt.Errorf("perm %s is not a permutation of the axes of %s %s", literal(perm), x, x.Type)
	}
	return []Type{{x.Type.DType, MakeShape(to...)}}, n.bare()
}

func inferBroadcastTo(n *Node) ([]Type, error) {
	x := n.In[0]
	if err := firstError(n.bare(), n.checkShapeAttr(-1)); err != nil {
		return nil, err
	}
	to := dimsOf(n.Ints("shape"))
	if v := n.like(); v != nil {
		if !v.Type.Shape.Known() || !x.Type.Shape.Known() {
			return []Type{{x.Type.DType, v.Type.Shape}}, nil
		}
		to = v.Type.Shape.Dims()
	}
	d := x.Type.Shape.Dims()
	for i := range to {
		k := i - len(to) + len(d)
		if to[i] == -1 && n.like() == nil {
			to[i] = UnknownDim
			if k >= 0 && x.Type.Shape.Known() {
				to[i] = d[k]
			}
		}
	}
	s := MakeShape(to...)
	if got, ok := Broadcast(x.Type.Shape, s); !ok || s.Static() && x.Type.Shape.Known() && got != s {
		return nil, fmt.Errorf("%s %s does not broadcast to %s", x, x.Type, dimsString(to, nil))
	}
	return []Type{{x.Type.DType, s}}, nil
}

func inferSqueeze(n *Node) ([]Type, error) {
	x := n.In[0]
	if !x.Type.Shape.Known() {
		return []Type{{DType: x.Type.DType}}, n.bare()
	}
	d := x.Type.Shape.Dims()
	axes, err := axesOf(n.Ints("axes"), len(d))
	if err != nil {
		return nil, err
	}
	for i := len(axes) - 1; i >= 0; i-- {
		if a := axes[i]; !fits(d[a], 1) {
			return nil, fmt.Errorf("axis %d of %s %s is not 1", a, x, x.Type)
		}
		d = slices.Delete(d, axes[i], axes[i]+1)
	}
	return []Type{{x.Type.DType, MakeShape(d...)}}, n.bare()
}

func inferUnsqueeze(n *Node) ([]Type, error) {
	x := n.In[0]
	if !x.Type.Shape.Known() {
		return []Type{{DType: x.Type.DType}}, n.bare()
	}
	d := x.Type.Shape.Dims()
	axes, err := axesOf(n.Ints("axes"), len(d)+len(n.Ints("axes")))
	if err != nil {
		return nil, err
	}
	for _, a := range axes {
		d = slices.Insert(d, a, 1)
	}
	if err := CheckDims(d); err != nil {
		return nil, err
	}
	return []Type{{x.Type.DType, MakeShape(d...)}}, n.bare()
}

// Span is one axis of a slice: first index, step, and number of elements.
type Span struct{ Start, Step, Count int64 }

// Spans returns the range of a slice node along each axis of its static operand.
func (n *Node) Spans() []Span {
	d := n.In[0].Type.Shape.Dims()
	s := make([]Span, len(d))
	for i, x := range d {
		s[i] = Span{0, 1, int64(x)}
	}
	for i, a := range n.sliceAxes() {
		s[a] = n.span(i, int64(d[a]))
	}
	return s
}

// span clips the i-th range to an axis of the given size.
func (n *Node) span(i int, size int64) Span {
	limit := func(x int64) int64 {
		if x < 0 {
			x += size
		}
		return min(max(x, 0), size)
	}
	s := Span{Start: limit(n.Ints("starts")[i]), Step: 1}
	if steps := n.Ints("steps"); len(steps) > 0 {
		s.Step = steps[i]
	}
	if w := limit(n.Ints("ends")[i]) - s.Start; w > 0 {
		s.Count = (w-1)/s.Step + 1
	}
	return s
}

func (n *Node) sliceAxes() []int {
	axes := n.Ints("axes")
	out := make([]int, len(n.Ints("starts")))
	for i := range out {
		out[i] = i
		if len(axes) > 0 {
			out[i], _ = axisOf(axes[i], n.In[0].Type.Shape.Rank())
		}
	}
	return out
}

func inferSlice(n *Node) ([]Type, error) {
	x := n.In[0]
	starts, ends, steps, axes := n.Ints("starts"), n.Ints("ends"), n.Ints("steps"), n.Ints("axes")
	if len(starts) != len(ends) || len(steps) > 0 && len(steps) != len(starts) || len(axes) > 0 && len(axes) != len(starts) {
		return nil, fmt.Errorf("starts, ends, steps and axes differ in length: %d, %d, %d, %d", len(starts), len(ends), len(steps), len(axes))
	}
	for _, s := range steps {
		if s <= 0 {
			return nil, fmt.Errorf("step %d, want one above zero (flip reverses)", s)
		}
	}
	if !x.Type.Shape.Known() {
		return []Type{{DType: x.Type.DType}}, n.bare()
	}
	d := x.Type.Shape.Dims()
	if len(starts) > len(d) {
		return nil, fmt.Errorf("slices %d axes of %s %s", len(starts), x, x.Type)
	}
	if _, err := axesOf(axes, len(d)); err != nil {
		return nil, err
	}
	for i, a := range n.sliceAxes() {
		switch {
		case d[a] >= 0:
			d[a] = Dim(n.span(i, int64(d[a])).Count)
		case starts[i] != 0 || ends[i] != math.MaxInt64 || len(steps) > 0 && steps[i] != 1:
			d[a] = UnknownDim
		}
	}
	return []Type{{x.Type.DType, MakeShape(d...)}}, n.bare()
}

// gradSlice pads the gradient with zeros to the shape of the operand.
func gradSlice(b *Builder, n *Node, d []*Value) []*Value {
	x := n.In[0]
	if !b.staticFor(n, x) {
		return []*Value{nil}
	}
	spans := n.Spans()
	lo, hi, inner := make([]int64, len(spans)), make([]int64, len(spans)), make([]int64, len(spans))
	for i, s := range spans {
		if size := int64(x.Type.Shape.Dim(i)); s.Count == 0 {
			hi[i] = size
		} else {
			lo[i], inner[i] = s.Start, s.Step-1
			hi[i] = size - s.Start - (s.Count-1)*s.Step - 1
		}
	}
	return []*Value{b.padInner(d[0], lo, hi, inner)}
}

// staticFor fails the builder unless v's shape is known, which n's gradient needs.
func (b *Builder) staticFor(n *Node, v *Value) bool {
	if !v.Type.Shape.Static() {
		b.needsSizes(v.Type, "%s: the gradient needs all sizes of %s, which has type %s", n.Def().Name, v, b.g.TypeString(v.Type))
	}
	return b.err == nil
}

func inferTriangle(n *Node) ([]Type, error) {
	return []Type{n.In[0].Type}, firstError(wantRank("operand", n.In[0], 2, MaxRank), n.bare())
}

func inferBlocks(n *Node) ([]Type, error) {
	x, k := n.In[0], n.Int("block")
	if m := n.Str("mode"); m != "dcr" && m != "crd" {
		return nil, fmt.Errorf("mode is %q, want dcr or crd", m)
	}
	if err := firstError(wantRank("operand", x, 4, 4), n.bare()); err != nil || !x.Type.Shape.Known() {
		return []Type{{DType: x.Type.DType}}, err
	}
	if k < 1 || k > 1<<16 {
		return nil, fmt.Errorf("block is %d", k)
	}
	d := x.Type.Shape.Dims()
	up, down := []int{2, 3}, []int{1, 1}
	if n.Op == OpSpaceToDepth {
		up, down = down, up
	}
	for i := range 2 {
		d[up[i]] = mulDims(d[up[i]], Dim(k))
		a := down[i]
		if d[a] >= 0 && d[a]%Dim(k) != 0 {
			return nil, fmt.Errorf("axis %d of %s %s is not divisible by blocks of %d", a, x, x.Type, k)
		}
		if d[a] >= 0 {
			d[a] /= Dim(k)
		} else if k > 1 {
			d[a] = UnknownDim
		}
	}
	return []Type{{x.Type.DType, MakeShape(d...)}}, nil
}

package onnx

import (
	"math"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

var shapeExports = []export{
	only(written(ir.OpReshape, "Reshape", 13, func(x *exporter, n *ir.Node) string { return x.reshape(n, x.in(n, 0), n.In[0].Type.Shape) }), func(_ *exporter, n *ir.Node) bool {
		return !news0(n)
	}),
	written(ir.OpReshape, "Reshape", 14, func(x *exporter, n *ir.Node) string { return x.reshape(n, x.in(n, 0), n.In[0].Type.Shape) }),
	attributed(ir.OpTranspose, "Transpose", 13, func(n *ir.Node) []any { return []any{"perm", n.Ints("perm")} }),
	written(ir.OpBroadcast, "Expand", 13, exportBroadcast),
	written(ir.OpSqueeze, "Squeeze", 13, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "Squeeze", []string{x.in(n, 0), x.ints(n.Ints("axes")...)})
	}),
	written(ir.OpUnsqueeze, "Unsqueeze", 13, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "Unsqueeze", []string{x.in(n, 0), x.ints(n.Ints("axes")...)})
	}),
	written(ir.OpSlice, "Slice", 13, exportSlice),
	written(ir.OpFlip, "Slice", 13, func(x *exporter, n *ir.Node) string {
		axes := n.Ints("axes")
		k := len(axes)
		return x.op(x.result(n, 0), "Slice", []string{x.in(n, 0), x.ints(slices.Repeat([]int64{-1}, k)...), x.ints(slices.Repeat([]int64{math.MinInt64}, k)...), x.ints(axes...), x.ints(slices.Repeat([]int64{-1}, k)...)})
	}),
	only(written(ir.OpPad, "Pad", 13, func(x *exporter, n *ir.Node) string {
		in := []string{x.in(n, 0), x.ints(slices.Concat(n.Ints("lo"), n.Ints("hi"))...), ""}
		if n.Str("mode") == "constant" && n.Float("value") != 0 {
			in[2] = x.lit(n.Out[0].Type.DType, n.Float("value"))
		}
		return x.op(x.result(n, 0), "Pad", in, "mode", n.Str("mode"))
	}), func(_ *exporter, n *ir.Node) bool { return !inner(n) }),
	attributed(ir.OpConcat, "Concat", 13, func(n *ir.Node) []any { return []any{"axis", n.Int("axis")} }),
	{op: ir.OpSplit, to: "Split", since: 13, write: func(x *exporter, n *ir.Node) {
		out := make([]string, len(n.Out))
		for i := range out {
			out[i] = x.result(n, i)
		}
		x.ops(out, "Split", []string{x.in(n, 0), x.ints(n.Ints("sizes")...)}, "axis", n.Int("axis"))
	}},
	written(ir.OpTile, "Tile", 13, func(x *exporter, n *ir.Node) string {
		return x.op(x.result(n, 0), "Tile", []string{x.in(n, 0), x.ints(n.Ints("reps")...)})
	}),
	only(written(ir.OpIota, "Expand", 13, exportIota), static),
	only(written(ir.OpFull, "ConstantOfShape", 9, exportFull), static),
	written(ir.OpTril, "Trilu", 14, func(x *exporter, n *ir.Node) string { return exportTrilu(x, n, false) }),
	written(ir.OpTriu, "Trilu", 14, func(x *exporter, n *ir.Node) string { return exportTrilu(x, n, true) }),
	attributed(ir.OpDepthToSpace, "DepthToSpace", 13, func(n *ir.Node) []any {
		return []any{"blocksize", n.Int("block"), "mode", map[string]string{"dcr": "DCR", "crd": "CRD"}[n.Str("mode")]}
	}),
	only(attributed(ir.OpSpaceToDepth, "SpaceToDepth", 13, func(n *ir.Node) []any { return []any{"blocksize", n.Int("block")} }), func(_ *exporter, n *ir.Node) bool {
		return n.Str("mode") == "dcr"
	}),
	only(written(ir.OpSpaceToDepth, "Transpose", 13, exportUnshuffle), static),
	only(written(ir.OpResize, "Resize", 13, exportResize), func(x *exporter, n *ir.Node) bool { return upper(x, n) && static(x, n) }),
}

// shape is a shape as Reshape takes it: one size that is not known is what is
// left, others are those of the operand at their place.
func (x *exporter) shape(to, from ir.Shape) string {
	out := make([]int64, to.Rank())
	left := false
	for i, d := range to.Dims() {
		switch {
		case d >= 0:
			out[i] = int64(d)
		case i < from.Rank() && from.Dims()[i] == d:
			out[i] = 0
		case !left:
			out[i], left = -1, true
		default:
			x.fail("two sizes of the result are not known: give its dimensions sizes")
		}
	}
	return x.ints(out...)
}

// news0 reports whether the result has a size of 0 where the operand has not:
// Reshape takes it for the operand's unless told.
func news0(n *ir.Node) bool {
	from := n.In[0].Type.Shape.Dims()
	for i, d := range n.Out[0].Type.Shape.Dims() {
		if d == 0 && (i >= len(from) || from[i] != 0) {
			return true
		}
	}
	return false
}

func (x *exporter) reshape(n *ir.Node, in string, from ir.Shape) string {
	var attrs []any
	if news0(n) {
		attrs = []any{"allowzero", 1}
	}
	return x.op(x.result(n, 0), "Reshape", []string{in, x.shape(n.Out[0].Type.Shape, from)}, attrs...)
}

// view is a Reshape in between, to sizes that are known.
func (x *exporter) view(in string, shape ...int64) string {
	return x.op("", "Reshape", []string{in, x.ints(shape...)})
}

func exportBroadcast(x *exporter, n *ir.Node) string {
	from, to := n.In[0].Type.Shape, n.Out[0].Type.Shape
	out := make([]int64, to.Rank())
	for i, d := range to.Dims() {
		k := i - (to.Rank() - from.Rank())
		switch {
		case d >= 0:
			out[i] = int64(d)
		case k >= 0 && from.Dims()[k] == d:
			out[i] = 1
		default:
			x.fail("a size of the result is not known: give its dimensions sizes")
		}
	}
	return x.op(x.result(n, 0), "Expand", []string{x.in(n, 0), x.ints(out...)})
}

func exportSlice(x *exporter, n *ir.Node) string {
	in := []string{x.in(n, 0), x.ints(n.Ints("starts")...), x.ints(n.Ints("ends")...), "", ""}
	axes := n.Ints("axes")
	if axes == nil {
		for i := range n.Ints("starts") {
			axes = append(axes, int64(i))
		}
	}
	in[3] = x.ints(axes...)
	if steps := n.Ints("steps"); slices.ContainsFunc(steps, func(s int64) bool { return s != 1 }) {
		in[4] = x.ints(steps...)
	}
	return x.op(x.result(n, 0), "Slice", in)
}

// along is 0, 1, 2, ... along an axis, in a shape that broadcasts to one of this rank.
func (x *exporter) along(d ir.DType, rank int, axis, size int64) string {
	dims := slices.Repeat([]ir.Dim{1}, rank)
	dims[axis] = ir.Dim(size)
	e := eval.New(ir.Type{DType: d, Shape: ir.MakeShape(dims...)})
	for i := range e.Len() {
		if e.F != nil {
			e.F[i] = float64(i)
		} else {
			e.I[i] = int64(i)
		}
	}
	return x.constant(e)
}

func exportIota(x *exporter, n *ir.Node) string {
	shape := ir.Sizes(n.Out[0].Type.Shape)
	a := n.Int("axis")
	if a < 0 {
		a += int64(len(shape))
	}
	base := x.along(n.Out[0].Type.DType, len(shape), a, shape[a])
	if product(shape) == shape[a] {
		return base
	}
	return x.op(x.result(n, 0), "Expand", []string{base, x.ints(shape...)})
}

// exportFull makes what is small a constant.
func exportFull(x *exporter, n *ir.Node) string {
	t := n.Out[0].Type
	value := n.Float("value")
	if t.Shape.Elements() <= maxKnownFloats {
		e := eval.New(t)
		for i := range e.F {
			e.F[i] = eval.Round(value, t.DType)
		}
		for i := range e.I {
			e.I[i] = int64(value)
		}
		return x.constant(e)
	}
	one1 := eval.New(ir.Type{DType: t.DType, Shape: ir.MakeShape(1)})
	if one1.F != nil {
		one1.F[0] = eval.Round(value, t.DType)
	} else {
		one1.I[0] = int64(value)
	}
	tensor := Bytes(TypeOf(t.DType), one1.Bytes())
	tensor.Dims = []int64{1}
	return x.op(x.result(n, 0), "ConstantOfShape", []string{x.ints(ir.Sizes(t.Shape)...)}, "value", tensor)
}

func exportTrilu(x *exporter, n *ir.Node, upper bool) string {
	in := []string{x.in(n, 0), ""}
	if k := n.Int("k"); k != 0 {
		in[1] = x.constant(eval.Ints(ir.I64, nil, k))
	}
	return x.op(x.result(n, 0), "Trilu", in, "upper", upper)
}

// exportUnshuffle is space_to_depth with the channel outermost.
func exportUnshuffle(x *exporter, n *ir.Node) string {
	d, b := ir.Sizes(n.In[0].Type.Shape), n.Int("block")
	split := x.view(x.in(n, 0), d[0], d[1], d[2]/b, b, d[3]/b, b)
	turned := x.op("", "Transpose", []string{split}, "perm", []int64{0, 1, 3, 5, 2, 4})
	return x.reshape(n, turned, ir.Shape{})
}

var resizeCoords = map[string]string{"half_pixel": "half_pixel", "asymmetric": "asymmetric", "align_corners": "align_corners"}

func exportResize(x *exporter, n *ir.Node) string {
	nearest := "round_prefer_floor"
	switch {
	case n.Str("coords") == "asymmetric":
		nearest = "floor"
	case n.Str("ties") == "up":
		nearest = "round_prefer_ceil"
	}
	attrs := []any{"mode", n.Str("mode"), "coordinate_transformation_mode", resizeCoords[n.Str("coords")]}
	if n.Str("mode") == "nearest" {
		attrs = append(attrs, "nearest_mode", nearest)
	}
	return x.op(x.result(n, 0), "Resize", []string{x.in(n, 0), "", "", x.ints(ir.Sizes(n.Out[0].Type.Shape)...)}, attrs...)
}

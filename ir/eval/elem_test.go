package eval

import (
	"math"
	"testing"

	"ampc/ir"
)

// apart is a tensor of distinct numbers, none near zero or another one, so that
// kinks and ties are far from every difference quotient.
func apart(dims ...ir.Dim) *Tensor {
	t := New(ir.T(ir.F32, dims...))
	for i, k := range generator(dims).Perm(len(t.F)) {
		t.F[i] = short(0.17 * (float64(k-len(t.F)/2) + 0.5))
	}
	return t
}

func bools(dims ...ir.Dim) *Tensor {
	t := New(ir.T(ir.Bool, dims...))
	r := generator(dims)
	for i := range t.I {
		t.I[i] = r.Int64N(2)
	}
	return t
}

func checkRows(t *testing.T, cases []rowCase) {
	for _, c := range cases {
		name := c.op.String()
		if c.name != "" {
			name += "_" + c.name
		}
		t.Run(name, func(t *testing.T) { checkRow(t, c) })
	}
}

func TestUnaryRows(t *testing.T) {
	var cases []rowCase
	for _, op := range []ir.Op{ir.OpNeg, ir.OpAbs, ir.OpSign, ir.OpSquare, ir.OpExp, ir.OpExpm1, ir.OpSin, ir.OpCos, ir.OpTan, ir.OpAtan, ir.OpErf,
		ir.OpFloor, ir.OpCeil, ir.OpTrunc, ir.OpRoundEven, ir.OpIsNaN, ir.OpIsInf, ir.OpTanh, ir.OpSigmoid, ir.OpRelu, ir.OpLeakyRelu, ir.OpElu, ir.OpSelu,
		ir.OpGelu, ir.OpSilu, ir.OpMish, ir.OpSoftplus, ir.OpSoftsign, ir.OpHardswish, ir.OpHardsigmoid} {
		cases = append(cases, rowCase{op: op, in: []*Tensor{apart(3, 4)}})
	}
	for _, op := range []ir.Op{ir.OpSqrt, ir.OpRsqrt, ir.OpReciprocal, ir.OpLog, ir.OpLog1p} {
		cases = append(cases, rowCase{op: op, in: []*Tensor{uniform(0.5, 2, 5)}})
	}
	for _, op := range []ir.Op{ir.OpReluGrad, ir.OpLeakyReluGrad, ir.OpTanhGrad, ir.OpSigmoidGrad, ir.OpGeluGrad, ir.OpSiluGrad} {
		cases = append(cases, rowCase{op: op, in: []*Tensor{normal(3, 4), apart(3, 4)}})
	}
	checkRows(t, append(cases,
		rowCase{op: ir.OpNot, in: []*Tensor{bools(4)}},
		rowCase{op: ir.OpAffine, in: []*Tensor{normal(4)}, attrs: ir.A("scale", -0.3, "shift", 2.0)},
		rowCase{op: ir.OpClip, in: []*Tensor{apart(12)}, attrs: ir.A("lo", -0.5, "hi", 0.3)},
		rowCase{op: ir.OpPrelu, in: []*Tensor{apart(3, 4), uniform(0.1, 0.4, 4)}},
		rowCase{name: "tanh", op: ir.OpGelu, in: []*Tensor{apart(9)}, attrs: ir.A("approx", "tanh")},
		rowCase{name: "tanh", op: ir.OpGeluGrad, in: []*Tensor{normal(9), apart(9)}, attrs: ir.A("approx", "tanh")},
		rowCase{op: ir.OpCast, in: []*Tensor{normal(5)}, attrs: ir.A("to", ir.F16)},
		rowCase{op: ir.OpRound, in: []*Tensor{normal(5)}, attrs: ir.A("to", ir.BF16)},
	))
}

func TestBinaryRows(t *testing.T) {
	var cases []rowCase
	for _, op := range []ir.Op{ir.OpAdd, ir.OpSub, ir.OpMul, ir.OpMin, ir.OpMax, ir.OpEq, ir.OpNe, ir.OpLt, ir.OpLe, ir.OpGt, ir.OpGe} {
		cases = append(cases, rowCase{op: op, in: []*Tensor{apart(2, 3, 4), apart(2, 3, 4)}}, rowCase{name: "broadcast", op: op, in: []*Tensor{apart(3, 1), apart(2, 1, 4)}})
	}
	for _, op := range []ir.Op{ir.OpDiv, ir.OpPow, ir.OpMod} {
		cases = append(cases, rowCase{op: op, in: []*Tensor{uniform(1.1, 1.9, 3, 4), uniform(0.7, 0.9, 4)}})
	}
	for _, op := range []ir.Op{ir.OpAnd, ir.OpOr, ir.OpXor} {
		cases = append(cases, rowCase{op: op, in: []*Tensor{bools(4), bools(2, 4)}})
	}
	for i := range cases { // no ties between the operands
		for k := range cases[i].in[0].F {
			cases[i].in[0].F[k] = short(cases[i].in[0].F[k] + 0.03)
		}
	}
	checkRows(t, append(cases,
		rowCase{op: ir.OpWhere, in: []*Tensor{bools(3, 1), normal(3, 4), normal(4)}},
		rowCase{name: "zero", op: ir.OpWhere, in: []*Tensor{bools(3, 4), normal(1)}},
		rowCase{op: ir.OpAddN, in: []*Tensor{normal(3, 4), normal(3, 4), normal(3, 4)}},
	))
}

func TestShapeRows(t *testing.T) {
	checkRows(t, []rowCase{
		{op: ir.OpReshape, in: []*Tensor{normal(2, 6)}, attrs: ir.A("shape", []int64{-1, 4})},
		{name: "like", op: ir.OpReshape, in: []*Tensor{normal(2, 6), normal(3, 4)}},
		{op: ir.OpTranspose, in: []*Tensor{normal(2, 3, 4)}, attrs: ir.A("perm", []int64{2, 0, 1})},
		{op: ir.OpBroadcast, in: []*Tensor{normal(3, 1)}, attrs: ir.A("shape", []int64{2, -1, 4})},
		{op: ir.OpSqueeze, in: []*Tensor{normal(2, 1, 3, 1)}, attrs: ir.A("axes", []int64{-1, 1})},
		{op: ir.OpUnsqueeze, in: []*Tensor{normal(2, 3)}, attrs: ir.A("axes", []int64{0, -1})},
		{op: ir.OpSlice, in: []*Tensor{normal(5, 6)}, attrs: ir.A("axes", []int64{1, 0}, "starts", []int64{-5, 1}, "ends", []int64{math.MaxInt64, -1}, "steps", []int64{2, 1})},
		{name: "empty", op: ir.OpSlice, in: []*Tensor{normal(5, 2)}, attrs: ir.A("starts", []int64{3}, "ends", []int64{1})},
		{op: ir.OpPad, in: []*Tensor{normal(3, 4)}, attrs: ir.A("lo", []int64{1, 0}, "hi", []int64{2, 3}, "value", 0.5)},
		{name: "inner", op: ir.OpPad, in: []*Tensor{normal(3, 4)}, attrs: ir.A("lo", []int64{1, -2}, "hi", []int64{-1, 3}, "inner", []int64{1, 2})},
		{name: "edge", op: ir.OpPad, in: []*Tensor{normal(3, 4)}, attrs: ir.A("lo", []int64{1, 5}, "hi", []int64{2, 0}, "mode", "edge")},
		{name: "reflect", op: ir.OpPad, in: []*Tensor{normal(3, 4)}, attrs: ir.A("lo", []int64{2, 3}, "hi", []int64{1, 2}, "mode", "reflect")},
		{op: ir.OpConcat, in: []*Tensor{normal(2, 3), normal(2, 1), normal(2, 2)}, attrs: ir.A("axis", -1)},
		{op: ir.OpSplit, in: []*Tensor{normal(6, 2)}, attrs: ir.A("axis", 0, "sizes", []int64{1, 3, 2})},
		{name: "part", op: ir.OpSplit, in: []*Tensor{normal(2, 5)}, attrs: ir.A("axis", -1, "sizes", []int64{2, 3}), fixed: []int{1}},
		{op: ir.OpTile, in: []*Tensor{normal(2, 3)}, attrs: ir.A("reps", []int64{3, 2})},
		{op: ir.OpFlip, in: []*Tensor{normal(2, 3, 2)}, attrs: ir.A("axes", []int64{0, -1})},
		{op: ir.OpTril, in: []*Tensor{normal(2, 3, 4)}, attrs: ir.A("k", -1)},
		{op: ir.OpTriu, in: []*Tensor{normal(4, 3)}, attrs: ir.A("k", 1)},
		{op: ir.OpDepthToSpace, in: []*Tensor{normal(2, 8, 2, 3)}, attrs: ir.A("block", 2)},
		{name: "crd", op: ir.OpDepthToSpace, in: []*Tensor{normal(2, 8, 2, 3)}, attrs: ir.A("block", 2, "mode", "crd")},
		{op: ir.OpSpaceToDepth, in: []*Tensor{normal(2, 2, 4, 6)}, attrs: ir.A("block", 2)},
	})
}

func TestIndexRows(t *testing.T) {
	checkRows(t, []rowCase{
		{op: ir.OpFull, attrs: ir.A("shape", []int64{2}, "value", 3.0)},
		{op: ir.OpIota, attrs: ir.A("shape", []int64{2, 3}, "axis", 1)},
		{op: ir.OpOneHot, in: []*Tensor{indices(4, 3)}, attrs: ir.A("depth", 4)},
		{op: ir.OpGather, in: []*Tensor{normal(2, 4, 3), indices(4, 2, 3)}, attrs: ir.A("axis", 1)},
		{op: ir.OpGatherElements, in: []*Tensor{normal(4, 3), indices(4, 5, 3)}, attrs: ir.A("axis", 0)},
		{op: ir.OpScatter, in: []*Tensor{normal(4, 3), Ints(ir.I64, []ir.Dim{2, 3}, 0, 3, 1, 2, 0, 3), normal(2, 3)}, attrs: ir.A("axis", 0)},
		{op: ir.OpScatterAdd, in: []*Tensor{normal(3, 4), indices(4, 3, 6), normal(3, 6)}, attrs: ir.A("axis", 1)},
		{op: ir.OpTopK, in: []*Tensor{apart(3, 7)}, attrs: ir.A("k", 3)},
		{name: "smallest", op: ir.OpTopK, in: []*Tensor{apart(6, 2)}, attrs: ir.A("k", 2, "axis", 0, "smallest", true)},
		{op: ir.OpResize, in: []*Tensor{normal(1, 2, 3, 4)}, attrs: ir.A("sizes", []int64{6, 5})},
		{name: "linear", op: ir.OpResize, in: []*Tensor{normal(1, 3, 4, 2)}, attrs: ir.A("sizes", []int64{7, 3}, "mode", "linear", "layout", "NHWC")},
		{name: "ties up", op: ir.OpResize, in: []*Tensor{normal(1, 1, 10)}, attrs: ir.A("sizes", []int64{5}, "ties", "up")},
		{name: "corners", op: ir.OpResize, in: []*Tensor{normal(2, 1, 5)}, attrs: ir.A("sizes", []int64{8}, "mode", "linear", "coords", "align_corners")},
		{op: ir.OpResizeGrad, in: []*Tensor{normal(1, 2, 6, 5)}, attrs: ir.A("sizes", []int64{3, 4}, "mode", "linear", "coords", "asymmetric")},
	})
}

func TestReduceRows(t *testing.T) {
	var cases []rowCase
	for _, op := range []ir.Op{ir.OpReduceSum, ir.OpReduceMean, ir.OpReduceVar, ir.OpReduceMax, ir.OpReduceMin, ir.OpReduceProd, ir.OpReduceL1, ir.OpReduceL2, ir.OpLogSumExp} {
		cases = append(cases,
			rowCase{op: op, in: []*Tensor{apart(3, 4)}},
			rowCase{name: "axes", op: op, in: []*Tensor{apart(2, 3, 4)}, attrs: ir.A("axes", []int64{0, -1})},
			rowCase{name: "keep", op: op, in: []*Tensor{apart(2, 3, 4)}, attrs: ir.A("axes", []int64{1}, "keep", true)})
	}
	zeros := Floats(ir.F32, []ir.Dim{3, 2}, 0, 0.5, 2, 0, -3, 0)
	checkRows(t, append(cases,
		rowCase{name: "zeros", op: ir.OpReduceProd, in: []*Tensor{zeros}, attrs: ir.A("axes", []int64{0}), first: true},
		rowCase{name: "sample", op: ir.OpReduceVar, in: []*Tensor{normal(5)}, attrs: ir.A("correction", 1)},
		rowCase{op: ir.OpArgmax, in: []*Tensor{apart(3, 4)}, attrs: ir.A("axis", 1)},
		rowCase{op: ir.OpArgmin, in: []*Tensor{apart(3, 4)}, attrs: ir.A("axis", 0, "keep", true)},
		rowCase{op: ir.OpCumsum, in: []*Tensor{normal(3, 4)}, attrs: ir.A("axis", 1)},
		rowCase{op: ir.OpCummax, in: []*Tensor{apart(3, 4)}, attrs: ir.A("axis", 1)},
		rowCase{op: ir.OpCummin, in: []*Tensor{apart(4, 2)}, attrs: ir.A("axis", 0)},
		rowCase{op: ir.OpLinearScan, in: []*Tensor{normal(3, 4), normal(3, 4)}, attrs: ir.A("axis", 1)},
		rowCase{name: "reverse", op: ir.OpLinearScan, in: []*Tensor{normal(4, 2), normal(4, 2)}, attrs: ir.A("axis", 0, "reverse", true)},
		rowCase{name: "exclusive", op: ir.OpCumsum, in: []*Tensor{normal(4, 2)}, attrs: ir.A("axis", 0, "exclusive", true, "reverse", true)},
		rowCase{op: ir.OpSumTo, in: []*Tensor{normal(2, 3, 4)}, attrs: ir.A("shape", []int64{3, 1})},
		rowCase{name: "like", op: ir.OpSumTo, in: []*Tensor{normal(2, 3, 4), normal(1, 4)}},
	))
}

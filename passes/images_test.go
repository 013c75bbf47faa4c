package passes

import (
	"math/rand/v2"
	"slices"
	"testing"

	"ampc/ir"
)

// randomImages is randomGraph with rows over images and heads.
func randomImages(r *rand.Rand, size int, pins bool, without ...ir.Op) *ir.Graph {
	return growGraph(r, size, pins, 4, image, without)
}

// imageRows are rows over operands of four dimensions: x is an image, w filters, q heads, d the
// gradient of an image, b a vector of channels.
var imageRows = []struct {
	op ir.Op
	in string
	a  ir.Attrs
}{
	{ir.OpConv, "xw", nil}, {ir.OpConv, "xwb", nil}, {ir.OpConv, "xwb", ir.A("pads", []int{1, 0, 0, 1})},
	{ir.OpConvGradX, "dw", ir.A("size", []int{5, 5})}, {ir.OpConvGradW, "xd", ir.A("kernel", []int{1, 1})}, {ir.OpConvTranspose, "xwb", nil},
	{ir.OpMaxPool, "x", ir.A("kernel", []int{2, 2})}, {ir.OpAvgPool, "x", ir.A("kernel", []int{2, 2}, "strides", []int{2, 2})},
	{ir.OpAdaptiveAvgPool, "x", ir.A("size", []int{2, 2})}, {ir.OpResize, "x", ir.A("sizes", []int{2, 8})},
	{ir.OpDepthToSpace, "x", ir.A("block", 2)}, {ir.OpSpaceToDepth, "x", ir.A("block", 2)},
	{ir.OpGroupNorm, "xbb", ir.A("groups", 2)}, {ir.OpInstanceNorm, "xbb", nil}, {ir.OpAttention, "qqq", nil}, {ir.OpAttention, "qqq", ir.A("causal", true)},
}

// image appends one of imageRows over matrices of the pool, perhaps with its gradient, or nothing.
func image(g *ir.Graph, r *rand.Rand, pool []*ir.Value, pins bool) []*ir.Value {
	row := imageRows[r.IntN(len(imageRows))]
	late := map[*ir.Value]bool{}
	for _, n := range g.Body[ir.Backward] {
		for _, v := range n.Out {
			late[v] = true
		}
	}
	drawn := make([]*ir.Value, len(row.in))
	b := ir.Edit(g).In(ir.Forward)
	for i, c := range row.in {
		shape := ir.T(ir.F32, 8, 8).Shape
		if c == 'b' {
			shape = ir.T(ir.F32, 8).Shape
		}
		list := slices.DeleteFunc(slices.Clone(pool), func(v *ir.Value) bool {
			return !v.Type.DType.Float() || v.Type.DType == ir.F64 || v.Type.Shape != shape
		})
		drawn[i] = list[max(r.IntN(len(list)), r.IntN(len(list)))]
		if late[drawn[i]] || c == 'd' {
			b = b.In(ir.Backward)
		}
	}
	in := make([]*ir.Value, len(drawn))
	for i, c := range row.in {
		switch c {
		case 'b':
			in[i] = b.Slice(drawn[i], []int64{0}, []int64{0}, []int64{4})
		case 'w':
			in[i] = b.Reshape(drawn[i], 4, 4, 2, 2)
		case 'q':
			in[i] = b.Reshape(drawn[i], 1, 2, 4, 8)
		default:
			in[i] = b.Reshape(drawn[i], 1, 4, 4, 4)
		}
	}
	if pins && r.IntN(6) == 0 {
		b = b.Pinned([]ir.Pin{ir.PinF32, ir.PinLow, ir.PinTF32}[r.IntN(3)])
	}
	out := b.Emit(row.op, in, row.a)
	if b.Err() != nil {
		return nil
	}
	if grad := row.op.Def().Grad; grad != nil && r.IntN(3) == 0 {
		d := b.In(ir.Backward)
		dy := make([]*ir.Value, len(out))
		dy[0] = d.Sin(out[0])
		for _, v := range grad(d, out[0].Def, dy) {
			if v != nil {
				out = append(out, v)
			}
		}
		if d.Err() != nil {
			return nil
		}
	}
	return slices.DeleteFunc(out, func(v *ir.Value) bool { return v == nil || v.Type.Shape.Elements() > 256 })
}

// notDrawn are the ops that hardly any random graph holds, and why.
var notDrawn = map[string]string{
	"foreign":          "no inference says what it returns",
	"gru_grad":         "recurrence draws the gradients of LSTM and RNN",
	"embedding_grad":   "it takes the size of a table as an attribute, which no operand of the pool is",
	"layer_norm_grad":  "the shapes of its operands seldom meet",
	"batch_norm_grad":  "the shapes of its operands seldom meet",
	"batch_norm_infer": "the shapes of its operands seldom meet",
	"update_scale":     "it writes the state of a loss scale, which training makes",
}

// Random graphs hold nearly every op.
func TestRandomGraphsDrawEveryOp(t *testing.T) {
	drawn := map[ir.Op]int{}
	for seed := range uint64(1000) {
		for _, grow := range []func(*rand.Rand, int, bool, ...ir.Op) *ir.Graph{randomGraph, randomLayers, randomRecurrences, randomCaches, randomImages} {
			r := rand.New(rand.NewPCG(seed, 41))
			for _, n := range grow(r, 4+r.IntN(30), true).Nodes {
				drawn[n.Op]++
			}
		}
	}
	for _, op := range ir.Ops() {
		switch why := notDrawn[op.Def().Name]; {
		case why == "" && drawn[op] == 0:
			t.Errorf("%s: no graph holds it", op.Def().Name)
		case why != "" && drawn[op] > 10:
			t.Errorf("%s: %d nodes, and it is listed: %s", op.Def().Name, drawn[op], why)
		}
	}
}

package onnx

import (
	"math"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

var minusInf = math.Inf(-1)

// rowsFrom is first, first+1, ... in a column.
func (x *exporter) rowsFrom(size, first int64) string {
	e := eval.New(ir.Type{DType: ir.I64, Shape: ir.MakeShape(ir.Dim(size), 1)})
	for i := range e.I {
		e.I[i] = first + int64(i)
	}
	return x.constant(e)
}

// exportRope turns pairs by angles that are computed from the positions.
func exportRope(x *exporter, n *ir.Node) string {
	s := ir.Sizes(n.In[0].Type.Shape)
	rank := len(s)
	turn := n.Int("dims")
	if turn == 0 {
		turn = s[rank-1]
	}
	in, d, out := x.wide(n)
	cos, sin := x.angles(n, d, s[rank-2], turn)
	part := func(from, to, step int64) string {
		return x.op("", "Slice", []string{in, x.ints(from), x.ints(to), x.ints(int64(rank - 1)), x.ints(step)})
	}
	var a, b string
	if n.Flag("interleaved") {
		a, b = part(0, turn, 2), part(1, turn, 2)
	} else {
		a, b = part(0, turn/2, 1), part(turn/2, turn, 1)
	}
	re := x.op("", "Sub", []string{x.op("", "Mul", []string{a, cos}), x.op("", "Mul", []string{b, sin})})
	im := x.op("", "Add", []string{x.op("", "Mul", []string{a, sin}), x.op("", "Mul", []string{b, cos})})
	parts := []string{re, im}
	if n.Flag("interleaved") {
		up := func(v string) string { return x.op("", "Unsqueeze", []string{v, x.ints(int64(rank))}) }
		pairs := x.op("", "Concat", []string{up(re), up(im)}, "axis", int64(rank))
		whole := slices.Clone(s)
		whole[rank-1] = turn
		parts = []string{x.view(pairs, whole...)}
	}
	if turn < s[rank-1] {
		parts = append(parts, part(turn, s[rank-1], 1))
	}
	if out != nil {
		return out(x.op("", "Concat", parts, "axis", int64(rank-1)))
	}
	return x.op(x.result(n, 0), "Concat", parts, "axis", int64(rank-1))
}

// angles are cosines and sines for each position and pair.
func (x *exporter) angles(n *ir.Node, d ir.DType, steps, turn int64) (cos, sin string) {
	speed := eval.New(ir.Type{DType: d, Shape: ir.MakeShape(ir.Dim(turn / 2))})
	sign := 1.0
	if n.Flag("inverse") {
		sign = -1
	}
	for i := range speed.F {
		speed.F[i] = eval.Round(sign*math.Pow(n.Float("base"), -2*float64(i)/float64(turn)), d)
	}
	var at string
	if len(n.In) > 1 && n.In[1] != nil {
		shape := ir.Sizes(n.In[1].Type.Shape)
		for len(shape) > 1 && len(shape) < n.In[0].Type.Shape.Rank()-1 { // [B,S] beside [B,H,S,D]
			shape = slices.Insert(shape, 1, 1)
		}
		at = x.op("", "Cast", []string{x.view(x.in(n, 1), append(shape, 1)...)}, "to", int64(TypeOf(d)))
	} else {
		at = x.along(d, 2, 0, steps)
	}
	angle := x.op("", "Mul", []string{at, x.constant(speed)})
	return x.op("", "Cos", []string{angle}), x.op("", "Sin", []string{angle})
}

var sequenceExports = []export{
	recurring(ir.OpLSTM, "LSTM", 14, 4, []int64{0, 3, 1, 2}),
	recurring(ir.OpGRU, "GRU", 14, 3, []int64{1, 0, 2}),
	recurring(ir.OpRNN, "RNN", 14, 1, []int64{0}),
}

// recurring is a recurrence over inputs' products that are made for it: ONNX has
// both in one node, its gates in the order that perm gives by ours.
func recurring(op ir.Op, to string, since, gates int64, perm []int64) export {
	e := export{op: op, to: to, since: since, when: func(x *exporter, n *ir.Node) bool {
		return products(n) != nil && static(x, n) && firstOnly(x, n)
	}}
	e.reads = func(n *ir.Node) []*ir.Value {
		return append(slices.Clone(products(n).In), n.In[1:]...)
	}
	e.write = func(x *exporter, n *ir.Node) { x.recurrence(n, to, gates, perm) }
	return e
}

// products is the linear node behind the inputs' products of a recurrence.
func products(n *ir.Node) *ir.Node {
	v := n.In[0]
	if v.Def == nil || v.Def.Op != ir.OpReshape {
		return nil
	}
	if p := v.Def.In[0].Def; p != nil && p.Op == ir.OpLinear && !p.Flag("tb") && p.In[0].Type.Shape.Rank() == 3 {
		return p
	}
	return nil
}

func (x *exporter) recurrence(n *ir.Node, to string, gates int64, perm []int64) {
	p, y := products(n), ir.Sizes(n.Out[0].Type.Shape)
	dirs, hidden := y[2], y[3]
	width := ir.Sizes(p.In[0].Type.Shape)[2]
	d := n.Out[0].Type.DType
	order := x.ints(perm...)
	turned := func(in string, shape []int64, axis int64, axes []int64, to ...int64) string {
		v := x.view(in, shape...)
		if gates > 1 {
			v = x.op("", "Gather", []string{v, order}, "axis", axis)
		}
		return x.view(x.op("", "Transpose", []string{v}, "perm", axes), to...)
	}
	w := turned(x.name(p.In[1]), []int64{width, dirs, gates, hidden}, 2, []int64{1, 2, 3, 0}, dirs, gates*hidden, width)
	r := turned(x.in(n, 1), []int64{dirs, hidden, gates, hidden}, 2, []int64{0, 2, 3, 1}, dirs, gates*hidden, hidden)
	in := []string{x.name(p.In[0]), w, r, x.gateBiases(n, p, order, gates, dirs, hidden, d), "", ""}
	attrs := []any{"hidden_size", hidden, "direction", direction(n, dirs)}
	switch n.Op {
	case ir.OpGRU:
		in[5] = x.in(n, 3)
		attrs = append(attrs, "linear_before_reset", 1)
	case ir.OpRNN:
		in[5] = x.in(n, 2)
		act := map[string]string{"tanh": "Tanh", "relu": "Relu"}[n.Str("activation")]
		attrs = append(attrs, "activations", slices.Repeat([]string{act}, int(dirs)))
	default:
		in[5] = x.in(n, 2)
		in = append(in, x.in(n, 3))
	}
	steps := x.op("", to, in, attrs...) // [S,D,B,H]
	x.op(x.result(n, 0), "Transpose", []string{steps}, "perm", []int64{0, 2, 1, 3})
}

func direction(n *ir.Node, dirs int64) string {
	switch {
	case dirs == 2:
		return "bidirectional"
	case n.Flag("reverse"):
		return "reverse"
	}
	return "forward"
}

// gateBiases joins the biases of the inputs' and of the state's products, "" where
// there are none.
func (x *exporter) gateBiases(n, p *ir.Node, order string, gates, dirs, hidden int64, d ir.DType) string {
	var bn *ir.Value
	if n.Op == ir.OpGRU && len(n.In) > 2 {
		bn = n.In[2]
	}
	bias := x.in(p, 2)
	if bias == "" && bn == nil {
		return ""
	}
	none := func(size int64) string {
		return x.constant(eval.New(ir.Type{DType: d, Shape: ir.MakeShape(ir.Dim(dirs), ir.Dim(size))}))
	}
	own := none(gates * hidden)
	if bias != "" {
		own = x.view(bias, dirs, gates, hidden)
		if gates > 1 {
			own = x.op("", "Gather", []string{own, order}, "axis", 1)
		}
		own = x.view(own, dirs, gates*hidden)
	}
	state := []string{none(gates * hidden)}
	if bn != nil {
		state = []string{none(2 * hidden), x.name(bn)}
	}
	return x.op("", "Concat", append([]string{own}, state...), "axis", 1)
}

package runtimetest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

// Grower makes a random forward graph of the suite's cases: every row that a model may contain has
// one. The operands of a node are values of the graph, in the shapes that the case has.
type Grower struct {
	Graph  *ir.Graph
	Values []*ir.Value // floats, in their order
	r      *rand.Rand
	spec   map[*ir.Value]operandSpec // by input
}

// NewGrower starts a graph of a parameter and an input.
func NewGrower(r *rand.Rand) *Grower {
	w := &Grower{Graph: ir.NewBuilder("grown").Graph(), r: r, spec: map[*ir.Value]operandSpec{}}
	b := ir.Edit(w.Graph)
	dims := []ir.Dim{ir.Dim(1 + r.IntN(9)), ir.Dim(1 + r.IntN(40))}
	w.Values = append(w.Values, w.param(b, dims), w.input(b, operandSpec{kind: 'x', dims: dims}))
	return w
}

// mostGrown is the most elements of an operand or result.
const mostGrown = 2048

// grown lists the cases that graphs grow of, by the name of their op.
var grown = func() map[string][]string {
	m := map[string][]string{}
	for _, c := range cases {
		name, operands, _, err := splitCase(c)
		op, ok := ir.OpNamed(name)
		if err != nil || !ok || !inModels(op) || slices.ContainsFunc(operands, func(o operandSpec) bool { return o.elements() == 0 || o.elements() > mostGrown }) {
			continue
		}
		m[name] = append(m[name], c)
	}
	return m
}()

// inModels reports whether the forward section of a model has nodes of op: not the rows that
// transformations of the step add, which are gradients, updates and loss scaling. Random rows are
// left out, whose first operands are state of the step.
func inModels(op ir.Op) bool {
	d := op.Def()
	return d.GradOf == ir.OpInvalid && !slices.Contains([]string{"precision", "update", "random", "collective"}, d.Family) && !d.Is(ir.Caches)
}

func (o *operandSpec) elements() int64 { return ir.MakeShape(o.dims...).Elements() }

// Grow appends a node of a case, and what makes its operands. Ops are drawn evenly, products and
// sums of two operands more often. It appends no node where the row does not take the dtypes drawn.
func (w *Grower) Grow() {
	ops := slices.DeleteFunc(ir.Ops(), func(op ir.Op) bool { return len(grown[op.Def().Name]) == 0 })
	if w.r.IntN(3) == 0 {
		ops = slices.DeleteFunc(ops, func(op ir.Op) bool { return op.Def().Class != ir.Low && op.Def().Class != ir.PromoteC })
	}
	op := ops[w.r.IntN(len(ops))]
	list := grown[op.Def().Name]
	_, operands, text, err := splitCase(list[w.r.IntN(len(list))])
	if err != nil {
		panic(err)
	}
	attrs, err := parseAttrs(op, text)
	if err != nil {
		panic(err)
	}
	w.anyShape(op, operands)
	b := ir.Edit(w.Graph)
	in := make([]*ir.Value, 0, len(operands))
	for i := range operands {
		in = append(in, w.operand(b, &operands[i]))
	}
	for len(in) > 0 && in[len(in)-1] == nil {
		in = in[:len(in)-1]
	}
	if w.r.IntN(10) == 0 {
		b = b.Pinned([]ir.Pin{ir.PinF32, ir.PinLow, ir.PinTF32}[w.r.IntN(3)])
	}
	out := b.Emit(op, in, attrs)
	if b.Err() != nil {
		return
	}
	for _, v := range out {
		if v != nil && (v.Type.DType == ir.F32 || v.Type.DType.Low()) && v.Type.Shape.Elements() <= mostGrown {
			if !(op.Def().Class == ir.Low || exactMove(op)) && w.r.IntN(3) == 0 {
				v = b.Tanh(v) // otherwise large numbers become Inf after some nodes
			}
			w.Values = append(w.Values, v)
		}
	}
}

func exactMove(op ir.Op) bool { return op.Def().Is(ir.Moves) || op.Def().Is(ir.View) }

// anyShape gives all operands of an elementwise row the shape of a value, if they have one shape.
func (w *Grower) anyShape(op ir.Op, operands []operandSpec) {
	shape := w.pick().Type.Shape
	for i := range operands {
		if op.Def().Elem == nil || !slices.Equal(operands[i].dims, operands[0].dims) {
			return
		}
	}
	for i := range operands {
		operands[i].dims = shape.Dims()
	}
}

// pick draws a value, one of the last four more often than another.
func (w *Grower) pick() *ir.Value {
	n := len(w.Values)
	if w.r.IntN(3) == 0 {
		return w.Values[w.r.IntN(n)]
	}
	return w.Values[n-1-w.r.IntN(min(n, 4))]
}

// operand is a value for an operand of a case.
func (w *Grower) operand(b *ir.Builder, o *operandSpec) *ir.Value {
	switch o.kind {
	case '_':
		return nil
	case 'k', 'K', 'U', 'u', 'b':
		return w.input(b, *o)
	}
	x := w.shaped(b, o.dims)
	switch o.kind {
	case 'n':
		x = b.Neg(b.Abs(x))
	case 'p':
		x = b.Affine(b.Abs(x), 1, 0.25)
	case 'q':
		x = b.Affine(b.Sigmoid(x), 0.96, 0.02)
	case 'f', 's':
		if x.Type.DType != ir.F32 {
			x = b.Cast(x, ir.F32)
		}
		if o.kind == 's' {
			x = b.Affine(b.Abs(x), 1, 0.25)
		}
	}
	return x
}

// shaped is a value of these dimensions: one that has them, or that many elements of one, or a new
// variable.
func (w *Grower) shaped(b *ir.Builder, dims []ir.Dim) *ir.Value {
	shape := ir.MakeShape(dims...)
	same := slices.DeleteFunc(slices.Clone(w.Values), func(v *ir.Value) bool { return v.Type.Shape != shape })
	if len(same) > 0 && w.r.IntN(4) > 0 {
		return same[len(same)-1-w.r.IntN(min(len(same), 3))]
	}
	x, n := w.pick(), shape.Elements()
	if have := x.Type.Shape.Elements(); have >= n && w.r.IntN(4) > 0 {
		if have > n {
			x = b.Slice(b.Reshape(x, have), []int64{0}, []int64{0}, []int64{n})
		}
		return b.Reshape(x, ints(dims)...)
	}
	if w.r.IntN(2) == 0 {
		x = w.param(b, dims)
	} else {
		x = w.input(b, operandSpec{kind: 'x', dims: dims})
	}
	w.Values = append(w.Values, x)
	return x
}

func ints(dims []ir.Dim) []int64 {
	list := make([]int64, len(dims))
	for i, d := range dims {
		list[i] = int64(d)
	}
	return list
}

func (w *Grower) param(b *ir.Builder, dims []ir.Dim) *ir.Value {
	return b.Declare(ir.Param, w.name("w"), ir.T(ir.F32, dims...), &ir.Init{Func: "normal", Args: []float64{0, 0.5}}, nil)
}

func (w *Grower) input(b *ir.Builder, o operandSpec) *ir.Value {
	d := []ir.DType{ir.F32, ir.F32, ir.F32, ir.F16, ir.BF16}[w.r.IntN(5)]
	v := b.Declare(ir.Input, w.name("x"), o.fill(w.r, d, false, nil).Type, nil, nil)
	w.spec[v] = o
	return v
}

func (w *Grower) name(s string) string { return fmt.Sprint(s, len(w.Graph.Vars)) }

// Feed draws what the inputs hold.
func (w *Grower) Feed() map[string]*eval.Tensor {
	feed := map[string]*eval.Tensor{}
	for _, v := range w.Graph.Vars {
		if o, ok := w.spec[v]; ok {
			feed[v.Name] = o.fill(w.r, v.Type.DType, false, nil)
		}
	}
	return feed
}

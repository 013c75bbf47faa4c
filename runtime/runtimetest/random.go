package runtimetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/runtime"
)

// testGraphs runs random graphs of exact rows: chains that end over their
// operands, views, moves, values read across parts, variables written early
// and read late, and clusters drawn at random. Every result and variable must
// have the evaluator's bits after every step.
func testGraphs(t *testing.T, open func(t *testing.T, threads int) runtime.Backend) {
	b := open(t, 2)
	for seed := range uint64(150) {
		g := randomGraph(t, rand.New(rand.NewPCG(seed, 3)))
		l := Load(t, b, g, int64(seed))
		r := rand.New(rand.NewPCG(seed, 4))
		for step := range 3 {
			feeds := make([]map[string]*eval.Tensor, 1+r.IntN(2))
			for i := range feeds {
				x := eval.New(ir.T(ir.F32, 6, 4))
				for k := range x.F {
					x.F[k] = float64(float32(r.NormFloat64()))
				}
				feeds[i] = map[string]*eval.Tensor{"x": x}
			}
			l.same(t, fmt.Sprintf("seed %d, step %d", seed, step), l.Step(t, feeds...), l.Want(t, feeds...))
			l.same(t, fmt.Sprintf("seed %d, after step %d", seed, step), l.Variables(t), l.WantVariables())
		}
		l.Close(t)
		if t.Failed() {
			t.Fatalf("seed %d:\n%s\n%s", seed, g, l.Program)
		}
	}
}

// grower makes a random graph whose values are all f32 or f16 of 24 elements.
type grower struct {
	r      *rand.Rand
	b      *ir.Builder
	values []*ir.Value
}

func randomGraph(t *testing.T, r *rand.Rand) *ir.Graph {
	t.Helper()
	b := ir.NewBuilder("random")
	w := &grower{r: r, b: b}
	w.values = append(w.values, b.Declare(ir.Input, "x", ir.T(ir.F32, 6, 4), nil, nil))
	var vars []*ir.Value
	for i := range 3 {
		v := b.Declare(ir.State, fmt.Sprintf("s%d", i), ir.T(ir.F32, 6, 4), &ir.Init{Func: "normal", Args: []float64{0, 1}}, nil)
		vars = append(vars, v)
		w.values = append(w.values, v)
	}
	free := vars // each is written at most once
	prepared := len(w.values)
	for _, s := range []ir.Section{ir.Prepare, ir.Forward, ir.Backward, ir.Update} {
		w.b = b.In(s)
		known := w.values
		if s == ir.Prepare {
			w.values = w.values[1:prepared:prepared] // inputs are not there yet
		}
		for range 2 + r.IntN(8) {
			w.node()
			if s != ir.Prepare && len(free) > 0 && r.IntN(5) == 0 {
				w.write(free[0])
				free = free[1:]
			}
		}
		if s == ir.Prepare {
			w.values = append(known[:prepared:prepared], w.values[prepared-1:]...)
		}
	}
	g := b.Graph()
	for range 4 {
		b.Return(w.values[1+r.IntN(len(w.values)-1)])
	}
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	for s := range ir.NumSections {
		drawClusters(r, g.Body[s], 100*int32(s))
	}
	if err := ir.Verify(g, ir.Training); err != nil {
		t.Fatal(err)
	}
	return g
}

// drawClusters puts nodes into clusters such as the passes form, numbered after last: elementwise
// nodes over one shape, of which none waits for a node outside that waits for another.
func drawClusters(r *rand.Rand, body []*ir.Node, last int32) {
	var inside, behind map[*ir.Node]bool // the cluster, and what waits for it outside
	var shape ir.Shape
	for _, n := range body {
		if inside == nil || r.IntN(3) == 0 {
			last++
			inside, behind = map[*ir.Node]bool{}, map[*ir.Node]bool{}
		}
		reads, waits := false, false
		for _, v := range n.In {
			if v != nil && v.Def != nil {
				reads, waits = reads || inside[v.Def], waits || behind[v.Def]
			}
		}
		switch {
		case n.Def().Elem != nil && !waits && (len(inside) == 0 || n.Out[0].Type.Shape == shape) && r.IntN(4) > 0:
			n.Why.Cluster, shape, inside[n] = last, n.Out[0].Type.Shape, true
		case reads || waits:
			behind[n] = true
		}
	}
}

// pick prefers recent values, as networks do.
func (w *grower) pick() *ir.Value {
	n := len(w.values)
	if k := min(n, 4); w.r.IntN(3) > 0 {
		return w.values[n-1-w.r.IntN(k)]
	}
	return w.values[w.r.IntN(n)]
}

// like is v under x's shape and dtype.
func (w *grower) like(x, v *ir.Value) *ir.Value {
	if v.Type.Shape != x.Type.Shape {
		v = w.b.Reshape(v, shapeOf(x)...)
	}
	return v
}

func shapeOf(v *ir.Value) []int64 {
	var d []int64
	for _, n := range v.Type.Shape.Dims() {
		d = append(d, int64(n))
	}
	return d
}

// node appends one node, or a few.
func (w *grower) node() {
	x := w.pick()
	b := w.b
	var y *ir.Value
	switch w.r.IntN(12) {
	case 0:
		y = b.Neg(x)
	case 1:
		y = b.Abs(x)
	case 2:
		y = b.Relu(x)
	case 3:
		y = b.Add(x, w.like(x, w.pick()))
	case 4:
		y = b.Sub(x, w.like(x, w.pick()))
	case 5:
		y = b.Max(x, w.like(x, w.pick()))
	case 6:
		to := ir.F16
		if x.Type.DType == ir.F16 {
			to = ir.F32
		}
		y = b.Cast(x, to)
	case 7:
		y = b.Reshape(x, [][]int64{{24}, {4, 6}, {6, 4}, {2, 3, 4}}[w.r.IntN(4)]...)
	case 8:
		if x.Type.Shape.Rank() != 2 {
			return
		}
		y = b.Transpose(x, 1, 0)
	case 9:
		y = b.Flip(x, 0)
	case 10:
		d := shapeOf(x)
		y = b.Concat(0, b.Slice(x, []int64{0}, []int64{d[0] / 2}, []int64{d[0]}), b.Slice(x, []int64{0}, []int64{0}, []int64{d[0] / 2}))
	default:
		column := b.Slice(x, []int64{-1}, []int64{0}, []int64{1})
		y = b.Sub(x, column) // a broadcast operand
	}
	if y != nil {
		w.values = append(w.values, y)
	}
}

// write makes some value the next one of variable v.
func (w *grower) write(v *ir.Value) {
	x := w.like(v, w.pick())
	if x.Type.DType != v.Type.DType {
		x = w.b.Cast(x, v.Type.DType)
	}
	next := w.b.EmitWrite(ir.OpAdd, []*ir.Value{w.like(v, x), w.values[1+w.r.IntN(3)]}, nil, v)[0]
	if next != nil {
		w.values = append(w.values, next)
	}
}

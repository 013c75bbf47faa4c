package passes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
)

// fuzzAttrs are attributes to try for rows that cannot do without.
var fuzzAttrs = map[string][]ir.Attrs{
	"reshape":       {ir.A("shape", []int{8, 4}), ir.A("shape", []int{32}), ir.A("shape", []int{4, 8})},
	"transpose":     {ir.A("perm", []int{1, 0})},
	"cast":          {ir.A("to", ir.F16), ir.A("to", ir.F32), ir.A("to", ir.BF16)},
	"round":         {ir.A("to", ir.F16), ir.A("to", ir.BF16)},
	"slice":         {ir.A("axes", []int{0}, "starts", []int{0}, "ends", []int{4})},
	"concat":        {ir.A("axis", 0)},
	"reduce_sum":    {ir.A("axes", []int{1}), ir.A("axes", []int{0}, "keep", true)},
	"reduce_mean":   {ir.A("axes", []int{1})},
	"broadcast":     {ir.A("shape", []int{8, 8})},
	"unsqueeze":     {ir.A("axes", []int{0})},
	"gelu":          {nil, ir.A("approx", "tanh")},
	"matmul":        {nil, ir.A("ta", true), ir.A("tb", true)},
	"flip":          {ir.A("axes", []int{0})},
	"split":         {ir.A("axis", 0, "sizes", []int{4, 4})},
	"tile":          {ir.A("reps", []int{1, 1})},
	"sum_to":        {ir.A("shape", []int{8}), ir.A("shape", []int{1, 8})},
	"clip":          {ir.A("min", -1.0, "max", 1.0)},
	"full":          {ir.A("dtype", ir.F32, "value", 0.5, "shape", []int{8, 8})},
	"cumsum":        {ir.A("axis", 0)},
	"pad":           {ir.A("pads", []int{0, 1, 0, 1})},
	"affine":        {ir.A("scale", 0.5, "shift", 1.0)},
	"cross_entropy": {nil},
}

// randomGraph grows a graph from the op table: any row whose inference accepts
// the operands drawn for it. Values are small matrices, vectors and scalars.
// pins says whether some nodes are pinned; rows of without are left out, and
// recurrent rows, which take four dimensions (randomRecurrences).
func randomGraph(r *rand.Rand, size int, pins bool, without ...ir.Op) *ir.Graph {
	return growGraph(r, size, pins, 0, nil, without)
}

// randomRecurrences is randomGraph with recurrent rows and their gradients.
func randomRecurrences(r *rand.Rand, size int, pins bool) *ir.Graph {
	return growGraph(r, size, pins, 6, recurrence, nil)
}

// growGraph grows a graph in which one try in every many is what part appends; 0: none.
func growGraph(r *rand.Rand, size int, pins bool, every int, part func(*ir.Graph, *rand.Rand, []*ir.Value, bool) []*ir.Value, without []ir.Op) *ir.Graph {
	b := ir.NewBuilder("fuzz")
	pool := []*ir.Value{
		b.Declare(ir.Input, "x", ir.T(ir.F32, 8, 8), nil, nil),
		b.Declare(ir.Input, "h", ir.T(ir.F16, 8, 8), nil, nil),
		b.Declare(ir.Param, "w", ir.T(ir.F32, 8, 8), &ir.Init{Func: "normal", Args: []float64{0, 0.5}}, nil),
		b.Declare(ir.Param, "v", ir.T(ir.F32, 8), &ir.Init{Func: "normal", Args: []float64{0, 0.5}}, nil),
		b.Declare(ir.Const, "k", ir.T(ir.F32), &ir.Init{Args: []float64{0.25}}, nil),
		b.Declare(ir.Input, "labels", ir.T(ir.I32, 8), nil, nil),
	}
	g := b.Graph()
	// No row of the update is drawn below. A new one is left out here, so that each seed keeps its graph.
	ops := slices.DeleteFunc(ir.Ops(), func(op ir.Op) bool {
		return op.Def().Family == "recurrent" || op == ir.OpAssign || op == ir.OpAccumTree || op.Def().Is(ir.Caches)
	})
	for tries := 0; g.NumNodes() < size && tries < 60*size; tries++ {
		if every > 0 && r.IntN(every) == 0 {
			pool = append(pool, part(g, r, pool, pins)...)
			continue
		}
		op := ops[r.IntN(len(ops))]
		if r.IntN(4) == 0 { // more of what precision is about
			op = []ir.Op{ir.OpMatmul, ir.OpLinear, ir.OpAdd, ir.OpMul, ir.OpSoftmax, ir.OpRelu, ir.OpReshape, ir.OpTranspose, ir.OpCast}[r.IntN(9)]
		}
		d := op.Def()
		if slices.Contains(without, op) || d.Is(ir.Random) || d.Is(ir.Writer) || d.Is(ir.Collective) || d.Is(ir.Caches) || op == ir.OpForeign || d.Family == "precision" || d.Family == "update" {
			continue
		}
		section := ir.Forward
		if r.IntN(3) == 0 {
			section = ir.Backward
		}
		pool = append(pool, tryNode(g, r, op, section, pool, pins)...)
	}
	b = ir.Edit(g)
	for range 3 {
		b.Return(pool[len(pool)-1-r.IntN(min(len(pool), 8))])
	}
	return g
}

// recurrence appends a recurrent row over matrices of the pool, reshaped, and
// perhaps its gradient, or nothing.
func recurrence(g *ir.Graph, r *rand.Rand, pool []*ir.Value, pins bool) []*ir.Value {
	late := map[*ir.Value]bool{}
	for _, n := range g.Body[ir.Backward] {
		for _, v := range n.Out {
			late[v] = true
		}
	}
	pick := func() *ir.Value { return pool[max(r.IntN(len(pool)), r.IntN(len(pool)))] }
	x, w, dy := pick(), pick(), pick()
	for _, v := range []*ir.Value{x, w, dy} {
		if !v.Type.DType.Float() || v.Type.Shape != ir.T(ir.F32, 8, 8).Shape {
			return nil
		}
	}
	b := ir.Edit(g).In(ir.Forward)
	if late[x] || late[w] {
		b = b.In(ir.Backward)
	}
	if pins && r.IntN(6) == 0 {
		b = b.Pinned([]ir.Pin{ir.PinF32, ir.PinLow, ir.PinTF32}[r.IntN(3)])
	}
	back := b.In(ir.Backward)
	emit := func(op ir.Op, in ...*ir.Value) []*ir.Value { return b.Emit(op, in, nil) }
	var out []*ir.Value
	switch flow := back.Reshape(dy, 4, 2, 1, 8); r.IntN(3) {
	case 0:
		s := emit(ir.OpLSTM, b.Reshape(x, 4, 2, 1, 8), b.Reshape(b.Slice(w, []int64{0}, []int64{0}, []int64{2}), 1, 2, 8))
		if b.Err() == nil {
			d := back.Emit(ir.OpLSTMGrad, []*ir.Value{s[0].Def.In[1], s[2], s[1], nil, s[0]}, nil)
			out = []*ir.Value{b.Reshape(s[2], 8, 8), b.Reshape(s[0], 2, 8), back.Reshape(d[0], 8, 8)}
		}
	case 1:
		s := emit(ir.OpRNN, b.Reshape(x, 4, 2, 1, 8), b.Reshape(w, 1, 8, 8))
		if b.Err() == nil {
			d := back.Emit(ir.OpRNNGrad, []*ir.Value{s[0].Def.In[1], s[0], flow}, nil)
			out = []*ir.Value{b.Reshape(s[0], 8, 8), back.Reshape(d[0], 8, 8)}
		}
	case 2:
		six := func(v *ir.Value, rows int64) *ir.Value {
			return b.Slice(v, []int64{0, 1}, []int64{0, 0}, []int64{rows, 6})
		}
		s := emit(ir.OpGRU, b.Reshape(six(x, 8), 4, 2, 1, 6), b.Reshape(six(w, 2), 1, 2, 6))
		if b.Err() == nil {
			out = []*ir.Value{b.Reshape(s[0], 2, 8), b.Reshape(s[1], 8, 8)}
		}
	}
	if b.Err() != nil || back.Err() != nil {
		return nil
	}
	return slices.DeleteFunc(out, func(v *ir.Value) bool { return v == nil })
}

// tryNode appends a node of op with operands from the pool, or nothing.
func tryNode(g *ir.Graph, r *rand.Rand, op ir.Op, s ir.Section, pool []*ir.Value, pins bool) []*ir.Value {
	d := op.Def()
	n := len(d.In)
	for n > 0 && d.In[n-1].Optional && r.IntN(2) == 0 {
		n--
	}
	if n > 0 && d.In[n-1].Variadic {
		n += r.IntN(2)
	}
	late := map[*ir.Value]bool{}
	for _, x := range g.Body[ir.Backward] {
		for _, v := range x.Out {
			late[v] = true
		}
	}
	in := make([]*ir.Value, n)
	for i := range in {
		in[i] = pool[max(r.IntN(len(pool)), r.IntN(len(pool)))]
		if late[in[i]] {
			s = ir.Backward
		}
	}
	var a ir.Attrs
	if list := fuzzAttrs[d.Name]; list != nil {
		a = list[r.IntN(len(list))]
	}
	b := ir.Edit(g).In(s)
	if s == ir.Backward && len(g.Body[ir.Forward]) > 0 && r.IntN(2) == 0 {
		b = b.Deriving(g.Body[ir.Forward][r.IntN(len(g.Body[ir.Forward]))], "")
	}
	if pins && r.IntN(12) == 0 {
		b = b.Pinned([]ir.Pin{ir.PinF32, ir.PinLow, ir.PinTF32}[r.IntN(3)])
	}
	out := b.Emit(op, in, a)
	if b.Err() != nil {
		return nil
	}
	var kept []*ir.Value
	for _, v := range out {
		if v != nil && v.Type.DType != ir.F64 && (v.Type.DType.Float() || v.Type.DType == ir.Bool) && v.Type.Shape.Elements() <= 256 {
			kept = append(kept, v)
		}
	}
	return kept
}

// checkPipeline runs the precision passes over one graph under one policy: no
// error, the same bits as amp alone, the same text from shuffled nodes.
func checkPipeline(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	g := randomGraph(r, 4+r.IntN(30), true)
	names := PolicyNames()
	p, err := PolicyNamed(names[r.IntN(len(names))])
	if err != nil {
		t.Fatal(err)
	}
	source := g.String()
	if p.Manual && ir.Verify(g, ir.Mixed) != nil {
		return // the graph is not one a user could compile under manual
	}
	env := inputs(g, r, 8)
	if _, err := eval.Run(g, env, eval.Options{Seed: 1}); err != nil {
		return // data the rows refuse: an index out of range
	}
	run := func(only []string, check bool) *ir.Graph {
		c := g.Clone()
		if err := Run(c, Config{Policy: p, Debugging: Debugging{Only: only, Check: check}}); err != nil {
			t.Fatalf("seed %d, policy %s: %v\n%s\nfrom\n%s", seed, p.Name, err, c, source)
		}
		return c
	}
	plain := run([]string{"casts", "cluster", "amp", "masks"}, false)
	full := run(precisionPasses, false)
	if shuffled := run(precisionPasses, true); shuffled.String() != full.String() {
		t.Fatalf("seed %d, policy %s: shuffled\n%s\nplain\n%s\nfrom\n%s", seed, p.Name, shuffled, full, source)
	}
	if err := same(results(t, plain, env), results(t, full, env)); err != nil {
		t.Fatalf("seed %d, policy %s: %v\n%s\nfrom amp\n%s\nfrom\n%s", seed, p.Name, err, full, plain, source)
	}
	if p.Low == ir.Invalid && !p.TF32 && !p.Manual {
		if err := same(results(t, g, env), results(t, full, env)); err != nil {
			t.Logf("seed %d: source casts legalized: %v", seed, err)
		}
	}
}

func TestRandomGraphs(t *testing.T) {
	n := 400
	if testing.Short() {
		n = 100
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { checkPipeline(t, uint64(seed)) })
	}
}

func FuzzPipeline(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(checkPipeline)
}

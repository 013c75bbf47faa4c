package passes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
)

// fuzzAttrs are attributes to try for rows that cannot do without.
var fuzzAttrs = map[string][]ir.Attrs{
	"reshape":         {ir.A("shape", []int{8, 4}), ir.A("shape", []int{32}), ir.A("shape", []int{4, 8})},
	"transpose":       {ir.A("perm", []int{1, 0})},
	"cast":            {ir.A("to", ir.F16), ir.A("to", ir.F32), ir.A("to", ir.BF16)},
	"round":           {ir.A("to", ir.F16), ir.A("to", ir.BF16)},
	"slice":           {ir.A("axes", []int{0}, "starts", []int{0}, "ends", []int{4})},
	"concat":          {ir.A("axis", 0)},
	"reduce_sum":      {ir.A("axes", []int{1}), ir.A("axes", []int{0}, "keep", true)},
	"reduce_mean":     {ir.A("axes", []int{1})},
	"broadcast":       {ir.A("shape", []int{8, 8})},
	"unsqueeze":       {ir.A("axes", []int{0})},
	"gelu":            {nil, ir.A("approx", "tanh")},
	"matmul":          {nil, ir.A("ta", true), ir.A("tb", true)},
	"flip":            {ir.A("axes", []int{0})},
	"split":           {ir.A("axis", 0, "sizes", []int{4, 4})},
	"tile":            {ir.A("reps", []int{1, 1})},
	"sum_to":          {ir.A("shape", []int{8}), ir.A("shape", []int{1, 8})},
	"clip":            {ir.A("lo", -1.0, "hi", 1.0)},
	"full":            {ir.A("dtype", ir.F32, "value", 0.5, "shape", []int{8, 8})},
	"cumsum":          {ir.A("axis", 0)},
	"pad":             {ir.A("lo", []int{0, 1}, "hi", []int{0, 1}), ir.A("lo", []int{2}, "hi", []int{0}, "mode", "edge")},
	"squeeze":         {ir.A("axes", []int{0})},
	"iota":            {ir.A("shape", []int{8, 8}, "axis", 0)},
	"one_hot":         {ir.A("depth", 8)},
	"topk":            {ir.A("k", 3), ir.A("k", 8, "axis", 0)},
	"affine":          {ir.A("scale", 0.5, "shift", 1.0)},
	"cross_entropy":   {nil},
	"dropout":         {ir.A("p", 0.5, "rng", 1)},
	"dropout_grad":    {ir.A("p", 0.5, "rng", 1)},
	"uniform":         {ir.A("shape", []int{8, 8}, "rng", 2), ir.A("shape", []int{8}, "rng", 3)},
	"normal":          {ir.A("shape", []int{8, 8}, "rng", 4, "dtype", ir.F16), ir.A("shape", []int{8, 8}, "rng", 5)},
	"bernoulli":       {ir.A("shape", []int{8, 8}, "rng", 6)},
	"multiplier":      {nil, ir.A("max", 1.0)},
	"schedule":        {ir.A("kind", "cosine", "total", 10)},
	"all_reduce":      {ir.A("ranks", 1), ir.A("ranks", 1, "msg", ir.BF16, "op", "mean")},
	"all_gather":      {ir.A("ranks", 1, "axis", 0)},
	"reduce_scatter":  {ir.A("ranks", 1, "axis", 0)},
	"accum_tree":      {ir.A("level", 0), ir.A("level", 1)},
	"bias_correction": {ir.A("beta", 0.9)},
	"ema":             {ir.A("decay", 0.9)},
	"sgd":             {ir.A("momentum", 0.9), nil},
}

// part appends some nodes to a graph, with operands from the pool, or none, and gives
// the values that later nodes may read.
type part func(g *ir.Graph, r *rand.Rand, pool []*ir.Value, pins bool) []*ir.Value

// randomGraph grows a graph from the op table: any row whose inference accepts
// the operands drawn for it. Values are small matrices, vectors and scalars.
// pins says whether some nodes are pinned; rows of without are left out.
func randomGraph(r *rand.Rand, size int, pins bool, without ...ir.Op) *ir.Graph {
	return growGraph(r, size, pins, 0, nil, without)
}

// randomRecurrences is randomGraph with recurrent rows and their gradients.
func randomRecurrences(r *rand.Rand, size int, pins bool, without ...ir.Op) *ir.Graph {
	return growGraph(r, size, pins, 6, recurrence, without)
}

// randomCaches is randomGraph with caches of sequences.
func randomCaches(r *rand.Rand, size int, pins bool, without ...ir.Op) *ir.Graph {
	return growGraph(r, size, pins, 5, caching, without)
}

// without are the rows that target runs no node of, and more: a graph with one of them is
// not lowered.
func without(target lower.Target, more ...ir.Op) []ir.Op {
	x := []*ir.Value{{Type: ir.T(ir.F32, 8)}}
	for _, op := range ir.Ops() {
		if op.Def().Is(ir.Collective) && target.Rule(&ir.Node{Op: op, In: x, Out: x}) == nil {
			more = append(more, op)
		}
	}
	return more
}

// inParts reports whether random graphs hold op in parts only: it takes four dimensions,
// or no inference says what it returns.
func inParts(op ir.Op) bool {
	return op.Def().Family == "recurrent" || op.Def().Is(ir.Caches) || op == ir.OpForeign
}

// growGraph grows a graph in which one try in every many is what more appends; 0: none.
func growGraph(r *rand.Rand, size int, pins bool, every int, more part, without []ir.Op) *ir.Graph {
	b := ir.NewBuilder("fuzz")
	pool := []*ir.Value{
		b.Declare(ir.Input, "x", ir.T(ir.F32, 8, 8), nil, nil),
		b.Declare(ir.Input, "h", ir.T(ir.F16, 8, 8), nil, nil),
		b.Declare(ir.Param, "w", ir.T(ir.F32, 8, 8), &ir.Init{Func: "normal", Args: []float64{0, 0.5}}, nil),
		b.Declare(ir.Param, "v", ir.T(ir.F32, 8), &ir.Init{Func: "normal", Args: []float64{0, 0.5}}, nil),
		b.Declare(ir.Const, "k", ir.T(ir.F32), &ir.Init{Args: []float64{0.25}}, nil),
		b.Declare(ir.Input, "labels", ir.T(ir.I32, 8), nil, nil),
		b.Declare(ir.Input, "count", ir.T(ir.I32), nil, nil),
		b.Declare(ir.Input, "flag", ir.T(ir.Bool), nil, nil),
	}
	g := b.Graph()
	ops := slices.DeleteFunc(ir.Ops(), func(op ir.Op) bool { return inParts(op) || slices.Contains(without, op) })
	for tries := 0; g.NumNodes() < size && tries < 60*size; tries++ {
		if every > 0 && r.IntN(every) == 0 {
			pool = append(pool, more(g, r, pool, pins)...)
			continue
		}
		op := ops[r.IntN(len(ops))]
		if r.IntN(4) == 0 { // more of what precision is about
			op = []ir.Op{ir.OpMatmul, ir.OpLinear, ir.OpAdd, ir.OpMul, ir.OpSoftmax, ir.OpRelu, ir.OpReshape, ir.OpTranspose, ir.OpCast}[r.IntN(9)]
		}
		if slices.Contains(without, op) {
			continue
		}
		if op.Def().Is(ir.Writer) {
			tryWrite(g, r, op, pool)
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

// draw is a value of the pool for operand i of a row, one of the last rather than one of
// the first; for one that is given by name, a scalar.
func draw(r *rand.Rand, d *ir.Def, i int, pool []*ir.Value) *ir.Value {
	if o := d.In[min(i, len(d.In)-1)]; o.Named && o.Class == ir.Fixed {
		var scalars []*ir.Value
		for _, v := range pool {
			if v.Type.Shape.Rank() == 0 && kindOf(v.Type.DType)&max(o.Kinds, ir.KFloat) != 0 {
				scalars = append(scalars, v)
			}
		}
		if len(scalars) > 0 {
			return scalars[r.IntN(len(scalars))]
		}
	}
	return pool[max(r.IntN(len(pool)), r.IntN(len(pool)))]
}

func kindOf(d ir.DType) ir.Kinds {
	switch {
	case d == ir.Bool:
		return ir.KBool
	case d.Integer():
		return ir.KInt
	}
	return ir.KFloat
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
		in[i] = draw(r, d, i, pool)
		if late[in[i]] {
			s = ir.Backward
		}
	}
	var a ir.Attrs
	if list := fuzzAttrs[d.Name]; list != nil {
		a = list[r.IntN(len(list))]
	}
	if d.Is(ir.Collective) {
		a = a.With("seq", g.NumNodes()) // all ranks send in this order
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
		if v != nil && v.Type.Shape.Elements() <= 256 {
			kept = append(kept, v)
		}
	}
	return kept
}

// checkPipeline runs the precision passes over one graph under one policy, a random one if policy is
// empty: no error, the same bits as amp alone, the same text from shuffled nodes.
func checkPipeline(t *testing.T, seed uint64, policy string, grow func(r *rand.Rand, size int, pins bool, without ...ir.Op) *ir.Graph) {
	r := rand.New(rand.NewPCG(seed, 7))
	g := grow(r, 4+r.IntN(30), true)
	names := PolicyNames()
	drawn := names[r.IntN(len(names))]
	if policy == "" {
		policy = drawn
	}
	p, err := PolicyNamed(policy)
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
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			checkPipeline(t, uint64(seed), "", randomGraph)
			checkPipeline(t, uint64(seed), "", randomImages)
		})
	}
	// Names of casts of shared casts depended on the order of nodes once.
	checkPipeline(t, 18, "o2-f16", randomImages)
	checkPipeline(t, 140, "o2-bf16", randomImages)
}

func FuzzPipeline(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkPipeline(t, seed, "", randomGraph) })
}

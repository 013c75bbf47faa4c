package eval

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"ampc/ir"
)

// rowCase is one node to check: its row against its expansion, and its first
// and second derivatives against differences, in float64.
type rowCase struct {
	name  string
	op    ir.Op
	in    []*Tensor // nil: absent
	attrs ir.Attrs
	fixed []int // results the loss leaves out: no gradient flows from them
	first bool  // second derivatives are zero or undefined at kinks: check the first only
}

// drawn counts the tensors of each shape, so that a new case changes the
// numbers of few others.
var drawn = map[string]uint64{}

// generator is a source of numbers for the next tensor of these dimensions.
func generator(dims []ir.Dim) *rand.Rand {
	name := fmt.Sprint(dims)
	h := fnv.New64a()
	h.Write([]byte(name))
	drawn[name]++
	return rand.New(rand.NewPCG(h.Sum64(), drawn[name]))
}

// normal is a tensor of normal numbers.
func normal(dims ...ir.Dim) *Tensor {
	t := New(ir.T(ir.F32, dims...))
	r := generator(dims)
	for i := range t.F {
		t.F[i] = short(r.NormFloat64())
	}
	return t
}

// short drops digits, so that cases read well in testdata/ops.
func short(x float64) float64 { return math.Round(x*1000) / 1000 }

// uniform is a tensor of numbers between lo and hi.
func uniform(lo, hi float64, dims ...ir.Dim) *Tensor {
	t := New(ir.T(ir.F32, dims...))
	r := generator(dims)
	for i := range t.F {
		t.F[i] = short(lo + (hi-lo)*r.Float64())
	}
	return t
}

// indices is a tensor of integers below n.
func indices(n int64, dims ...ir.Dim) *Tensor {
	t := New(ir.T(ir.I32, dims...))
	r := generator(dims)
	for i := range t.I {
		t.I[i] = r.Int64N(n)
	}
	return t
}

// bench is a case's graph: the node, and the weighted sum of its results.
type bench struct {
	c    rowCase
	b    *ir.Builder
	env  map[string]*Tensor
	vars []*ir.Value // the float operands
	node *ir.Node
	draw func(...ir.Dim) *Tensor // the weights of a loss
}

func newBench(t *testing.T, c rowCase) *bench {
	k := &bench{c: c, b: ir.NewBuilder("check"), env: map[string]*Tensor{}, draw: normal}
	in := make([]*ir.Value, len(c.in))
	for i, x := range c.in {
		if x != nil {
			in[i] = k.input(fmt.Sprintf("in%d", i), x)
		}
	}
	out := k.b.Emit(c.op, in, c.attrs)
	if err := k.b.Err(); err != nil {
		t.Fatal(err)
	}
	k.node = out[0].Def
	for i, x := range c.in {
		if x != nil && x.F != nil && k.node.OperandDef(i).NoGrad == "" {
			k.vars = append(k.vars, in[i])
		}
	}
	return k
}

func (k *bench) input(name string, x *Tensor) *ir.Value {
	k.env[name] = x
	return k.b.Declare(ir.Input, name, x.Type, nil, nil)
}

// weighted is Σ v·weights with fresh random weights.
func (k *bench) weighted(name string, vs []*ir.Value) *ir.Value {
	var sum *ir.Value
	for i, v := range vs {
		if v == nil || !v.Type.DType.Float() {
			continue
		}
		w := k.input(fmt.Sprintf("%s%d", name, i), k.draw(v.Type.Shape.Dims()...))
		term := k.b.Mul(v, w)
		if v.Type.Shape.Rank() > 0 {
			term = k.b.ReduceSum(term, false)
		}
		if sum != nil {
			term = k.b.Add(sum, term)
		}
		sum = term
	}
	return sum
}

// grads appends the gradients of loss in vars, expanding rows without a gradient.
func grads(b *ir.Builder, loss *ir.Value, vars []*ir.Value) []*ir.Value {
	return gradsFrom(b, loss, b.Scalar(ir.F32, 1), vars)
}

// gradsFrom starts with seed as the gradient of loss.
func gradsFrom(b *ir.Builder, loss, seed *ir.Value, vars []*ir.Value) []*ir.Value {
	d := map[*ir.Value]*ir.Value{loss: seed}
	var back func(nodes []*ir.Node)
	back = func(nodes []*ir.Node) {
		for i := len(nodes) - 1; i >= 0; i-- {
			n := nodes[i]
			dn := make([]*ir.Value, len(n.Out))
			some := false
			for k, v := range n.Out {
				dn[k] = d[v]
				some = some || d[v] != nil
			}
			if !some {
				continue
			}
			if n.Def().Grad == nil {
				if n.Def().Expand == nil {
					continue
				}
				start := len(b.Graph().Body[ir.Forward])
				for k, v := range n.Def().Expand(b, n) {
					if dn[k] != nil {
						d[v] = dn[k]
					}
				}
				back(append([]*ir.Node(nil), b.Graph().Body[ir.Forward][start:]...))
				continue
			}
			for k, g := range n.Def().Grad(b, n, dn) {
				if g == nil || n.In[k] == nil {
					continue
				}
				if v := n.In[k]; d[v] != nil {
					d[v] = b.Add(d[v], g)
				} else {
					d[v] = g
				}
			}
		}
	}
	back(append([]*ir.Node(nil), b.Graph().Body[ir.Forward]...))
	out := make([]*ir.Value, len(vars))
	for i, v := range vars {
		out[i] = d[v]
	}
	return out
}

// compare holds the gradients of loss against central differences.
func (k *bench) compare(t *testing.T, what string, loss *ir.Value, d []*ir.Value) {
	t.Helper()
	if err := k.b.Err(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	at := func() float64 {
		r, err := Run(k.b.Graph(), k.env, Options{Float64: true})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return r.Value(loss).F[0]
	}
	r, err := Run(k.b.Graph(), k.env, Options{Float64: true})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	const h = 1e-5
	for i, v := range k.vars {
		x := k.env[v.Name]
		for e := 0; e < x.Len(); e += 1 + x.Len()/7 {
			old := x.F[e]
			x.F[e] = old + h
			up := at()
			x.F[e] = old - h
			down := at()
			x.F[e] = old
			want, got := (up-down)/(2*h), 0.0
			if d[i] != nil {
				if d[i].Type.Shape != v.Type.Shape {
					t.Fatalf("%s: gradient of %s has type %s", what, v, d[i].Type)
				}
				got = r.Value(d[i]).F[e]
			}
			if !(math.Abs(got-want) <= 1e-6*(1+math.Abs(want)+math.Abs(r.Value(loss).F[0]))) {
				t.Errorf("%s: gradient of operand %s, element %d: got %g, differences say %g", what, v, e, got, want)
				return
			}
		}
	}
}

// adjoint holds the gradients d of loss = <f(x), w> to be the transpose of the
// derivative in every element at once: <Jv, w> = <v, J'w> for random v over all
// operands, Jv by differences along v. compare looks at single elements.
func (k *bench) adjoint(t *testing.T, loss *ir.Value, d []*ir.Value) {
	t.Helper()
	const h = 1e-5
	draw := rand.New(rand.NewPCG(uint64(len(k.vars)), uint64(k.c.op)))
	v := make([][]float64, len(k.vars))
	for i, x := range k.vars {
		v[i] = make([]float64, k.env[x.Name].Len())
		for e := range v[i] {
			v[i][e] = draw.NormFloat64()
		}
	}
	run := func(step float64) *Result {
		env := maps.Clone(k.env)
		for i, x := range k.vars {
			env[x.Name] = k.env[x.Name].Clone()
			for e := range v[i] {
				env[x.Name].F[e] += step * v[i][e]
			}
		}
		r, err := Run(k.b.Graph(), env, Options{Float64: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := (run(h).Value(loss).F[0] - run(-h).Value(loss).F[0]) / (2 * h)
	at, got, size := run(0), 0.0, 1+math.Abs(want)
	for i := range k.vars {
		if d[i] == nil {
			continue
		}
		for e, g := range at.Value(d[i]).F {
			got += v[i][e] * g
			size += math.Abs(v[i][e] * g)
		}
	}
	if !(math.Abs(got-want) <= 1e-6*(size+math.Abs(at.Value(loss).F[0]))) {
		t.Errorf("adjoint: <v, J'w> is %g, <Jv, w> is %g by differences", got, want)
	}
}

func checkRow(t *testing.T, c rowCase) {
	covered[c.op] = true
	k := newBench(t, c)
	k.text(t)
	k.types(t)
	k.symbolic(t)
	k.expansion(t)
	k.ranges(t)
	k.nonfinite(t)
	if c.op.Def().NoGrad != "" {
		return
	}
	newBench(t, c).units(t)
	loss := k.weighted("c", k.results())
	d := grads(k.b, loss, k.vars)
	k.compare(t, "first", loss, d)
	k.adjoint(t, loss, d)
	if c.first || t.Failed() {
		return
	}
	if second := k.weighted("e", d); second != nil {
		k.compare(t, "second", second, grads(k.b, second, k.vars))
	}
}

// results are the node's results that a loss may read.
func (k *bench) results() []*ir.Value {
	out := append([]*ir.Value(nil), k.node.Out...)
	for _, i := range k.c.fixed {
		out[i] = nil
	}
	return out
}

// units seeds the sweep with a loss scale: every gradient must carry it once,
// and the second ones as well, since they are linear in the first.
func (k *bench) units(t *testing.T) {
	t.Helper()
	k.draw = func(d ...ir.Dim) *Tensor { return New(ir.T(ir.F32, d...)) } // units ask for no numbers
	scale := k.b.Declare(ir.State, "scale", ir.T(ir.F32), nil, ir.A("role", ir.RoleScale))
	check := func(what string, d []*ir.Value) {
		if err := k.b.Err(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := ir.InferUnits(k.b.Graph()); err != nil {
			t.Errorf("%s gradients: %v", what, err)
		}
		for i, g := range d {
			if g != nil && g.Unit != "scale" && !constant(g) {
				t.Errorf("%s gradient of %s has unit %s", what, k.vars[i], g.Unit)
			}
		}
	}
	loss := k.weighted("c", k.results())
	if loss == nil {
		return
	}
	d := gradsFrom(k.b, loss, scale, k.vars)
	check("first", d)
	if k.c.first || t.Failed() {
		return
	}
	if second := k.weighted("e", d); second != nil {
		check("second", grads(k.b, second, k.vars))
	}
}

// constant reports whether g reads nothing but constants: zeros have any unit.
func constant(g *ir.Value) bool {
	if g.Def == nil {
		return false
	}
	for _, v := range g.Def.In {
		if v != nil && !constant(v) {
			return false
		}
	}
	return true
}

// expansion compares the row with what it says it equals, up to the rounding
// of the expansion's constants to f32.
func (k *bench) expansion(t *testing.T) {
	if k.node.Def().Expand == nil {
		return
	}
	want, err := Node(k.node, k.c.in, Options{Float64: true})
	if err != nil {
		t.Fatal(err)
	}
	g, err := expansionGraph(k.node)
	if err != nil {
		t.Fatalf("expansion: %v", err)
	}
	env := map[string]*Tensor{}
	for i, x := range k.c.in {
		if x != nil {
			env[operandName(i)] = x
		}
	}
	r, err := Run(g, env, Options{Float64: true})
	if err != nil {
		t.Fatalf("expansion: %v", err)
	}
	if len(g.Return) != len(want) {
		t.Fatalf("expansion has %d results, the row %d", len(g.Return), len(want))
	}
	for i, v := range g.Return {
		if v.Type.Shape != k.node.Out[i].Type.Shape {
			t.Errorf("expansion: result %d is %s, want %s", i, v.Type, k.node.Out[i].Type)
			continue
		}
		got := r.Value(v)
		for e := range got.Len() {
			if x, y := got.At(e), want[i].At(e); !(math.Abs(x-y) <= 0x1p-23*(1+math.Abs(y))) {
				t.Errorf("expansion: result %d element %d is %g, the row says %g", i, e, x, y)
				break
			}
		}
	}
}

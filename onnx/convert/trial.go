package convert

import (
	"fmt"
	"math"
	"slices"

	"ampc/ir"
	"ampc/onnx"
	"ampc/passes"
)

// Trial is a model in which each node rounds to 16 bits or does not, as an input of
// its own says: assignments are tried without making a model of each.
type Trial struct {
	// Graph is the source's with an input half.INDEX : bool[] for each node that may
	// compute in 16 bits. Such a node rounds its operands and its results to them and
	// computes in f32 between, as runtimes do with one node at a time.
	Graph *ir.Graph
	// Flags are the names of these inputs by node, "" for a node that stays f32, and
	// Fixed why it does, where it reads f32.
	Flags, Fixed []string

	units *units
	p     *convertPlan
}

// NewTrial makes the trial of m, imported as x, under a policy with a 16-bit dtype.
// What the policy's rules keep, or f32 outputs, stays f32.
func NewTrial(m *onnx.Model, x *onnx.Imported, policy passes.Policy) (*Trial, error) {
	s := findUnits(m, x)
	plans, err := s.decide(policy, Options{}) // which functions take 16 bits
	if err != nil {
		return nil, err
	}
	p, err := plans[0].candidates(policy)
	if err != nil {
		return nil, err
	}
	n := len(m.Graph.Nodes)
	t := &Trial{Flags: make([]string, n), Fixed: p.why, units: s, p: p}
	for i := range n {
		if p.half[i] {
			t.Flags[i] = fmt.Sprintf("half.%d", i)
		}
	}
	g, at := x.Graph.CloneMap()
	r := rounding{t: t, b: ir.Edit(g), low: policy.Low, flags: map[int]*ir.Value{}, made: map[edge]*ir.Value{}, result: map[*ir.Value]*ir.Value{}, stay: map[edge]bool{}}
	r.build(g, at)
	t.Graph = g
	return t, r.b.Err()
}

// candidates is a plan of the same unit in which every node computes in 16 bits that may, but those
// that f32 outputs keep in f32.
func (p *convertPlan) candidates(policy passes.Policy) (*convertPlan, error) {
	c := newPlan(p.u, policy)
	c.products, c.up = p.products, p.up
	c.index(Options{})
	c.place()
	for i, n := range c.m.Graph.Nodes {
		c.half[i] = c.seen[i] && c.floats(n) || c.free[i]
		if p.last[i] {
			c.half[i], c.why[i] = false, p.why[i]
		}
		c.free[i] = c.half[i]
	}
	c.pinned(policy.Rules, make([]effect, len(policy.Rules)))
	c.legal()
	return c, c.veto()
}

// edge is a value as a node reads it.
type edge struct {
	v    *ir.Value
	node int
}

// rounding puts the roundings into the graph of a trial.
type rounding struct {
	t      *Trial
	b      *ir.Builder
	low    ir.DType
	flags  map[int]*ir.Value
	made   map[edge]*ir.Value
	result map[*ir.Value]*ir.Value // what later nodes read in place of a result
	stay   map[edge]bool           // operands that stay f32
}

func (r *rounding) build(g *ir.Graph, at map[*ir.Value]*ir.Value) {
	for i, n := range r.t.p.m.Graph.Nodes {
		for k, name := range n.In {
			if v := r.t.p.x.Values[name]; v != nil && r.t.p.stays(n, k) {
				r.stay[edge{at[v], i}] = true
			}
		}
	}
	nodes := g.Body[ir.Forward]
	g.Body[ir.Forward] = nil
	for _, n := range nodes {
		i := r.line(n)
		for k, v := range n.In {
			if v != nil && v.Type.DType == ir.F32 && (v.Def == nil || r.line(v.Def) != i) {
				n.In[k] = r.read(v, i)
			}
		}
		g.Body[ir.Forward] = append(g.Body[ir.Forward], n)
	}
	for k, v := range g.Return {
		if v.Def != nil && v.Type.DType == ir.F32 {
			g.Return[k] = r.after(v)
		}
	}
}

// line is the node of the model that n comes from, −1 for none.
func (r *rounding) line(n *ir.Node) int {
	if i := n.Pos.Line; n.Pos.File != "" && i >= 0 && i < len(r.t.Flags) {
		return i
	}
	return -1
}

// after is a result as other nodes find it.
func (r *rounding) after(v *ir.Value) *ir.Value {
	if v.Def == nil {
		return v
	}
	if r.result[v] == nil {
		r.result[v] = r.rounded(v, r.line(v.Def))
	}
	return r.result[v]
}

// read is v as node i reads it.
func (r *rounding) read(v *ir.Value, i int) *ir.Value {
	e := edge{v, i}
	if r.made[e] == nil {
		r.made[e] = r.after(v)
		if !r.stay[e] {
			r.made[e] = r.rounded(r.made[e], i)
		}
	}
	return r.made[e]
}

// rounded is v in 16 bits where the flag of node i is set.
func (r *rounding) rounded(v *ir.Value, i int) *ir.Value {
	if i < 0 || r.t.Flags[i] == "" {
		return v
	}
	if r.flags[i] == nil {
		r.flags[i] = r.b.Declare(ir.Input, r.t.Flags[i], ir.T(ir.Bool), nil, nil)
	}
	low := r.b.Emit(ir.OpRound, []*ir.Value{v}, ir.A("to", r.low))[0]
	return r.b.Where(r.flags[i], low, v)
}

// Recording is the source's graph with the largest magnitude of every value that a
// node reads or makes in f32 as its results, and the names of the values in their order.
func Recording(x *onnx.Imported) (*ir.Graph, []string, error) {
	g, at := x.Graph.CloneMap()
	b := ir.Edit(g)
	var names []string
	var most []*ir.Value
	for name, v := range x.Values {
		if v.Type.DType == ir.F32 && v.Type.Shape.Elements() > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		v := at[x.Values[name]] // infinities stay what they are in 16 bits
		v = b.Abs(b.Where(b.IsInf(v), b.Scalar(ir.F32, 0), v))
		if v != nil && v.Type.Shape.Rank() > 0 {
			v = b.ReduceMax(v, false)
		}
		most = append(most, v)
	}
	g.Return = most
	return g, names, b.Err()
}

// margin is the factor by which values may exceed those seen on the data.
const margin = 8

// Outside says which nodes leave the range of 16 bits on data with these largest
// magnitudes, and by what value.
func (t *Trial) Outside(most map[string]float64) []string {
	why := make([]string, len(t.Flags))
	for i, n := range t.p.m.Graph.Nodes {
		if t.Flags[i] != "" {
			why[i] = t.p.outside(n, most)
		}
	}
	return why
}

// outside is why a node leaves the range of 16 bits on data with these largest magnitudes, "" if it
// does not.
func (p *convertPlan) outside(n *onnx.Node, most map[string]float64) string {
	limit := p.low.Max() / margin
	for k, name := range slices.Concat(n.In, n.Out) {
		x, ok := most[name]
		if !ok || k < len(n.In) && (p.stays(n, k) || p.inits[name] != nil) || x <= limit {
			continue
		}
		if math.IsNaN(x) {
			return fmt.Sprintf("%q is not a number on the data", name)
		}
		return fmt.Sprintf("%q reaches %.3g on the data", name, x)
	}
	return ""
}

// priced is an assignment without nodes whose casts cost more than 16 bits save.
func (t *Trial) priced(half []bool) []bool {
	p := newPlan(t.p.u, passes.Policy{Low: t.p.low})
	p.index(Options{})
	p.half, p.free = slices.Clone(half), slices.Clone(half)
	p.price()
	return p.half
}

// Rules say an assignment as a policy's rules, in which only nodes stand that the
// policy itself may decide otherwise.
func (t *Trial) Rules(policy passes.Policy, half []bool) (passes.Policy, error) {
	plans, err := t.units.decide(policy, Options{})
	if err != nil {
		return policy, err
	}
	probe := plans[0]
	half = t.priced(half)
	wanted := map[string]bool{} // results by what their node is to compute in
	named := map[string]bool{}
	for i, n := range t.p.m.Graph.Nodes {
		if t.Flags[i] == "" {
			continue
		}
		y := n.Result()
		wanted[y] = half[i]
		named[y] = named[y] || probe.against(i, half[i])
	}
	return ruled(policy, wanted, named), nil
}

// against reports whether a rule is needed for node i to compute as it is wanted to.
func (p *convertPlan) against(i int, half bool) bool {
	return !p.free[i] && half != p.half[i] || !half && p.free[i]
}

// ruled is the policy with rules for the results that are named: whether their nodes are wanted in
// 16 bits.
func ruled(policy passes.Policy, wanted, named map[string]bool) passes.Policy {
	for y, on := range named { // a name is a scope, too: what stands in it says itself
		for z := range wanted {
			if on && wanted[z] != wanted[y] && passes.Matches(y, z) {
				named[z] = true
			}
		}
	}
	var names []string
	for y, on := range named {
		if on {
			names = append(names, y)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return slices.Compare([]byte(a), []byte(b))
	})
	for _, y := range names {
		if wanted[y] {
			policy = policy.Lower(y)
		} else {
			policy = policy.Keep(y)
		}
	}
	return policy
}

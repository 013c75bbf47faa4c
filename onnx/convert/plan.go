package convert

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/onnx"
	"ampc/passes"
)

// Report is what a conversion comes to.
type Report struct {
	Nodes   int // of all graphs, and functions once
	Low     int // that compute in 16 bits
	Casts   int // that were added
	Weights int // initializers that are stored in 16 bits
	Kept    []Kept
}

// Kept is a node that reads f32, and computes in it.
type Kept struct {
	Graph    string // where it is, "" for the main graph
	Index    int    // among the nodes there
	Name, Op string
	Result   string // the first that has a name
	Why      string
}

// Options say more than a policy does.
type Options struct {
	// Low says which inputs and outputs take the 16-bit dtype; nil: none do.
	Low func(name string) bool
	// Kernels compute with weights; nil: plain Go does.
	Kernels Kernels
}

// convertPlan is one unit of a model being converted.
type convertPlan struct {
	u        *unit
	m        *onnx.Model
	x        *onnx.Imported
	low      ir.DType
	kernels  Kernels // nil: plain Go
	opset    int64
	half     []bool // nodes that compute in 16 bits
	free     []bool // nodes that may compute in either precision
	exceeds  []bool // nodes whose results may leave the range of 16 bits
	seen     []bool // nodes that are not folded while importing
	products []bool // nodes that multiply matrices: 16 bits are made for them
	last     []bool // nodes that f32 outputs keep in f32
	why      []string
	report   *Report

	from         map[string]int          // the node that makes a value
	inits        map[string]*onnx.Tensor // initializers and constants that may be stored in 16 bits
	consts       map[string]int          // the nodes of these constants
	needed       map[string]bool         // values that keep their names and types: outputs, and what branches read
	given        map[string]bool         // inputs that come in 16 bits
	asked        map[string]bool         // outputs that are wanted in 16 bits
	wideOperands map[string]bool         // operands of a function that may leave the range of 16 bits
	captures     map[string]bool         // what graphs of nodes read that have plans
	up           *convertPlan            // of the graph around it
	inner        []*convertPlan          // of graphs of its nodes
	inactive     bool                    // it stays as it is
	recast       map[string]int          // results of the model's own casts to f32, for which 16 bits would do
	names        map[string]bool         // all there are, in all units
	lowAs        map[string]string       // names of values in 16 bits
	wideAs       map[string]string       // names of 16-bit values in f32
	edit         *onnx.Edit
}

// Plan decides for the model m, imported as x, under a policy with a 16-bit dtype.
// The edit is empty where the policy has none.
func Plan(m *onnx.Model, x *onnx.Imported, policy passes.Policy, o Options) (*onnx.Edit, *Report, error) {
	if policy.Low == ir.Invalid {
		return &onnx.Edit{}, &Report{Nodes: len(m.Graph.Nodes)}, nil
	}
	if opset := m.Opsets[""]; opset > 0 && opset < LeastOpset(policy.Low) {
		return nil, nil, fmt.Errorf("%s needs opset %d or later, the model has %d", policy.Low, LeastOpset(policy.Low), opset)
	}
	s := findUnits(m, x)
	plans, err := s.decide(policy, o)
	if err != nil {
		return nil, nil, err
	}
	return s.edit(plans)
}

func newPlan(u *unit, policy passes.Policy) *convertPlan {
	n := len(u.m.Graph.Nodes)
	return &convertPlan{u: u, m: u.m, x: u.x, low: policy.Low, opset: u.m.Opsets[""], report: &Report{Nodes: n},
		half: make([]bool, n), free: make([]bool, n), exceeds: make([]bool, n), seen: make([]bool, n), products: make([]bool, n), last: make([]bool, n), why: make([]string, n),
		from: map[string]int{}, inits: map[string]*onnx.Tensor{}, consts: map[string]int{}, needed: map[string]bool{}, captures: map[string]bool{}, given: map[string]bool{}, asked: map[string]bool{},
		wideOperands: map[string]bool{}, recast: map[string]int{}, names: map[string]bool{}, lowAs: map[string]string{}, wideAs: map[string]string{},
		edit: &onnx.Edit{Rename: map[int]func(string, bool) string{}, Nodes: map[int]onnx.NodeEdit{}, After: map[int][]onnx.NewNode{}, Tensors: map[string]onnx.NewTensor{}, Values: map[int]onnx.NewTensor{},
			DTypes: map[string]onnx.DataType{}, Graphs: map[*onnx.Graph]*onnx.Edit{}, Functions: map[*onnx.Function]*onnx.Edit{}}}
}

// LeastOpset is the opset from which operators take a 16-bit dtype.
func LeastOpset(low ir.DType) int64 {
	if low == ir.BF16 {
		return 22 // convolutions, pools and activations have it from there on
	}
	return 0
}

// before are the passes that would remove the correspondence of nodes to the model.
var before = []string{"recognize", "canon", "padding", "layout", "cluster", "views"}

// decide runs the passes, and says for each node whether it computes in 16
// bits, or why it does not.
func (p *convertPlan) decide(policy passes.Policy) error {
	policy.Eager, policy.Cast, policy.Rules = true, true, nil
	g, at := p.x.Graph.CloneMap()
	c := passes.Config{Policy: policy, Compiling: passes.Compiling{Disable: before}, Debugging: passes.Debugging{Until: "amp"}}
	for _, y := range p.x.Outputs {
		c.Outputs = append(c.Outputs, passes.Output{Value: at[y.Value]})
	}
	if err := passes.Run(g, c); err != nil {
		return err
	}
	n := len(p.m.Graph.Nodes)
	closed := make([]bool, n) // some of what it became computes in f32
	for _, x := range g.Nodes {
		i := x.Pos.Line
		if x.Why.Has(ir.MarkInserted) || i < 0 || i >= n || x.Pos.File == "" {
			continue
		}
		if !p.seen[i] {
			p.seen[i], p.half[i], p.free[i] = true, true, true
		}
		class := x.Def().Class
		p.products[i] = p.products[i] || class == ir.Low
		unsafe := class == ir.Keep && !isSafe(p.m.Graph.Nodes[i])
		free := !unsafe && !decided[x.Why.Cause] && class != ir.Low && class != ir.Fixed
		p.free[i] = p.free[i] && free
		p.exceeds[i] = p.exceeds[i] || unsafe
		reason := p.wide(x)
		if reason == "" && unsafe {
			reason = fmt.Sprintf("%s: %s", x.Def().Name, x.Def().Why)
		}
		if reason != "" {
			closed[i] = closed[i] || !free
			p.half[i] = false
			if p.why[i] == "" {
				p.why[i] = reason
			}
		}
	}
	for i := range p.u.calls { // of several nodes
		open := p.seen[i] && !closed[i]
		p.half[i], p.free[i] = open && p.products[i], open && !p.products[i]
	}
	p.folded()
	return nil
}

// legal keeps f32 what has no 16-bit form, and what a cast of the model's own put into f32.
func (p *convertPlan) legal() {
	exact := p.exact()
	for i, node := range p.m.Graph.Nodes {
		reason := ""
		switch {
		case !p.allowed(node, i):
			reason = "this version of the operator has no 16-bit form"
			if p.u.calls[i] != nil {
				reason = "what it calls computes in f32 at its ends"
			}
		case exact[i]:
			reason = "integers are made of its result"
		case !p.products[i]:
			reason = p.widened(node)
		}
		if reason == "" {
			continue
		}
		p.free[i] = false
		if p.half[i] {
			p.half[i], p.why[i] = false, reason
		}
	}
}

// effect is what a rule by name comes to.
type effect uint8

const (
	unmatched effect = iota
	idle             // each node that it names computes as it asks without rules, too
	decides
)

// pinned applies a policy's rules to the nodes whose results they name: the last that
// matches wins. It raises the rules' effects.
func (p *convertPlan) pinned(rules []passes.Rule, effects []effect) {
	for i, n := range p.m.Graph.Nodes {
		half, free := p.half[i], p.free[i]
		names := func(r passes.Rule) bool { return names(r, n) }
		for k, r := range rules {
			if !names(r) {
				continue
			}
			low := r.Pin == ir.PinLow
			against := func(o passes.Rule) bool { return o.Pin != r.Pin && names(o) }
			switch {
			case p.floats(n) && (free || p.last[i] || half != low || slices.ContainsFunc(rules, against)):
				effects[k] = decides
			default:
				effects[k] = max(effects[k], idle)
			}
			if p.half[i] = low && p.floats(n); !p.half[i] && p.floats(n) {
				p.why[i] = fmt.Sprintf("the policy keeps %s", r.Pattern)
			}
			p.free[i], p.exceeds[i] = false, !low && p.exceeds[i]
		}
	}
}

// names reports whether a rule names a result of n.
func names(r passes.Rule, n *onnx.Node) bool {
	return slices.ContainsFunc(n.Out, func(y string) bool { return y != "" && passes.Matches(r.Pattern, y) })
}

// checkEffects returns an error for a rule that decides nothing.
func checkEffects(rules []passes.Rule, effects []effect) error {
	for k, e := range effects {
		switch e {
		case unmatched:
			return fmt.Errorf("the policy's pattern %q matches no result of a node", rules[k].Pattern)
		case idle:
			return fmt.Errorf("the policy's pattern %q changes nothing: the nodes that it names compute as it asks without it", rules[k].Pattern)
		}
	}
	return nil
}

// floats reports whether n reads f32.
func (p *convertPlan) floats(n *onnx.Node) bool {
	return slices.ContainsFunc(n.In, func(name string) bool { return p.x.Types[name].DType == ir.F32 })
}

// decided are causes after which the price of casts does not matter.
var decided = map[ir.Cause]bool{ir.ByPin: true, ir.ByPattern: true, ir.ByOp: true, ir.ByGuard: true, ir.ByIsland: true}

// wide returns why a node of the graph does not compute in 16 bits, or "". For a product the
// operands decide, because a policy may store its sums in f32.
func (p *convertPlan) wide(x *ir.Node) string {
	listed := x.In
	if x.Def().Class != ir.Low {
		listed = slices.Concat(x.In, x.Out)
	}
	for _, v := range listed {
		if v != nil && v.Type.DType.Float() && v.Type.DType != p.low {
			return fmt.Sprintf("%s: %s", x.Def().Name, x.Def().Why)
		}
	}
	return ""
}

// never are operators without a 16-bit form, before the opset that is given; 0: in all.
var never = map[string]int64{
	"Celu": 0, "MeanVarianceNormalization": 0, "CumSum": 14, "Range": 0, "ConstantOfShape": 0, "Constant": 0, "EyeLike": 0, "Cast": 0, "CastLike": 0, "If": 0,
	"Max": 8, "Min": 8, "Erf": 9, "Attention": 0, "RotaryEmbedding": 0, "QuantizeLinear": 0, "DequantizeLinear": 0, "DynamicQuantizeLinear": 0, "QLinearConv": 0, "QLinearMatMul": 0,
}

// notBF16 are operators that do not take bf16 in opset 22.
var notBF16 = map[string]bool{
	"Einsum": true, "TopK": true, "OneHot": true, "Shrink": true, "ReverseSequence": true, "Compress": true, "Unique": true, "NonMaxSuppression": true, "MaxUnpool": true,
}

// safe are operators that our classes keep in f32 and that may compute in 16
// bits in ONNX: their results stay in the range of what they read, and runtimes
// add up inside in f32 (LayerNormalization by its stash_type).
var safe = map[string]bool{
	"Softmax": true, "LogSoftmax": true, "LayerNormalization": true, "RMSNormalization": true, "BatchNormalization": true,
	"InstanceNormalization": true, "GroupNormalization": true, "AveragePool": true, "GlobalAveragePool": true, "Resize": true, "Upsample": true,
}

// isSafe reports whether a node is safe in 16 bits: a norm is if its statistics are f32.
func isSafe(n *onnx.Node) bool {
	stash := n.Attr("stash_type")
	return safe[n.Op] && (stash == nil || stash.I == int64(float))
}

// allowed reports whether the operator takes 16 bits, and all its results may
// be of them.
func (p *convertPlan) allowed(n *onnx.Node, i int) bool {
	if f := p.u.calls[i]; f != nil {
		return f.low
	}
	if n.Domain != "" || p.low == ir.BF16 && notBF16[n.Op] {
		return false
	}
	if least, ok := never[n.Op]; ok && (least == 0 || p.opset < least) {
		return false
	}
	switch n.Op { // their further results stay float
	case "LayerNormalization", "RMSNormalization", "BatchNormalization":
		return len(n.Out) == 1
	}
	for _, a := range n.Attrs {
		if a.G != nil {
			return false
		}
	}
	return p.floats(n)
}

// stays reports whether an operand stays f32 although its node computes in 16 bits.
func (p *convertPlan) stays(n *onnx.Node, i int) bool {
	o, own := free(n.Op, i, p.opset)
	return own && o.wide
}

// index finds where values come from and which must stay as they are.
func (p *convertPlan) index(o Options) {
	g := p.m.Graph
	inputs := map[string]bool{}
	for _, x := range g.Inputs {
		inputs[x.Name], p.names[x.Name] = true, true
	}
	for _, t := range g.Initializers {
		p.names[t.Name] = true
		if t.DType == 1 && (!inputs[t.Name] || p.wanted(o, t.Name)) {
			p.inits[t.Name] = t
		}
	}
	for i, n := range g.Nodes {
		p.names[n.Name] = true
		for _, y := range n.Out {
			p.from[y], p.names[y] = i, true
		}
		for _, a := range n.Attrs {
			if a.G != nil {
				p.captured(a.G, p.u.of(i, a.G))
			}
			if n.Op == "Constant" && n.Domain == "" && a.Name == "value" && a.T != nil && a.T.DType == 1 {
				p.inits[n.Out[0]], p.consts[n.Out[0]] = a.T, i
			}
		}
	}
	for name := range p.captures {
		if p.inits[name] == nil {
			p.needed[name] = true
		}
	}
	p.ends(o)
	for i, n := range g.Nodes {
		if n.Op != "Cast" || n.Domain != "" || len(n.In) != 1 || len(n.Out) != 1 || p.needed[n.Out[0]] {
			continue
		}
		if d := p.x.Types[n.In[0]].DType; p.float(n.Out[0]) && !d.Low() {
			p.recast[n.Out[0]] = i
		}
	}
}

// ends says which inputs and outputs are in 16 bits: none, but those that were asked
// for, and all of a function that takes and gives 16 bits.
func (p *convertPlan) ends(o Options) {
	g := p.m.Graph
	low := func(name string) bool {
		return p.x.Types[name].DType == ir.F32 && (p.wanted(o, name) || p.u.fn != nil && p.u.fn.low)
	}
	for _, x := range g.Inputs {
		p.given[x.Name] = low(x.Name) && !slices.ContainsFunc(g.Initializers, func(t *onnx.Tensor) bool { return t.Name == x.Name })
	}
	for _, y := range g.Outputs {
		_, made := p.from[y.Name]
		if p.asked[y.Name] = made && low(y.Name); !p.asked[y.Name] {
			p.needed[y.Name] = true
		}
	}
}

// wanted reports whether an input or an output of the model is asked for in 16 bits.
func (p *convertPlan) wanted(o Options, name string) bool {
	return p.u.path == "" && o.Low != nil && o.Low(name)
}

// captured finds what a graph of a node reads; u is its unit, nil where it stays as it is.
func (p *convertPlan) captured(g *onnx.Graph, u *unit) {
	read := p.captures
	if u == nil {
		read = p.needed
	}
	for i, n := range g.Nodes {
		for _, x := range n.In {
			read[x] = true
		}
		for _, y := range n.Out {
			p.names[y] = true
		}
		for _, a := range n.Attrs {
			if a.G != nil {
				p.captured(a.G, u.of(i, a.G))
			}
		}
	}
	for _, y := range g.Outputs {
		p.needed[y.Name] = true
	}
}

// owner is the plan of the graph whose initializer or constant a name is, nil for another value
// and where it stays as it is.
func (p *convertPlan) owner(name string) *convertPlan {
	for ; p != nil && !p.inactive; p = p.up {
		if p.inits[name] != nil {
			return p
		}
		_, made := p.from[name]
		if _, input := p.given[name]; made || input {
			return nil
		}
	}
	return nil
}

// veto keeps nodes f32 that read a weight which 16 bits do not hold.
func (p *convertPlan) veto() error {
	for i, n := range p.m.Graph.Nodes {
		for k, name := range n.In {
			o := p.owner(name)
			if !p.half[i] && !p.free[i] || o == nil || p.stays(n, k) {
				continue
			}
			t := o.inits[name]
			most, err := o.largest(t)
			if err != nil {
				return err
			}
			reason := ""
			switch {
			case most > p.low.Max():
				reason = fmt.Sprintf("its operand %q holds %g, the most of %s is %g", name, most, p.low, p.low.Max())
			case most > 0 && elements(t) == 1 && most < p.low.SmallestSubnormal()/2:
				reason = fmt.Sprintf("its operand %q is %g, the least of %s is %g", name, most, p.low, p.low.SmallestSubnormal())
			}
			if reason != "" {
				p.half[i], p.free[i], p.exceeds[i], p.why[i] = false, false, true, reason
			}
		}
	}
	return nil
}

func (p *convertPlan) summarize() {
	for i, n := range p.m.Graph.Nodes {
		switch {
		case p.half[i]:
			p.report.Low++
		case p.why[i] != "" && p.u.subgraphs[i] == nil && p.floats(n):
			p.report.Kept = append(p.report.Kept, Kept{p.u.path, i, n.Name, n.Op, n.Result(), p.why[i]})
		}
	}
}

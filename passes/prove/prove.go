// Package prove validates a translation: it holds a finished step F against T,
// the training graph as it was before the pass layout. It shares no code with
// the passes that made F of T and imports the graph alone.
//
// A step without findings has a map from F to T such that
//
//	(a) variables, returned values, random sites and writes correspond one to
//	    one: names, kinds, types, roles and initial values of variables are
//	    equal, each next value is that of the same variable, returns stand in
//	    the same order;
//	(b) after erasing casts, stored dtypes, permutations of layout, views and
//	    second computations of one value, each node of F that a write or a
//	    return depends on has the op, the attributes and the operands, in order
//	    and number, of its image in T. Constants may differ by the clamp of a
//	    mask to the range of its dtype alone;
//	(c) each value of F is its image times its unit, a product of loss scales
//	    that F lacks; what is written and returned has unit 1;
//	(d) every rounding in F, in memory, of an operand and of a register that
//	    sums, is admitted by the row's class, the policy and the pin of the image
//	    in T;
//	(e) every guarded write keeps the old value exactly when its skip holds, and
//	    skip, as a boolean function of all checks of all micro-batches, is the OR
//	    of non-finiteness of exactly the gradients and losses that the step
//	    requires, and drives the states of the loss scales and the counters;
//	(f) no read is stale: a node reads of each variable the value, before or
//	    after the write, that its image reads.
//
// Trusted are the rows of package ir, T (but for its gradients, which
// ampc prove compares with a sweep of its own, and what (e) says of it) and
// the lowering of F to a program. Not claimed: speed and traffic, the order of
// nodes but for what (f) needs, the size of errors, that moments stay finite,
// and that custom kernels compute what their row says.
//
// Why, Of, GradOf, Group, Pin and names of results in F are hints: nothing of
// them is believed, and F without them is judged the same.
package prove

import (
	"fmt"
	"strings"

	"ampc/ir"
)

// Rules is what the policy allows beyond the default. The zero value is the
// strictest: f32 masters, promoting ops never narrow, returns are f32.
type Rules struct {
	Low       ir.DType // the policy's 16-bit dtype; Invalid: none, so no low value may appear
	Narrow    bool     // promoting and kept ops may store low whatever they read
	CastAll   bool     // weights and inputs are low for every reader (o2)
	NoMasters bool     // parameters and gradients are low (o3)
	Eager     bool     // all of a low op's gradient reads the low gradient, as in an eager system
	Outputs   ir.DType // returned floats have this dtype; Invalid: none is low
	// Unchecked says that the check and the skip were turned off.
	Unchecked bool
	// Class overrides the classes of rows, as the policy did.
	Class map[ir.Op]ir.Class
	// Pins are the precisions that code and patterns force on the nodes of T, in
	// T's order; nil: none.
	Pins []ir.Pin
}

// Finding is one broken rule.
type Finding struct {
	Check string // the rule's name, as Checks lists it
	Node  string // the node at fault, or a variable
	Pos   ir.Pos
	Text  string
}

func (f Finding) String() string {
	s := f.Check + ": " + f.Node + ": " + f.Text
	if p := f.Pos.String(); p != "" {
		return p + ": " + s
	}
	return s
}

// Check is one rule.
type Check struct {
	Name string
	Doc  string
	run  func(p *proof)
}

// Checks lists the rules in the order they are judged.
func Checks() []Check {
	return []Check{
		{"types", "every node's operands, attributes and result types are what its row says", (*proof).types},
		{"keep", "no operand of a kept row was narrowed, and a kept row stores 16 bits only for low readers", (*proof).keep},
		{"promote", "no promoting row narrows an f32 operand", (*proof).promote},
		{"low", "operands of a product have the policy's low dtype or f32, and it accumulates in f32", (*proof).low},
		{"casts", "every cast separates two dtypes and none undoes or repeats another", (*proof).casts},
		{"copies", "each value has one cast per dtype, and each weight's stands in prepare", (*proof).copies},
		{"stale", "no copy of a weight is read after the weight was written in the same part", (*proof).stale},
		{"saved", "backward reads a saved tensor as the dtype forward read", (*proof).saved},
		{"units", "loss scales are taken off exactly once before a value is used", (*proof).units},
		{"skip", "every skip predicate is the OR of finiteness checks over all micro-batches, and accumulators leave out what a check found", (*proof).skips},
		{"checked", "an Inf or NaN in any gradient, norm or statistic that a write reads makes its skip hold: no clip and no rounding hides it", (*proof).checked},
		{"select", "every write keeps the old value where the step is skipped, by the skip of what it serves, but for the closed list", (*proof).selects},
		{"scaler", "a loss scale goes down for every gradient that carries it, and for nothing finite; a failed loss is told to it", (*proof).scalers},
		{"random", "every random node has a site of its own", (*proof).random},
		{"ranks", "where values cross ranks, the skip predicate does too", (*proof).ranks},
		{"returns", "returned values have their promised dtypes", (*proof).returns},
	}
}

// Prove judges f, a finished step, by every rule and returns the findings, those
// of one rule together, each rule's in graph order. t is the training graph that
// f was made of, as it was before the pass layout; nil: not known.
func Prove(t, f *ir.Graph, r Rules) []Finding {
	p := newProof(t, f, r)
	for _, c := range Checks() {
		p.check = c.Name
		c.run(p)
	}
	return p.found
}

// Error joins findings into one error, nil where there are none.
func Error(fs []Finding) error {
	if len(fs) == 0 {
		return nil
	}
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return fmt.Errorf("%s", strings.Join(lines, "\n"))
}

type proof struct {
	t     *ir.Graph // nil: not known
	g     *ir.Graph
	rules Rules
	check string
	found []Finding
	uses  *ir.Uses
	at    []place // by node ID
	marks bool    // the graph still says which casts were inserted
	guard *guard  // made when a rule first asks
}

// place is where a node stands.
type place struct {
	sec ir.Section
	pos int
}

func newProof(t, g *ir.Graph, r Rules) *proof {
	p := &proof{t: t, g: g, rules: r, uses: g.Uses()}
	p.at = make([]place, g.NumNodes())
	count := [ir.NumSections]int{}
	for s, n := range g.Nodes {
		p.at[n.ID] = place{s, count[s]}
		count[s]++
		p.marks = p.marks || n.Why.Cause != ir.Undecided
	}
	return p
}

func (p *proof) report(n *ir.Node, format string, args ...any) {
	p.found = append(p.found, Finding{p.check, n.Name(), n.Pos, fmt.Sprintf(format, args...)})
}

func (p *proof) types() {
	err := ir.Verify(p.g, ir.Training)
	if err == nil {
		return
	}
	p.found = append(p.found, Finding{Check: p.check, Node: "@" + p.g.Name, Text: err.Error()})
}

// class is how the policy treats operand i of n: the row's own word for that
// operand, then what was recorded on the node, then the policy, then the row.
func (p *proof) class(n *ir.Node, i int) ir.Class {
	row := n.Def().Class
	if c := n.OperandClass(i); c != row {
		return c
	}
	if p.rules.Eager && n.Of != nil && p.nodeClass(n.Of) == ir.Low {
		return ir.Low
	}
	return p.nodeClass(n)
}

func (p *proof) nodeClass(n *ir.Node) ir.Class {
	if n.Why.Class != ir.NoClass {
		return n.Why.Class
	}
	if c, ok := p.rules.Class[n.Op]; ok {
		return c
	}
	return n.Def().Class
}

// narrowing reports whether v is the result of a cast to 16 bits that the
// compiler placed between a wider value and its readers. A cast in the group
// of its operand is none: it is how a fused value is stored.
func (p *proof) narrowing(v *ir.Value) bool {
	n := v.Def
	if n == nil || n.Op != ir.OpCast || !v.Type.DType.Low() || n.In[0].Type.DType.Low() || !n.In[0].Type.DType.Float() {
		return false
	}
	if p.marks && !n.Why.Has(ir.MarkInserted) {
		return false
	}
	from := n.In[0].Def
	return from == nil || from.Why.Group == 0 || from.Why.Group != n.Why.Group
}

// keep finds kept operands that were narrowed, and kept results stored low
// for a reader that does not want 16 bits.
func (p *proof) keep() {
	for _, n := range p.g.Nodes {
		for i, v := range n.In {
			if v == nil || !v.Type.DType.Float() || p.rules.CastAll || p.rules.NoMasters || moves(n) {
				continue
			}
			switch c := p.class(n, i); {
			case (c == ir.Keep || c == ir.Fixed && n.Op != ir.OpCast) && p.narrowing(p.through(v)):
				p.report(n, "operand %s of a %s row was narrowed from %s", v, c, p.through(v).Def.In[0])
			}
		}
		if p.nodeClass(n) == ir.Keep && len(n.Out) > 0 && n.Out[0].Type.DType.Low() && !p.rules.Narrow {
			p.storedLow(n, n.Out[0])
		}
	}
}

// moves reports whether n only moves bits: a cast before it is a cast after it,
// so its readers are judged in its place.
func moves(n *ir.Node) bool { return n.Def().Is(ir.Moves) || n.Def().Is(ir.View) }

// through follows rows that move bits back to where they come from, or to the
// gradient of a tensor that forward stored low.
func (p *proof) through(v *ir.Value) *ir.Value {
	for v.Def != nil && moves(v.Def) && !p.follows(v.Def) && v.Def.In[0] != nil && v.Def.In[0].Type.DType == v.Type.DType {
		v = v.Def.In[0]
	}
	return v
}

// storedLow demands a low reader of a kept row's 16-bit result, and none that promotes with it.
func (p *proof) storedLow(n *ir.Node, v *ir.Value) {
	low := false
	for _, u := range p.readers(v) {
		switch p.class(u.Node, u.Arg) {
		case ir.Low:
			low = true
		case ir.PromoteC:
			p.report(n, "a kept row stores %s, and %s promotes with it", v.Type.DType, u.Node.Name())
		}
	}
	if !low {
		p.report(n, "a kept row stores %s and no product reads it", v.Type.DType)
	}
}

// readers are the uses of v, those behind rows that take what they are given included.
func (p *proof) readers(v *ir.Value) []ir.Use {
	var out []ir.Use
	for _, u := range p.uses.Of(v) {
		if moves(u.Node) || p.class(u.Node, u.Arg) == ir.Clear {
			for _, w := range u.Node.Out {
				out = append(out, p.readers(w)...)
			}
			continue
		}
		out = append(out, u)
	}
	return out
}

func (p *proof) promote() {
	if p.rules.Narrow || p.rules.CastAll || p.rules.NoMasters {
		return
	}
	for _, n := range p.g.Nodes {
		if p.nodeClass(n) != ir.PromoteC || n.Op == ir.OpCast || len(n.Out) == 0 || moves(n) {
			continue
		}
		out := n.Out[0]
		for i, v := range n.In {
			if v == nil || !v.Type.DType.Float() || p.class(n, i) != ir.PromoteC {
				continue
			}
			if p.narrowing(p.through(v)) {
				p.report(n, "operand %s was narrowed from %s", v, p.through(v).Def.In[0])
			}
			if out.Type.DType.Low() && v.Type.DType == ir.F32 && !p.weak(v) && !p.register(n, v) && !p.follows(n) && !p.onlyLow(out) {
				p.report(n, "%s is f32 and the result %s", v, out.Type.DType)
			}
		}
	}
}

// follows reports whether n computes the gradient of a tensor that forward
// stored low: then it may be low as well.
func (p *proof) follows(n *ir.Node) bool {
	return p.at[n.ID].sec == ir.Backward && n.Of != nil && len(n.Of.Out) > 0 && n.Of.Out[0].Type.DType.Low()
}

// onlyLow reports whether nobody but products reads v, and rows that move the
// gradient of a tensor that forward stored low: each would have read a cast of
// it, so storing it low is that cast.
func (p *proof) onlyLow(v *ir.Value) bool {
	uses := p.uses.Of(v)
	for _, u := range uses {
		switch c := p.class(u.Node, u.Arg); {
		case moves(u.Node) && p.follows(u.Node), c == ir.Low:
		case moves(u.Node) || c == ir.Clear:
			for _, w := range u.Node.Out {
				if !p.onlyLow(w) {
					return false
				}
			}
		default:
			return false
		}
	}
	return len(uses) > 0 && !p.returned(v)
}

// weak reports whether v is one constant: it takes the dtype of what it meets.
func (p *proof) weak(v *ir.Value) bool {
	return v.Type.Shape.Elements() == 1 && (v.Kind == ir.Const || v.Def != nil && v.Def.Op == ir.OpFull)
}

// register reports whether n reads v inside a fused group: an f32 register
// whatever its operands were stored in.
func (p *proof) register(n *ir.Node, v *ir.Value) bool {
	return n.Why.Group > 0 && v.Def != nil && v.Def.Why.Group == n.Why.Group
}

func (p *proof) low() {
	for _, n := range p.g.Nodes {
		if acc := n.DT("acc"); acc.Low() && n.Pin != ir.PinLow {
			p.report(n, "accumulates in %s", acc)
		}
		var seen *ir.Value
		for i, v := range n.In {
			if v == nil || n.Def().Class != ir.Low || n.OperandClass(i) != ir.Low || !v.Type.DType.Float() {
				continue
			}
			if d := v.Type.DType; d.Low() && d != p.rules.Low && p.marks {
				p.report(n, "operand %s is %s, the policy's low dtype is %s", v, d, p.rules.Low)
			}
			if seen != nil && seen.Type.DType != v.Type.DType {
				p.report(n, "operand dtypes differ: %s %s, %s %s", seen, seen.Type.DType, v, v.Type.DType)
			}
			seen = v
		}
	}
}

func (p *proof) casts() {
	for _, n := range p.g.Nodes {
		if n.Op != ir.OpCast || len(n.Out) == 0 {
			continue
		}
		from, to := n.In[0].Type.DType, n.Out[0].Type.DType
		if from == to {
			p.report(n, "casts %s to itself", from)
		}
		if len(p.uses.Of(n.Out[0])) == 0 && !p.returned(n.Out[0]) && n.Out[0].Next == nil {
			p.report(n, "nobody reads the cast")
		}
		before := n.In[0].Def
		if before == nil || before.Op != ir.OpCast || !from.Float() || !to.Float() {
			continue
		}
		if first := before.In[0].Type.DType; first == to && from.Holds(to) || first.Low() && from == ir.F32 && to.Low() {
			p.report(n, "casts %s to %s to %s: one cast or none does the same", first, from, to)
		}
	}
}

func (p *proof) returned(v *ir.Value) bool {
	for _, r := range p.g.Return {
		if r == v {
			return true
		}
	}
	return false
}

type copyKey struct {
	of *ir.Value
	to ir.DType
}

func (p *proof) copies() {
	first := map[copyKey]*ir.Node{}
	for s, n := range p.g.Nodes {
		if n.Op != ir.OpCast || len(n.Out) == 0 || p.storing(n) {
			continue
		}
		v := n.In[0]
		k := copyKey{v, n.Out[0].Type.DType}
		if old := first[k]; old != nil {
			p.report(n, "%s is cast to %s again: %s is the same", v, k.to, old.Name())
		} else {
			first[k] = n
		}
		if v.Kind == ir.Param && k.to.Low() && s != ir.Prepare && s != ir.Update {
			p.report(n, "the weight %s is cast in %s, once for every micro-batch", v, s)
		}
	}
}

// storing reports whether cast n is how a fused value leaves its group.
func (p *proof) storing(n *ir.Node) bool {
	from := n.In[0].Def
	return n.Why.Group > 0 && from != nil && from.Why.Group == n.Why.Group
}

// stale finds reads of a weight, or of a copy of it, that stand after the
// write in update: they see the value of before the step.
func (p *proof) stale() {
	for s, n := range p.g.Nodes {
		if s != ir.Update {
			continue
		}
		for _, out := range n.Out {
			w := out.Next
			if w == nil || w.Kind != ir.Param {
				continue
			}
			for _, u := range p.uses.Of(w) {
				at := p.at[u.Node.ID]
				if at.sec == ir.Update && at.pos > p.at[n.ID].pos {
					p.report(u.Node, "reads %s after %s was written: the next value is %s", w, w, out)
				}
				if at.sec == ir.Prepare && u.Node.Op == ir.OpCast {
					p.staleCopy(u.Node.Out[0], n, out)
				}
			}
		}
	}
}

func (p *proof) staleCopy(c *ir.Value, write *ir.Node, next *ir.Value) {
	for _, u := range p.uses.Of(c) {
		if at := p.at[u.Node.ID]; at.sec == ir.Update && at.pos > p.at[write.ID].pos {
			p.report(u.Node, "reads %s, a copy of %s from before %s was written", c, next.Next, next)
		}
	}
}

// saved compares what a backward product reads with what its forward node
// read: the same tensor in two dtypes means that both were kept in memory,
// unless forward had it in a register.
func (p *proof) saved() {
	for s, n := range p.g.Nodes {
		if s != ir.Backward || n.Of == nil || p.nodeClass(n) != ir.Low || p.nodeClass(n.Of) != ir.Low {
			continue
		}
		for i, v := range n.In {
			if v == nil || p.class(n, i) != ir.Low {
				continue
			}
			for _, w := range n.Of.In {
				if w != nil && w != v && !p.register(n.Of, w) && p.origin(w) == p.origin(v) && w.Type.DType != v.Type.DType {
					p.report(n, "reads %s as %s, forward read it as %s", p.origin(v), v.Type.DType, w.Type.DType)
				}
			}
		}
	}
}

// origin is the value before casts and moves.
func (p *proof) origin(v *ir.Value) *ir.Value {
	for {
		v = p.through(v)
		if v.Def == nil || v.Def.Op != ir.OpCast {
			return v
		}
		v = v.Def.In[0]
	}
}

func (p *proof) units() {
	if err := ir.InferUnits(p.g); err != nil {
		p.found = append(p.found, Finding{Check: p.check, Node: "@" + p.g.Name, Text: err.Error()})
	}
}

func (p *proof) random() {
	site := map[int64]*ir.Node{}
	for s, n := range p.g.Nodes {
		if !n.Def().Is(ir.Random) || s == ir.Backward {
			continue
		}
		rng := n.Int("rng")
		if old := site[rng]; old != nil {
			p.report(n, "draws from site %d, as %s does", rng, old.Name())
		}
		site[rng] = n
	}
}

func (p *proof) returns() {
	for _, v := range p.g.Return {
		d := v.Type.DType
		if !d.Low() || d == p.rules.Outputs || p.rules.NoMasters || p.userCast(v) {
			continue
		}
		p.found = append(p.found, Finding{Check: p.check, Node: v.String(), Text: "is returned as " + d.String()})
	}
}

// userCast reports whether the user asked for v's dtype by a cast or an input.
func (p *proof) userCast(v *ir.Value) bool {
	return v.Def == nil || v.Def.Op == ir.OpCast && !v.Def.Why.Has(ir.MarkInserted)
}

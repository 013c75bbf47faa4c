// Package prove validates a translation: it compares a compiled step F with T, the training graph
// before the pass layout. It shares no code with the passes that made F from T; it imports only
// package ir.
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
// The checker trusts the rows of package ir, the lowering of F to a program, and
// T, except for its gradients, which ampc prove compares with a sweep of its own,
// and what (e) requires of it. It makes no claim about speed and traffic, the order
// of nodes beyond (f), the size of errors, whether moments stay finite, and whether
// custom kernels compute what their row says.
//
// Why, Of, GradOf, Group, Pin and the names of results in F are hints. The checker
// does not use them: it gives the same answer for F without them.
package prove

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
)

// Rules is what the policy allows. The zero value is the strictest: master weights are f32,
// promoting ops never narrow, and returned values are f32.
type Rules struct {
	Low       ir.DType // the policy's 16-bit dtype; Invalid: no value may be low
	TF32      bool     // products round their operands to tf32, with a mantissa of 10 bits
	Narrow    bool     // promoting and kept ops may store low from f32 operands
	NarrowAll bool     // Narrow, also rows that only move elements, and variables and results that rows of fixed dtypes read
	Paint     bool     // promoting and clear rows may have low operands and results
	CastAll   bool     // every reader may read weights and inputs low (o2)
	NoMasters bool     // parameters and gradients may be low (o3)
	Eager     bool     // all parts of a low op's gradient read the low gradient, as in an eager system
	Outputs   ir.DType // dtype of returned floats; Invalid: none may be low
	// Unchecked says that checks and skips are disabled.
	Unchecked bool
	// Class is the class of a node under the policy, without pins; nil: that of its row.
	Class func(n *ir.Node) ir.Class
	// Widens reports whether an operand of fixed dtype widens its node's result; nil: no operand
	// does.
	Widens func(n *ir.Node, i int) bool
	// Pins are the precisions that code and patterns force on the nodes of T, in T's order; nil:
	// none.
	Pins []ir.Pin
	// Kept marks the variables of T, in its order, to which CastAll and NoMasters do not apply.
	Kept []bool
	Caps ir.Caps // dtype conversions that the target's kernels do themselves
	// Inherited is the dtype in which another step stores a value of T's forward section for all
	// readers: F may round it in the same way. nil: F inherits from no step.
	Inherited func(v *ir.Value) ir.DType
	// Verified says that ir.Verify has accepted F, so the rule types need not check it.
	Verified bool
}

// Finding is one broken rule.
type Finding struct {
	Check string // name of the rule in Checks
	Node  string // node or variable that breaks it
	Pos   ir.Pos
	Text  string
	User  bool // the source breaks the rule, in a node that the user wrote
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
	Name   string
	Doc    string
	Source bool // needs T
	run    func(p *proof)
}

// Checks lists the rules in their order.
func Checks() []Check {
	return []Check{
		{"types", "every node has the operands, attributes and result types that its row allows", false, (*proof).types},
		{"variables", "every variable has the kind, type, role and initial value that it has in the source", true, (*proof).variables},
		{"values", "every node computes a value of the source: same op, same attributes, same operands", true, (*proof).values},
		{"writes", "every variable is assigned the value that the source assigns, at the same time", true, (*proof).writes},
		{"returns", "the returned values are those of the source, in the same order and with the promised dtypes", true, (*proof).returns},
		{"clamps", "constants are those of the source; only mask values may be clamped to the 16-bit range", true, (*proof).clampsAllowed},
		{"units", "every scaled gradient is unscaled exactly once before use; gradients stay scaled while they are f16", false, (*proof).units},
		{"rounding", "the row, the policy and any pin allow every rounding to 16 bits", true, (*proof).roundings},
		{"random", "no two random nodes draw the same numbers", false, (*proof).random},
		{"skip", "every skip predicate is the OR of the finiteness checks of all micro-batches; accumulators leave out micro-batches that failed a check", false, (*proof).skips},
		{"checked", "an Inf or NaN in any gradient, norm or statistic that a write reads skips that write; no clip or rounding hides it", false, (*proof).checked},
		{"select", "a skipped step changes no variable but loss scales, the count of attempts, accumulators and 16-bit copies", false, (*proof).selects},
		{"scaler", "a loss scale is lowered for every gradient scaled by it that is not finite, and for nothing else; it sees whether its loss is finite", false, (*proof).scalers},
		{"ranks", "ranks send the same messages, sum their parts once, agree on what is skipped and write equal values", false, (*proof).ranks},
	}
}

// Prove checks f, a compiled step, by every rule. It returns the findings by rule, each rule's in
// graph order. t is the training graph from which f was made, before the pass layout. If t is nil,
// the rules that need it (Check.Source) are omitted.
func Prove(t, f *ir.Graph, r Rules) []Finding {
	found, _ := Judge(t, f, r)
	return found
}

// Judge is Prove that also counts what each rule has checked: nodes, variables, writes or operands.
// judged is in the order of Checks; -1 means that the rule was omitted.
func Judge(t, f *ir.Graph, r Rules) (found []Finding, judged []int) {
	p := newProof(t, f, r)
	for i, c := range Checks() {
		if c.Source && t == nil {
			judged = append(judged, -1)
			continue
		}
		p.check, p.user, p.judged = c.Name, !c.Source, 0
		c.run(p)
		judged = append(judged, p.judged)
		if i == 0 && len(p.found) > 0 { // there is no graph
			return p.found, append(judged, slices.Repeat([]int{-1}, len(Checks())-1)...)
		}
	}
	return p.found, judged
}

// Error joins findings to one error, nil for none.
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
	t, g   *ir.Graph // t is nil if it is not known; g is F
	rules  Rules
	check  string
	user   bool // the current rule is about the source
	judged int  // number of things that it has checked
	found  []Finding
	uses   *ir.Uses     // of F
	sec    []ir.Section // of F's nodes, by ID
	m      *matcher     // created at first use; nil without T
	guard  *guard       // created at first use

	unknown    []bool // by node ID of F: it depends on something that T does not compute
	unitsKnown bool   // the scale units of F's values are set
}

func newProof(t, f *ir.Graph, r Rules) *proof {
	p := &proof{t: t, g: f, rules: r, uses: f.Uses()}
	p.sec = make([]ir.Section, f.NumNodes())
	for s, n := range f.Nodes {
		p.sec[n.ID] = s
	}
	return p
}

// matched is the common numbering of both graphs.
func (p *proof) matched() *matcher {
	if p.m == nil {
		p.m = newMatcher(p.t, p.g, p.rules)
	}
	return p.m
}

func (p *proof) report(n *ir.Node, format string, args ...any) {
	p.found = append(p.found, Finding{p.check, n.Name(), n.Pos, fmt.Sprintf(format, args...), p.user && n.Pos.File != ""})
}

// blame reports a finding about a variable, a returned value or a whole graph.
func (p *proof) blame(what string, format string, args ...any) {
	p.found = append(p.found, Finding{Check: p.check, Node: what, Text: fmt.Sprintf(format, args...)})
}

func (p *proof) types() {
	p.judged = p.g.NumNodes()
	if p.rules.Verified {
		return
	}
	if err := ir.Verify(p.g, ir.Ready); err != nil {
		p.blame("@"+p.g.Name, "%v", err)
	}
}

func (p *proof) random() {
	site := map[int64]*ir.Node{}
	for s, n := range p.g.Nodes {
		if !n.Def().Is(ir.Random) || s == ir.Backward {
			continue
		}
		p.judged++
		rng := n.Int("rng")
		if old := site[rng]; old != nil {
			p.report(n, "draws from site %d, as %s does", rng, old.Name())
		}
		site[rng] = n
	}
}

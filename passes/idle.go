package passes

import (
	"fmt"
	"maps"
	"slices"

	"ampc/ir"
)

// idleRules finds rules by name that ask for what holds without them. It knows classes and operands
// alone: the answer is the same for all devices, sizes and costs of a step. A value that the cut may
// store in either dtype is constrained by a rule, whichever dtype it has today.
type idleRules struct {
	a       *assigner // of the policy without its rules
	certain []bool    // by value ID: it is f32 wherever a promoting row reads it
	low     []bool    // by value ID: a row that reads 16 bits reads it, perhaps through rows that take any dtype
}

// judgeRules returns an error for the first rule of the policy that decides nothing, and marks what no
// rule need keep in f32. A rule that asks for what holds is accepted under a policy without a 16-bit
// dtype, because the same rules serve several policies in turn, and in an evaluation, whose rules are
// those of its training step. So is one that a later rule overrules: that is a common way to write
// exceptions.
func (a *assigner) judgeRules() error {
	var j *idleRules
	if a.low != ir.F32 {
		j = a.withoutRules()
	}
	for k, r := range a.p.Rules {
		if a.c.PartialRules || a.p.decidesVar(a.g, r) {
			continue
		}
		why := ""
		switch {
		case !a.decides(r):
			why = r.misses(a.g)
		case j != nil && a.c.Inherit == nil:
			why = j.idle(a.p.Rules, k)
		}
		if why != "" {
			return r.located(fmt.Errorf("policy %s: %s: pattern %q %s", a.p.Name, ruleWords[r.Pin], r.Pattern, why))
		}
	}
	if j != nil {
		j.mark(a)
	}
	return nil
}

// decides reports whether r names a node whose dtype rules decide.
func (a *assigner) decides(r Rule) bool {
	for _, n := range a.g.Nodes {
		if r.names(n) && decidable(n) && (n.Pin == ir.Unpinned || !a.p.Mixed()) {
			return true
		}
	}
	return false
}

// withoutRules finds what is certain of a's graph under the policy without rules.
func (a *assigner) withoutRules() *idleRules {
	plain := a
	if len(a.p.Rules) > 0 {
		plain = a.plain()
	}
	j := &idleRules{a: plain, certain: make([]bool, len(a.src)), low: make([]bool, len(a.src))}
	for s := int(ir.NumSections) - 1; s >= 0; s-- {
		for _, n := range slices.Backward(a.g.Body[s]) {
			j.readers(n)
		}
	}
	for _, v := range a.g.Vars {
		j.certain[v.ID] = a.src[v.ID] == ir.F32 && !plain.castVar(v) && !(a.p.NoMasters && v.Kind == ir.Param)
	}
	for s, n := range a.g.Nodes {
		j.results(s, n)
	}
	return j
}

// plain is a with the decisions of the policy without its rules.
func (a *assigner) plain() *assigner {
	p := *a
	p.p.Rules = nil
	p.node = make([]decision, len(a.node))
	overrides := pinOverrides(a.g, p.p)
	for _, n := range a.g.Nodes {
		p.node[n.ID] = p.decide(n, overrides[n.ID])
		if slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return a.captured[v] }) {
			p.node[n.ID] = a.node[n.ID]
		}
	}
	return &p
}

// mayBeLow reports whether v, which a kept row computes, may be stored in 16 bits. Under Narrow it may
// be unless the step returns it.
func (j *idleRules) mayBeLow(v *ir.Value) bool {
	return j.low[v.ID] || j.a.src[v.ID].Low() || j.a.p.Narrow && !j.a.out[v.ID]
}

// readers notes which operands of n a 16-bit operand reads in the end.
func (j *idleRules) readers(n *ir.Node) {
	behind := slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return j.low[v.ID] || j.a.src[v.ID].Low() })
	for i, v := range n.In {
		if v == nil {
			continue
		}
		switch j.a.class(n, i) {
		case ir.Low:
			j.low[v.ID] = true
		case ir.PromoteC, ir.Clear:
			j.low[v.ID] = j.low[v.ID] || behind
		}
	}
}

// results notes which results of n are f32 whatever the cut chooses. The result of an elementwise row
// may be a register, which counts as wide as the operands.
func (j *idleRules) results(s ir.Section, n *ir.Node) {
	t := &j.a.node[n.ID]
	f32 := t.class == ir.Keep && (n.Def().Elem == nil || j.a.p.Eager) || (t.class == ir.Keep || t.free()) && j.follows(s, n) != nil
	for i, v := range n.Out {
		fixed := n.ResultClass(i) == ir.Fixed || v.Next != nil || t.class == ir.Fixed || t.kept32()
		j.certain[v.ID] = j.a.src[v.ID] == ir.F32 && (fixed || f32 && (!j.mayBeLow(v) || j.a.p.Eager))
	}
}

// follows is an f32 operand that makes n's results f32: its forward value or one that it promotes;
// nil if there is none.
func (j *idleRules) follows(s ir.Section, n *ir.Node) *ir.Value {
	if j.a.p.Narrow {
		return nil
	}
	if of := n.Of; s == ir.Backward && of != nil && of != n && j.a.node[of.ID].free() {
		if j.certain[of.Out[0].ID] {
			return of.Out[0]
		}
		return nil
	}
	for i, v := range n.In {
		if v != nil && j.certain[v.ID] && !j.a.weak[v.ID] && n.OperandClass(i) != ir.Fixed {
			return v
		}
	}
	return nil
}

// idle says why rule k decides nothing, or "" where it decides something, for a node that it names or
// a gradient of one. Rules that ask for the same are not held against each other, and a rule may make
// an exception of another one, even of all that it names.
func (j *idleRules) idle(rules []Rule, k int) (why string) {
	r := rules[k]
	named := map[*ir.Node]bool{}
	for s, n := range j.a.g.Nodes {
		switch {
		case n.Pin != ir.Unpinned || !decidable(n):
			continue
		case r.names(n):
			other := func(o Rule) bool { return o.Pin != r.Pin && o.names(n) }
			if slices.ContainsFunc(rules, other) {
				return ""
			}
			named[n] = true
		case n.Of == nil || !named[n.Of]:
			continue
		}
		because := j.holds(s, n, r.Pin)
		if because == "" {
			return ""
		}
		if why == "" {
			why = "changes nothing: " + because
		}
	}
	return why
}

// holds says why n computes as pin asks without a rule, or "" where it need not.
func (j *idleRules) holds(s ir.Section, n *ir.Node, pin ir.Pin) string {
	t := &j.a.node[n.ID]
	low := slices.ContainsFunc(n.Out, j.mayBeLow)
	v := n.Out[0]
	switch {
	case t.class == ir.Fixed:
		return fmt.Sprintf("no policy decides the dtype of %s = %s", v, n.Def().Name)
	case pin == ir.PinLow:
		if t.class == ir.Low && !j.a.out[v.ID] && !slices.ContainsFunc(j.a.uses.Of(v), func(u ir.Use) bool { return j.a.class(u.Node, u.Arg()) != ir.Low }) {
			return fmt.Sprintf("%s = %s computes in %s without it, and all that reads it does", v, n.Def().Name, j.a.low)
		}
	case t.class == ir.Keep && (!low || j.a.p.Eager || t.kept32()):
		return fmt.Sprintf("%s = %s is f32 without it", v, n.Def().Name)
	case t.free() && !low:
		if x := j.follows(s, n); x != nil {
			return fmt.Sprintf("%s = %s is f32 without it, as %s is", v, n.Def().Name, x)
		}
	}
	return ""
}

// mark sets MarkAlwaysF32. A node that a rule or a pin stores in 16 bits does not have it. One without
// floats does.
func (j *idleRules) mark(a *assigner) {
	for s, n := range a.g.Nodes {
		of := n
		if n.Of != nil {
			of = n.Of
		}
		always := len(n.Out) > 0 && a.node[n.ID].pin != ir.PinLow && (!decidable(n) || j.holds(s, n, ir.PinF32) != "")
		switch {
		case of == n && always:
			n.Why.Marks |= ir.MarkAlwaysF32
		case of != n && !always:
			of.Why.Marks &^= ir.MarkAlwaysF32
		}
	}
}

// decidesVar reports whether r changes how a variable is stored or read, which is so if the policy
// casts variables for every reader.
func (p Policy) decidesVar(g *ir.Graph, r Rule) bool {
	return slices.ContainsFunc(g.Vars, func(v *ir.Value) bool {
		cast := p.Cast && (v.Kind == ir.Param || v.Kind == ir.Input) || p.NoMasters && v.Kind == ir.Param
		return (cast || !p.Mixed()) && v.Type.DType.Float() && Matches(r.Pattern, v.Name)
	})
}

// located adds the file and line of the rule to an error.
func (r Rule) located(err error) error {
	if r.Pos == "" {
		return err
	}
	return fmt.Errorf("%s: %w", r.Pos, err)
}

// misses explains why r, which names no node whose dtype it can decide, changes nothing, and what to
// write instead.
func (r Rule) misses(g *ir.Graph) string {
	for _, n := range g.Nodes {
		if r.names(n) {
			return fmt.Sprintf("changes nothing: %s", overruled(n))
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if of := v.Decider(); of != nil && of != v && v.Next == nil && Matches(r.Pattern, v.Name) {
				return fmt.Sprintf("changes nothing: %s is a gradient and goes with %s; name that", v, of)
			}
		}
	}
	for _, v := range g.Vars {
		if !Matches(r.Pattern, v.Name) {
			continue
		}
		if reader := readerOf(g, v); reader != nil {
			return fmt.Sprintf("changes nothing: %s is a variable and keeps its dtype; name what reads it, such as %s", v, reader.Out[0])
		}
		return fmt.Sprintf("changes nothing: %s is a variable and keeps its dtype", v)
	}
	return fmt.Sprintf("matches nothing in graph @%s", g.Name) + meant(g, r.Pattern)
}

// meant suggests a value or a scope of g whose name is near; "" where there is none.
func meant(g *ir.Graph, name string) string {
	names := map[string]bool{}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			for i, c := range v.Name {
				if c == '.' {
					names[v.Name[:i]] = true
				}
			}
			names[v.Name] = true
		}
	}
	if near := ir.Nearest(name, slices.Sorted(maps.Keys(names))); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// overruled says what decides the dtype of n instead of rules.
func overruled(n *ir.Node) string {
	if !decidable(n) {
		return fmt.Sprintf("no policy decides the dtype of %s = %s", n.Out[0], n.Def().Name)
	}
	return fmt.Sprintf("%s is pinned in code (%s)", n.Out[0], n.Pos)
}

// readerOf is the first node with a result that reads v, or nil.
func readerOf(g *ir.Graph, v *ir.Value) *ir.Node {
	for _, n := range g.Nodes {
		if slices.Contains(n.In, v) && len(n.Out) > 0 {
			return n
		}
	}
	return nil
}

package prove

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// InBlocks reports whether backward computes a loss of t, block by block of its rows: forward then
// has no loss of which the gradients could be found again.
func InBlocks(t *ir.Graph) bool {
	return slices.ContainsFunc(t.Body[ir.Backward], sumAndCount)
}

// sumAndCount reports whether n is a loss row.
func sumAndCount(n *ir.Node) bool {
	out := n.Def().Out
	return len(out) > 1 && out[0].Name == "sum" && out[1].Name == "count"
}

// Gradients compares the backward section of t, a training graph before the pass layout, with its
// own sweep over the rows' gradients, in which each reader and each operand contributes once. It
// compares values by exactNumbers, in which sums of contributions commute. Every weight that an
// optimizer updates must be updated by the result of that sweep, and every loss must be in a check
// of the weight's skip. It finds the losses by the start values of each sweep of t.
//
// It trusts the rows' gradients, which adjoint tests check, the sections other than backward, and
// the attribute loss, which names the sweep of a node. It does not compare what a user's transform
// of gradients computes in the update. Its work is linear in the graph, except for the few scalars
// that may be losses.
//
// It compares nothing if a loss is InBlocks.
func Gradients(t *ir.Graph) []Finding {
	if len(t.Body[ir.Backward]) == 0 || InBlocks(t) {
		return nil
	}
	g := newGradients(t.Clone())
	for _, key := range g.sweeps {
		if err := g.sweep(key); err != nil {
			return []Finding{{Check: "gradients", Node: "@" + t.Name, Text: err.Error()}}
		}
	}
	g.compare()
	return g.p.found
}

type gradients struct {
	p        *proof
	b        *ir.Builder
	numbers  exactNumbers
	actual   []*ir.Node // nodes of the backward section
	sweeps   []string   // their attribute loss
	has      map[string]map[made]bool
	of       map[string]map[*ir.Node]bool // by sweep: the forward nodes that its nodes come from
	seeds    [][]*ir.Value                // with which a loss may start: one, those of losses that share a term, or one for each time that a loss adds it
	steps    []stepped
	wanted   map[*ir.Value]bool
	own      map[int32]bool            // numbers of the values that the sweeps compute
	expected map[*ir.Value][]int32     // by weight: its gradient in each sweep
	roots    map[*ir.Value][]*ir.Value // by weight: the losses whose gradients it has
}

// made is the number of a value of backward, and the forward node that it comes from: gradients of
// unlike nodes may have one number, such as those of two sums of one shape.
type made struct {
	of     *ir.Node
	number int32
}

// stepped is a weight and the row that updates it.
type stepped struct {
	w *ir.Value
	n *ir.Node
}

func newGradients(c *ir.Graph) *gradients {
	g := &gradients{p: newProof(nil, c, Rules{}), actual: c.Body[ir.Backward], has: map[string]map[made]bool{}, of: map[string]map[*ir.Node]bool{}, wanted: map[*ir.Value]bool{},
		own: map[int32]bool{}, expected: map[*ir.Value][]int32{}, roots: map[*ir.Value][]*ir.Value{}}
	g.p.check = "gradients"
	g.p.guards() // while IDs are those of t
	g.numbers = exactNumbers{of: map[*ir.Value]int32{}, index: map[string]int32{}}
	for _, n := range c.Body[ir.Update] {
		if n.Def().Is(ir.Writer) && n.Operand("g") != nil && len(n.Out) > 0 && n.Out[0].Next != nil {
			w := n.Out[0].Next
			if of := c.Var(w.PartOf()); of != nil { // what the losses depend on
				w = of
			}
			g.steps = append(g.steps, stepped{w, n})
			g.wanted[w] = true
		}
	}
	seen := map[*ir.Value]bool{}
	for _, n := range g.actual {
		key, _ := n.Attrs.Get("loss").(string)
		if n.Of != nil && g.has[key] == nil {
			g.has[key], g.of[key] = map[made]bool{}, map[*ir.Node]bool{}
			g.sweeps = append(g.sweeps, key)
		}
		if n.Of != nil {
			g.of[key][n.Of] = true
		}
		for _, v := range n.Out {
			if g.has[key] != nil {
				g.has[key][made{n.Of, g.numbers.value(v)}] = true
			}
		}
		var together []*ir.Value
		for i, v := range n.In {
			if v == nil || !g.starts(v) {
				continue
			}
			if !seen[v] {
				seen[v] = true
				g.seeds = append(g.seeds, []*ir.Value{v})
			}
			if n.OperandDef(i).Variadic {
				together = append(together, v)
			}
		}
		if len(together) > 1 {
			g.seeds = append(g.seeds, together)
		}
	}
	g.b = ir.Edit(c).In(ir.Backward)
	return g
}

// starts reports whether a sweep may start with v: a loss scale, a number, or a number times a loss
// scale.
func (g *gradients) starts(v *ir.Value) bool {
	if v.Type != ir.T(ir.F32) {
		return false
	}
	if v.Def == nil {
		return v.Kind == ir.Const || v.Attr.Get("role") == ir.RoleScale
	}
	return v.Def.Op == ir.OpScale && g.p.sec[v.Def.ID] == ir.Prepare
}

// tape is one sweep, with the gradients that arrive at each value.
type tape struct {
	g     *gradients
	has   map[made]bool
	of    map[*ir.Node]bool
	used  map[int]bool // by index in seeds: those with which a loss starts
	need  map[*ir.Value]bool
	parts map[*ir.Value][]*ir.Value
	from  map[*ir.Value]map[*ir.Value]bool // by value: the losses that contribute to its gradient
}

// sweep differentiates the losses of one sweep for every weight.
func (g *gradients) sweep(key string) error {
	t := &tape{g: g, has: g.has[key], of: g.of[key], used: map[int]bool{}, need: map[*ir.Value]bool{}, parts: map[*ir.Value][]*ir.Value{}, from: map[*ir.Value]map[*ir.Value]bool{}}
	for w := range g.wanted {
		t.need[w] = true
	}
	nodes := g.p.g.Body[ir.Forward]
	for _, n := range nodes {
		t.mark(n)
	}
	if err := t.flow(nodes, true); err != nil {
		return err
	}
	for _, s := range g.steps {
		parts := t.parts[s.w]
		if len(parts) == 0 {
			continue
		}
		g.expected[s.w] = append(g.expected[s.w], g.numbers.value(t.total(s.w)))
		for l := range t.from[s.w] {
			g.roots[s.w] = append(g.roots[s.w], l)
		}
	}
	return nil
}

// mark marks n's results if they depend on a weight through rows that have gradients.
func (t *tape) mark(n *ir.Node) {
	if d := n.Def(); d.Grad == nil && d.Expand == nil {
		return
	}
	for _, v := range n.In {
		if v != nil && t.need[v] {
			for _, o := range n.Out {
				t.need[o] = t.need[o] || o.Type.DType.Float()
			}
			return
		}
	}
}

func (t *tape) flow(nodes []*ir.Node, losses bool) error {
	for i := len(nodes) - 1; i >= 0; i-- {
		if losses {
			if err := t.start(nodes[i]); err != nil {
				return err
			}
		}
		if err := t.visit(nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

// start finds out whether a sweep starts at n's result: whether t contains what n's gradient
// computes from a seed and from the gradients that arrive otherwise.
func (t *tape) start(n *ir.Node) error {
	v := n.Out[0]
	if v.Type != ir.T(ir.F32) || !t.need[v] || v.Next != nil || !t.of[n] {
		return nil
	}
	if len(t.parts[v]) > 0 {
		if found, err := t.found(n); found || err != nil {
			return err
		}
	}
	for _, used := range []bool{false, true} { // losses of one shape differ in their seeds alone
		for i, seeds := range t.g.seeds {
			if t.used[i] != used || repeats(seeds) > t.g.terms(v) {
				continue
			}
			if found, err := t.found(n, seeds...); found || err != nil {
				t.used[i] = true
				for _, s := range seeds {
					t.add(v, s, map[*ir.Value]bool{v: true})
				}
				return err
			}
		}
	}
	return nil
}

// repeats is how often the most frequent of seeds is in them.
func repeats(seeds []*ir.Value) int {
	most, count := 0, map[*ir.Value]int{}
	for _, s := range seeds {
		count[s]++
		most = max(most, count[s])
	}
	return most
}

// terms is how often some sum of scalars contains v.
func (g *gradients) terms(v *ir.Value) int {
	most, times := 1, map[*ir.Value]int{v: 1}
	for _, n := range g.p.g.Body[ir.Forward] {
		k := 0
		for i, x := range n.In {
			if x != nil && times[x] > 0 && n.OperandDef(i).Entry == ir.Added {
				k += times[x]
			}
		}
		if k > 0 && n.Out[0].Type == ir.T(ir.F32) {
			times[n.Out[0]] = k
			most = max(most, k)
		}
	}
	return most
}

// found reports whether t contains a value that comes from n and that n's gradient computes from the
// arriving gradients and the seeds. It need not contain all: those that reach no weight are dropped.
func (t *tape) found(n *ir.Node, seeds ...*ir.Value) (bool, error) {
	if n.Def().Grad == nil {
		return false, nil // an expansion: its nodes have their own start values
	}
	v := n.Out[0]
	old := t.parts[v]
	t.parts[v] = append(old[:len(old):len(old)], seeds...)
	d := t.arriving(n)
	t.parts[v] = old
	found := false
	for i, x := range n.Def().Grad(t.g.b, n, d) {
		if i >= len(n.In) || x == nil || n.In[i] == nil || !t.need[n.In[i]] || x.Def == nil || x == d[0] {
			continue
		}
		found = found || t.has[made{n, t.g.numbers.value(x)}]
	}
	return found, t.g.b.Err()
}

// add contributes d, the gradient of losses, to the gradient of v.
func (t *tape) add(v, d *ir.Value, losses map[*ir.Value]bool) {
	if v == nil || d == nil || !t.need[v] {
		return
	}
	t.parts[v] = append(t.parts[v], d)
	if t.from[v] == nil {
		t.from[v] = map[*ir.Value]bool{}
	}
	for l := range losses {
		t.from[v][l] = true
	}
}

// total is the gradient of v, nil if nothing contributes.
func (t *tape) total(v *ir.Value) *ir.Value {
	parts := t.parts[v]
	switch len(parts) {
	case 0:
		return nil
	case 1:
		return parts[0]
	}
	d := t.g.b.AddN(parts...)
	if d != nil {
		t.parts[v] = []*ir.Value{d}
		t.g.own[t.g.numbers.value(d)] = true
	}
	return d
}

// arriving are the gradients of n's results.
func (t *tape) arriving(n *ir.Node) []*ir.Value {
	d := make([]*ir.Value, len(n.Out))
	for i, v := range n.Out {
		d[i] = t.total(v)
	}
	return d
}

func (t *tape) visit(n *ir.Node) error {
	some, losses := false, map[*ir.Value]bool{}
	for _, v := range n.Out {
		some = some || len(t.parts[v]) > 0
		for l := range t.from[v] {
			losses[l] = true
		}
	}
	if !some {
		return nil
	}
	d := t.arriving(n)
	switch def := n.Def(); {
	case def.Grad != nil:
		for i, x := range def.Grad(t.g.b, n, d) {
			if i < len(n.In) {
				t.add(n.In[i], x, losses)
				if x != nil && n.In[i] != nil && t.need[n.In[i]] {
					t.g.own[t.g.numbers.value(x)] = true
				}
			}
		}
	case def.Expand != nil:
		return t.expanded(n, d, losses)
	}
	return t.g.b.Err()
}

// expanded differentiates n through simpler rows, which it computes again.
func (t *tape) expanded(n *ir.Node, d []*ir.Value, losses map[*ir.Value]bool) error {
	body := &t.g.p.g.Body[ir.Backward]
	from := len(*body)
	out := n.Def().Expand(t.g.b, n)
	if err := t.g.b.Err(); err != nil {
		return err
	}
	inner := append([]*ir.Node(nil), (*body)[from:]...)
	for _, k := range inner {
		t.mark(k)
	}
	for i, o := range out {
		if i < len(d) && o != nil {
			t.add(o, d[i], losses)
		}
	}
	return t.flow(inner, false)
}

// compare compares the gradient that updates each weight with the expected ones.
func (g *gradients) compare() {
	all := map[int32]bool{}
	for _, numbers := range g.expected {
		for _, k := range numbers {
			all[k] = true
		}
	}
	for _, s := range g.steps {
		leaves := g.leaves(s.n.Operand("g"))
		if len(g.expected[s.w]) == 0 {
			g.p.report(s.n, "no loss that starts a sweep depends on %s", s.w)
			continue
		}
		has, strays := map[int32]bool{}, false
		for _, v := range leaves {
			k := g.numbers.value(v)
			has[k] = true
			if !all[k] {
				strays = true
				g.p.report(s.n, "is stepped by %s, which is not a gradient by the rows: %s", v, g.stray(v))
			}
		}
		for _, k := range g.expected[s.w] {
			if !has[k] && !strays {
				g.p.report(s.n, "is not stepped by the gradient that the rows give %s", s.w)
				break
			}
		}
	}
	g.losses()
}

// leaves lists what the micro-batches contribute to v, which update computes.
func (g *gradients) leaves(v *ir.Value) []*ir.Value {
	var out []*ir.Value
	seen := map[*ir.Value]bool{}
	guard := g.p.guards()
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		if v == nil || seen[v] || !v.Type.DType.Float() {
			return
		}
		seen[v] = true
		n := v.Def
		if n == nil {
			if w := guard.next[v.ID]; w != nil {
				n = w.Def
			}
		}
		switch {
		case n == nil:
			if g.starts(v) {
				out = append(out, v)
			}
		case v.Def == nil, v.Next != nil && n.Op == ir.OpAccumTree:
			for _, x := range n.In {
				if x != v && x != v.Next {
					walk(x)
				}
			}
		case n.Def().Is(ir.Collective | ir.Apart): // sums over the ranks
			walk(n.In[v.Idx])
		case g.p.sec[n.ID] != ir.Update:
			out = append(out, v)
		default:
			for i, x := range n.In {
				if !n.OperandDef(i).Named {
					walk(x)
				}
				if n.OperandDef(i).Variadic && slices.Contains(n.In[:i], x) {
					g.p.report(n, "adds %s more than once to a gradient", x)
				}
			}
		}
	}
	walk(v)
	return out
}

// stray names the first value of backward that v depends on and that no sweep computes.
func (g *gradients) stray(v *ir.Value) string {
	seen := map[*ir.Value]bool{}
	var first *ir.Value
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		if v == nil || seen[v] || first != nil || v.Def == nil || int(v.Def.ID) >= len(g.p.sec) || g.p.sec[v.Def.ID] != ir.Backward {
			return
		}
		seen[v] = true
		for _, x := range v.Def.In {
			walk(x)
		}
		if first == nil && v.GradOf != nil && !g.own[g.numbers.value(v)] {
			first = v
		}
	}
	walk(v)
	if first == nil || first == v {
		return "no sweep makes it"
	}
	at := ""
	if p := first.Def.Pos.String(); p != "" {
		at = " (" + p + ")"
	}
	return fmt.Sprintf("the sweeps part at %s%s", first, at)
}

// losses requires that a weight's skip checks each loss whose gradients the weight has.
func (g *gradients) losses() {
	guard := g.p.guards()
	for _, s := range g.steps {
		t := guard.skipGroupOf(s.n)
		if t == nil || s.n.Operand("skip") == nil {
			continue // without checks
		}
		for _, l := range g.roots[s.w] {
			if !g.shownLoss(guard, t, l) {
				g.p.report(s.n, "has gradients of the loss %s, and no check of its skip predicate %s is certain to see an Inf or NaN in it", l, t.skip)
			}
		}
	}
}

// shownLoss reports whether a check covers the loss, a value that rows pass it on to, or a sum of
// it.
func (g *gradients) shownLoss(guard *guard, t *skipGroup, l *ir.Value) bool {
	if guard.shows(t, l) {
		return true
	}
	for _, u := range g.p.uses.Of(l) {
		results := u.Node.Out
		if u.Arg() >= 0 {
			results = u.Node.ResultsOf(u.Arg())
		}
		for _, v := range results {
			switch {
			case v.Next != nil:
				if guard.next[v.Next.ID] == v && guard.shows(t, v.Next) || u.Arg() == 1 && u.Node.Op == ir.OpAccumTree && g.shownLoss(guard, t, v) {
					return true
				}
			case u.Arg() >= 0 && len(results) == 1 && v.Type == ir.T(ir.F32) && u.Node.Keeps(u.Arg()) && g.shownLoss(guard, t, v):
				return true
			}
		}
	}
	return false
}

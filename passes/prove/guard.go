package prove

import (
	"slices"

	"ampc/ir"
)

// guard is the state of the rules about skipped steps: which node writes which variable under which
// predicate, and the predicates as functions of finiteness checks.
type guard struct {
	p          *proof
	values     int         // in F
	next       []*ir.Value // by Value.ID of a variable: the value that prepare or a micro-batch writes to it
	after      []*ir.Value // by Value.ID of a variable: the value that update writes to it
	stateless  values      // that depend on no state of an optimizer, as far as is known
	flows      []*flow     // by number of micro-batches, the largest last
	kept       [][]pred    // by flow and micro-batch from 1 on: whether it counts; nil without accumulators
	skipGroups []*skipGroup
	origin     []origin // by Value.ID
}

// skipGroup is a skip predicate and the writes that it guards.
type skipGroup struct {
	skip    *ir.Value
	preds   []pred      // the predicate as a function of checks, by flow
	steps   bool        // a write updates a weight by its gradient
	alone   []int32     // atoms of the last flow each of which alone makes the predicate true
	checks  values      // the values that these atoms check
	shown   []int8      // by Value.ID: whether an Inf or NaN in it surely makes the predicate true; 0: not known yet
	writers []*ir.Node  // in the order of the update
	leaves  []*ir.Value // values that micro-batches leave and the writes read
	walked  []bool      // by Value.ID: requireCheck has visited it
}

// values is a set of values of F, by Value.ID; nil holds none.
type values []bool

func (vs values) has(v *ir.Value) bool { return vs != nil && vs[v.ID] }

// origin is the sections of a step that a value depends on.
type origin uint8

const (
	fromForward  origin   = 1 << iota // losses, statistics
	fromBackward                      // gradients, all with a loss scale
	asked        = 1 << 7             // not a section: already followed
)

// guards evaluates the predicates of the step, once.
func (p *proof) guards() *guard {
	if p.guard != nil {
		return p.guard
	}
	count, _ := p.g.Number()
	if !p.unitsKnown {
		_ = ir.InferUnits(p.g) // the rule units reports its errors
	}
	g := &guard{p: p, values: count, next: make([]*ir.Value, count), after: make([]*ir.Value, count), origin: make([]origin, count), stateless: make(values, count)}
	p.guard = g
	micros := 1
	for s, n := range p.g.Nodes {
		for _, v := range n.Out {
			switch {
			case v.Next == nil:
			case s == ir.Update:
				g.after[v.Next.ID] = v
			default:
				g.next[v.Next.ID] = v
				if s != ir.Prepare {
					micros = unrolled
				}
			}
		}
	}
	for m := 1; m <= micros; m++ {
		g.flows = append(g.flows, newFlow(p, g, m))
	}
	g.kept = make([][]pred, len(g.flows))
	g.find()
	return g
}

func (g *guard) last() *flow { return g.flows[len(g.flows)-1] }

// find groups the guarded writes of the update by their predicates.
func (g *guard) find() {
	for _, n := range g.p.g.Body[ir.Update] {
		skip := n.Operand("skip")
		if skip == nil || !n.Def().Is(ir.Writer) {
			continue
		}
		t := g.skipGroupOf(n)
		if t == nil {
			t = &skipGroup{skip: skip, shown: make([]int8, g.values), walked: make([]bool, g.values)}
			for _, f := range g.flows {
				t.preds = append(t.preds, f.truth(skip, f.update()))
			}
			t.alone = g.last().b.alone(t.preds[len(t.preds)-1])
			t.checks = g.last().finite(t.alone)
			g.skipGroups = append(g.skipGroups, t)
		}
		t.writers = append(t.writers, n)
		t.steps = t.steps || n.Operand("g") != nil
	}
}

// skipGroupOf is the skip group of a guarded writer, nil for others.
func (g *guard) skipGroupOf(n *ir.Node) *skipGroup {
	for _, t := range g.skipGroups {
		if n.Operand("skip") == t.skip {
			return t
		}
	}
	return nil
}

// finite lists the values that atoms check, if there are atoms for both Inf and NaN.
func (f *flow) finite(atoms []int32) values {
	vs := make(values, f.g.values)
	var half map[*ir.Value]about
	for _, i := range atoms {
		switch a := f.atoms[i]; a.what {
		case nonfinite:
			vs[a.v.ID] = true
		case isNaN, isInf:
			if half == nil {
				half = map[*ir.Value]about{}
			}
			if other, ok := half[a.v]; ok && other != a.what {
				vs[a.v.ID] = true
			}
			half[a.v] = a.what
		}
	}
	return vs
}

// half is a value for which the atoms check only one kind, or nil.
func (f *flow) half(atoms []int32) *ir.Value {
	var whole values
	for _, i := range atoms {
		a := f.atoms[i]
		if a.what != isNaN && a.what != isInf {
			continue
		}
		if whole == nil {
			whole = f.finite(atoms)
		}
		if !whole.has(a.v) {
			return a.v
		}
	}
	return nil
}

// from is the sections whose floats v depends on.
func (g *guard) from(v *ir.Value) origin {
	if o := g.origin[v.ID]; o&asked != 0 {
		return o &^ asked
	}
	g.origin[v.ID] = asked // accumulators depend on themselves
	o := g.place(v)
	g.origin[v.ID] = asked | o
	return o
}

func (g *guard) place(v *ir.Value) origin {
	n := v.Def
	switch {
	case v.Unit != "":
		return fromBackward
	case n == nil && g.next[v.ID] != nil:
		return g.from(g.next[v.ID])
	case n == nil:
		return 0
	}
	writes := v.Next != nil
	sec := g.p.sec[n.ID]
	if !writes && (sec == ir.Forward || g.ofBlocks(v)) {
		return fromForward
	}
	var o origin
	if writes || sec != ir.Backward || carries(n) {
		for _, x := range n.In {
			if x != nil && x.Type.DType.Float() {
				o |= g.from(x)
			}
		}
	}
	if sec == ir.Backward && !writes && o != fromForward { // else a cast of a loss before its accumulator
		return fromBackward
	}
	return o
}

// shows reports whether an Inf or NaN in v surely makes the skip of group t true: the check covers
// v, or a value that rows pass it on to.
func (g *guard) shows(t *skipGroup, v *ir.Value) bool {
	switch t.shown[v.ID] {
	case 1:
		return true
	case -1:
		return false
	}
	yes := g.showsIn(t.checks, v, func(w *ir.Value) bool { return g.shows(t, w) })
	t.shown[v.ID] = -1
	if yes {
		t.shown[v.ID] = 1
	}
	return yes
}

func (g *guard) showsIn(checks values, v *ir.Value, shows func(w *ir.Value) bool) bool {
	if checks.has(v) || v.Next != nil && g.next[v.Next.ID] == v && checks.has(v.Next) {
		return true
	}
	for _, u := range g.p.uses.Of(v) {
		if u.Arg() < 0 || u.Node.Def().Is(ir.Writer) || !u.Node.Keeps(u.Arg()) {
			continue
		}
		if !slices.ContainsFunc(u.Node.ResultsOf(u.Arg()), func(w *ir.Value) bool { return w.Type.DType.Float() && !shows(w) }) {
			return true
		}
	}
	return false
}

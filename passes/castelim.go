package passes

import (
	"fmt"
	"maps"
	"slices"

	"ampc/ir"
)

// castelim removes casts that change nothing, and brings casts together:
//
//	A→A          is dropped
//	A→B→C        becomes A→C if B represents every A (so A→B→A is dropped)
//	moves, cast  becomes cast, moves if that costs no more: because the cast exists already, narrows
//	             before the move, or can merge further
//
// For f32, f16 and bf16 the second rule means: through f32 always, through a 16-bit format never.
// round is not a cast and is not changed.
//
// After a plan there is nothing to do (unlessPlanned).
func castelim(g *ir.Graph, c *Context) error { return unlessPlanned(elimCasts, g, c) }

func elimCasts(g *ir.Graph, c *Context) error {
	e := newCastEdit(g, c)
	e.crosses = c.Policy.Algorithm != "mincut"
	return e.run()
}

// unlessPlanned runs rewrite, which counts its changes, unless a plan has chosen the dtypes: then
// every cast is already as its readers need it. Under Check it runs rewrite after a plan, too, and
// any change is an error.
func unlessPlanned(rewrite func(g *ir.Graph, c *Context) error, g *ir.Graph, c *Context) error {
	if !c.training.planned {
		return rewrite(g, c)
	}
	if !c.Check {
		return nil
	}
	before := maps.Clone(c.counters)
	if err := rewrite(g, c); err != nil {
		return err
	}
	if !maps.Equal(before, c.counters) {
		return fmt.Errorf("the plan left casts to drop: %v", c.counters)
	}
	return nil
}

func (e *castEdit) run() error {
	g, c := e.g, e.c
	for s := range ir.NumSections {
		e.begin(s)
		for _, n := range e.body {
			c.At(n)
			e.visit(n)
		}
		e.end()
	}
	replace(g, e.same)
	e.sweep()
	if e.b == nil {
		return nil
	}
	return e.b.Err()
}

func (e *castEdit) builder() *ir.Builder {
	if e.b == nil {
		e.b = ir.Edit(e.g)
	}
	return e.b
}

// sweep drops the casts that are no longer read, the last one first.
func (e *castEdit) sweep() {
	for s := int(ir.NumSections) - 1; s >= 0; s-- {
		body := e.g.Body[s]
		kept := len(body)
		for i := len(body) - 1; i >= 0; i-- {
			n := body[i]
			if n.Op == ir.OpCast && n.Out[0].Next == nil && e.reads[n.Out[0].ID] == 0 {
				e.reads[n.In[0].ID]--
				e.c.Count("casts_dead", 1)
				continue
			}
			kept--
			body[kept] = n
		}
		e.g.Body[s] = body[kept:]
	}
}

// castEdit rewrites one section after the other. It appends nodes to list in their order, and may
// remove them again.
type castEdit struct {
	g       *ir.Graph
	c       *Context
	b       *ir.Builder // nil until the first new cast
	crosses bool        // whether casts move before rows that move elements
	s       ir.Section
	body    []*ir.Node
	list    []*ir.Node
	at      []int32 // by node ID: position in list, -1 for none
	reads   []int32 // by value ID, with new casts appended
	same    map[*ir.Value]*ir.Value
	cast    map[castKey]*ir.Value
	written map[*ir.Value]bool
}

func newCastEdit(g *ir.Graph, c *Context) *castEdit {
	values, nodes := g.Number()
	e := &castEdit{
		g: g, c: c, at: make([]int32, nodes), reads: make([]int32, values),
		same: map[*ir.Value]*ir.Value{}, cast: map[castKey]*ir.Value{}, written: writtenInMicro(g),
	}
	for _, n := range g.Nodes {
		e.at[n.ID] = -1
		for _, v := range n.In {
			if v != nil {
				e.reads[v.ID]++
			}
		}
		for _, v := range n.Captured {
			e.reads[v.ID] += 2
		}
	}
	for _, v := range g.Return {
		e.reads[v.ID] += 2 // a cast is never their only reader
	}
	return e
}

func (e *castEdit) begin(s ir.Section) {
	e.s, e.body = s, e.g.Body[s]
	if e.crosses {
		e.body = castsFirst(e.body)
	}
	e.list = make([]*ir.Node, 0, len(e.body))
}

// castsFirst puts each cast of body right behind what it casts, or in front of all: a cast
// that meets rows that move elements finds the others, in whatever order they were.
func castsFirst(body []*ir.Node) []*ir.Node {
	list := make([]*ir.Node, 0, len(body))
	made, casts := map[*ir.Node]bool{}, map[*ir.Node][]*ir.Node{}
	for _, n := range body {
		made[n] = true
	}
	isCast := func(n *ir.Node) bool { return n.Op == ir.OpCast && n.Out[0].Next == nil }
	for _, n := range body {
		switch {
		case !isCast(n):
		case made[n.In[0].Def]:
			casts[n.In[0].Def] = append(casts[n.In[0].Def], n)
		default:
			list = append(list, n)
		}
	}
	var behind func(n *ir.Node)
	behind = func(n *ir.Node) {
		for _, m := range casts[n] {
			list = append(list, m)
			behind(m)
		}
	}
	for _, n := range slices.Clone(list) {
		behind(n)
	}
	for _, n := range body {
		if !isCast(n) {
			list = append(list, n)
			behind(n)
		}
	}
	return list
}

func (e *castEdit) end() {
	kept := e.list[:0]
	for _, n := range e.list {
		if n != nil {
			kept = append(kept, n)
		}
	}
	if e.s == ir.Prepare {
		kept = append(kept, e.g.Body[ir.Prepare][len(e.body):]...)
	}
	e.g.Body[e.s] = kept
}

func (e *castEdit) append(n *ir.Node) {
	e.at[n.ID] = int32(len(e.list))
	e.list = append(e.list, n)
}

func (e *castEdit) visit(n *ir.Node) {
	for i, v := range n.In {
		n.In[i] = e.final(v)
	}
	if n.Op != ir.OpCast || n.Out[0].Next != nil {
		e.append(n)
		return
	}
	e.simplify(n)
}

// final is the value that replaces v so far.
func (e *castEdit) final(v *ir.Value) *ir.Value {
	for {
		w, ok := e.same[v]
		if !ok || v == nil {
			return v
		}
		v = w
	}
}

// simplify places cast n, or replaces it by an equal value.
func (e *castEdit) simplify(n *ir.Node) {
	out := n.Out[0]
	d := out.Type.DType
	x := e.through(n.In[0])
	if x != n.In[0] {
		e.c.Count("casts_chained", 1)
	}
	e.read(n, x)
	if x.Type.DType == d {
		addCasts(x, n.Why.Casts)
		e.c.Count("casts_removed", 1)
		e.drop(n, x)
		return
	}
	if w := e.cast[castKey{x, d}]; w != nil && !(e.c.training.planned && e.c.Policy.converts(n)) { // a cluster of the plan stays one
		e.c.Count("casts_merged", 1)
		if w.Def.Op == ir.OpCast {
			mergeCast(w.Def, n)
		} else {
			addCasts(w, n.Why.Casts)
		}
		e.drop(n, w)
		return
	}
	if m := e.moveBehind(n, x); m != nil && e.crosses {
		e.c.Count("casts_crossed", 1)
		e.castBefore(n, m, d)
		return
	}
	e.cast[castKey{x, d}] = out
	e.append(n)
}

// through follows casts back that lost no bits.
func (e *castEdit) through(x *ir.Value) *ir.Value {
	for x.Def != nil && x.Def.Op == ir.OpCast && x.Next == nil {
		y := x.Def.In[0]
		if !y.Type.DType.Float() || !x.Type.DType.Holds(y.Type.DType) {
			break
		}
		x = y
	}
	return x
}

// read makes x the operand of cast n.
func (e *castEdit) read(n *ir.Node, x *ir.Value) {
	e.reads[n.In[0].ID]--
	e.reads[x.ID]++
	n.In[0] = x
}

// drop makes the readers of cast n read v.
func (e *castEdit) drop(n *ir.Node, v *ir.Value) {
	e.reads[n.In[0].ID]--
	e.reads[v.ID] += e.reads[n.Out[0].ID]
	e.same[n.Out[0]] = v
}

// moveBehind returns the moving node with result x before which the narrowing cast n can be made,
// or nil where that gains nothing: n must be the only reader, and each operand must have that cast
// already or be no larger than the result.
func (e *castEdit) moveBehind(n *ir.Node, x *ir.Value) *ir.Node {
	m := x.Def
	d := n.Out[0].Type.DType
	if m == nil || !x.Type.DType.Float() || !m.Def().Is(ir.Moves) || len(m.Out) != 1 || x.Next != nil || e.reads[x.ID] != 1 || m.Why.Cluster > 0 {
		return nil
	}
	if at := e.at[m.ID]; at < 0 || int(at) >= len(e.list) || e.list[at] != m || d.Size() >= x.Type.DType.Size() {
		return nil
	}
	moved := int64(0)
	for i, v := range m.In {
		switch {
		case v == nil || !v.Type.DType.Float() || m.OperandClass(i) == ir.Fixed:
		case v.Type.DType != x.Type.DType:
			return nil
		case e.cast[castKey{v, d}] == nil && !e.narrows(v, d):
			moved += e.g.Elements(v.Type)
		}
	}
	if moved > e.g.Elements(x.Type) {
		return nil
	}
	return m
}

// narrows reports whether a cast of v to d would undo a cast that widened v.
func (e *castEdit) narrows(v *ir.Value, d ir.DType) bool { return e.through(v).Type.DType == d }

// castBefore removes m from the list, casts its operands to d, and appends m again, which now moves
// elements of d.
func (e *castEdit) castBefore(n, m *ir.Node, d ir.DType) {
	e.list[e.at[m.ID]] = nil
	from := m.Out[0].Type.DType
	for i, v := range m.In {
		if v == nil || v.Type.DType != from || m.OperandClass(i) == ir.Fixed {
			continue
		}
		e.reads[v.ID]--
		m.In[i] = e.casted(v, d)
		addCasts(m.In[i], n.Why.Casts)
		m.Why.From = m.In[i]
		e.reads[m.In[i].ID]++
	}
	if err := m.Retype(); err != nil {
		e.builder().Fail("%v", err)
		return
	}
	m.Why.AddCasts(n.Why.Casts)
	e.append(m)
	e.drop(n, m.Out[0])
}

// casted returns v in dtype d: an existing cast, the operand of a widening cast, or a new cast,
// which is in prepare if v does not change within the step.
func (e *castEdit) casted(v *ir.Value, d ir.DType) *ir.Value {
	if w := e.cast[castKey{v, d}]; w != nil {
		return w
	}
	node := &ir.Node{Op: ir.OpCast, In: []*ir.Value{v}, Attrs: ir.A("to", d), Why: ir.Reason{Class: ir.Fixed, Cause: ir.ByContract, From: v, Marks: ir.MarkInserted}}
	hoist := v.IsVar() && v.Kind != ir.Input && !e.written[v]
	s := e.s
	if hoist {
		s = ir.Prepare
		node.Why.Marks |= ir.MarkCached | ir.MarkHoisted
	}
	tail := e.g.Body[s]
	w := e.builder().In(s).Named(castName(v, d)).EmitNode(node, nil)[0]
	if w == nil {
		return v
	}
	w.ID, node.ID = int32(len(e.reads)), int32(len(e.at))
	e.reads, e.at = append(e.reads, 0), append(e.at, -1)
	e.reads[v.ID]++
	if hoist {
		e.cast[castKey{v, d}] = w
		return w
	}
	e.g.Body[s] = tail // already placed here
	e.simplify(node)
	return e.final(w)
}

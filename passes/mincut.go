package passes

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/passes/plan"
)

// mincut chooses the dtypes of all free values together. It states the plan of the step, which are
// the clusters that run as one kernel and their ports, solves it, and writes the solution to want.
func (a *assigner) mincut() error {
	m := newPlanner(a)
	m.parts()
	m.variables() // which reads the parts
	m.joinProducts()
	m.constraints()
	if err := m.clusters(); err != nil {
		return err
	}
	m.joins()
	m.solver = plan.NewSolver(m.plan)
	if err := m.stores(); err != nil {
		return err
	}
	if a.p.Guard > 0 {
		m.veto(m.solver.Solve())
	}
	if a.c.flip != nil {
		m.flipped(a.c.flip)
	}
	r := m.solver.Solve()
	if err := m.contradiction(r); err != nil {
		return err
	}
	m.apply(r)
	a.c.Count("cut_free", r.Free)
	a.c.Count("cut_components", r.Components)
	a.c.Count("cut_largest", r.Largest)
	a.c.Count("cut_bytes", int(r.Moved))
	a.c.Count("cut_held", int(r.Saved))
	return nil
}

// planner states the plan of a graph: the choice that decides each value, the clusters and their
// ports.
type planner struct {
	*assigner
	plan     *plan.Plan
	solver   *plan.Solver
	v        []plan.Choice           // by value ID: how it is stored; AsStored for values that are not floats
	seen     []plan.Choice           // by value ID: the dtype that promoting readers count it as
	base     []*ir.Value             // by value ID: the value whose memory it shares
	tensor   []plan.TensorID         // by ID of a value that is its own base
	part     []*ir.Value             // by value ID: the first value with the same elements of base
	form     []form                  // by value ID: how it relates to base
	partner  []*ir.Value             // by value ID: the tensor that it is the gradient of
	pins     map[plan.Choice]*pinned // choices that the range guard or the policy has made
	owner    []*ir.Value             // by choice: a value that it decides, to give reasons
	member   [][]*ir.Node            // by cluster
	exact    map[plan.Choice]bool    // low only if no reader requires f32
	inParts  []bool                  // by node ID: it runs as its expansion
	joined   []ir.ProductLaunch      // products with the nodes that their kernels also run
	launched map[*ir.Node]bool       // products that are in joined
	rounds   map[*ir.Node]bool       // free rows that may store in 16 bits what they read in f32
	computes map[*ir.Value]bool      // by value that only moves elements: what computedFrom reports
	wants    map[*ir.Value]bool      // what wanted reports
}

func newPlanner(a *assigner) *planner {
	values := len(a.want)
	var member [][]*ir.Node
	var partner []*ir.Value
	a.g.Together(func() { member, partner = clusterMembers(a.g), a.partners() }, func() { a.requirements() })
	a.loads = map[load]bool{}
	m := &planner{
		assigner: a, plan: plan.New(), v: make([]plan.Choice, values), seen: make([]plan.Choice, values),
		base: make([]*ir.Value, values), part: make([]*ir.Value, values), form: make([]form, values), owner: make([]*ir.Value, 2),
		member: member, partner: partner, exact: map[plan.Choice]bool{}, pins: map[plan.Choice]*pinned{}, launched: map[*ir.Node]bool{}, rounds: map[*ir.Node]bool{}, computes: map[*ir.Value]bool{}, wants: map[*ir.Value]bool{},
	}
	m.plan.SavedCost, m.plan.Together = a.p.SavedCost, a.g.Together
	m.inParts = make([]bool, len(a.node))
	a.g.InParts(a.g.Parts(), func(_ int, p *ir.Part) {
		for _, n := range p.Nodes {
			m.inParts[n.ID] = a.expands(n)
		}
	})
	return m
}

// contradiction is the error for constraints that contradict each other.
func (m *planner) contradiction(r *plan.Result) error {
	a, b := m.ownerOf(r.Conflict[0]), m.ownerOf(r.Conflict[1])
	if r.Conflict[0] == plan.AsStored {
		return nil
	}
	name := func(v *ir.Value, otherwise string) string {
		if v == nil {
			return otherwise
		}
		return v.String()
	}
	return fmt.Errorf("policy %s: contradictory rules: %s must be f32 and %s %s, yet the second is at least as wide as the first", m.p.Name, name(a, "an operand"), name(b, "its reader"), m.low)
}

// ownerOf is a value that choice x decides, or nil.
func (m *planner) ownerOf(x plan.Choice) *ir.Value {
	if x < 0 || int(x) >= len(m.owner) {
		return nil
	}
	return m.owner[x]
}

// fixedAs is the fixed choice of dtype d, a float of 16 or 32 bits.
func (m *planner) fixedAs(d ir.DType) plan.Choice {
	switch {
	case d == ir.F32:
		return plan.F32
	case d == m.low:
		return plan.Low
	}
	return plan.Other
}

// seenAs is the dtype that a promoting row counts a tensor of dtype d as. Two different 16-bit
// dtypes promote to f32.
func (m *planner) seenAs(d ir.DType) plan.Choice {
	if d != m.low {
		return plan.F32
	}
	return m.fixedAs(d)
}

// choose creates a choice that decides v.
func (m *planner) choose(v *ir.Value) plan.Choice {
	m.owner = append(m.owner, v)
	return m.plan.Choose()
}

// variables states which choice decides each value.
func (m *planner) variables() {
	for _, v := range m.g.Vars {
		m.v[v.ID], m.seen[v.ID] = plan.AsStored, plan.AsStored
		if m.assignable(v) {
			m.v[v.ID], m.seen[v.ID] = m.fixedAs(m.want[v.ID]), m.seenAs(m.want[v.ID])
		}
		if m.castVar(v) {
			m.seen[v.ID] = m.fixedAs(m.low)
		}
	}
	for s, n := range m.g.Nodes {
		for i, v := range n.Out {
			m.v[v.ID], m.seen[v.ID] = plan.AsStored, plan.AsStored
			if m.assignable(v) {
				m.v[v.ID], m.seen[v.ID] = m.variable(s, n, i)
			}
		}
	}
}

// parts finds the memory that views share, and which part of it they are.
func (m *planner) parts() {
	type part struct {
		base *ir.Value
		key  string
	}
	at, first := map[*ir.Value]ir.StridedView{}, map[part]*ir.Value{}
	for _, v := range m.g.Vars {
		m.base[v.ID], m.part[v.ID] = v, v
	}
	for _, n := range m.g.Nodes {
		for _, v := range n.Out {
			m.base[v.ID], m.part[v.ID] = v, v
		}
		if !m.sharesTensor(n) || n.Joins() {
			continue
		}
		x := n.In[0]
		p, ok := at[x]
		if !ok && x.Type.Shape.Static() {
			p = ir.Whole(x)
		}
		for k, v := range n.Out {
			m.base[v.ID], m.part[v.ID], m.form[v.ID] = m.base[x.ID], m.part[x.ID], m.formOf(n)
			if isView(n) && !ok {
				continue // all elements, in their order
			}
			if !shares(n) {
				at[v] = p
				continue
			}
			if q, ok := p.Through(n, k); ok {
				at[v] = q
				if key := (part{m.base[x.ID], q.Key()}); !isView(n) && !n.Reorders() {
					if first[key] == nil {
						first[key] = v
					}
					m.part[v.ID] = first[key]
				}
			}
		}
	}
}

// formOf is the form of the tensor that n, a view or a cast, reads and makes.
func (m *planner) formOf(n *ir.Node) form {
	f, t := m.form[n.In[0].ID], &m.node[n.ID]
	from, to := m.src[n.In[0].ID], m.src[n.Out[0].ID]
	switch cast := m.formCast(n); {
	case cast && to == from:
		return f
	case cast && to == m.low && f == widened && m.src[m.base[n.In[0].ID].ID] == to:
		return asStored // widened and narrowed again
	case cast && to == m.low, !cast && t.class == ir.Low && m.low != ir.F32:
		return narrowed
	case cast, t.kept32() && !m.movesSource(n):
		return f.in32()
	}
	return f
}

// variable returns the choices that decide result i of n: how it is stored, and what promoting
// readers count it as.
func (m *planner) variable(s ir.Section, n *ir.Node, i int) (stored, seen plan.Choice) {
	t, v := &m.node[n.ID], n.Out[i]
	required := m.required[v.ID]
	if m.formCast(n) && m.src[v.ID] == m.src[n.In[0].ID] {
		return m.v[n.In[0].ID], m.seen[n.In[0].ID]
	}
	if n.ResultClass(i) == ir.Fixed || v.Next != nil || t.class == ir.Fixed {
		return m.fixedAs(m.src[v.ID]), m.seenAs(m.src[v.ID])
	}
	switch {
	case t.kept32():
		return m.pinnedVariable(n, i)
	case m.inPrologue(n):
		return m.v[n.In[0].ID], m.seen[n.In[0].ID]
	case m.low == ir.F32:
		return plan.F32, plan.F32
	case t.class == ir.Low && (i > 0 || !m.storesF32(n) || t.pin == ir.PinLow):
		return plan.Low, plan.Low
	case t.class == ir.Low && required == readByF32 && !m.represented(v) && (!m.p.Narrow || m.wanted(v)): // gradients of parameters: no reader would read a rounded one
		if m.copiesOnly(v) {
			return m.chooseExact(v), plan.F32
		}
		return plan.F32, plan.F32
	case t.class == ir.Low && required == readByLow:
		return plan.Low, plan.Low
	case t.class == ir.Low:
		x := m.choose(v)
		return x, x
	case t.class == ir.Keep:
		return m.keptVariable(n, i, required)
	case shares(n):
		return m.v[n.In[0].ID], m.seen[n.In[0].ID]
	case i > 0:
		return m.v[n.Out[0].ID], m.seen[n.Out[0].ID]
	}
	seen = m.freeVariable(s, n)
	switch carries := m.carries(n); {
	case seen == plan.Low || !m.copiesOnly(n.Out...):
	case carries:
		return m.chooseExact(v), seen
	case carries || !m.c.Caps.StoresLow(n) || m.storesTwice(n) && m.roundedByHand(v):
	case m.copied(v) == readByLow:
		m.rounds[n] = !m.storesTwice(n)
		return plan.Low, seen
	case !m.storesTwice(n):
		m.rounds[n] = true
		x := m.chooseExact(v)
		m.plan.Widen(x, seen)
		return x, seen
	}
	return seen, seen
}

// roundedByHand reports whether a cast written by hand rounds v. n's kernel then stores both its
// result and the cast. If constants of n are lost, that cast is the cause and not the policy.
func (m *planner) roundedByHand(v *ir.Value) bool {
	return slices.ContainsFunc(m.uses.Of(v), func(u ir.Use) bool { return m.formCast(u.Node) && m.src[u.Node.Out[0].ID] == m.low })
}

// chooseExact creates a choice for v that is low only if all readers of v read low.
func (m *planner) chooseExact(v *ir.Value) plan.Choice {
	x := m.choose(v)
	m.exact[x] = true
	return x
}

// pinnedVariable stores the dtype of the source. It stores f32 if the row cannot store 16 bits from
// f32 operands, and 16 bits if all readers read v through a cast, which the kernel then runs.
func (m *planner) pinnedVariable(n *ir.Node, i int) (stored, seen plan.Choice) {
	v := n.Out[i]
	switch low := i == 0 && m.c.Caps.StoresLow(n); {
	case m.movesSource(n):
		return m.v[n.In[0].ID], m.seen[n.In[0].ID]
	case m.src[v.ID].Low() && !low:
		return plan.F32, plan.F32
	case low && m.low != ir.F32 && m.src[v.ID] == ir.F32 && m.copied(v) == readByLow:
		return plan.Low, plan.F32
	case low && m.low != ir.F32 && m.src[v.ID] == ir.F32 && n.Why.Cluster == 0 && !m.storesTwice(n) && m.copiesOnly(v):
		return m.chooseExact(v), plan.F32
	}
	return m.fixedAs(m.src[v.ID]), m.seenAs(m.src[v.ID])
}

// freeVariable is the choice of a free row: that of its forward value, or a new one.
func (m *planner) freeVariable(s ir.Section, n *ir.Node) plan.Choice {
	if of := m.representative(s, n); of != nil {
		t := &m.node[n.ID]
		t.cause, t.from = ir.ByForward, of
		return m.seen[of.ID]
	}
	switch {
	case !m.meets(n):
		return plan.F32
	case m.movesLow(n):
		return plan.Low
	}
	return m.choose(n.Out[0])
}

// copied says which dtypes the readers of v outside its cluster read, views looked through. Such a
// reader reads only one dtype, so that it reads a cast of v if v has another one: readByLow for 16
// bits, readByOther for the dtype of the reader's own result. If there are no other readers, a
// kernel that stores v in 16 bits replaces the cast. readByF32 stands for any other reader.
func (m *planner) copied(v *ir.Value) (all requirements) {
	switch {
	case m.out[v.ID] && (m.src[v.ID] != m.low || v.Next != nil || m.captured[v]):
		return readByF32
	case m.out[v.ID]:
		all = readByLow
	}
	for _, u := range m.uses.Of(v) {
		switch n := u.Node; {
		case sameCluster(v, n):
		case m.formCast(n) && m.src[n.Out[0].ID] == m.low && m.src[v.ID] != m.low, shares(n) && m.node[n.ID].class == ir.Low:
			all |= readByLow
		case m.sharesTensor(n):
			for _, o := range n.Out {
				all |= m.copied(o)
			}
		case m.requiredDType(n, u.Arg()) == m.low && m.low != ir.F32 || m.movesLow(n):
			all |= readByLow
		case m.follows(n, u.Arg()):
			all |= readByOther
		default:
			all |= readByF32
		}
	}
	return all
}

// copiesOnly reports whether each reader of vs reads only one dtype (copied). Then each of vs may
// be stored in 16 bits if all readers read that, and no bit changes.
func (m *planner) copiesOnly(vs ...*ir.Value) bool {
	all := requirements(0)
	for _, v := range vs {
		all |= m.copied(v)
	}
	return all != 0 && all&(readByF32|readByPromote) == 0
}

// carries reports whether n only moves elements, and its result is a separate tensor.
func (m *planner) carries(n *ir.Node) bool {
	d := n.Def()
	return d.Is(ir.Moves) && d.Elem == nil && !shares(n)
}

// follows reports whether n reads operand i in the dtype of its own result.
func (m *planner) follows(n *ir.Node, i int) bool {
	return m.requiredDType(n, i) == ir.Invalid && m.node[n.ID].free() && !m.c.Caps.Loads(n, i) && m.assignable(n.Out[0]) && n.OperandClass(i) != ir.Fixed
}

// readsAsItStores reports whether the dtype that n stores decides in which dtype n reads an operand.
func (m *planner) readsAsItStores(n *ir.Node) bool {
	for i, v := range n.In {
		if v != nil && m.assignable(v) && m.follows(n, i) {
			return true
		}
	}
	return false
}

// castsFirst reports whether n only moves elements and all its readers require 16 bits. Casting the
// operand gives the same bits as casting the result, so the dtypes of its operands and of its
// forward node do not bind n. A loss scale is excluded: it may be out of range of f16 when the
// values computed from it are not.
func (m *planner) castsFirst(n *ir.Node) bool {
	if !m.carries(n) || !m.node[n.ID].free() || slices.ContainsFunc(n.In, m.lossScale) || m.required[n.Out[0].ID] != readByLow {
		return false
	}
	return !slices.ContainsFunc(n.Out, func(v *ir.Value) bool {
		return m.assignable(v) && (m.required[v.ID]&^readByLow != 0 || m.computedFrom(v))
	})
}

// computedFrom reports whether a row that takes any dtype computes from v, views and moves looked
// through. It rounds its result again, so rounding v changes bits.
func (m *planner) computedFrom(v *ir.Value) bool {
	if known, ok := m.computes[v]; ok {
		return known
	}
	m.computes[v] = slices.ContainsFunc(m.uses.Of(v), func(u ir.Use) bool {
		d := u.Node.Def()
		switch {
		case m.formCast(u.Node) || m.requiredDType(u.Node, u.Arg()) != ir.Invalid:
			return false
		case d.Is(ir.Moves) && d.Elem == nil:
			return slices.ContainsFunc(u.Node.Out, m.computedFrom)
		}
		return true
	})
	return m.computes[v]
}

// lossScale reports whether v is a loss scale, in any shape.
func (m *planner) lossScale(v *ir.Value) bool {
	for ; v != nil; v = v.Def.In[0] {
		if v.Def == nil || !v.Def.Def().Is(ir.Moves) {
			return v.Attr.Get("role") == ir.RoleScale
		}
	}
	return false
}

// movesLow reports whether n only moves elements, at least as many as it reads, for low operands.
// Casting its operand then costs less than casting its result.
func (m *planner) movesLow(n *ir.Node) bool {
	if !m.castsFirst(n) || !m.meets(n) {
		return false
	}
	read := int64(0)
	for i, v := range n.In {
		if v != nil && m.assignable(v) && n.OperandClass(i) != ir.Fixed {
			read += m.g.Elements(v.Type)
		}
	}
	return read <= m.g.Elements(n.Out[0].Type)
}

// meets reports whether n reads a float tensor that counts in n's choice.
func (m *planner) meets(n *ir.Node) bool {
	return m.operand(n, func(*ir.Value) bool { return true }) != nil
}

// represented reports whether a reader of v takes its dtype from a forward value, whatever its own
// readers require.
func (m *planner) represented(v *ir.Value) bool {
	for _, u := range m.uses.Of(v) {
		if m.sharesTensor(u.Node) && slices.ContainsFunc(u.Node.Out, m.represented) || !m.sharesTensor(u.Node) && m.representative(u.Section, u.Node) != nil {
			return true
		}
	}
	return false
}

// representative is the forward value whose choice a free node of backward shares; nil if it shares
// none, as where forward is 16-bit only because a cast before a move gives the same bits.
func (m *planner) representative(s ir.Section, n *ir.Node) *ir.Value {
	of := n.Of
	if s != ir.Backward || of == nil || len(of.Out) == 0 {
		return nil
	}
	if p := moved(of.Out[0]); p != nil && m.v[p.ID] == plan.F32 && !m.p.Narrow {
		return nil // the gradient of a master weight is f32, whichever copy of the weight forward reads
	}
	if m.p.Narrow && m.wanted(n.Out[0]) {
		return nil // and what the update reads is as wide as its operands
	}
	if b := m.base[of.Out[0].ID]; b.Def != nil && m.node[b.Def.ID].class == ir.Keep {
		return nil // what a view shows of a kept row is f32, however it is stored
	}
	if !m.castsFirst(n) && !m.castsFirst(of) && m.node[of.ID].free() && m.assignable(of.Out[0]) && m.seen[of.Out[0].ID] >= 0 {
		return of.Out[0]
	}
	return nil
}

// keptVariable returns a new choice if a low operand reads the value, no reader needs f32 and no
// promoting row reads it, and under Narrow unless the caller gets the value. A value that all readers read in 16 bits is f32 to them, stored as they
// read it. Inside a cluster the value is as wide as the operands of n.
func (m *planner) keptVariable(n *ir.Node, i int, required requirements) (stored, seen plan.Choice) {
	stored = plan.F32
	switch {
	case i == 0 && m.c.Caps.StoresLow(n) && m.copied(n.Out[0]) == readByLow:
		stored = plan.Low
	case i == 0 && m.c.Caps.StoresLow(n) && required&readByF32 == 0 && (m.p.Narrow && !m.wanted(n.Out[0]) || required&readByLow != 0 && required&readByPromote == 0 && !m.promotedOutside(n.Out[0])):
		stored = m.choose(n.Out[i])
	case i == 0 && m.c.Caps.StoresLow(n) && n.Why.Cluster == 0 && m.copiesOnly(n.Out[0]):
		return m.chooseExact(n.Out[i]), plan.F32
	}
	if n.Why.Cluster == 0 || n.Def().Elem == nil {
		return stored, stored
	}
	return stored, m.choose(n.Out[i])
}

// constraints are pairs of choices where one side implies the other: a free row never stores less
// than it reads. Under Narrow that holds for rows that only move elements, which do not round, and
// for those whose result is compared with what they read, or wanted in f32; elements of parameters
// may be rounded there if the result is not wanted.
func (m *planner) constraints() {
	for id, v := range m.partner {
		if !m.p.Narrow && v != nil && m.v[id].Free() && m.v[v.ID] >= 0 {
			m.plan.Widen(m.v[v.ID], m.v[id])
		}
	}
	for s, n := range m.g.Nodes {
		t := &m.node[n.ID]
		if len(n.Out) == 0 || !m.assignable(n.Out[0]) || shares(n) || m.inPrologue(n) || m.p.Narrow && !m.carries(n) && !m.compared(n) && !m.wanted(n.Out[0]) {
			continue
		}
		to := plan.AsStored
		switch {
		case t.free() && m.representative(s, n) == nil && !m.castsFirst(n):
			to = m.seen[n.Out[0].ID]
		case t.class == ir.Keep && n.Why.Cluster > 0 && n.Def().Elem != nil:
			to = m.seen[n.Out[0].ID]
		}
		if !to.Free() {
			continue
		}
		for i, v := range n.In {
			if v == nil || !m.assignable(v) || m.weak[v.ID] || n.OperandClass(i) == ir.Fixed || m.p.Narrow && v.IsVar() && v.Kind == ir.Param && !m.wanted(n.Out[0]) {
				continue
			}
			m.plan.Widen(m.seen[v.ID], to)
			if (!sameCluster(v, n) || m.keptOutside(v)) && !m.castVar(v) && m.v[v.ID] >= 0 {
				m.plan.Widen(m.v[v.ID], to)
			}
		}
	}
}

// keptOutside reports whether v is the result of a kept row and is stored for readers outside of
// its cluster. Those inside then count what is stored, too.
func (m *planner) keptOutside(v *ir.Value) bool {
	return v.Def != nil && m.node[v.Def.ID].class == ir.Keep && m.leaves(v.Def, v)
}

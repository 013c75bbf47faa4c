package passes

import (
	"slices"

	"ampc/ir"
)

// mincut chooses the dtypes of all free values together: the assignment under
// which the step moves the fewest bytes, exactly, and of several such the one
// with the most in f32.
//
// Source side means f32, sink side low. Every stored tensor has a variable; a
// view shares its base's, a free backward node its forward node's. With n
// elements, and every term times the runs of its section per step:
//
//	write, and read by a kernel that converts   4n if f32, 2n if low
//	read by a row that demands a dtype          that dtype's bytes
//	narrowing cast, once for all who need it    6n where the tensor is f32 and some reader low
//	widening cast                               6n where it is low and some reader f32
//	held for backward                           4n, 2n or both, times Hold
//
// Casts of what does not change within a step count once per step. A cast of
// what an elementwise kernel computes is a second store of it: 2n.
func (a *assigner) mincut() error {
	m := newCutModel(a)
	m.partner = m.partners()
	m.variables()
	m.constraints()
	m.traffic()
	if err := m.stores(); err != nil {
		return err
	}
	if a.p.Guard > 0 {
		m.veto(m.net.solve())
	}
	if a.c.flip != nil {
		m.flipped(a.c.flip)
	}
	c := m.net.solve()
	m.apply(c)
	a.c.Count("cut_free", c.free)
	a.c.Count("cut_components", c.components)
	a.c.Count("cut_largest", c.largest)
	held := m.heldCost(c)
	a.c.Count("cut_bytes", int(c.cost+m.fixed-held))
	a.c.Count("cut_held", int(held))
	return nil
}

// heldCost is the part of the cut that prices held bytes.
func (m *cutModel) heldCost(c *cut) int64 {
	held := make(map[int32]bool, len(m.held))
	for _, x := range m.held {
		held[x] = true
	}
	sum := int64(0)
	for _, e := range m.net.edges {
		terminalEdge := e.from == srcNode && held[e.to] || e.to == sinkNode && held[e.from]
		if terminalEdge && e.cap < inf && !c.sink[e.from] && c.sink[e.to] {
			sum += e.cap
		}
	}
	return sum
}

// cutModel turns the graph into a network.
type cutModel struct {
	*assigner
	net     *network
	wish    []wishes
	v       []int32           // node of a value's stored dtype; 0: f32 for good, 1: low for good, -1: no float
	seen    []int32           // node of what promoting readers take a value for
	base    []*ir.Value       // whose memory a value is
	part    []*ir.Value       // the first value that is the same elements of it
	partner []*ir.Value       // the tensor a value is the gradient of
	pins    map[int32]*pinned // nodes put on a side by the range guard or the policy
	owner   []*ir.Value       // by network node: a value it stands for, for reasons
	fixed   int64             // bytes that no choice changes
	held    []int32           // nodes whose edges price what is held, not what is moved; -1: none
	member  map[int32][]*ir.Node
}

func newCutModel(a *assigner) *cutModel {
	m := &cutModel{
		assigner: a, net: newNetwork(), wish: a.wishes(), v: make([]int32, len(a.want)), seen: make([]int32, len(a.want)),
		base: make([]*ir.Value, len(a.want)), part: make([]*ir.Value, len(a.want)), owner: make([]*ir.Value, 2), member: map[int32][]*ir.Node{}, pins: map[int32]*pinned{},
	}
	for _, n := range a.g.Nodes {
		if n.Why.Group > 0 {
			m.member[n.Why.Group] = append(m.member[n.Why.Group], n)
		}
	}
	return m
}

func terminal(d ir.DType) int32 {
	if d.Low() {
		return sinkNode
	}
	return srcNode
}

func (m *cutModel) fresh(v *ir.Value) int32 {
	m.owner = append(m.owner, v)
	return m.net.node()
}

// variables gives every value its node.
func (m *cutModel) variables() {
	for _, v := range m.g.Vars {
		m.base[v.ID], m.part[v.ID] = v, v
		m.v[v.ID] = -1
		if m.assignable(v) {
			m.v[v.ID] = terminal(m.want[v.ID])
		}
		m.seen[v.ID] = m.v[v.ID]
		if m.castVar(v) {
			m.seen[v.ID] = terminal(m.low)
		}
	}
	for s, n := range m.g.Nodes {
		for i, v := range n.Out {
			m.base[v.ID], m.part[v.ID] = v, v
			m.v[v.ID], m.seen[v.ID] = -1, -1
			if m.assignable(v) {
				m.v[v.ID], m.seen[v.ID] = m.variable(s, n, i)
			}
		}
	}
	m.parts()
}

// parts finds whose memory views are, and which part of it.
func (m *cutModel) parts() {
	type part struct {
		base *ir.Value
		key  string
	}
	at, first := map[*ir.Value]ir.Place{}, map[part]*ir.Value{}
	for _, n := range m.g.Nodes {
		if !shares(n) || n.Op == ir.OpConcat {
			continue
		}
		x := n.In[0]
		p, ok := at[x]
		if !ok && x.Type.Shape.Static() {
			p = ir.Whole(x)
		}
		for k, v := range n.Out {
			m.base[v.ID], m.part[v.ID] = m.base[x.ID], m.part[x.ID]
			if isView(n) && !ok {
				continue // all of it, in its order
			}
			if q, ok := p.Through(n, k); ok {
				at[v] = q
				if key := (part{m.base[x.ID], q.Key()}); !isView(n) && n.Op != ir.OpTranspose {
					if first[key] == nil {
						first[key] = v
					}
					m.part[v.ID] = first[key]
				}
			}
		}
	}
}

// variable returns the nodes of result i of n: as stored, and as promoting
// readers take it.
func (m *cutModel) variable(s ir.Section, n *ir.Node, i int) (stored, seen int32) {
	t, v := &m.node[n.ID], n.Out[i]
	wish := m.wish[v.ID]
	if n.ResultClass(i) == ir.Fixed || v.Next != nil || t.class == ir.Fixed {
		d := terminal(m.src[v.ID])
		return d, d
	}
	switch {
	case t.kept32():
		return m.pinnedVariable(n, i)
	case m.low == ir.F32:
		return srcNode, srcNode
	case t.class == ir.Low && (i > 0 || !m.c.Caps.StoresF32(n) || t.pin == ir.PinLow):
		return sinkNode, sinkNode
	case t.class == ir.Low && wish == readByF32 && !m.tied(v): // gradients of parameters: nothing would read the rounded one
		return srcNode, srcNode
	case t.class == ir.Low && wish == readByLow:
		return sinkNode, sinkNode
	case t.class == ir.Low:
		x := m.fresh(v)
		return x, x
	case t.class == ir.Keep:
		return m.keptVariable(n, i, wish)
	case shares(n):
		return m.v[n.In[0].ID], m.seen[n.In[0].ID]
	case i > 0:
		return m.v[n.Out[0].ID], m.seen[n.Out[0].ID]
	}
	seen = m.freeVariable(s, n)
	if !m.c.Caps.StoresLow(n) {
		return seen, seen
	}
	switch m.copied(v) {
	case readByLow:
		return sinkNode, seen
	case readByLow | readByOther, readByOther:
		if m.endsProduct(n) { // else its kernel stores two forms as easily as one
			return m.fresh(v), seen
		}
	}
	return seen, seen
}

// pinnedVariable stores what the source says, f32 where the row cannot store 16
// bits of the f32 it reads; and 16 bits where nobody reads but through a cast,
// which the kernel does.
func (m *cutModel) pinnedVariable(n *ir.Node, i int) (stored, seen int32) {
	v := n.Out[i]
	switch low := i == 0 && m.c.Caps.StoresLow(n); {
	case m.src[v.ID].Low() && !low && !m.movesSource(n):
		return srcNode, srcNode
	case m.crossed(n):
		return sinkNode, srcNode
	case low && m.low != ir.F32 && m.src[v.ID] == ir.F32 && m.copied(v) == readByLow:
		return sinkNode, srcNode
	}
	d := terminal(m.src[v.ID])
	return d, d
}

// crossed reports whether n is pinned to f32, only moves elements and has low
// readers alone: the cast for them goes before it (castelim).
func (m *cutModel) crossed(n *ir.Node) bool {
	d := n.Def()
	return m.node[n.ID].kept32() && m.low != ir.F32 && d.Is(ir.Moves) && d.Elem == nil && !shares(n) && m.copied(n.Out[0]) == readByLow
}

// freeVariable is the node of a free row: its forward value's, or its own.
func (m *cutModel) freeVariable(s ir.Section, n *ir.Node) int32 {
	if of := m.leader(s, n); of != nil {
		t := &m.node[n.ID]
		t.cause, t.from = ir.ByForward, of
		return m.seen[of.ID]
	}
	switch {
	case !m.meets(n):
		return srcNode
	case m.movesLow(n):
		return sinkNode
	}
	return m.fresh(n.Out[0])
}

// copied says how those read v outside its group, views looked through, who
// read one dtype and no other, so that they take a cast of v where it is stored
// in another: readByLow for 16 bits, readByOther for the dtype of their own
// result. If there are only such readers, a kernel that stores what it computes
// in 16 bits does what the cast would; readByF32 stands for any other.
func (m *cutModel) copied(v *ir.Value) (all wishes) {
	if m.out[v.ID] {
		return readByF32
	}
	for _, u := range m.uses.Of(v) {
		switch n := u.Node; {
		case sameGroup(v, n):
		case shares(n):
			for _, o := range n.Out {
				all |= m.copied(o)
			}
		case m.demand(n, u.Arg).Low() || m.movesLow(n):
			all |= readByLow
		case m.follows(n, u.Arg):
			all |= readByOther
		default:
			all |= readByF32
		}
	}
	return all
}

// follows reports whether n reads operand i in the dtype of its own result.
func (m *cutModel) follows(n *ir.Node, i int) bool {
	return m.demand(n, i) == ir.Invalid && m.node[n.ID].free() && !m.c.Caps.Loads(n, i) && m.assignable(n.Out[0]) && n.OperandClass(i) != ir.Fixed
}

// castsFirst reports whether n only moves elements and all behind it want 16
// bits: to cast what it reads and to cast what it moved are the same bits, so
// neither its operands nor its forward node bind it. A loss scale is not moved
// so: it may be beyond f16 where what is made of it is not.
func (m *cutModel) castsFirst(n *ir.Node) bool {
	d := n.Def()
	return d.Is(ir.Moves) && d.Elem == nil && !shares(n) && m.node[n.ID].free() && m.wish[n.Out[0].ID] == readByLow &&
		!slices.ContainsFunc(n.In, m.lossScale)
}

// lossScale reports whether v is a loss scale, in whatever shape.
func (m *cutModel) lossScale(v *ir.Value) bool {
	for ; v != nil; v = v.Def.In[0] {
		if v.Def == nil || !v.Def.Def().Is(ir.Moves) {
			return v.Attr.Get("role") == ir.RoleScale
		}
	}
	return false
}

// movesLow reports whether n only moves elements, no fewer than it reads, for
// low operands: moving a cast costs less than casting what was moved.
func (m *cutModel) movesLow(n *ir.Node) bool {
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

// meets reports whether n reads a float tensor that takes part in its choice.
func (m *cutModel) meets(n *ir.Node) bool {
	return m.operand(n, func(*ir.Value) bool { return true }) != nil
}

// tied reports whether a reader of v takes its dtype from forward, whatever its
// own readers wish.
func (m *cutModel) tied(v *ir.Value) bool {
	for _, u := range m.uses.Of(v) {
		if shares(u.Node) && slices.ContainsFunc(u.Node.Out, m.tied) || !shares(u.Node) && m.leader(u.Section, u.Node) != nil {
			return true
		}
	}
	return false
}

// leader is the forward value whose choice a free backward node shares.
func (m *cutModel) leader(s ir.Section, n *ir.Node) *ir.Value {
	of := n.Of
	if s != ir.Backward || of == nil || len(of.Out) == 0 {
		return nil
	}
	if p := moved(of.Out[0]); p != nil && m.v[p.ID] == srcNode && !m.p.Narrow {
		return nil // the gradient of a master is f32, whatever copy of it forward reads
	}
	if !m.castsFirst(n) && m.node[of.ID].free() && m.assignable(of.Out[0]) && m.seen[of.Out[0].ID] >= 0 {
		return of.Out[0]
	}
	return nil
}

// keptVariable is free where a low operand reads the value, nobody needs f32
// and no promoting row reads it; inside a group it is as wide as its operands.
func (m *cutModel) keptVariable(n *ir.Node, i int, wish wishes) (stored, seen int32) {
	stored = srcNode
	switch {
	case i == 0 && m.c.Caps.StoresLow(n) && m.copied(n.Out[0]) == readByLow:
		stored = sinkNode
	case i == 0 && m.c.Caps.StoresLow(n) && wish&readByF32 == 0 && (m.p.Narrow || wish&readByLow != 0 && wish&readByPromote == 0):
		stored = m.fresh(n.Out[i])
	}
	if n.Why.Group == 0 {
		return stored, stored
	}
	return stored, m.fresh(n.Out[i])
}

// constraints are the inf edges: a free row never stores less than it reads.
func (m *cutModel) constraints() {
	if m.p.Narrow {
		return
	}
	for id, v := range m.partner {
		if v != nil && m.v[id] >= 2 && m.v[v.ID] >= 0 {
			m.net.arc(m.v[v.ID], m.v[id], inf)
		}
	}
	for s, n := range m.g.Nodes {
		t := &m.node[n.ID]
		if len(n.Out) == 0 || !m.assignable(n.Out[0]) || shares(n) {
			continue
		}
		to := int32(-1)
		switch {
		case t.free() && m.leader(s, n) == nil && !m.castsFirst(n):
			to = m.seen[n.Out[0].ID]
		case t.class == ir.Keep && n.Why.Group > 0:
			to = m.seen[n.Out[0].ID]
		}
		if to < 2 {
			continue
		}
		for i, v := range n.In {
			if v == nil || !m.assignable(v) || m.weak[v.ID] || n.OperandClass(i) == ir.Fixed {
				continue
			}
			m.net.arc(m.seen[v.ID], to, inf)
			if !sameGroup(v, n) && !m.castVar(v) {
				m.net.arc(m.v[v.ID], to, inf)
			}
		}
	}
}

// apply writes the cut to want and records what decided.
func (m *cutModel) apply(c *cut) {
	for _, n := range m.g.Nodes {
		for i, v := range n.Out {
			x := m.v[v.ID]
			if x < 0 {
				continue
			}
			m.want[v.ID] = ir.F32
			if c.sink[x] {
				m.want[v.ID] = m.low
			}
			if x < 2 && m.src[v.ID].Low() && m.node[n.ID].class == ir.Fixed {
				m.want[v.ID] = m.src[v.ID]
			}
			if i == 0 {
				m.reason(n, x, c)
			}
		}
	}
}

// reason records why n's variable x is on its side: forced by a neighbour, or
// chosen by the cut. Without a variable n goes with the operand stored alike.
func (m *cutModel) reason(n *ir.Node, x int32, c *cut) {
	t := &m.node[n.ID]
	by := c.forcedBy[x]
	switch {
	case m.pins[x] != nil:
		m.pinReason(n, m.pins[x])
	case t.cause == ir.ByForward || t.class == ir.Keep && t.cause != ir.ByClass:
	case t.free() && (x < 2 || shares(n)):
		if v := m.operand(n, func(v *ir.Value) bool { return m.want[v.ID] == m.want[n.Out[0].ID] }); v != nil {
			t.cause, t.from = ir.ByNeighbour, v
		}
	case x < 2:
	case by == x:
		t.cause, t.from = ir.ByCut, nil
	case t.free():
		t.cause, t.from = ir.ByNeighbour, m.forcer(n, x, c)
	}
}

// forcer is the first operand of n that was forced to the side of x, or the
// reader that forced it.
func (m *cutModel) forcer(n *ir.Node, x int32, c *cut) *ir.Value {
	v := m.operand(n, func(v *ir.Value) bool {
		y := m.seen[v.ID]
		return y >= 0 && c.sink[y] == c.sink[x] && (y < 2 || c.forcedBy[y] != y)
	})
	if v == nil {
		v = m.owner[c.forcedBy[x]]
	}
	return v
}

// operand is the first operand that takes part in n's choice and passes ok.
func (m *cutModel) operand(n *ir.Node, ok func(*ir.Value) bool) *ir.Value {
	for i, v := range n.In {
		if v != nil && m.assignable(v) && !m.weak[v.ID] && n.OperandClass(i) != ir.Fixed && ok(v) {
			return v
		}
	}
	return nil
}

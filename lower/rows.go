package lower

import (
	"slices"

	"ampc/ir"
)

// lowerRows lowers a norm over rows with the elementwise nodes beside it: those that
// make its operand are its prologue, those that read its result its epilogue
// (ir.Caps.Rows). A product that runs as two steps may make the operand: its second
// step is the prologue. It reports false where the members are no such launch.
func (l *Lowerer) lowerRows(n *ir.Node, rest []*ir.Node) bool {
	before, after := around(n, rest)
	product := slices.IndexFunc(before, func(m *ir.Node) bool { return m.Def().Elem == nil })
	if !l.denseRows(after) || len(before) > 0 && !l.makesOperand(n, before) || len(after) > 0 && !l.readsResult(n, after) {
		return false
	}
	if product < 0 && !l.denseRows(before) || product >= 0 && !l.endsIn(before, product, n) {
		return false
	}
	l.now = append([]*ir.Node{n}, rest...)
	s, made := l.rowStep(n), []BufferID(nil)
	switch {
	case product >= 0:
		made = l.productPrologue(&s, n, before, product)
	case len(before) > 0:
		made = l.rowPrologue(&s, n, before)
	}
	for _, v := range n.Out {
		s.Out = append(s.Out, l.result(v))
	}
	s.Out = append(s.Out, made...)
	if len(after) > 0 {
		s.Node = NodeRef{after[len(after)-1].Name(), after[0].Pos}
		s.Out = append(s.Out[1:], l.rowEpilogue(&s, n, after)...)
	}
	l.emit(s)
	return true
}

// endsIn reports whether nodes are a product that runs as two steps, of which the second
// makes the operand of norm n that a prologue may make.
func (l *Lowerer) endsIn(nodes []*ir.Node, product int, n *ir.Node) bool {
	p, caps := nodes[product], l.p.Target.Caps()
	own, rest, ok := l.readers.epilogue(caps, p, others(nodes, product))
	if !ok || len(rest) > 0 || !p.Def().Is(ir.MatrixProduct) {
		return false
	}
	s, at := l.ended(p, own)
	s.Out = []BufferID{l.result(at)}
	return at == n.In[caps.RowsOf(n).Operand] && l.splits(&s)
}

func others(nodes []*ir.Node, i int) []*ir.Node { return slices.Concat(nodes[:i], nodes[i+1:]) }

// productPrologue has the second step of a product make an operand of norm n, and
// gives what it stores for others.
func (l *Lowerer) productPrologue(s *Step, n *ir.Node, nodes []*ir.Node, product int) []BufferID {
	own, _, _ := l.readers.epilogue(l.p.Target.Caps(), nodes[product], others(nodes, product))
	p, at := l.ended(nodes[product], own)
	p.Out = []BufferID{l.result(at)}
	g := l.emitSum(&p)
	made := g.Stores[0].Reg
	if !l.stored(at, append([]*ir.Node{n}, nodes...)) {
		g.Stores = nil
	}
	if d := at.Type.DType; d.Low() {
		g.Code = append(g.Code, ir.Instr{Op: ir.PRound, Type: ir.F32, To: d, A: made})
		made = ir.Reg(len(g.Code) - 1)
	}
	l.prologue(s, n, g, made)
	return storesOf(g)
}

// prologue has register made of g stand for an operand of norm n.
func (l *Lowerer) prologue(s *Step, n *ir.Node, g *Cluster, made ir.Reg) {
	operand := l.p.Target.Caps().RowsOf(n).Operand
	s.Kernel.Fusion.Prologue, s.Kernel.Fusion.Made = g, made
	s.In[operand] = None
	s.In = append(s.In, loadsOf(g)...)
}

// around divides the nodes beside norm n: those that read its result, with their
// clusters, and those before it.
func around(n *ir.Node, rest []*ir.Node) (before, after []*ir.Node) {
	behind := map[*ir.Node]bool{n: true}
	clusters := map[int32]bool{}
	for _, m := range rest {
		if slices.ContainsFunc(m.In, func(v *ir.Value) bool { return v != nil && behind[v.Def] }) {
			behind[m] = true
			clusters[m.Why.Cluster] = true
		}
	}
	for _, m := range rest {
		if behind[m] || m.Why.Cluster > 0 && clusters[m.Why.Cluster] {
			after = append(after, m)
		} else {
			before = append(before, m)
		}
	}
	return before, after
}

// makesOperand reports whether nodes make the operand that a prologue may make, and
// norm n reads nothing else of theirs.
func (l *Lowerer) makesOperand(n *ir.Node, nodes []*ir.Node) bool {
	operand := l.p.Target.Caps().RowsOf(n).Operand
	for i, v := range n.In {
		if v != nil && v.Def != nil && contains(nodes, v.Def) != (i == operand) {
			return false
		}
	}
	return operand >= 0 && n.In[operand].Def != nil
}

// readsResult reports whether nodes read the first result of norm n and no other.
func (l *Lowerer) readsResult(n *ir.Node, nodes []*ir.Node) bool {
	reads := false
	for _, m := range nodes {
		for _, v := range m.In {
			if v != nil && v.Def == n && v.Idx > 0 {
				return false
			}
			reads = reads || v != nil && v.Def == n
		}
	}
	return reads && slices.ContainsFunc(append([]*ir.Node{{Out: n.Out[:1]}}, nodes...), func(m *ir.Node) bool {
		return slices.ContainsFunc(m.Out, func(v *ir.Value) bool { return l.stored(v, nodes) })
	})
}

// denseRows reports whether nodes are elementwise work over one shape that stores dense tensors.
func (l *Lowerer) denseRows(nodes []*ir.Node) bool {
	for _, m := range nodes {
		if m.Def().Elem == nil || m.Out[0].Type.Shape != nodes[0].Out[0].Type.Shape {
			return false
		}
		for _, v := range m.Out {
			if _, placed := l.views.At[v]; placed || v.Next != nil {
				return false
			}
		}
	}
	return true
}

// rowStep starts the step of norm n, with room for all operands of its row.
func (l *Lowerer) rowStep(n *ir.Node) Step {
	row := *n
	row.In = slices.Clone(n.In)
	for len(row.In) < len(n.Def().In) {
		row.In = append(row.In, nil)
	}
	return Step{Kind: KindKernel, In: l.ins(&row), Node: NodeRef{n.Name(), n.Pos},
		Kernel: &Kernel{Name: n.Def().Name, Node: detached(&row), InPlace: n.Def().Is(ir.InPlace)}}
}

// rowPrologue has nodes make an operand of norm n, and gives what they store for others.
func (l *Lowerer) rowPrologue(s *Step, n *ir.Node, nodes []*ir.Node) []BufferID {
	j := l.join(nil, nodes)
	out := l.storesFor(j, nodes, append([]*ir.Node{n}, nodes...))
	made := j.read(n.In[l.p.Target.Caps().RowsOf(n).Operand]) // rounded as it would be stored
	j.cluster.Code = j.code.Ins
	l.prologue(s, n, &j.cluster, made)
	return out
}

// rowEpilogue has nodes read y, the result of norm n, and gives what is stored instead
// of y: what they make, and y too where others read it.
func (l *Lowerer) rowEpilogue(s *Step, n *ir.Node, nodes []*ir.Node) []BufferID {
	y := n.Out[0]
	j := l.join(nil, nodes)
	out := l.stores(j, nodes)
	g := j.cluster
	own := slices.IndexFunc(g.Loads, func(a Access) bool { return a.Buffer == l.buf[y.ID] })
	g.Loads = slices.Concat(g.Loads[own:own+1], g.Loads[:own], g.Loads[own+1:]) // load 0 is what the norm computes
	first := ir.Reg(-1)
	for r := range g.Code {
		switch in := &g.Code[r]; {
		case in.Op != ir.PIn:
		case in.Int == int64(own):
			in.Int, first = 0, ir.Reg(r)
		case in.Int < int64(own):
			in.Int++
		}
	}
	if l.stored(y, nodes) {
		a := l.storesTo(y, g.Shape)
		a.Reg = first
		g.Stores, out = append(g.Stores, a), append(out, a.Buffer)
	}
	s.Kernel.Fusion.Epilogue = &g
	s.In = append(s.In, loadsOf(&g)[1:]...)
	return out
}

// storesOf lists the buffers that g stores.
func storesOf(g *Cluster) (ids []BufferID) {
	for i := range g.Stores {
		ids = append(ids, g.Stores[i].Buffer)
	}
	return ids
}

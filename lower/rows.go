package lower

import (
	"slices"

	"ampc/ir"
)

// lowerRows lowers a norm over rows with elementwise nodes (ir.Caps.Rows): those that compute its
// operand become its prologue, those that read its result its epilogue. It reports false for other
// nodes.
func (l *Lowerer) lowerRows(n *ir.Node, rest []*ir.Node) bool {
	all := append([]*ir.Node{n}, rest...)
	rest, sum := l.rowSum(n, rest)
	before, after := around(n, rest)
	if !l.denseRows(before) || !l.denseRows(after) || len(before) > 0 && !l.makesOperand(n, before) || len(after) > 0 && !l.readsResult(n, after) {
		return false
	}
	l.now = all
	s, made := l.rowStep(n), []BufferID(nil)
	if len(before) > 0 {
		made = l.rowPrologue(&s, n, before)
	}
	for _, v := range n.Out {
		s.Out = append(s.Out, l.result(v))
	}
	s.Out = append(s.Out, made...)
	switch {
	case len(after) > 0:
		s.Node = NodeRef{after[len(after)-1].Name(), after[0].Pos}
		s.Out = append(s.Out[1:], l.rowEpilogue(&s, n, after, sum)...)
	case sum != nil && sum.In[0] != n.Out[0]:
		return false
	case sum != nil:
		s.Kernel.Fusion.Total = &RowSum{Out: len(s.Out)}
		s.Out = append(s.Out, l.result(sum.Out[0]))
	}
	l.emit(s)
	return true
}

// rowSum removes the node from rest that adds up the rows of a value of norm n's kernel; nil if
// there is none.
func (l *Lowerer) rowSum(n *ir.Node, rest []*ir.Node) ([]*ir.Node, *ir.Node) {
	fusion := l.p.Target.Caps().RowsOf(n)
	i := slices.IndexFunc(rest, func(m *ir.Node) bool { return fusion.Sums && m.SumsRows(fusion.Cols) })
	if i < 0 {
		return rest, nil
	}
	return others(rest, i), rest[i]
}

func others(nodes []*ir.Node, i int) []*ir.Node { return slices.Concat(nodes[:i], nodes[i+1:]) }

// prologue makes g the prologue of norm n. Its register made replaces an operand of n.
func (l *Lowerer) prologue(s *Step, n *ir.Node, g *Cluster, made ir.Reg) {
	operand := l.p.Target.Caps().RowsOf(n).Operand
	s.Kernel.Fusion.Prologue, s.Kernel.Fusion.Made = g, made
	s.In[operand] = None
	s.In = append(s.In, loadsOf(g)...)
}

// around divides the nodes fused with norm n: after are those that depend on its result, before the
// others.
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

// makesOperand reports whether nodes compute the operand of norm n that a prologue may compute, and
// no other operand of n.
func (l *Lowerer) makesOperand(n *ir.Node, nodes []*ir.Node) bool {
	operand := l.p.Target.Caps().RowsOf(n).Operand
	for i, v := range n.In {
		if v != nil && v.Def != nil && contains(nodes, v.Def) != (i == operand) {
			return false
		}
	}
	return operand >= 0 && n.In[operand].Def != nil
}

// readsResult reports whether nodes read the first result of norm n and none of its other results.
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

// denseRows reports whether nodes are elementwise over one shape and store only dense tensors.
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

// rowStep returns the step of norm n. Its operands include absent ones of the row.
func (l *Lowerer) rowStep(n *ir.Node) Step {
	row := *n
	row.In = slices.Clone(n.In)
	for len(row.In) < len(n.Def().In) {
		row.In = append(row.In, nil)
	}
	return Step{Kind: KindKernel, In: l.ins(&row), Node: NodeRef{n.Name(), n.Pos},
		Kernel: &Kernel{Name: n.Def().Name, Node: detached(&row), InPlace: n.Def().Is(ir.InPlace)}}
}

// rowPrologue makes nodes the prologue of norm n. It returns the results that the prologue stores
// for others.
func (l *Lowerer) rowPrologue(s *Step, n *ir.Node, nodes []*ir.Node) []BufferID {
	j := l.join(nil, nodes)
	out := l.storesFor(j, nodes, append([]*ir.Node{n}, nodes...))
	made := j.read(n.In[l.p.Target.Caps().RowsOf(n).Operand]) // rounded, as a store would round it
	j.cluster.Code = j.code.Ins
	l.prologue(s, n, &j.cluster, made)
	return out
}

// rowEpilogue makes nodes the epilogue of norm n, whose result is y, and adds up the rows of the
// operand of sum, if that is not nil. It returns the stored results: those of nodes and, where
// others read it, y, then that of sum.
func (l *Lowerer) rowEpilogue(s *Step, n *ir.Node, nodes []*ir.Node, sum *ir.Node) []BufferID {
	y := n.Out[0]
	j := l.join(nil, nodes)
	inside := slices.Clone(nodes)
	if sum != nil {
		inside = append(inside, sum)
		s.Kernel.Fusion.Total = &RowSum{Reg: j.read(sum.In[0])}
		j.cluster.Code = j.code.Ins
	}
	out := l.storesFor(j, nodes, inside)
	g := j.cluster
	own := slices.IndexFunc(g.Loads, func(a Access) bool { return a.Buffer == l.buf[y.ID] })
	g.Loads = slices.Concat(g.Loads[own:own+1], g.Loads[:own], g.Loads[own+1:]) // load 0 is the result of the norm
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
	if l.stored(y, inside) {
		a := l.storesTo(y, g.Shape)
		a.Reg = first
		g.Stores, out = append(g.Stores, a), append(out, a.Buffer)
	}
	s.Kernel.Fusion.Epilogue = &g
	s.In = append(s.In, loadsOf(&g)[1:]...)
	if sum != nil {
		s.Kernel.Fusion.Total.Out = len(n.Out) - 1 + len(out)
		out = append(out, l.result(sum.Out[0]))
	}
	return out
}

// loadsOf lists the buffers that g loads.
func loadsOf(g *Cluster) (ids []BufferID) {
	for i := range g.Loads {
		ids = append(ids, g.Loads[i].Buffer)
	}
	return ids
}

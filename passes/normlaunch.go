package passes

import (
	"slices"

	"ampc/ir"
)

// channelNorms lists the channel norms whose kernels can run a second norm, or the elementwise
// nodes that compute an operand.
func (f *launchFinder) channelNorms() (list []*ir.Node) {
	for s, n := range f.g.Nodes {
		c := f.caps.NormOf(n)
		if (s == ir.Forward || s == ir.Backward) && (c.Operand > 0 || c.Beside) && !f.expands(n) {
			list = append(list, n)
		}
	}
	return list
}

// overChannels joins each of norms with the nodes that its kernel can also run.
func (f *launchFinder) overChannels(norms []*ir.Node) {
	f.sort(norms)
	kept := f.kept()
	for _, n := range norms {
		c := f.caps.NormOf(n)
		switch {
		case f.at(n).joined:
		case c.Operand > 0:
			all := []*ir.Node{n}
			if m := f.sibling(n, c.Operand); m != nil && c.Beside {
				all = append(all, m)
			}
			f.makesOperand(all, c.Operand)
		default:
			f.added(n, kept)
		}
	}
}

// sibling joins gradient n with the first gradient of another tensor that reads the same operand
// and that it can run with. It returns nil where there is none.
func (f *launchFinder) sibling(n *ir.Node, operand int) *ir.Node {
	var list []*ir.Node
	for _, u := range f.uses.Of(n.In[operand]) {
		m := u.Node
		if u.Arg() == operand && m.In[0] != n.In[0] && sameNorm(m, n) && f.alone(m) && f.at(m).section == f.at(n).section {
			list = append(list, m)
		}
	}
	f.sort(list)
	for _, m := range list {
		if f.beside(f.of(m), f.of(n)) {
			return m
		}
	}
	return nil
}

// sameNorm reports whether norms m and n have the same op and image layout.
func sameNorm(m, n *ir.Node) bool { return m.Op == n.Op && m.Str("layout") == n.Str("layout") }

// alone reports whether n is a step of its own, in no launch.
func (f *launchFinder) alone(n *ir.Node) bool {
	s := f.at(n)
	return len(s.nodes) == 1 && !s.joined && !f.expands(n)
}

// makesOperand joins norms with the elementwise step that computes one operand of all of them, and
// no other operand.
func (f *launchFinder) makesOperand(norms []*ir.Node, operand int) {
	v := norms[0].In[operand]
	if v.Def == nil {
		return
	}
	p := f.of(v.Def)
	if p == elsewhere || !f.walksDense(p, norms[0]) {
		return
	}
	for _, n := range norms {
		for i, x := range n.In {
			if x != nil && i != operand && f.maker(x) == p {
				return // it reads the stored result
			}
		}
	}
	f.join(p, f.of(norms[0]))
}

// walksDense reports whether step k is elementwise work that reads and stores dense floats of the
// shape of norm n's operand, and is in no launch.
func (f *launchFinder) walksDense(k int32, n *ir.Node) bool {
	s, shape := &f.steps[k], n.In[0].Type.Shape
	if s.joined || s.section != f.at(n).section || !shape.Static() || shape.Elements() == 0 {
		return false
	}
	for _, m := range s.nodes {
		if !fusible(m) || f.expands(m) || m.Out[0].Type.Shape != shape || slices.ContainsFunc(m.Out, f.placed) {
			return false
		}
		for _, v := range m.In {
			if v == nil || v.Type.Shape != shape || !v.Type.DType.Float() || v.Type.DType == ir.F64 || isPart(v) {
				return false
			}
		}
	}
	return true
}

// placed reports whether v is a next value, or a part of a concatenation that is written in place.
func (f *launchFinder) placed(v *ir.Value) bool {
	return v.Next != nil || slices.ContainsFunc(f.uses.Of(v), func(u ir.Use) bool { return shares(u.Node) && u.Node.Joins() })
}

// isPart reports whether v is a view of other elements than a whole tensor in its order.
func isPart(v *ir.Value) bool { return v.Def != nil && shares(v.Def) && !isView(v.Def) }

// added joins norm n with the norm whose result its epilogue adds, if no other node reads that
// result.
func (f *launchFinder) added(n *ir.Node, kept map[*ir.Value]bool) {
	y := n.Out[0]
	if n.Why.Cluster == 0 || len(f.uses.Of(y)) != 1 {
		return
	}
	sum := f.uses.Of(y)[0].Node
	if sum.Why.Cluster != n.Why.Cluster || f.caps.Extends(ir.AfterNorm, sum, y) != ir.AfterNormSum {
		return
	}
	other := sum.In[0]
	if other == y {
		other = sum.In[1]
	}
	m := other.Def
	if m == nil || other.Idx != 0 || other.Next != nil || kept[other] || len(f.uses.Of(other)) != 1 || m.In[0] == n.In[0] || !sameNorm(m, n) || m.Why.Cluster > 0 || !f.alone(m) || f.at(m).section != f.at(n).section {
		return
	}
	f.join(f.of(m), f.of(n))
}

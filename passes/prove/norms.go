package prove

import (
	"slices"

	"ampc/ir"
)

// spellNorms numbers, for each norm of T, the elementwise nodes that compute its first result from
// its statistics (ir.Builder.NormAgain), as backward may do instead of keeping the result. They get
// the number of the norm's result.
func (m *matcher) spellNorms() {
	m.again = true
	x := m.t
	for _, n := range m.nodes {
		if !n.Def().Is(ir.Norm) || !walkable(n.In[0].Type.Shape) || len(n.Out) < 2 {
			continue
		}
		b := ir.NewBuilder("again")
		y := b.NormAgain(n)
		if b.Err() != nil || y == nil {
			continue
		}
		for _, k := range b.Graph().Body[ir.Forward] {
			k.ID = int32(len(x.entity))
			x.entity, x.section = append(x.entity, -1), append(x.section, x.section[n.ID])
			for _, v := range k.Out {
				v.ID = int32(len(x.refs))
				x.refs = append(x.refs, ref{})
			}
			m.node(x, k)
			m.spells, m.spelling = append(m.spells, n), append(m.spelling, k)
		}
		again, first := x.refs[y.ID], x.refs[n.Out[0].ID]
		if int(m.image[m.shown[again.class]].ID) >= m.norms {
			m.same[again.class] = spelled{again.view, first}
		}
	}
}

// normOperand returns the norm that t recomputes a part of and the operand of it that t reads as its
// operand i, perhaps through views; nil, -1 if it reads none.
func (m *matcher) normOperand(t *ir.Node, i int) (norm *ir.Node, at int) {
	if int(t.ID) < m.norms {
		return nil, -1
	}
	norm = m.spells[int(t.ID)-m.norms]
	v := t.In[i]
	for v != nil && v.Def != nil && int(v.Def.ID) >= m.norms && v.Def.Def().Is(ir.View) {
		v = v.Def.In[0]
	}
	return norm, slices.Index(norm.In, v)
}

// spelled says that a class is, through a view, the result of a norm.
type spelled struct {
	view int32
	norm ref
}

// in is r, or the result of the norm whose elements r has.
func (s spelled) in(r ref) ref {
	switch {
	case s.view == s.norm.view:
		return ref{s.norm.class, r.view}
	case s.view == r.view: // the norm reads a permuted tensor, and so do the nodes that compute it
		return s.norm
	}
	return r
}

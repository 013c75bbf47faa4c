package prove

import (
	"math"
	"slices"

	"ampc/ir"
)

// node assigns refs to n's results.
func (m *matcher) node(x *numbering, n *ir.Node) {
	x.entity[n.ID] = -1
	s := x.section[n.ID]
	if m.whole(x, n) {
		return
	}
	if m.erased(x, s, n) {
		m.moving(x, s, n)
		return
	}
	if x.source && m.unscaled(x, s, n) {
		return
	}
	m.compute(x, s, n)
	if x.source {
		m.moving(x, s, n)
		m.clamps(x, s, n)
	} else if m.image[x.entity[n.ID]] == nil && !m.again {
		m.spellNorms()
		m.compute(x, s, n)
	}
}

// moving records a node of T's backward that moves a gradient: a view, or the concatenation of the
// gradients of parts.
func (m *matcher) moving(x *numbering, s ir.Section, n *ir.Node) {
	if x.source && s == ir.Backward && n.Of != nil && carries(n) {
		m.moves[x.refs[n.Out[0].ID]] = n
	}
}

func (m *matcher) compute(x *numbering, s ir.Section, n *ir.Node) {
	switch {
	case m.pointwise(x, s, n):
	case m.reduction(x, s, n):
	case m.concat(x, s, n):
	default:
		m.opaque(x, s, n)
	}
}

// erased handles the nodes that compute nothing: casts between floats or to the same dtype, moves
// that strides express, and constants of one number.
func (m *matcher) erased(x *numbering, s ir.Section, n *ir.Node) bool {
	switch {
	case n.Op == ir.OpCast && kindOf(n.In[0].Type.DType) == kindOf(n.Out[0].Type.DType):
		x.refs[n.Out[0].ID] = m.read(x, s, n.In[0])
		return true
	case n.Op == ir.OpFull && walkable(n.Out[0].Type.Shape):
		x.refs[n.Out[0].ID] = m.fill(x, n.Out[0].Type, n.Float("value"))
		return true
	case !n.Def().Is(ir.Moves) || len(n.In) == 0 || n.In[0] == nil || len(n.Captured) > 0:
		return false
	}
	in := m.read(x, s, n.In[0])
	if n.Op == ir.OpBroadcast {
		if m.views.list[in.view].rank < 0 || !walkable(n.Out[0].Type.Shape) {
			return false
		}
		x.refs[n.Out[0].ID] = ref{in.class, m.views.number(m.views.list[in.view].repeated(n.Out[0].Type.Shape))}
		return true
	}
	return m.moved(x, n, in)
}

// moved handles a node that package ir expresses by strides.
func (m *matcher) moved(x *numbering, n *ir.Node, in ref) bool {
	if m.views.list[in.view].rank < 0 {
		return false
	}
	for k, v := range n.Out {
		if !walkable(v.Type.Shape) {
			return false
		}
		if n.Def().Is(ir.View) && in.view == m.views.whole(n.In[0].Type.Shape) {
			x.refs[v.ID] = ref{in.class, m.views.whole(v.Type.Shape)}
			continue
		}
		w := m.views.list[in.view]
		p, ok := w.place().Through(n, k)
		if !ok && n.Def().Is(ir.View) { // strides cannot express it, but they can express its elements in row-major order
			in = ref{m.class(keyCopy, int64(in.class), int64(in.view)), m.views.whole(n.In[0].Type.Shape)}
			x.refs[v.ID] = ref{in.class, m.views.whole(v.Type.Shape)}
			continue
		}
		if !ok {
			return false
		}
		x.refs[v.ID] = ref{in.class, m.views.number(viewOf(p))}
	}
	return true
}

// head starts a key with n's op and attributes.
func (m *matcher) head(n *ir.Node, attrs ir.Attrs, omit func(name string) bool) {
	m.buf = append(m.buf[:0], int64(n.Op), int64(len(n.In)))
	if n.Op == ir.OpCustom {
		id, ok := m.rows[n.Custom]
		if !ok {
			id = int64(len(m.rows))
			m.rows[n.Custom] = id
		}
		m.buf = append(m.buf, id)
	}
	for i := range attrs {
		if a := &attrs[i]; !stored(a.Name) && (omit == nil || !omit(a.Name)) {
			m.buf = append(m.buf, m.word(a.Name))
			m.attr(n, a)
		}
	}
	m.buf = append(m.buf, -1)
}

// stored reports whether an attribute is about how a node stores, accumulates or is grouped, not
// about what it computes.
func stored(name string) bool {
	switch name {
	case "out", "acc", "math", "loss", "view", "inplace":
		return true
	}
	return false
}

func (m *matcher) attr(n *ir.Node, a *ir.Attr) {
	switch v := a.Value.(type) {
	case int64:
		m.buf = append(m.buf, v)
	case float64:
		m.buf = append(m.buf, int64(math.Float64bits(v)))
	case bool:
		b := int64(0)
		if v {
			b = 1
		}
		m.buf = append(m.buf, b)
	case string:
		m.buf = append(m.buf, m.word(v))
	case ir.DType:
		// A policy never chooses f64, nor what a message is rounded to.
		if n.Op != ir.OpRound && !n.Def().Is(ir.Collective) && v != ir.F64 {
			v = kindOf(v)
		}
		m.buf = append(m.buf, int64(v))
	case []int64:
		m.buf = append(append(m.buf, int64(len(v))), v...)
	case []float64:
		m.buf = append(m.buf, int64(len(v)))
		for _, f := range v {
			m.buf = append(m.buf, int64(math.Float64bits(f)))
		}
	case *ir.Graph:
		m.buf = append(m.buf, m.word(v.String()))
	}
}

// give assigns the finished key as n's entity. Each result v becomes a class, seen through view(v).
func (m *matcher) give(x *numbering, n *ir.Node, view func(v *ir.Value) int32) {
	e, fresh := m.intern(m.buf)
	if fresh {
		m.results(e, len(n.Out))
	}
	if m.clamping >= 0 {
		if fresh {
			m.alias[e] = m.clamping
		}
		return
	}
	if a, ok := m.alias[e]; ok && !x.source {
		e = a
		x.clamped = append(x.clamped, n)
	}
	x.entity[n.ID] = e
	if x.source {
		m.drawn(e, n)
	}
	for k, v := range n.Out {
		r := ref{m.first[e] + int32(k), view(v)}
		if norm, ok := m.same[r.class]; ok {
			r = norm.in(r)
		}
		x.refs[v.ID] = r
	}
}

// drawn appends node n of T to the images of e.
func (m *matcher) drawn(e int32, n *ir.Node) {
	if m.image[e] == nil {
		m.image[e] = n
		return
	}
	if k := m.image[e]; int(n.ID) < m.norms && int(k.ID) < m.norms { // n comes second
		m.sameEntity[n.ID], m.sameEntity[k.ID] = m.sameEntity[k.ID], n.ID
	}
}

// opaque makes the key of a node from its operands in their layout. A node that slides windows over
// images with channels last gets the key of the one with channels second, between two permutations.
func (m *matcher) opaque(x *numbering, s ir.Section, n *ir.Node) {
	rank := 0
	if len(n.In) > 0 && n.In[0] != nil && n.Str("layout") == "NHWC" {
		rank = n.In[0].Type.Shape.Rank()
	}
	like := likeOperand(n)
	m.head(n, n.Attrs, func(name string) bool { return rank > 0 && name == "layout" || like && name == "shape" })
	for i, v := range n.In {
		r := m.read(x, s, v)
		switch {
		case v == nil:
		case like && n.OperandDef(i).Name == "like" && walkable(n.Out[0].Type.Shape):
			r = ref{}
		case rank > 0 && v.Type.Shape.Rank() == rank:
			r.view = m.turned(r.view, channelsFirst)
		}
		m.buf = append(m.buf, int64(r.class), int64(r.view))
	}
	for _, v := range n.Captured {
		r := m.read(x, s, v)
		m.buf = append(m.buf, int64(r.class), int64(r.view))
	}
	if like {
		m.buf = append(m.buf, int64(m.views.whole(n.Out[0].Type.Shape)))
	}
	m.give(x, n, func(v *ir.Value) int32 {
		if rank == 0 || v.Type.Shape.Rank() != rank || !walkable(v.Type.Shape) {
			return m.views.whole(v.Type.Shape)
		}
		whole := dense(ir.Sizes(v.Type.Shape))
		first := whole.permuted(channelsFirst(rank))
		first = dense(first.sizes[:rank])
		return m.views.number(first.permuted(channelsLast(rank)))
	})
}

// likeOperand reports whether n's row takes the shape of its result from an attribute or an
// operand.
func likeOperand(n *ir.Node) bool {
	return slices.ContainsFunc(n.Def().In, func(o ir.Operand) bool { return o.Name == "like" })
}

// turned is a view with its dimensions permuted.
func (m *matcher) turned(id int32, perm func(rank int) []int) int32 {
	v := m.views.list[id]
	if v.rank < 0 {
		return id
	}
	return m.views.number(v.permuted(perm(int(v.rank))))
}

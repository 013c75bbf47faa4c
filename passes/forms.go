package passes

import (
	"slices"

	"ampc/ir"
	"ampc/passes/plan"
)

// form is how a value relates to the tensor whose memory it shares. A pinned view and a cast
// written by hand are other forms of their tensor.
type form uint8

const (
	asStored  form = iota // the tensor in its stored dtype
	widened               // the tensor in f32
	narrowed              // the tensor rounded to 16 bits
	rewidened             // the tensor rounded to 16 bits, in f32
)

// in32 is form f in f32.
func (f form) in32() form {
	if f == narrowed || f == rewidened {
		return rewidened
	}
	return widened
}

// load is a tensor that a cluster reads.
type load struct {
	cluster int32
	v       *ir.Value
}

// takes returns the choice of the dtype that a port reads, of the tensor of which v is a form, if
// its reader requires d of v; and whether it reads rounded values. A reader of either dtype also
// runs the cast that widens v, unless there is a view in between.
func (m *planner) takes(v *ir.Value, d plan.Choice) (plan.Choice, bool) {
	f, folded := m.form[v.ID], v.Def != nil && m.formCast(v.Def) && !m.viewed(v.Def.In[0])
	switch {
	case f == asStored:
		return d, false
	case d == plan.AsStored && (f == narrowed || f == rewidened && folded):
		return plan.Low, false
	case d == plan.AsStored && !folded:
		d = plan.F32
	}
	return d, (f == narrowed || f == rewidened) && d != plan.Low
}

// viewed reports whether v is a view, or a cast of one.
func (m *planner) viewed(v *ir.Value) bool {
	for v.Def != nil && m.formCast(v.Def) {
		v = v.Def.In[0]
	}
	return v.Def != nil && shares(v.Def)
}

// formCast reports whether n is a cast written by hand between f32 and the policy's 16 bits. Its
// result is not a separate tensor but a form of its operand. Like the casts that the policy needs,
// it is made once, where readers take it.
func (a *assigner) formCast(n *ir.Node) bool {
	if n.Op != ir.OpCast || !a.planned || a.p.Eager || n.Out[0].Next != nil || a.captured[n.Out[0]] {
		return false
	}
	to := a.src[n.Out[0].ID]
	return formDType(a.src[n.In[0].ID]) && (to == ir.F32 || to == a.low)
}

// sharesTensor reports whether the results of n are forms or parts of the tensor that n reads.
func (a *assigner) sharesTensor(n *ir.Node) bool { return shares(n) || a.formCast(n) }

// wanted reports whether the caller gets v, itself or moved, or a row whose contract is f32 reads
// it, or whether v stays in registers of a cluster that makes such a value: what is not stored is
// not rounded, so that v counts as wide as what it was made of. The answer is kept: where moves
// split and join again, a value is reached in many ways.
func (m *planner) wanted(v *ir.Value) bool {
	if known, ok := m.wants[v]; ok {
		return known
	}
	m.wants[v] = m.out[v.ID] || slices.ContainsFunc(m.uses.Of(v), func(u ir.Use) bool {
		moves := m.carries(u.Node) || shares(u.Node) || u.Node.Op == ir.OpCast && m.src[u.Node.Out[0].ID] != m.low
		inside := sameCluster(v, u.Node) && u.Node.Def().Elem != nil && !m.leaves(v.Def, v)
		return m.class(u.Node, u.Arg()) == ir.Fixed && u.Node.Op != ir.OpCast || (moves || inside) && slices.ContainsFunc(u.Node.Out, m.wanted)
	})
	return m.wants[v]
}

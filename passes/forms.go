package passes

import (
	"ampc/ir"
	"ampc/passes/plan"
)

// form is how a value relates to the tensor whose memory it shares: a view of a
// tensor, pinned, or a cast written by hand shows another form of it.
type form uint8

const (
	asStored  form = iota // the tensor, however it is stored
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

// load is a tensor that a cluster loads.
type load struct {
	cluster int32
	v       *ir.Value
}

// takes is what a port takes of a tensor of which v is a form, where its reader
// requires d of v, and whether it reads what was rounded on the way. The cast
// that widens v is part of a reader that takes either, unless a view is between.
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

// viewed reports whether v is a view, casts looked through.
func (m *planner) viewed(v *ir.Value) bool {
	for v.Def != nil && m.formCast(v.Def) {
		v = v.Def.In[0]
	}
	return v.Def != nil && shares(v.Def)
}

// formCast reports whether n is a cast written by hand between f32 and the
// policy's 16 bits. Its result is not a tensor of its own: it is a form of what n
// reads, made where a reader takes it and once for all, like that of the casts
// that the policy needs.
func (a *assigner) formCast(n *ir.Node) bool {
	if n.Op != ir.OpCast || !a.planned || a.p.Eager || n.Out[0].Next != nil || a.captured[n.Out[0]] {
		return false
	}
	to := a.src[n.Out[0].ID]
	return formDType(a.src[n.In[0].ID]) && (to == ir.F32 || to == a.low)
}

// sharesTensor reports whether the results of n are forms or parts of the tensor
// that it reads.
func (a *assigner) sharesTensor(n *ir.Node) bool { return shares(n) || a.formCast(n) }

package passes

import (
	"ampc/ir"
	"ampc/passes/plan"
)

// form is how a value relates to the tensor whose memory it shares: a view of a
// tensor, pinned, shows another form of it.
type form uint8

const (
	asStored  form = iota // the tensor, however it is stored
	widened               // the tensor in f32
	narrowed              // the tensor rounded to 16 bits
	rewidened             // the tensor rounded to 16 bits, in f32
)

// through is the form of what a view pinned to pin shows of x.
func (f form) through(pin ir.Pin) form {
	switch {
	case pin == ir.PinLow:
		return narrowed
	case pin == ir.Unpinned || f == rewidened:
		return f
	case f == narrowed:
		return rewidened
	}
	return widened
}

// takes is what a port takes of a tensor that is read in form f by a reader that
// requires d, and whether it reads what was rounded on the way.
func (f form) takes(d plan.Choice) (plan.Choice, bool) {
	switch {
	case f == asStored:
		return d, false
	case f == narrowed && d == plan.AsStored:
		return plan.Low, false
	case d == plan.AsStored:
		d = plan.F32
	}
	return d, (f == narrowed || f == rewidened) && d != plan.Low
}

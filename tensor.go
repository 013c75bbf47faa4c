package ampc

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/passes"
)

// Tensor is a value of a model's graph: it has a name and a type and no data.
// Two Tensors are equal (==) exactly when they are one value. The zero Tensor is
// absent: what optional operands take, and what a call returns after a mistake.
type Tensor struct {
	g *ir.Graph
	v *ir.Value
}

// Absent reports whether t is the zero Tensor.
func (t Tensor) Absent() bool { return t.v == nil }

// Name returns the full name, such as "h0.attn.qkv"; "" for the zero Tensor.
func (t Tensor) Name() string {
	if t.v == nil {
		return ""
	}
	return t.v.Name
}

// Type returns the dtype and the shape. The zero Tensor has the zero Type.
func (t Tensor) Type() Type {
	if t.v == nil {
		return Type{}
	}
	return Type{t.v.Type}
}

// DType returns the element type. The zero Tensor has the zero DType.
func (t Tensor) DType() DType { return t.Type().DType() }

// Rank returns the number of dimensions, 0 for a scalar.
func (t Tensor) Rank() int { return t.Type().Rank() }

// Dim returns the size of dimension i, or -1 where it is a named dimension; a
// negative i counts from the end. A dimension that t does not have is 0.
func (t Tensor) Dim(i int) int { return t.Type().Dim(i) }

// Shape returns the sizes of all dimensions, -1 where one is a named dimension.
func (t Tensor) Shape() []int { return t.Type().Shape() }

// Pos returns where the tensor was made, as "model.go:12"; "" where that is not known.
func (t Tensor) Pos() string {
	switch {
	case t.v == nil:
		return ""
	case t.v.Def != nil:
		return t.v.Def.Pos.String()
	}
	return t.v.Pos.String()
}

// String returns the name and the type as dumps show them: "%fc1 f32[64,256]".
func (t Tensor) String() string {
	if t.v == nil {
		return "no tensor"
	}
	if t.g == nil { // in a CustomCall
		return fmt.Sprintf("%s %s", t.v, t.v.Type)
	}
	return fmt.Sprintf("%s %s", t.v, t.g.TypeString(t.v.Type))
}

// IR returns the value that t stands for, for code that works on the compiler's
// own graph (see Model.Graph); nil for the zero Tensor.
func (t Tensor) IR() *ir.Value { return t.v }

// Update builds in the update of a training step: what TrainConfig.Gradients gets.
// Every op of the op set is a method of it.
type Update struct {
	ops
	states *[]passes.GradOf // what Set was told
}

// Named returns the update with a name for the result of the next op.
func (u *Update) Named(name string) *Update { return &Update{u.at(name), u.states} }

// State declares a tensor of type t that outlives steps, such as a momentum. It
// is among Model.Variables and in checkpoints under this name. Two training steps
// of a model that declare one name have one state.
func (u *Update) State(name string, t Type, init Init) Tensor {
	switch {
	case t == Type{}:
		u.Fail("state %q: the type is the zero Type: take that of a parameter, or TypeOf", name)
	case strings.HasPrefix(u.b.ScopeName()+name, ir.Reserved):
		u.Fail("state %q: names that begin with %q are the compiler's own: choose another", name, ir.Reserved)
	}
	return u.tensor(u.b.Declare(ir.State, name, t.t, init.f, nil))
}

// Set gives a state of the update's own its next value, once. Where the step is
// skipped the state stays as it was; a value that is not finite skips the step.
func (u *Update) Set(state, value Tensor) {
	switch {
	case u.Err() != nil:
	case state.v == nil:
		u.Fail("set: the state is absent (a zero Tensor)")
	case value.v == nil:
		u.Fail("set %s: the value is absent (a zero Tensor)", state)
	case state.g != u.b.Graph() || value.g != u.b.Graph():
		u.Fail("set %s to %s: both must be values of this update", state, value)
	case state.v.Kind != ir.State || state.v.Attr.Get("role") != nil:
		u.Fail("set %s: it is no state that Update.State declared", state)
	case state.v.Type != value.v.Type:
		u.Fail("set %s to %s: want the type of the state", state, value)
	case slices.ContainsFunc(*u.states, func(x passes.GradOf) bool { return x.Param == state.v }):
		u.Fail("set %s: it is set already: a step has one next value for each state", state)
	default:
		*u.states = append(*u.states, passes.GradOf{Param: state.v, Grad: value.v})
	}
}

// Grad is a parameter and its gradient, unscaled and divided by the count, as
// TrainConfig.Gradients sees them.
type Grad struct{ Param, Value Tensor }

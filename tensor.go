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

// Pos returns the file and line that made the tensor, such as "model.go:12"; "" if
// unknown.
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

// Update builds in the update of a training step: what TrainConfig.Gradients and
// UpdateRule.Next get. Every op of the op set is a method of it.
type Update struct {
	ops
	states  *[]passes.GradOf                                      // what Set was told
	declare func(name string, t ir.Type, init *ir.Init) *ir.Value // declares a rule's state; nil outside rules
}

// Named returns the update with a name for the result of the next op.
func (u *Update) Named(name string) *Update { return &Update{u.at(name), u.states, u.declare} }

// State declares a tensor of type t that outlives steps, such as a momentum. It
// is among Model.Variables and in checkpoints under this name. Two training steps
// of a model that declare one name have one state. In an UpdateRule, every parameter of
// every training step has a state of its own with this name.
func (u *Update) State(name string, t Type, init Init) Tensor {
	switch {
	case t == Type{}:
		u.Fail("state %q: the type is the zero Type: take that of a parameter, or TypeOf", name)
	case u.declare != nil && (name == "" || strings.ContainsAny(name, "./")):
		u.Fail("state %q of a rule: want a name without . and /", name)
	case u.declare != nil:
		return u.tensor(u.declare(name, t.t, init.f))
	case strings.HasPrefix(u.b.ScopeName()+name, ir.Reserved):
		u.Fail("state %q: names that begin with %q are the compiler's own: choose another", name, ir.Reserved)
	}
	return u.tensor(u.b.Declare(ir.State, name, t.t, init.f, nil))
}

// Set assigns the next value of a state that State declared, once. If the step is
// skipped, the state keeps its value. A value that is not finite skips the step, but
// for an UpdateRule's: whether the step is skipped is known before rules run.
func (u *Update) Set(state, value Tensor) {
	switch {
	case u.Err() != nil:
	case state.v == nil:
		u.Fail("set: the state is absent (a zero Tensor)")
	case value.v == nil:
		u.Fail("set %s: the value is absent (a zero Tensor)", state)
	case state.g != u.b.Graph() || value.g != u.b.Graph():
		u.Fail("set %s to %s: both must be values of this update", state, value)
	case state.v.Kind != ir.State || (state.v.Attr.Get("role") != nil) != (u.declare != nil):
		u.Fail("set %s: it is not a state that Update.State declared", state)
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

// DType is the type of one element of a tensor.
type DType uint8

// The element types a model may declare. Low types are normally chosen by the
// policy, not by the model.
const (
	F32  DType = iota + 1 // IEEE single precision
	F16                   // IEEE half precision: 10 bits of mantissa, largest 65504
	BF16                  // 8 bits of exponent as f32, 7 of mantissa
	F64                   // IEEE double precision; no optimizer trains it
	I32                   // signed integers
	I64
	U8   // unsigned bytes
	Bool // a byte, 0 or 1
	I8   // signed bytes
	I16
	U16
	U32
	U64
)

// String returns the name that dumps and the command line use: "f32", "bf16", "i32".
func (d DType) String() string { return d.ir().String() }

// Size returns the bytes of one element.
func (d DType) Size() int { return int(d.ir().Size()) }

// Float reports whether d is a floating-point format.
func (d DType) Float() bool { return d.ir().Float() }

// ir is the compiler's own; the numbers are the same (see TestTypesAreTheCompilers).
func (d DType) ir() ir.DType { return ir.DType(d) }

// Type is a dtype and a shape. Two Types are equal (==) exactly when both are.
type Type struct{ t ir.Type }

// TypeOf makes a Type of known sizes.
func TypeOf(d DType, dims ...int) Type {
	sizes := make([]ir.Dim, len(dims))
	for i, n := range dims {
		sizes[i] = ir.Dim(n)
	}
	return Type{ir.Type{DType: d.ir(), Shape: ir.MakeShape(sizes...)}}
}

// DType returns the element type.
func (t Type) DType() DType { return DType(t.t.DType) }

// Rank returns the number of dimensions, 0 for a scalar.
func (t Type) Rank() int { return t.t.Shape.Rank() }

// Dim returns the size of dimension i, or -1 where it is a named dimension; a
// negative i counts from the end. A dimension that there is not is 0.
func (t Type) Dim(i int) int {
	if i < 0 {
		i += t.Rank()
	}
	if i < 0 || i >= t.Rank() {
		return 0
	}
	return int(max(t.t.Shape.Dim(i), -1))
}

// Shape returns the sizes of all dimensions, -1 where one is a named dimension.
func (t Type) Shape() []int {
	out := make([]int, t.Rank())
	for i := range out {
		out[i] = t.Dim(i)
	}
	return out
}

// With returns a Type of the same shape and another dtype.
func (t Type) With(d DType) Type { return Type{t.t.With(d.ir())} }

// String returns the type as dumps show it: "f32[64,256]".
func (t Type) String() string { return t.t.String() }

// IR returns the compiler's own form of the type, for code that uses package ir.
func (t Type) IR() ir.Type { return t.t }

// TypeFromIR is the inverse of Type.IR.
func TypeFromIR(t ir.Type) Type { return Type{t} }

// Dim names a dimension whose size is bound when a step is compiled.
type Dim string

// Pin is the precision of a region of a model (see Model.Precision); it beats
// every policy.
type Pin uint8

// The pins of Model.Precision.
const (
	PinF32  Pin = iota + 1 // computes and stores f32
	PinTF32                // f32 whose matrix products round their operands to a 10-bit mantissa
	PinLow                 // the policy's low dtype
)

// String returns the name that dumps use: "f32", "tf32", "low".
func (p Pin) String() string { return ir.Pin(p).String() }

// Init says what a parameter or a state holds before the first step. The zero
// Init is zeros. Random ones draw from the model's seed (ampc.Seed) and the variable's name.
type Init struct{ f *ir.Init }

// Zeros sets every element to 0, as the zero Init does.
func Zeros() Init { return Init{} }

// Fill sets every element to x.
func Fill(x float64) Init { return Init{&ir.Init{Args: []float64{x}}} }

// Normal draws from a normal distribution with this mean and standard deviation.
// PyTorch: nn.init.normal_.
func Normal(mean, std float64) Init { return initBy("normal", mean, std) }

// TruncNormal is Normal, drawn again beyond two standard deviations.
// PyTorch: nn.init.trunc_normal_, whose bounds are absolute.
func TruncNormal(mean, std float64) Init { return initBy("trunc_normal", mean, std) }

// Uniform draws evenly from lo to hi. PyTorch: nn.init.uniform_.
func Uniform(lo, hi float64) Init { return initBy("uniform", lo, hi) }

// Kaiming draws from a normal distribution whose deviation is √(2/fanIn), for
// weights before a ReLU (He et al. 2015). PyTorch: nn.init.kaiming_normal_.
func Kaiming(fanIn int) Init { return initBy("kaiming", float64(fanIn)) }

// Xavier draws evenly from ±√(6/(fanIn+fanOut)) (Glorot and Bengio 2010).
// PyTorch: nn.init.xavier_uniform_.
func Xavier(fanIn, fanOut int) Init { return initBy("xavier", float64(fanIn), float64(fanOut)) }

// Data gives every element, in row-major order.
func Data(x ...float64) Init { return initBy("data", x...) }

func initBy(name string, args ...float64) Init { return Init{&ir.Init{Func: name, Args: args}} }

// or returns i, or def where i is the zero Init.
func (i Init) or(def Init) Init {
	if i.f == nil {
		return def
	}
	return i
}

package ampc

import (
	"fmt"

	"ampc/ir"
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

// DType returns the element type. The zero Tensor has the zero DType.
func (t Tensor) DType() DType {
	if t.v == nil {
		return 0
	}
	return t.v.Type.DType
}

// Rank returns the number of dimensions, 0 for a scalar.
func (t Tensor) Rank() int {
	if t.v == nil {
		return 0
	}
	return t.v.Type.Shape.Rank()
}

// Dim returns the size of dimension i, or -1 where it is a named dimension; a
// negative i counts from the end. A dimension that t does not have is 0.
func (t Tensor) Dim(i int) int {
	if i < 0 {
		i += t.Rank()
	}
	if i < 0 || i >= t.Rank() {
		return 0
	}
	return max(int(t.v.Type.Shape.Dim(i)), -1)
}

// Shape returns the sizes of all dimensions, -1 where one is a named dimension.
func (t Tensor) Shape() []int {
	out := make([]int, t.Rank())
	for i := range out {
		out[i] = t.Dim(i)
	}
	return out
}

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
	return fmt.Sprintf("%s %s", t.v, t.g.TypeString(t.v.Type))
}

// IR returns the value that t stands for, for code that works on the compiler's
// own graph (see Model.Graph); nil for the zero Tensor.
func (t Tensor) IR() *ir.Value { return t.v }

// ops is what builds: every op of the op set is a method of it. A Model embeds
// it, and so does what edits gradients.
type ops struct{ b *ir.Builder }

//go:generate go run ./internal/genops ir ops_gen.go

func (o ops) tensor(v *ir.Value) Tensor {
	if v == nil {
		return Tensor{}
	}
	return Tensor{o.b.Graph(), v}
}

func (o ops) tensors(v []*ir.Value) []Tensor {
	out := make([]Tensor, len(v))
	for i, x := range v {
		out[i] = o.tensor(x)
	}
	return out
}

func values(t []Tensor) []*ir.Value {
	out := make([]*ir.Value, len(t))
	for i, x := range t {
		out[i] = x.v
	}
	return out
}

func wide(n []int) []int64 {
	out := make([]int64, len(n))
	for i, x := range n {
		out[i] = int64(x)
	}
	return out
}

// Err returns the first mistake made while building, with the line that made
// it; nil where there is none. Train and Infer return it too.
func (o ops) Err() error { return o.b.Err() }

// Fail records a mistake of the caller's own, such as a width that a layer of
// theirs cannot have. The first mistake stays; calls after it build nothing.
func (o ops) Fail(format string, args ...any) { o.b.Fail(format, args...) }

// IR returns the builder of the compiler's own graph that the methods build
// with, for code that speaks ir; Tensor.IR and FromIR lead from and to its values.
func (o ops) IR() *ir.Builder { return o.b }

// FromIR returns the tensor that stands for a value of the graph being built;
// the zero Tensor for nil.
func (o ops) FromIR(v *ir.Value) Tensor { return o.tensor(v) }

// Gelu is the exact Gaussian error linear unit, x·Φ(x).
func (o ops) Gelu(x Tensor) Tensor { return o.tensor(o.b.Gelu(x.v, "erf")) }

// GeluTanh is the tanh approximation of Gelu, which GPT-2 was trained with. On
// a GPU a linear layer before it ends in it.
func (o ops) GeluTanh(x Tensor) Tensor { return o.tensor(o.b.Gelu(x.v, "tanh")) }

// EmbeddingWith looks rows of table[V,D] up: the result has shape [ids..,D].
func (o ops) EmbeddingWith(table, ids Tensor) Tensor { return o.tensor(o.b.Embedding(table.v, ids.v)) }

// Update builds in the update of a training step: what TrainConfig.Gradients gets.
// Every op of the op set is a method of it.
type Update struct{ ops }

// Named returns the update with a name for the result of the next op.
func (u *Update) Named(name string) *Update { return &Update{ops{u.b.Named(name)}} }

// Grad is a parameter and its gradient, unscaled and divided by the count, as
// TrainConfig.Gradients sees them.
type Grad struct{ Param, Value Tensor }

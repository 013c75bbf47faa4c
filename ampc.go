// Package ampc builds models, compiles them to mixed precision ahead of time
// and trains them.
//
// A Model is a graph under construction: every op and every layer is a method that
// returns a Tensor. Train compiles it under a TrainConfig into a Step; a Step runs
// on a backend, by default the CPU. A mistake made while building is kept in the
// model with the caller's file and line, and Train or Infer returns it: layers
// return no errors, and nothing panics.
//
//	m := ampc.New("mlp")
//	x, y := m.Input("x", ampc.F32, 64, 784), m.Input("y", ampc.I32, 64)
//	h := m.Relu(m.Linear("fc1", x, 256))
//	loss := m.CrossEntropy(m.Linear("fc2", h, 10), y)
//	step, err := m.Train(ampc.TrainConfig{
//		Optimizer: ampc.AdamW(0.1),
//		LR:        ampc.Constant(1e-3),
//		Policy:    ampc.MixedF16(),
//	}, ampc.Loss{Value: loss})
package ampc

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/passes"
	"ampc/runtime"
)

// Model is a graph under construction. Every op of the op set is a method of
// the Model, and so is every layer. A Model and what Scope,
// Precision and Shared derive from it build the same graph; build it from one
// goroutine at a time. Calls on a model that was compiled, and on its steps, may
// come from any goroutine.
type Model struct {
	ops
	*state
	reuse bool // inside a second application of a Shared layer
}

// state is what all views of one model share.
type state struct {
	root    *ir.Builder       // outside every scope
	layers  map[string]ir.Pos // full layer name to where it was built
	shared  map[string]ir.Pos // scope of a Shared to where it was applied first
	gate    gate              // before session
	session *session          // compiled steps and the store of variables they run over
	backend runtime.Backend   // nil: the CPU, opened with the first step
	seed    int64
	fed     int      // micro-batches whose inputs the program holds at the same time
	ended   bool     // closed: it compiles and runs nothing more
	notes   []string // about the model, which all its steps have
	kept    []string // values that were given to Checkpoint
}

// New starts an empty model. The name heads its printed form.
func New(name string, o ...ModelOption) *Model {
	m := modelOver(ir.NewBuilder(name), o...)
	if err := ir.CheckName(name); err != nil {
		m.Fail("model: %v", err)
	}
	return m
}

// FromGraph makes a model of a graph that was parsed or imported; it can be
// built upon and trained like any other. The model takes the graph over.
func FromGraph(g *ir.Graph, o ...ModelOption) *Model { return modelOver(ir.Edit(g), o...) }

func modelOver(b *ir.Builder, o ...ModelOption) *Model {
	b.Locate(userLine)
	m := &Model{ops: ops{b.Guarded()}, state: &state{root: b, gate: newGate(), layers: map[string]ir.Pos{}, shared: map[string]ir.Pos{}}}
	for _, change := range o {
		change(m.state)
	}
	for _, v := range b.Graph().Vars {
		if strings.HasPrefix(v.Name, ir.Reserved) && v.Attr.Get("role") == nil {
			m.Fail("%s %s: names that begin with %q are the compiler's own: choose another", v.Kind, v, ir.Reserved)
		}
	}
	for _, n := range b.Graph().Nodes {
		for _, v := range n.Out {
			if strings.HasPrefix(v.Name, ir.Reserved) && v.Next == nil {
				m.Fail("%s: result %s: names that begin with %q are the compiler's own: choose another", n.Pos, v, ir.Reserved)
			}
		}
	}
	return m
}

// userLine finds the first caller outside the packages that build graphs.
func userLine() ir.Pos {
	var pcs [24]uintptr
	frames := goruntime.CallersFrames(pcs[:goruntime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, "ampc.") && !strings.HasPrefix(f.Function, "ampc/ir.") && !strings.HasPrefix(f.Function, "ampc/passes.") && !strings.HasPrefix(f.Function, "ampc/pretrained.") {
			return ir.Pos{File: filepath.Base(f.File), Line: f.Line}
		}
		if !more {
			return ir.Pos{}
		}
	}
}

func (m *Model) with(b *ir.Builder) *Model {
	c := *m
	c.b = b
	return &c
}

// Scope returns the model with name and a dot before the names of everything
// built through it. Patterns of policies and groups match scopes.
func (m *Model) Scope(name string) *Model { return m.with(m.b.Scope(name)) }

// Named returns the model with a name for the result of the next op.
func (m *Model) Named(name string) *Model { return m.with(m.b.Named(name)) }

// Precision returns the model with everything built through it pinned to p;
// the innermost region counts.
func (m *Model) Precision(p Pin) *Model { return m.with(m.b.Pinned(ir.Pin(p))) }

// Checkpoint returns x, and has training keep it for the backward pass. Of what x and other
// checkpoints are computed from, training keeps nothing else: the backward pass computes it
// again, from one checkpoint to the next, in the same bits. What is computed from the last
// checkpoint is kept as without. Blocks of equal size each end with one:
//
//	x = m.Checkpoint(block(x))
//
// With TrainConfig.Memory the compiler chooses what is computed again, and keeps the checkpoints.
//
//   - Shapes: any, to the same.
//   - DTypes: any; x keeps its own.
//   - Errors: x is absent, of another model, or an input or parameter, which is there anyway.
//   - PyTorch: torch.utils.checkpoint, around what lies between two checkpoints.
func (m *Model) Checkpoint(x Tensor) Tensor {
	if m.Err() != nil {
		return x
	}
	if err := m.own("checkpoint", x); err != nil {
		m.Fail("%v", err)
		return Tensor{}
	}
	if x.v.Def == nil {
		m.Fail("checkpoint: %s is %s, which is kept in any case: give what a block computes", x.v, x.v.Kind)
		return Tensor{}
	}
	m.kept = append(m.kept, x.v.Name)
	return x
}

// Input declares a tensor that every run feeds. A dimension is an int, or a
// Dim that is bound when a step is compiled.
func (m *Model) Input(name string, d DType, dims ...any) Tensor {
	shape, err := m.shape(name, dims)
	if err != nil {
		m.Fail("input %q: %v", name, err)
		return Tensor{}
	}
	return m.tensor(m.b.Declare(ir.Input, name, ir.Type{DType: d.ir(), Shape: shape}, nil, nil))
}

func (m *Model) shape(name string, dims []any) (ir.Shape, error) {
	if name == "" {
		return ir.Shape{}, fmt.Errorf("want a name")
	}
	out := make([]ir.Dim, len(dims))
	for i, d := range dims {
		switch d := d.(type) {
		case int:
			if d < 1 {
				return ir.Shape{}, fmt.Errorf("dimension %d is %d, want 1 or more", i, d)
			}
			out[i] = ir.Dim(d)
		case Dim:
			if err := ir.CheckDimName(string(d)); err != nil {
				return ir.Shape{}, err
			}
			out[i] = m.Graph().Sym(string(d))
		default:
			return ir.Shape{}, fmt.Errorf("dimension %d is %v (%T), want an int or an ampc.Dim", i, d, d)
		}
	}
	if err := ir.CheckDims(out); err != nil {
		return ir.Shape{}, err
	}
	return ir.MakeShape(out...), nil
}

// Param declares a trained f32 tensor of dims, each 1 or more. Within a further
// application of a Shared layer it returns the one that the first application
// declared.
func (m *Model) Param(name string, init Init, dims ...int) Tensor {
	return m.variable(ir.Param, name, init, dims)
}

// State declares an f32 tensor that outlives steps and is not trained.
func (m *Model) State(name string, init Init, dims ...int) Tensor {
	return m.variable(ir.State, name, init, dims)
}

func (m *Model) variable(kind ir.VarKind, name string, init Init, dims []int) Tensor {
	all := make([]any, len(dims))
	for i, n := range dims {
		if n < 1 {
			m.Fail("%s %q: dimension %d is %d, want 1 or more", kind, m.ScopeName()+name, i, n)
			return Tensor{}
		}
		all[i] = n
	}
	shape, err := m.shape(name, all)
	if err != nil {
		m.Fail("%s %q: %v", kind, m.ScopeName()+name, err)
		return Tensor{}
	}
	t := ir.Type{DType: ir.F32, Shape: shape}
	if old := m.Lookup(m.ScopeName() + name); m.reuse && old.v != nil && old.v.IsVar() {
		if old.v.Type != t {
			m.Fail("shared layer: %s is %s, this application wants %s", old.v, old.v.Type, t)
			return Tensor{}
		}
		return old
	}
	return m.tensor(m.b.Declare(kind, name, t, init.f, nil))
}

// Shared makes a layer with one set of weights that can be applied many times.
// f builds it through the model it is given, whose scope is name.
func (m *Model) Shared(name string, f func(*Model, ...Tensor) Tensor) func(...Tensor) Tensor {
	full := m.ScopeName() + name
	if first, taken := m.shared[full]; taken {
		m.Fail("shared %q: the name is taken by the one at %s", full, first)
	}
	m.shared[full] = userLine()
	applied := false
	if f == nil {
		m.Fail("shared %q: the function that builds it is nil", full)
	}
	return func(x ...Tensor) Tensor {
		if m.Err() != nil {
			return Tensor{}
		}
		c := m.Scope(name)
		c.reuse = m.reuse || applied
		applied = true
		return f(c, x...)
	}
}

// Graph returns the graph that the model builds, for code that uses package ir:
// Model.IR builds on it, Tensor.IR and Model.FromIR lead from and to its values.
func (m *Model) Graph() *ir.Graph { return m.b.Graph() }

// Lookup finds a tensor by its full name. It returns the zero Tensor if there is
// none.
func (m *Model) Lookup(name string) Tensor { return m.tensor(m.b.Lookup(name)) }

// ScopeName returns the prefix that names get in this scope, such as "h0."; "" at the top.
func (m *Model) ScopeName() string { return m.b.ScopeName() }

// WriteIR writes the model as text, which `ampc dump` and ir.Parse read.
func (m *Model) WriteIR(w io.Writer) error {
	if err := m.Err(); err != nil {
		return err
	}
	return m.Graph().Described().Print(w, ir.Canonical)
}

// Grad returns the gradient of a scalar by each of wrt as values like any
// other: a loss may be built from them (a gradient penalty).
func (m *Model) Grad(y Tensor, wrt ...Tensor) []Tensor { return m.ScaledGrad(1, y, wrt...) }

// ScaledGrad is Grad computed with y multiplied by scale, a power of two, and
// the gradients divided by it again: where they are computed in f16, small
// ones survive. In a step with a dynamic loss scale this is where the scale
// starts: it backs off when these gradients overflow and grows after as many
// clean steps, by the rule of the step's scaler and apart from the loss scale.
func (m *Model) ScaledGrad(scale float64, y Tensor, wrt ...Tensor) []Tensor {
	out := make([]Tensor, len(wrt))
	for _, t := range append([]Tensor{y}, wrt...) {
		if !m.given("gradient", "", t) {
			return out
		}
		if err := m.b.CheckOwn("gradient", t.v); err != nil {
			m.Fail("%v", err)
			return out
		}
	}
	g, stopped, err := passes.Gradients(m.root, y.v, values(wrt), passes.GradScale{Scale: scale})
	var at *ir.Error
	switch {
	case err == nil:
	case errors.As(err, &at): // the line that matters is that of this call
		m.Fail("gradient of %s: %s", y.v, at.Msg)
		return out
	default:
		m.Fail("gradient of %s: %v", y.v, err)
		return out
	}
	if i := slices.Index(g, nil); i >= 0 {
		m.Fail("gradient of %s: it does not depend on %s%s", y.v, wrt[i].v, stopped)
		return out
	}
	return m.tensors(g)
}

// ModelOption changes where and from what seed a model runs. Options are given to
// New, or to Model.Set before the first step is compiled.
type ModelOption func(*state)

// Seed sets the seed of initial values and random ops. The default is 0.
func Seed(n int64) ModelOption { return func(s *state) { s.seed = n } }

// On keeps the model's variables on b and runs its steps there. The caller closes b
// after the model. Without On, a model runs on the CPU.
func On(b runtime.Backend) ModelOption { return func(s *state) { s.backend = b } }

// Fed says that the program holds the inputs of n micro-batches at the same time, such as those that a
// loader makes in advance: a step that does not fit beside them is refused when it is compiled. Without
// Fed, the inputs of one step count.
func Fed(n int) ModelOption { return func(s *state) { s.fed = n } }

// Set changes options. It is an error after a step was compiled.
func (m *Model) Set(o ...ModelOption) error {
	defer m.gate.hold()()
	if m.ended {
		return fmt.Errorf("set: %w", errModelClosed)
	}
	if m.session != nil && len(o) > 0 {
		return fmt.Errorf("set: the model's variables are on %s already: give options to New, or before the first Train or Infer", m.session.backend.Name())
	}
	for _, change := range o {
		change(m.state)
	}
	return nil
}

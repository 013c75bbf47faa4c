package ampc

import (
	"fmt"
	"math"
	"strings"
)

// Layers declare their parameters under their own name ("fc1.w", "fc1.b") and
// call their result by it ("fc1").

// LinearOptions are the options of Linear.
type LinearOptions struct {
	NoBias bool
	Init   Init // of the weights, the bias then starts at 0; zero: both uniform in ±1/√in
}

// Linear is x·w + b over the last dimension, with weights w[in,out] and b[out].
//
//   - Shapes: x[...,in] to [...,out]; in is a number.
//   - DTypes: float; weights are f32.
//   - Errors: a name that is taken, or x without a last dimension of known size.
//   - PyTorch: nn.Linear; its weight is the transpose of w.
func (m *Model) Linear(name string, x Tensor, out int, opts ...LinearOptions) Tensor {
	o := option(m.ops, "linear", opts)
	l, ok := m.layer("linear", name)
	in := l.size("linear", name, x, -1)
	if !ok || in < 0 {
		return Tensor{}
	}
	fan := fanIn(in)
	w := l.Param("w", o.Init.or(fan), in, out)
	var b Tensor
	switch {
	case o.NoBias:
	case o.Init != Init{}:
		b = l.Param("b", Fill(0), out)
	default:
		b = l.Param("b", fan, out)
	}
	return m.at(name).LinearWith(x, w, b)
}

// Tied is a linear layer without bias over the transpose of a weight that
// another layer owns, such as an embedding's table.
//
//   - Shapes: x[...,in], w[out,in] to [...,out].
//   - DTypes: float.
//   - Errors: a name that is taken, or sizes that do not fit.
//   - PyTorch: nn.Linear whose weight is that of an nn.Embedding.
func (m *Model) Tied(name string, x, w Tensor) Tensor {
	if _, ok := m.layer("tied", name); !ok {
		return Tensor{}
	}
	return m.at(name).LinearWith(x, w, Tensor{}, LinearWithOptions{TransposeW: true})
}

// EmbeddingOptions are the options of Embedding.
type EmbeddingOptions struct {
	Init Init // of the table; zero: normal with deviation 0.02
}

// Embedding looks up rows of a table w[vocab,dim].
//
//   - Shapes: ids[...] to [...,dim].
//   - DTypes: ids i32 or i64; the table is f32.
//   - Errors: a name that is taken, or ids that are no integers.
//   - PyTorch: nn.Embedding, whose table is normal with deviation 1; without padding_idx and max_norm.
func (m *Model) Embedding(name string, ids Tensor, vocab, dim int, opts ...EmbeddingOptions) Tensor {
	o := option(m.ops, "embedding", opts)
	l, ok := m.layer("embedding", name)
	if !ok {
		return Tensor{}
	}
	return m.at(name).EmbeddingWith(l.Param("w", o.Init.or(Normal(0, 0.02)), vocab, dim), ids)
}

// Dropout zeroes a share p of x and scales the rest up by 1/(1-p); in
// inference, and for p = 0, it is the identity.
//
//   - Shapes: x[...] to the same.
//   - DTypes: float; the result has x's.
//   - Errors: p outside 0 to 1.
//   - PyTorch: nn.Dropout, F.dropout; each step draws other numbers; ampc.Seed repeats them.
func (m *Model) Dropout(name string, x Tensor, p float64) Tensor {
	if next := m.b.NextName(); next != "" {
		m.Fail("dropout %q: a layer names its result itself, Named(%q) has no use before it: leave one of the names out", name, next)
		return Tensor{}
	}
	if p == 0 || !m.given("dropout", name, x) {
		return x
	}
	return m.tensor(m.b.Named(name).Dropout(x.v, p, m.draw()))
}

// layer opens a layer: it checks the name and returns the model in the layer's
// scope. It reports false after any earlier mistake.
func (m *Model) layer(kind, name string) (*Model, bool) {
	if m.Err() != nil {
		return nil, false
	}
	full := m.ScopeName() + name
	if next := m.b.NextName(); next != "" {
		m.Fail("%s %q: a layer names its result itself, Named(%q) has no use before it: leave one of the names out", kind, full, next)
		return nil, false
	}
	if first, taken := m.layers[full]; taken && !m.reuse {
		m.Fail("%s %q: the name is taken by the layer at %s: choose another, or apply one layer many times with Shared", kind, full, first)
		return nil, false
	}
	if name == "" || strings.ContainsAny(name, " \t\n'%") {
		m.Fail("%s %q: a layer's name is a word", kind, full)
		return nil, false
	}
	m.layers[full] = userLine()
	return m.Scope(name), m.Err() == nil
}

// rename calls the result of a composed layer by the layer's name.
func (m *Model) rename(x Tensor, name string) Tensor {
	return m.tensor(m.b.Rename(x.v, m.ScopeName()+name))
}

// size returns dimension i of x as a number, -1 after a mistake.
func (m *Model) size(kind, name string, x Tensor, i int) int {
	if m == nil {
		return -1
	}
	return m.ops.size(kind, name, x, i)
}

func (o ops) size(kind, name string, x Tensor, i int) int {
	if !o.given(kind, name, x) {
		return -1
	}
	if r := x.Rank(); r == 0 || i >= r {
		o.Fail("%s %q: %s is %s, too few dimensions", kind, name, x.v, x.v.Type)
		return -1
	}
	d := x.Dim(i)
	if d < 0 {
		o.Fail("%s %q: dimension %d of %s %s must be a number", kind, name, i, x.v, x.v.Type)
	}
	return d
}

// given says whether x is there to build on: an absent tensor without an
// earlier mistake is one.
func (o ops) given(kind, name string, x Tensor) bool {
	if o.Err() == nil && x.v == nil {
		o.Fail("%s: the tensor it is given is absent (a zero Tensor)", strings.TrimSuffix(fmt.Sprintf("%s %q", kind, name), ` ""`))
	}
	return o.Err() == nil
}

// channels returns dimension 1 of x, which must divide into groups.
func (m *Model) channels(kind, name string, x Tensor, groups int) int {
	n := m.size(kind, name, x, 1)
	if n >= 0 && (groups <= 0 || n%groups != 0) {
		m.Fail("%s %q: %d channels do not divide into %d groups", kind, name, n, groups)
		return -1
	}
	return n
}

func fanIn(n int) Init {
	r := 1 / math.Sqrt(float64(max(n, 1)))
	return Uniform(-r, r)
}

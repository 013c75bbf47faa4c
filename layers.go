package ampc

import (
	"fmt"
	"math"
	"strings"

	"ampc/ir"
)

// Layers declare their parameters under their own name ("fc1.w", "fc1.b") and
// call their result by it ("fc1"). Each takes Options; x is f32 unless said
// otherwise, "..." stands for any leading dimensions.

// Linear is x·w + b over the last dimension: [...,in] to [...,out].
// Options: NoBias, WeightInit (default: weights and bias uniform in ±1/√in;
// with it the bias starts at 0).
func (m *Model) Linear(name string, x Tensor, out int, opts ...Option) Tensor {
	l, o, ok := m.layer("linear", name, opts, "NoBias", "WeightInit")
	in := l.size("linear", name, x, -1)
	if !ok || in < 0 {
		return Tensor{}
	}
	fan := fanIn(in)
	w := l.Param("w", or(o.init, fan), in, out)
	var b Tensor
	if o.bias {
		b = l.Param("b", o.biasInit(fan), out)
	}
	return m.at(name).LinearWith(x, w, b, false)
}

// Tied is a linear layer without bias over the transpose of a weight that
// another layer owns, such as an embedding's table[out,in].
func (m *Model) Tied(name string, x, w Tensor) Tensor {
	if _, _, ok := m.layer("tied", name, nil); !ok {
		return Tensor{}
	}
	return m.at(name).LinearWith(x, w, Tensor{}, true)
}

// Embedding looks up rows of a table[vocab,dim]: ids[...] of i32 or i64 to
// [...,dim]. Options: WeightInit (default: normal with deviation 0.02).
func (m *Model) Embedding(name string, ids Tensor, vocab, dim int, opts ...Option) Tensor {
	l, o, ok := m.layer("embedding", name, opts, "WeightInit")
	if !ok {
		return Tensor{}
	}
	w := l.Param("w", or(o.init, Normal(0, 0.02)), vocab, dim)
	return m.at(name).EmbeddingWith(w, ids)
}

// Conv2d is a square convolution over images [N,C,H,W] to out channels.
// Options: Stride, Padding, Dilation, ConvGroups, NoBias, WeightInit.
func (m *Model) Conv2d(name string, x Tensor, out, kernel int, opts ...Option) Tensor {
	l, o, ok := m.layer("conv2d", name, opts, "Stride", "Padding", "Dilation", "ConvGroups", "NoBias", "WeightInit")
	in := l.channels("conv2d", name, x, o.groups)
	if !ok || in < 0 {
		return Tensor{}
	}
	fan := fanIn(in / o.groups * kernel * kernel)
	w := l.Param("w", or(o.init, fan), out, in/o.groups, kernel, kernel)
	var b Tensor
	if o.bias {
		b = l.Param("b", fan, out)
	}
	return m.at(name).Conv(x, w, b, o.window())
}

// ConvTranspose2d is the transpose of a convolution: [N,C,H,W] to a larger
// image of out channels. Options: Stride, Padding, Dilation, NoBias, WeightInit.
func (m *Model) ConvTranspose2d(name string, x Tensor, out, kernel int, opts ...Option) Tensor {
	l, o, ok := m.layer("conv_transpose2d", name, opts, "Stride", "Padding", "Dilation", "NoBias", "WeightInit")
	in := l.channels("conv_transpose2d", name, x, 1)
	if !ok || in < 0 {
		return Tensor{}
	}
	fan := fanIn(out * kernel * kernel)
	w := l.Param("w", or(o.init, fan), in, out, kernel, kernel)
	var b Tensor
	if o.bias {
		b = l.Param("b", fan, out)
	}
	return m.at(name).ConvTranspose(x, w, b, o.window())
}

// MaxPool2d takes the maximum over windows of k by k that do not overlap.
func (m *Model) MaxPool2d(x Tensor, k int) Tensor {
	return m.MaxPool(x, ir.A("kernel", []int{k, k}, "strides", []int{k, k}))
}

// AvgPool2d takes the mean over windows of k by k that do not overlap.
func (m *Model) AvgPool2d(x Tensor, k int) Tensor {
	return m.AvgPool(x, ir.A("kernel", []int{k, k}, "strides", []int{k, k}))
}

// GlobalAvgPool takes the mean over all spatial dimensions: [N,C,...] to [N,C].
func (m *Model) GlobalAvgPool(x Tensor) Tensor {
	if !m.given("global average pool", "", x) {
		return Tensor{}
	}
	var axes []int
	for i := 2; i < x.Rank(); i++ {
		axes = append(axes, i)
	}
	return m.called("pool").ReduceMean(x, false, axes...)
}

// at builds with a name for the next op's result.
func (m *Model) at(name string) ops { return ops{m.b.Named(name)} }

// rename calls the result of a composed layer by the layer's name.
func (m *Model) rename(x Tensor, name string) Tensor {
	return m.tensor(m.b.Rename(x.v, m.ScopeName()+name))
}

// called is the builder with the name that Named gave, else with that one.
func (m *Model) called(name string) ops {
	if next := m.b.NextName(); next != "" {
		name = next
	}
	return m.at(name)
}

// Flatten joins all dimensions after the first.
func (m *Model) Flatten(x Tensor) Tensor {
	if !m.given("flatten", "", x) {
		return Tensor{}
	}
	n := 1
	for i := 1; i < x.Rank(); i++ {
		d := m.size("flatten", x.Name(), x, i)
		if d < 0 {
			return Tensor{}
		}
		n *= d
	}
	return m.called("flat").Reshape(x, 0, n)
}

// LayerNorm normalises the last dimension, with scale and bias. Options: Eps, NoBias.
func (m *Model) LayerNorm(name string, x Tensor, opts ...Option) Tensor {
	l, o, ok := m.layer("layer_norm", name, opts, "Eps", "NoBias")
	n := l.size("layer_norm", name, x, -1)
	if !ok || n < 0 {
		return Tensor{}
	}
	scale, bias := l.affine(o, n)
	return m.at(name).LayerNormWith(x, scale, bias, ir.A("eps", o.eps))
}

// RMSNorm divides the last dimension by its root mean square, with a scale. Options: Eps.
func (m *Model) RMSNorm(name string, x Tensor, opts ...Option) Tensor {
	l, o, ok := m.layer("rms_norm", name, opts, "Eps")
	n := l.size("rms_norm", name, x, -1)
	if !ok || n < 0 {
		return Tensor{}
	}
	return m.at(name).RMSNormWith(x, l.Param("scale", Fill(1), n), ir.A("eps", o.eps))
}

// GroupNorm normalises groups of channels of [N,C,...], with scale and bias
// per channel. Options: Eps.
func (m *Model) GroupNorm(name string, x Tensor, groups int, opts ...Option) Tensor {
	l, o, ok := m.layer("group_norm", name, opts, "Eps")
	n := l.channels("group_norm", name, x, groups)
	if !ok || n < 0 {
		return Tensor{}
	}
	scale, bias := l.affine(o, n)
	return m.at(name).GroupNormWith(x, scale, bias, ir.A("eps", o.eps, "groups", groups))
}

// BatchNorm normalises each channel of [N,C,...] over the batch and keeps
// running statistics for inference. Options: Eps, Momentum (default 0.1).
func (m *Model) BatchNorm(name string, x Tensor, opts ...Option) Tensor {
	l, o, ok := m.layer("batch_norm", name, opts, "Eps", "Momentum")
	n := l.channels("batch_norm", name, x, 1)
	if !ok || n < 0 {
		return Tensor{}
	}
	scale, bias := l.affine(o, n)
	mean, variance := l.State("mean", Fill(0), n), l.State("var", Fill(1), n)
	return m.at(name).BatchNormWith(x, scale, bias, mean, variance, ir.A("eps", o.eps, "momentum", o.momentum))
}

func (m *Model) affine(o layerOptions, n int) (scale, bias Tensor) {
	scale = m.Param("scale", Fill(1), n)
	if o.bias {
		bias = m.Param("bias", Fill(0), n)
	}
	return scale, bias
}

// Dropout zeroes a share p of x and scales the rest up by 1/(1-p); in
// inference, and for p = 0, it is the identity.
func (m *Model) Dropout(name string, x Tensor, p float64) Tensor {
	if next := m.b.NextName(); next != "" {
		m.Fail("dropout %q: a layer names its result itself, Named(%q) has no use before it: leave one of the names out", name, next)
		return Tensor{}
	}
	if p == 0 || !m.given("dropout", name, x) {
		return x
	}
	seed, attempt, micro := m.random()
	return m.tensor(m.b.Named(name).Emit(ir.OpDropout, []*ir.Value{x.v, seed, attempt, micro}, ir.A("p", p, "rng", m.b.Site()))[0])
}

// random returns the variables that random ops draw with, declaring them once.
func (m *Model) random() (seed, attempt, micro *ir.Value) {
	declare := func(kind ir.VarKind, d DType, role string) *ir.Value {
		for _, v := range m.Graph().Vars {
			if v.Attr.Get("role") == role {
				return v
			}
		}
		var init *Init
		if kind == ir.State {
			init = &ir.Init{Args: []float64{0}}
		}
		return m.root.Declare(kind, ir.Reserved+role, ir.T(d), init, ir.A("role", role))
	}
	return declare(ir.State, I64, "seed"), declare(ir.State, I32, "attempt"), declare(ir.Input, I32, "micro")
}

// Attention is multi-head self-attention over [N,T,dim] with its projections
// of queries, keys, values and the result. Options: Causal, KVHeads, Memory,
// Mask, NoBias, WeightInit.
func (m *Model) Attention(name string, x Tensor, heads int, opts ...Option) Tensor {
	l, o, ok := m.layer("attention", name, opts, "Causal", "KVHeads", "Memory", "Mask", "NoBias", "WeightInit")
	dim := l.size("attention", name, x, -1)
	if !ok || dim < 0 {
		return Tensor{}
	}
	if x.Rank() != 3 {
		m.Fail("attention %q: %s is %s, want [batch, length, width]", name, x.v, x.v.Type)
		return Tensor{}
	}
	kv := o.kvHeads
	if kv == 0 {
		kv = heads
	}
	if heads <= 0 || kv < 0 || dim%heads != 0 || heads%kv != 0 {
		m.Fail("attention %q: width %d does not divide into %d heads, or those into %d for keys and values", name, dim, heads, kv)
		return Tensor{}
	}
	q, k, v := l.project(x, dim, heads, kv, o)
	y := l.at("mix").ScaledDotProductAttention(q, k, v, o.mask, ir.A("causal", o.causal))
	y = l.at("merge").Reshape(l.at("turn").Transpose(y, 0, 2, 1, 3), 0, 0, dim)
	return m.rename(l.Linear("out", y, dim, o.inner()...), name)
}

// project makes the queries, keys and values, each [N,heads,T,width]; in self
// attention one product makes all three.
func (m *Model) project(x Tensor, dim, heads, kv int, o layerOptions) (q, k, v Tensor) {
	width := dim / heads
	if o.memory.v != nil {
		q = m.heads("q", m.Linear("q.proj", x, dim, o.inner()...), heads)
		k = m.heads("k", m.Linear("k.proj", o.memory, kv*width, o.inner()...), kv)
		v = m.heads("v", m.Linear("v.proj", o.memory, kv*width, o.inner()...), kv)
		return q, k, v
	}
	all := m.Linear("qkv", x, dim+2*kv*width, o.inner()...)
	parts := m.at("parts").Split(all, -1, dim, kv*width, kv*width)
	return m.heads("q", parts[0], heads), m.heads("k", parts[1], kv), m.heads("v", parts[2], kv)
}

// heads turns [N,T,heads*width] into [N,heads,T,width].
func (m *Model) heads(name string, x Tensor, heads int) Tensor {
	if x.v == nil {
		return Tensor{}
	}
	y := m.at(name+".split").Reshape(x, 0, 0, heads, x.Dim(2)/heads)
	return m.at(name).Transpose(y, 0, 2, 1, 3)
}

// inner passes a composed layer's options on to its linear parts.
func (o layerOptions) inner() []Option {
	var opts []Option
	if !o.bias {
		opts = append(opts, NoBias())
	}
	if o.init != nil {
		opts = append(opts, WeightInit(o.init))
	}
	return opts
}

// CrossEntropy is the mean cross entropy of softmax(logits[...,classes])
// against labels[...] of i32 or i64. Options: Ignore (default -100),
// Smoothing, ClassWeights.
func (m *Model) CrossEntropy(logits, labels Tensor, opts ...Option) Tensor {
	o := layerOptions{ignore: -100}
	if !m.choose("cross_entropy", "", opts, &o, "Ignore", "Smoothing", "ClassWeights") {
		return Tensor{}
	}
	if o.weights.v != nil {
		return m.tensor(m.b.WeightedCrossEntropy(logits.v, labels.v, o.weights.v, ir.A("ignore", o.ignore, "smoothing", o.smoothing)))
	}
	return m.tensor(m.b.CrossEntropy(logits.v, labels.v, ir.A("ignore", o.ignore, "smoothing", o.smoothing)))
}

// BCEWithLogits is the mean binary cross entropy of sigmoid(x) against target,
// both of one shape. Option: PosWeight.
func (m *Model) BCEWithLogits(x, target Tensor, opts ...Option) Tensor {
	o := layerOptions{}
	switch {
	case !m.choose("bce_with_logits", "", opts, &o, "PosWeight"):
		return Tensor{}
	case o.weights.v != nil:
		return m.tensor(m.b.WeightedBCE(x.v, target.v, o.weights.v))
	}
	return m.tensor(m.b.BCEWithLogits(x.v, target.v))
}

// LSTM runs a long short-term memory over [N,T,in] and returns the hidden
// states [N,T,hidden]. Options: Bidirectional, InitialState.
func (m *Model) LSTM(name string, x Tensor, hidden int, opts ...Option) Tensor {
	return m.recurrent("lstm", name, x, hidden, 4, opts)
}

// GRU runs a gated recurrent unit over [N,T,in] and returns the hidden states
// [N,T,hidden]. Options: Bidirectional, InitialState.
func (m *Model) GRU(name string, x Tensor, hidden int, opts ...Option) Tensor {
	return m.recurrent("gru", name, x, hidden, 3, opts)
}

// RNN runs a plain recurrence, h = tanh(x·w + b + h·r), over [N,T,in] and returns
// the hidden states [N,T,hidden]. Options: Nonlinearity, Bidirectional,
// InitialState, NoBias.
func (m *Model) RNN(name string, x Tensor, hidden int, opts ...Option) Tensor {
	return m.recurrent("rnn", name, x, hidden, 1, opts, "Nonlinearity")
}

// size returns dimension i of x as a number, -1 after a mistake.
func (m *Model) size(kind, name string, x Tensor, i int) int {
	if m == nil || !m.given(kind, name, x) {
		return -1
	}
	s := x.v.Type.Shape
	if s.Rank() == 0 || i >= s.Rank() {
		m.Fail("%s %q: %s is %s, too few dimensions", kind, name, x.v, x.v.Type)
		return -1
	}
	d := s.Dim(i)
	if d < 0 {
		m.Fail("%s %q: dimension %d of %s %s must be a number", kind, name, i, x.v, x.v.Type)
		return -1
	}
	return int(d)
}

// given says whether x is there to build on: a nil tensor without an earlier
// mistake is one.
func (m *Model) given(kind, name string, x Tensor) bool {
	if m.Err() == nil && x.v == nil {
		m.Fail("%s: the tensor it is given is absent (a zero Tensor)", strings.TrimSuffix(fmt.Sprintf("%s %q", kind, name), ` ""`))
	}
	return m.Err() == nil
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

// window is where the windows of a square convolution lie.
func (o layerOptions) window() ir.Attrs {
	a := ir.A("groups", o.groups)
	if o.stride != 1 {
		a = a.With("strides", []int{o.stride, o.stride})
	}
	if o.dilation != 1 {
		a = a.With("dilations", []int{o.dilation, o.dilation})
	}
	if p := o.padding; p != 0 {
		a = a.With("pads", []int{p, p, p, p})
	}
	return a
}

func fanIn(n int) *Init {
	r := 1 / math.Sqrt(float64(max(n, 1)))
	return Uniform(-r, r)
}

func (o layerOptions) biasInit(def *Init) *Init {
	if o.init != nil {
		return Fill(0)
	}
	return def
}

func or(i, def *Init) *Init {
	if i != nil {
		return i
	}
	return def
}

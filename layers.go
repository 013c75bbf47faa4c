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
//   - Errors: a name that is taken, or ids that are not integers.
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
		m.Fail("dropout %q: a layer names its own result: leave out Named(%q), which has no effect", name, next)
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
		m.Fail("%s %q: a layer names its own result: leave out Named(%q), which has no effect", kind, full, next)
		return nil, false
	}
	if first, taken := m.layers[full]; taken && !m.reuse {
		m.Fail("%s %q: the name is taken by the layer at %s: choose another, or apply one layer many times with Shared", kind, full, first)
		return nil, false
	}
	if name == "" || strings.ContainsAny(name, " \t\n'%") {
		m.Fail("%s %q: want a name without spaces, quotes and %%", kind, full)
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

// LayerNormOptions are the options of LayerNorm.
type LayerNormOptions struct {
	Eps    *float64 // added to the variance, in f32: new(1e-12); nil: 1e-5
	NoBias bool
}

// LayerNorm normalizes the last dimension to mean 0 and variance 1, with
// parameters scale[n] and bias[n].
//
//   - Shapes: x[...,n] to the same; n is a number.
//   - DTypes: float; statistics are f32, the result has x's.
//   - Errors: a name that is taken, or x without a last dimension of known size.
//   - PyTorch: nn.LayerNorm(n).
func (m *Model) LayerNorm(name string, x Tensor, opts ...LayerNormOptions) Tensor {
	o := option(m.ops, "layer_norm", opts)
	l, ok := m.layer("layer_norm", name)
	n := l.size("layer_norm", name, x, -1)
	if !ok || n < 0 {
		return Tensor{}
	}
	scale, bias := l.affine(n, o.NoBias)
	return m.at(name).LayerNormWith(x, scale, bias, NormWithOptions{Eps: o.Eps})
}

// RMSNormOptions are the options of RMSNorm.
type RMSNormOptions struct {
	Eps *float64 // added to the mean square, in f32: new(1e-12); nil: 1e-5
}

// RMSNorm divides the last dimension by the root of its mean square, with a
// parameter scale[n].
//
//   - Shapes: x[...,n] to the same; n is a number.
//   - DTypes: float; statistics are f32, the result has x's.
//   - Errors: a name that is taken, or x without a last dimension of known size.
//   - PyTorch: nn.RMSNorm(n), whose eps is the smallest step of its dtype by default.
func (m *Model) RMSNorm(name string, x Tensor, opts ...RMSNormOptions) Tensor {
	o := option(m.ops, "rms_norm", opts)
	l, ok := m.layer("rms_norm", name)
	n := l.size("rms_norm", name, x, -1)
	if !ok || n < 0 {
		return Tensor{}
	}
	return m.at(name).RMSNormWith(x, l.Param("scale", Fill(1), n), NormWithOptions{Eps: o.Eps})
}

// GroupNormOptions are the options of GroupNorm.
type GroupNormOptions struct {
	Eps *float64 // added to the variance, in f32: new(1e-12); nil: 1e-5
}

// GroupNorm normalizes groups of channels of each image, with parameters
// scale[C] and bias[C].
//
//   - Shapes: x[N,C,...] to the same; C is a number.
//   - DTypes: float; statistics are f32, the result has x's.
//   - Errors: a name that is taken, or channels that do not divide into groups.
//   - PyTorch: nn.GroupNorm.
func (m *Model) GroupNorm(name string, x Tensor, groups int, opts ...GroupNormOptions) Tensor {
	o := option(m.ops, "group_norm", opts)
	l, ok := m.layer("group_norm", name)
	n := l.channels("group_norm", name, x, groups)
	if !ok || n < 0 {
		return Tensor{}
	}
	scale, bias := l.affine(n, false)
	return m.at(name).GroupNormWith(x, scale, bias, groups, NormWithOptions{Eps: o.Eps})
}

// BatchNormOptions are the options of BatchNorm.
type BatchNormOptions struct {
	Eps      *float64 // added to the variance, in f32: new(1e-12); nil: 1e-5
	Momentum *float64 // weight of this batch in the running statistics: new(0.01); nil: 0.1
}

// BatchNorm normalizes each channel over the batch, with parameters scale[C] and
// bias[C], and keeps running statistics, the states mean[C] and var[C], which
// inference normalizes by.
//
//   - Shapes: x[N,C,...] to the same; C is a number.
//   - DTypes: float; statistics are f32, the result has x's.
//   - Errors: a name that is taken, or x without channels of known number.
//   - PyTorch: nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d; a skipped step leaves the running statistics as they were.
func (m *Model) BatchNorm(name string, x Tensor, opts ...BatchNormOptions) Tensor {
	o := option(m.ops, "batch_norm", opts)
	l, ok := m.layer("batch_norm", name)
	n := l.channels("batch_norm", name, x, 1)
	if !ok || n < 0 {
		return Tensor{}
	}
	scale, bias := l.affine(n, false)
	mean, variance := l.State("mean", Fill(0), n), l.State("var", Fill(1), n)
	return m.at(name).BatchNormWith(x, scale, bias, mean, variance, NormWithOptions{Eps: o.Eps, Momentum: o.Momentum})
}

func (m *Model) affine(n int, noBias bool) (scale, bias Tensor) {
	scale = m.Param("scale", Fill(1), n)
	if !noBias {
		bias = m.Param("bias", Fill(0), n)
	}
	return scale, bias
}

// AttentionOptions are the options of Attention.
type AttentionOptions struct {
	Causal  bool         // each position attends to itself and those before it only
	KVHeads int          // heads of keys and values (grouped-query attention); 0: as many as of queries
	Memory  Tensor       // [N,M,width]: keys and values come from it (cross attention); the zero Tensor: from x
	Mask    Tensor       // added to the scores, broadcast to [N,heads,T,M]
	Rope    *RopeOptions // turns queries and keys by their positions; nil: does not; without Memory
	// Attend computes attention of [N,heads,T,width] in place of ScaledDotProductAttention, as
	// to caches; nil: Causal and Mask say it.
	Attend func(q, k, v Tensor) Tensor
	NoBias bool
	Init   Init // of the projections' weights, their biases then start at 0; zero: as Linear's
}

// linear are the options of the projections.
func (o AttentionOptions) linear() LinearOptions {
	return LinearOptions{NoBias: o.NoBias, Init: o.Init}
}

// Attention is multi-head attention with its projections: in self-attention one
// layer "qkv" for queries, keys and values, with Memory "q.proj", "k.proj" and
// "v.proj"; then "out".
//
//   - Shapes: x[N,T,dim] to the same; dim is a number that heads divides.
//   - DTypes: float; weights are f32.
//   - Errors: a name that is taken, another rank, or heads that do not divide dim.
//   - PyTorch: nn.MultiheadAttention(batch_first=True), with one in_proj; without dropout on the weights.
func (m *Model) Attention(name string, x Tensor, heads int, opts ...AttentionOptions) Tensor {
	o := option(m.ops, "attention", opts)
	l, ok := m.layer("attention", name)
	dim := l.size("attention", name, x, -1)
	if !ok || dim < 0 {
		return Tensor{}
	}
	if x.Rank() != 3 {
		m.Fail("attention %q: %s is %s, want [batch, length, width]", name, x.v, x.v.Type)
		return Tensor{}
	}
	kv := o.KVHeads
	if kv == 0 {
		kv = heads
	}
	if heads <= 0 || kv < 0 || dim%heads != 0 || heads%kv != 0 {
		m.Fail("attention %q: width %d does not divide into %d heads, or those into %d for keys and values", name, dim, heads, kv)
		return Tensor{}
	}
	if o.Rope != nil && o.Memory.v != nil {
		m.Fail("attention %q: Rope and Memory are both set, and the keys of another sequence have positions of their own: apply m.Rope and m.ScaledDotProductAttention by hand", name)
		return Tensor{}
	}
	q, k, v := l.project(x, dim, heads, kv, o)
	if o.Rope != nil {
		q, k = l.at("q.rope").Rope(q, *o.Rope), l.at("k.rope").Rope(k, *o.Rope)
	}
	var y Tensor
	if o.Attend != nil {
		y = o.Attend(q, k, v)
	} else {
		y = l.at("mix").ScaledDotProductAttention(q, k, v, SDPAOptions{Mask: o.Mask, Causal: o.Causal})
	}
	y = l.at("merge").Reshape(l.at("turn").Transpose(y, 0, 2, 1, 3), 0, 0, dim)
	return m.rename(l.Linear("out", y, dim, o.linear()), name)
}

// project makes the queries, keys and values, each [N,heads,T,width]; in self
// attention one product makes all three.
func (m *Model) project(x Tensor, dim, heads, kv int, o AttentionOptions) (q, k, v Tensor) {
	width := dim / heads
	if o.Memory.v != nil {
		q = m.heads("q", m.Linear("q.proj", x, dim, o.linear()), heads)
		k = m.heads("k", m.Linear("k.proj", o.Memory, kv*width, o.linear()), kv)
		v = m.heads("v", m.Linear("v.proj", o.Memory, kv*width, o.linear()), kv)
		return q, k, v
	}
	all := m.Linear("qkv", x, dim+2*kv*width, o.linear())
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

// LSTMOptions are the options of LSTM.
type LSTMOptions struct {
	Bidirectional bool   // runs both ways and joins the results
	NoBias        bool   // no bias of the gates
	H0, C0        Tensor // [D,N,hidden], the state before the first step; D is 2 for both ways; the zero Tensor: zeros
}

// LSTM runs a long short-term memory over a sequence and returns the hidden
// state of every step. Its weights are w[in,D·4·hidden], r[D,hidden,4·hidden] and
// b[D·4·hidden], the gates in the order i, f, g, o.
//
//   - Shapes: x[N,T,in] to [N,T,D·hidden]; D is 2 with Bidirectional, else 1.
//   - DTypes: float; weights and the cell are f32.
//   - Errors: a name that is taken, or another rank.
//   - PyTorch: nn.LSTM(batch_first=True) of one layer, with the sum of its two biases; LSTMWith returns the last state too.
func (m *Model) LSTM(name string, x Tensor, hidden int, opts ...LSTMOptions) Tensor {
	o := option(m.ops, "lstm", opts)
	return m.recurrent("lstm", name, x, hidden, recurrence{gates: 4, both: o.Bidirectional, noBias: o.NoBias, with: RecurrentWithOptions{H0: o.H0, C0: o.C0}})
}

// GRUOptions are the options of GRU.
type GRUOptions struct {
	Bidirectional bool   // runs both ways and joins the results
	NoBias        bool   // no bias of the gates; the candidate keeps its own
	H0            Tensor // [D,N,hidden], the state before the first step; D is 2 for both ways; the zero Tensor: zeros
}

// GRU runs a gated recurrent unit over a sequence and returns the hidden state of
// every step. Its weights are w[in,D·3·hidden], r[D,hidden,3·hidden],
// b[D·3·hidden] and the candidate's bn[D,hidden], the gates in the order r, z, n.
//
//   - Shapes: x[N,T,in] to [N,T,D·hidden]; D is 2 with Bidirectional, else 1.
//   - DTypes: float; weights are f32.
//   - Errors: a name that is taken, or another rank.
//   - PyTorch: nn.GRU(batch_first=True) of one layer; of its biases those that add up are one; GRUWith returns the last state too.
func (m *Model) GRU(name string, x Tensor, hidden int, opts ...GRUOptions) Tensor {
	o := option(m.ops, "gru", opts)
	return m.recurrent("gru", name, x, hidden, recurrence{gates: 3, both: o.Bidirectional, noBias: o.NoBias, with: RecurrentWithOptions{H0: o.H0}})
}

// RNNOptions are the options of RNN.
type RNNOptions struct {
	Relu          bool   // relu in place of tanh
	Bidirectional bool   // runs both ways and joins the results
	NoBias        bool   // no bias
	H0            Tensor // [D,N,hidden], the state before the first step; D is 2 for both ways; the zero Tensor: zeros
}

// RNN runs a plain recurrence, h = tanh(x·w + b + h·r), over a sequence and
// returns the hidden state of every step. Its weights are w[in,D·hidden],
// r[D,hidden,hidden] and b[D·hidden].
//
//   - Shapes: x[N,T,in] to [N,T,D·hidden]; D is 2 with Bidirectional, else 1.
//   - DTypes: float; weights are f32.
//   - Errors: a name that is taken, or another rank.
//   - PyTorch: nn.RNN(batch_first=True) of one layer, with the sum of its two biases; RNNWith returns the last state too.
func (m *Model) RNN(name string, x Tensor, hidden int, opts ...RNNOptions) Tensor {
	o := option(m.ops, "rnn", opts)
	return m.recurrent("rnn", name, x, hidden, recurrence{gates: 1, both: o.Bidirectional, noBias: o.NoBias, with: RecurrentWithOptions{H0: o.H0, Relu: o.Relu}})
}

// recurrence is what the recurrent layers differ in.
type recurrence struct {
	gates        int
	both, noBias bool
	with         RecurrentWithOptions
}

// recurrent builds an LSTM, a GRU or a plain RNN over [N,T,in]: the weights of
// all gates side by side, one bias for the inputs' share (and GRU's own for the
// state's share of its candidate), directions apart.
func (m *Model) recurrent(kind, name string, x Tensor, hidden int, c recurrence) Tensor {
	l, ok := m.layer(kind, name)
	in := l.size(kind, name, x, -1)
	if !ok || in < 0 {
		return Tensor{}
	}
	if x.Rank() != 3 || hidden <= 0 {
		m.Fail("%s %q: %s is %s, want [batch, time, width] and a hidden size above 0", kind, name, x.v, x.v.Type)
		return Tensor{}
	}
	directions := 1
	if c.both {
		directions = 2
	}
	fan := fanIn(hidden)
	w := l.Param("w", fan, in, directions*c.gates*hidden)
	r := l.Param("r", fan, directions, hidden, c.gates*hidden)
	if !c.noBias {
		c.with.Bias = l.Param("b", fan, directions*c.gates*hidden)
	}
	steps := l.at("steps").Transpose(x, 1, 0, 2)
	var y Tensor
	switch kind {
	case "lstm":
		y, _, _ = l.LSTMWith(steps, w, r, c.with)
	case "rnn":
		y, _ = l.RNNWith(steps, w, r, c.with)
	default:
		c.with.CandidateBias = l.Param("bn", fan, directions, hidden)
		y, _ = l.GRUWith(steps, w, r, c.with)
	}
	return m.rename(l.Transpose(y, 1, 0, 2), name)
}

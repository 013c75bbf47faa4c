package ampc

// AttentionOptions are the options of Attention.
type AttentionOptions struct {
	Causal  bool   // each position attends to itself and those before it only
	KVHeads int    // heads of keys and values (grouped-query attention); 0: as many as of queries
	Memory  Tensor // [N,M,width]: keys and values come from it (cross attention); the zero Tensor: from x
	Mask    Tensor // added to the scores, broadcast to [N,heads,T,M]
	NoBias  bool
	Init    Init // of the projections' weights, their biases then start at 0; zero: as Linear's
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
	q, k, v := l.project(x, dim, heads, kv, o)
	y := l.at("mix").ScaledDotProductAttention(q, k, v, SDPAOptions{Mask: o.Mask, Causal: o.Causal})
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

package ampc

import (
	"ampc/ir"
)

// MatmulOptions are the options of Matmul.
type MatmulOptions struct {
	TransposeX bool // x is stored [...,K,M]
	TransposeY bool // y is stored [...,N,K]
}

// Matmul multiplies matrices: x·y over the last two dimensions.
//
//   - Shapes: x[...,M,K], y[...,K,N] to [...,M,N]; leading dimensions broadcast.
//   - DTypes: floats; the result has the wider of the two.
//   - Errors: the sizes K differ, leading dimensions do not broadcast, or a rank is below 2.
//   - PyTorch: torch.matmul, torch.mm, torch.bmm; without the forms for vectors: use Unsqueeze.
func (o ops) Matmul(x, y Tensor, opts ...MatmulOptions) Tensor {
	c := option(o, "matmul", opts)
	return o.tensor(o.b.Matmul(x.v, y.v, c.TransposeX, c.TransposeY))
}

// LinearWithOptions are the options of LinearWith.
type LinearWithOptions struct {
	TransposeW bool // w is stored [N,K], as an embedding table tied to the head and PyTorch's weights are
}

// LinearWith is the layer Linear with weights that the caller gives: x·w + bias.
//
//   - Shapes: x[...,K], w[K,N], bias[N] (the zero Tensor: none) to [...,N].
//   - DTypes: floats; the result has the wider of x's and w's.
//   - Errors: the sizes do not fit.
//   - PyTorch: F.linear; its weight is [N,K], which is TransposeW here.
func (o ops) LinearWith(x, w, bias Tensor, opts ...LinearWithOptions) Tensor {
	return o.tensor(o.b.Linear(x.v, w.v, bias.v, option(o, "linear", opts).TransposeW))
}

// EmbeddingWith is the layer Embedding with a table that the caller gives: it
// looks rows of it up.
//
//   - Shapes: table[V,D], ids[...] to [...,D].
//   - DTypes: table float, ids i32 or i64; the result has the table's.
//   - Errors: table is not a matrix. An id outside [0,V) is an error of the step's result on the CPU.
//   - PyTorch: F.embedding; without padding_idx and max_norm.
func (o ops) EmbeddingWith(table, ids Tensor) Tensor {
	return o.tensor(o.b.Embedding(table.v, ids.v))
}

// SDPAOptions are the options of ScaledDotProductAttention.
type SDPAOptions struct {
	Mask   Tensor  // added to the scores, broadcast to [B,H,S,T]
	Causal bool    // query i sees keys up to i + T − S
	Scale  float64 // of the scores; 0: 1/√D
}

// ScaledDotProductAttention is softmax(q·kᵀ·scale + mask)·v for each head.
//
//   - Shapes: q[B,H,S,D], k[B,G,T,D], v[B,G,T,E] to [B,H,S,E]; G divides H (grouped queries).
//   - DTypes: floats.
//   - Errors: the sizes do not fit, or the mask does not broadcast.
//   - PyTorch: F.scaled_dot_product_attention; its boolean mask is Where(mask, 0, -inf) here, dropout_p is not there.
func (o ops) ScaledDotProductAttention(q, k, v Tensor, opts ...SDPAOptions) Tensor {
	c := option(o, "scaled_dot_product_attention", opts)
	return o.tensor(o.b.Attention(q.v, k.v, v.v, c.Mask.v, ir.A("causal", c.Causal, "scale", c.Scale)))
}

// RopeOptions are the options of Rope.
type RopeOptions struct {
	Positions   Tensor  // [S] or [B,S], i32 or i64; the zero Tensor: 0, 1, 2, ...
	Base        float64 // of the wavelengths; 0: 10000
	Dims        int     // only the first elements of the last dimension are rotated; 0: all
	Interleaved bool    // pairs are (2i, 2i+1), not (i, i+Dims/2)
}

// Rope is the rotary position embedding: it rotates pairs of the last dimension
// by angles that grow with the position, pair i by position·Base^(−2i/Dims).
//
//   - Shapes: x[...,S,D] to the same.
//   - DTypes: float; angles are computed in f32.
//   - Errors: D or Dims is odd, or the positions do not fit S.
//   - PyTorch: torchtune.modules.RotaryPositionalEmbeddings, with Interleaved.
func (o ops) Rope(x Tensor, opts ...RopeOptions) Tensor {
	c := option(o, "rope", opts)
	a := ir.A("dims", c.Dims, "interleaved", c.Interleaved)
	if c.Base != 0 {
		a = a.With("base", c.Base)
	}
	return o.tensor(o.b.Rope(x.v, c.Positions.v, a))
}

// RecurrentWithOptions are the options of LSTMWith, GRUWith and RNNWith.
type RecurrentWithOptions struct {
	Bias          Tensor // [D·G·H], added to x·w; G is 4 of an LSTM, 3 of a GRU, 1 of an RNN; the zero Tensor: none
	CandidateBias Tensor // of GRUWith [D,H]: added to the state's share of the candidate, before the reset gate
	H0            Tensor // [D,B,H], the state before the first step; the zero Tensor: zeros
	C0            Tensor // of LSTMWith [D,B,H], the cell before the first step; the zero Tensor: zeros
	Reverse       bool   // with one direction: from the last step to the first
	Relu          bool   // of RNNWith: relu in place of tanh
}

func (c RecurrentWithOptions) attrs() ir.Attrs { return ir.A("reverse", c.Reverse) }

// LSTMWith is the layer LSTM with weights that the caller gives. It returns h of
// every step and h and c after the last. Gates stand in the order i, f, g, o.
//
//   - Shapes: x[S,B,I], w[I,D·4H], r[D,H,4H] to [S,B,D·H], [D,B,H], [D,B,H]; D is 2 for both directions.
//   - DTypes: floats; c is f32.
//   - Errors: sizes that do not fit.
//   - PyTorch: torch._VF.lstm; w and r are its weight_ih and weight_hh transposed, Bias the sum of its two.
func (o ops) LSTMWith(x, w, r Tensor, opts ...RecurrentWithOptions) (y, h, c Tensor) {
	p := option(o, "lstm", opts)
	v0, v1, v2 := o.b.LSTM(x.v, w.v, r.v, p.Bias.v, p.H0.v, p.C0.v, p.attrs())
	return o.tensor(v0), o.tensor(v1), o.tensor(v2)
}

// GRUWith is the layer GRU with weights that the caller gives. It returns h of
// every step and h after the last. Gates stand in the order r, z, n.
//
//   - Shapes: x[S,B,I], w[I,D·3H], r[D,H,3H] to [S,B,D·H], [D,B,H]; D is 2 for both directions.
//   - DTypes: floats.
//   - Errors: sizes that do not fit.
//   - PyTorch: torch._VF.gru; w and r are its weight_ih and weight_hh transposed, the part of n of its bias_hh is CandidateBias.
func (o ops) GRUWith(x, w, r Tensor, opts ...RecurrentWithOptions) (y, h Tensor) {
	p := option(o, "gru", opts)
	v0, v1 := o.b.GRU(x.v, w.v, r.v, p.Bias.v, p.CandidateBias.v, p.H0.v, p.attrs())
	return o.tensor(v0), o.tensor(v1)
}

// RNNWith is the layer RNN with weights that the caller gives:
// h = tanh(x·w + Bias + h·r). It returns h of every step and h after the last.
//
//   - Shapes: x[S,B,I], w[I,D·H], r[D,H,H] to [S,B,D·H], [D,B,H]; D is 2 for both directions.
//   - DTypes: floats.
//   - Errors: sizes that do not fit.
//   - PyTorch: torch._VF.rnn_tanh, torch._VF.rnn_relu; w and r are its weight_ih and weight_hh transposed, Bias the sum of its two.
func (o ops) RNNWith(x, w, r Tensor, opts ...RecurrentWithOptions) (y, h Tensor) {
	p, activation := option(o, "rnn", opts), "tanh"
	if p.Relu {
		activation = "relu"
	}
	v0, v1 := o.b.RNN(x.v, w.v, r.v, p.Bias.v, p.H0.v, activation, p.attrs())
	return o.tensor(v0), o.tensor(v1)
}

package ampc

import "ampc/ir"

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

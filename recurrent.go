package ampc

import "ampc/ir"

// recurrent builds an LSTM, a GRU or a plain RNN over [N,T,in]: the weights of all gates side
// by side, one bias for the inputs' share (and GRU's own for the state's share
// of its candidate), directions apart.
func (m *Model) recurrent(kind, name string, x Tensor, hidden, gates int, opts []Option, more ...string) Tensor {
	l, o, ok := m.layer(kind, name, opts, append([]string{"Bidirectional", "InitialState", "NoBias"}, more...)...)
	in := l.size(kind, name, x, -1)
	if !ok || in < 0 {
		return Tensor{}
	}
	if x.Rank() != 3 || hidden <= 0 {
		m.Fail("%s %q: %s is %s, want [batch, time, width] and a hidden size above 0", kind, name, x.v, x.v.Type)
		return Tensor{}
	}
	directions := 1
	if o.bidirectional {
		directions = 2
	}
	start := [2]Tensor{}
	if len(o.state) > 2 || kind != "lstm" && len(o.state) > 1 {
		m.Fail("%s %q: %d initial states are too many", kind, name, len(o.state))
		return Tensor{}
	}
	copy(start[:], o.state)
	fan := fanIn(hidden)
	w := l.Param("w", fan, in, directions*gates*hidden)
	r := l.Param("r", fan, directions, hidden, gates*hidden)
	var b Tensor
	if o.bias {
		b = l.Param("b", fan, directions*gates*hidden)
	}
	steps := l.at("steps").Transpose(x, 1, 0, 2)
	var y Tensor
	switch kind {
	case "lstm":
		y, _, _ = l.LSTMWith(steps, w, r, b, start[0], start[1], ir.Attrs{})
	case "rnn":
		y, _ = l.RNNWith(steps, w, r, b, start[0], o.activation, ir.Attrs{})
	default:
		bn := l.Param("bn", fan, directions, hidden)
		y, _ = l.GRUWith(steps, w, r, b, bn, start[0], ir.Attrs{})
	}
	return m.rename(l.Transpose(y, 1, 0, 2), name)
}

package models

import (
	"fmt"

	"ampc"
)

// convlstm is Shi et al. 2015 (arXiv 1506.04214): an encoder reads the frames x,
// a forecaster of as many layers starts from its states and predicts the frames
// that follow, which it is not given. A pixel is on or off; its logit comes from
// the hidden images of all layers of the forecaster.
func convlstm(z *Zoo, o Options) {
	m := z.Model
	batch, seq, ahead, size, channels := o.Int("batch"), o.Int("seq"), o.Int("ahead"), o.Int("size"), o.Int("channels")
	x := m.Input("x", ampc.F32, batch, seq, channels, size, size)
	next := m.Input("future", ampc.F32, batch, ahead, channels, size, size)
	frames := make([]ampc.Tensor, seq)
	for t, frame := range m.Split(x, 1, repeat(1, seq)...) {
		frames[t] = m.Named(fmt.Sprintf("x%d", t+1)).Reshape(frame, batch, channels, size, size)
	}
	var states []convState
	for l := range o.Int("layers") {
		var s convState
		frames, s = newConvCell(m.Scope(fmt.Sprintf("enc%d", l+1)), o, frames[0].Dim(1)).run(frames, convState{}, seq)
		states = append(states, s)
	}
	var below []ampc.Tensor
	hidden := make([][]ampc.Tensor, ahead) // of each step, by layer
	for l := range o.Int("layers") {
		in := 0
		if below != nil {
			in = below[0].Dim(1)
		}
		below, _ = newConvCell(m.Scope(fmt.Sprintf("dec%d", l+1)), o, in).run(below, states[l], ahead)
		for t := range ahead {
			hidden[t] = append(hidden[t], below[t])
		}
	}
	all := make([]ampc.Tensor, ahead)
	for t := range ahead {
		all[t] = m.Named(fmt.Sprintf("hidden%d", t+1)).Concat(1, hidden[t]...)
	}
	h := m.Reshape(m.Named("hidden").Stack(1, all...), batch*ahead, all[0].Dim(1), size, size)
	z.Output = m.Named("logits").Reshape(m.Conv2d("out", h, channels, 1), batch, ahead, channels, size, size)
	z.train(m.Named("loss").BCEWithLogits(z.Output, next), ampc.TrainConfig{Optimizer: ampc.AdamW(0), LR: ampc.Constant(2e-3), Clip: ampc.ClipNorm(1)})
}

// repeat is a list of n times x.
func repeat(x, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = x
	}
	return out
}

// convState is what a layer hands from step to step: images of the hidden state
// and of the cell, absent before the first step.
type convState struct{ h, c ampc.Tensor }

// convCell is one layer: the weights of all gates by input and hidden image, and
// those by which three gates see the cell, pixel by pixel.
type convCell struct {
	m                          *ampc.Model
	batch, size, width, kernel int
	w, b                       ampc.Tensor
	seesI, seesF, seesO        ampc.Tensor
}

// newConvCell declares the weights of a layer in the scope of m, for input images
// of so many channels; 0: there is no input.
func newConvCell(m *ampc.Model, o Options, channels int) *convCell {
	k, width, size := o.Int("kernel"), o.Int("width"), o.Int("size")
	fan := (channels + width) * k * k
	c := &convCell{m: m, batch: o.Int("batch"), size: size, width: width, kernel: k}
	c.w = m.Param("w", uniform(fan), 4*width, channels+width, k, k)
	c.b = m.Param("b", uniform(fan), 4*width)
	c.seesI, c.seesF, c.seesO = m.Param("ci", ampc.Zeros(), width, size, size), m.Param("cf", ampc.Zeros(), width, size, size), m.Param("co", ampc.Zeros(), width, size, size)
	return c
}

// run takes that many steps over the images x (none: it sees its hidden image
// alone) and returns the hidden image of each and the last state.
func (c *convCell) run(x []ampc.Tensor, s convState, steps int) ([]ampc.Tensor, convState) {
	if s.h.Absent() {
		zeros := func(name string) ampc.Tensor {
			return c.m.Named(name).Full(ampc.F32, 0, c.batch, c.width, c.size, c.size)
		}
		s = convState{zeros("hidden0"), zeros("cell0")}
	}
	out := make([]ampc.Tensor, steps)
	for t := range steps {
		in := s.h
		m := c.m.Scope(fmt.Sprintf("t%d", t+1))
		if x != nil {
			in = m.Named("in").Concat(1, x[t], s.h)
		}
		s = c.step(m, in, s.c)
		out[t] = s.h
	}
	return out, s
}

// step is equation 3 of the paper: the gates i, f and o, and the new content g.
// The cell is a sum over all steps, which starts from zeros in f32: promoting ops
// take the wider operand, so that it stays f32 under mixed policies.
func (c *convCell) step(m *ampc.Model, in, cell ampc.Tensor) convState {
	before, behind := (c.kernel-1)/2, c.kernel/2
	pads := []int{before, before, behind, behind}
	g := m.Split(m.Named("gates").Conv(in, c.w, c.b, ampc.ConvOptions{Pads: pads}), 1, repeat(c.width, 4)...)
	i := m.Named("i").Sigmoid(m.Add(g[0], m.Mul(c.seesI, cell)))
	f := m.Named("f").Sigmoid(m.Add(g[1], m.Mul(c.seesF, cell)))
	next := m.Named("cell").Add(m.Named("keep").Mul(f, cell), m.Named("new").Mul(i, m.Named("g").Tanh(g[2])))
	out := m.Named("o").Sigmoid(m.Add(g[3], m.Mul(c.seesO, next)))
	return convState{m.Named("hidden").Mul(out, m.Tanh(next)), next}
}

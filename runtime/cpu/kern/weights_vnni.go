package kern

// If the padded image of a convolution consists of words, its weights are packed in words as well,
// once for all blocks that pack them. Words of channels 2i and 2i+1 are stored as [output channel,
// i, tap]. For the input gradient, which sums over output channels, words of output channels 2o and
// 2o+1 are stored as [o, input channel / 16, tap, 16 input channels], where 16 stands for the lanes
// that one call transposes. A strided input gradient, whose phases use some of the taps, has its
// weights in that order in f32 as well, with one output channel in place of two.

// vnniRow is the size of the words of two output channels in the input gradient, or of the weights of one.
func (c *Conv) vnniRow(p *Path) int { return ceilDiv(c.C/c.Groups, p.tw) * volume(c.Kernel) * p.tw }

// vnniLane is the position of an input channel among them.
func (c *Conv) vnniLane(p *Path, i int) int { return i/p.tw*volume(c.Kernel)*p.tw + i%p.tw }

// packWeights packs the weights into words. If swapped is set, they are those of the input gradient, which may stay
// single elements.
func (m *Machine) packWeights(swapped, vnni bool) {
	t, c := &m.conv, m.conv.c
	in, taps := c.C/c.Groups, volume(c.Kernel)
	t.m, t.mode, t.swapped, t.weightsVNNI, t.interleave = m, weightMode, swapped, vnni, t.interleave[:0]
	tasks, size := c.K, c.K*in/2*taps
	if swapped {
		if vnni {
			tasks /= 2
		}
		size = tasks * c.vnniRow(m.Path)
		for at := 0; at < in*taps; at += m.nr {
			t.interleave = append(t.interleave, 2*at, 2*(in*taps+at))
		}
	} else {
		for i := range in {
			t.interleave = append(t.interleave, 2*i*taps)
		}
	}
	t.weights.get(size)
	m.run(8*size, tasks, t)
}

// interleaveWeights makes the words of output channel k, or of the two output channels from 2k on, or turns the weights of k.
func (t *convTask) interleaveWeights(w *worker, k int) {
	p, c := t.m.Path, t.c
	in, taps := c.C/c.Groups, volume(c.Kernel)
	if !t.swapped {
		p.interleaveRows(in/2, taps, t.weights.s[k*in/2*taps:], taps, c.W.From(k*in*taps), t.interleave)
		return
	}
	row := w.row[0].get(in * taps)
	if t.weightsVNNI {
		t.interleaveWeightRows(row, c.W.From(2*k*in*taps))
	} else {
		t.m.Load(row, c.W.From(k*in*taps))
	}
	w.offs = getInts(&w.offs, in)
	for i := range in {
		w.offs[i] = 4 * i * taps
	}
	to := t.weights.s[k*c.vnniRow(p):]
	for i := 0; i < in; i += p.tw {
		p.trans[F32](taps, min(p.tw, in-i), &to[c.vnniLane(p, i)], p.tw, bytes(&row[0]), &w.offs[i])
	}
}

// interleaveWeightRows joins the weights of two adjacent output channels.
func (t *convTask) interleaveWeightRows(row []float32, from Buf) {
	p := t.m.Path
	whole := len(row) / p.nr
	if whole > 0 {
		p.interleaveRows(whole, p.nr, row, p.nr, from, t.interleave)
	}
	if at := whole * p.nr; at < len(row) {
		p.interleaveRows(1, len(row)-at, row[at:], 0, from, t.interleave[2*whole:])
	}
}

// vnniWeights is the table of weights that are multiplied with words; makeWords makes them.
func (m *Machine) vnniWeights(swapped bool) (s tableSource) {
	t, c := &m.conv, m.conv.c
	t.swapped, t.weightsVNNI = swapped, true
	in, per, taps := c.C/c.Groups, c.K/c.Groups, volume(c.Kernel)
	lane, depth := &t.table[2], &t.table[3]
	if swapped {
		depth.strided(per/2, 4*c.vnniRow(m.Path), taps, 4*m.tw)
		s = m.swappedWeights()
	} else {
		lane.strided(1, 0, per, 4*in/2*taps)
		depth.strided(1, 0, in/2*taps, 4)
		s = m.weightSource(per*in/2*taps, false)
	}
	s.fixed, s.due = c.fixed(swapped, true), true
	return s
}

// makeWords makes the words of an operand whose elements are due, and returns it; nil if none are. If its panels are
// packed ahead, only packing them takes the words.
func (t *gemmTask) makeWords(side int) *tableSource {
	s, ok := [2]source{t.a, t.b}[side].(*tableSource)
	if !ok || !s.due {
		return nil
	}
	t.m.packWeights(t.m.conv.swapped, true)
	s.buf, s.due = Floats(t.m.conv.weights.s), false
	return s
}

// swappedWeights is an operand of the words of an input gradient, or of single weights, whose lanes
// are input channels and whose depths are output channels.
func (m *Machine) swappedWeights() tableSource {
	c, lane, per := m.conv.c, &m.conv.table[2], m.conv.c.K/m.conv.c.Groups
	lane.reset()
	for i := range c.C / c.Groups {
		lane.s = append(lane.s, 4*c.vnniLane(m.Path, i))
	}
	if m.conv.weightsVNNI {
		per /= 2
	}
	return m.weightSource(per*c.vnniRow(m.Path), true)
}

// weightSource is an operand of the packed weights; group is the distance between groups.
func (m *Machine) weightSource(group int, byLane bool) tableSource {
	t := &m.conv
	return tableSource{p: m.Path, buf: Floats(t.weights.s), item: [2]int{0, group}, inner: t.c.Groups, lane: t.table[2].s, depth: t.table[3].s,
		byLane: byLane, tf32: t.c.TF32, vnni: t.weightsVNNI}
}

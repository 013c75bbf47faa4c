package kern

// The weights of a convolution whose canvas holds words become words too, once for all the blocks that pack them: of
// channels 2i and 2i+1 as [output channel, i, tap], and for the input gradient, which sums over output channels 2o and
// 2o+1, as [o, input channel / 16, tap, 16 input channels], where 16 stands for the lanes that a call transposes. A
// strided one, whose phases meet some of the taps, has them in that order in f32 too, an output channel in the place of
// two.

// wordRow is the size of the words of two output channels in the input gradient, or of the weights of one.
func (c *Conv) wordRow(p *Path) int { return ceilDiv(c.C/c.Groups, p.tw) * volume(c.Kernel) * p.tw }

// wordLane is the place of an input channel among them.
func (c *Conv) wordLane(p *Path, i int) int { return i/p.tw*volume(c.Kernel)*p.tw + i%p.tw }

// layWeights makes words of the weights, those of the input gradient if swapped; swapped ones may stay single.
func (m *Machine) layWeights(swapped, words bool) {
	t, c := &m.conv, m.conv.c
	in, taps := c.C/c.Groups, volume(c.Kernel)
	t.m, t.mode, t.swapped, t.joined, t.pairs = m, weightMode, swapped, words, t.pairs[:0]
	tasks, size := c.K, c.K*in/2*taps
	if swapped {
		if words {
			tasks /= 2
		}
		size = tasks * c.wordRow(m.Path)
		for at := 0; at < in*taps; at += m.nr {
			t.pairs = append(t.pairs, 2*at, 2*(in*taps+at))
		}
	} else {
		for i := range in {
			t.pairs = append(t.pairs, 2*i*taps)
		}
	}
	t.weights.get(size)
	m.run(8*size, tasks, t)
}

// joinWeights makes the words of output channel k, or of the two output channels from 2k on, or turns the weights of k.
func (t *convTask) joinWeights(w *worker, k int) {
	p, c := t.m.Path, t.c
	in, taps := c.C/c.Groups, volume(c.Kernel)
	if !t.swapped {
		p.joinRows(in/2, taps, t.weights.s[k*in/2*taps:], taps, c.W.From(k*in*taps), t.pairs)
		return
	}
	row := w.row[0].get(in * taps)
	if t.joined {
		t.joinWeightRows(row, c.W.From(2*k*in*taps))
	} else {
		t.m.Load(row, c.W.From(k*in*taps))
	}
	w.offs = getInts(&w.offs, in)
	for i := range in {
		w.offs[i] = 4 * i * taps
	}
	to := t.weights.s[k*c.wordRow(p):]
	for i := 0; i < in; i += p.tw {
		p.trans[F32](taps, min(p.tw, in-i), &to[c.wordLane(p, i)], p.tw, bytes(&row[0]), &w.offs[i])
	}
}

// joinWeightRows joins the weights of two output channels, which follow each other.
func (t *convTask) joinWeightRows(row []float32, from Buf) {
	p := t.m.Path
	whole := len(row) / p.nr
	if whole > 0 {
		p.joinRows(whole, p.nr, row, p.nr, from, t.pairs)
	}
	if at := whole * p.nr; at < len(row) {
		p.joinRows(1, len(row)-at, row[at:], 0, from, t.pairs[2*whole:])
	}
}

// wordWeights is the table of weights that meet words.
func (m *Machine) wordWeights(swapped bool) tableSource {
	t, c := &m.conv, m.conv.c
	m.layWeights(swapped, true)
	in, per, taps := c.C/c.Groups, c.K/c.Groups, volume(c.Kernel)
	lane, depth := &t.table[2], &t.table[3]
	if !swapped {
		lane.strided(1, 0, per, 4*in/2*taps)
		depth.strided(1, 0, in/2*taps, 4)
		return m.wordSource(per*in/2*taps, false)
	}
	depth.strided(per/2, 4*c.wordRow(m.Path), taps, 4*m.tw)
	return m.swappedWords()
}

// swappedWords is an operand of the words of an input gradient, or of single weights; depths are there.
func (m *Machine) swappedWords() tableSource {
	c, lane, per := m.conv.c, &m.conv.table[2], m.conv.c.K/m.conv.c.Groups
	lane.reset()
	for i := range c.C / c.Groups {
		lane.s = append(lane.s, 4*c.wordLane(m.Path, i))
	}
	if m.conv.joined {
		per /= 2
	}
	return m.wordSource(per*c.wordRow(m.Path), true)
}

// wordSource is an operand of what is in weights; group is the distance between groups.
func (m *Machine) wordSource(group int, byLane bool) tableSource {
	t := &m.conv
	return tableSource{p: m.Path, buf: Floats(t.weights.s), item: [2]int{0, group}, inner: t.c.Groups, lane: t.table[2].s, depth: t.table[3].s,
		byLane: byLane, tf32: t.c.TF32, words: t.joined}
}

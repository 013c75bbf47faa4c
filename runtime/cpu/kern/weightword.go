package kern

// The weights of a convolution whose canvas holds words become words too, once for all the blocks that pack them: of
// channels 2i and 2i+1 as [output channel, i, tap], and for the input gradient, which sums over output channels 2o and
// 2o+1, as [input channel / 16, o, tap, 16 input channels], where 16 stands for the lanes that a call transposes.

// wordBlock is the size of such a block of input channels of a group, whole or not.
func (c *Conv) wordBlock(p *Path) int { return c.K / c.Groups / 2 * volume(c.Kernel) * p.tw }

// wordGroup is the size of the words of a group.
func (c *Conv) wordGroup(p *Path) int { return ceilDiv(c.C/c.Groups, p.tw) * c.wordBlock(p) }

// wordLane is the place of an input channel among the words of an input gradient.
func (c *Conv) wordLane(p *Path, i int) int { return i/p.tw*c.wordBlock(p) + i%p.tw }

// layWeights makes words of the weights, those of the input gradient if swapped.
func (m *Machine) layWeights(swapped bool) {
	t, c := &m.conv, m.conv.c
	in, taps := c.C/c.Groups, volume(c.Kernel)
	t.m, t.mode, t.swapped, t.pairs = m, weightMode, swapped, t.pairs[:0]
	tasks, size := c.K, c.K*in/2*taps
	if swapped {
		tasks, size = c.K/2, c.Groups*c.wordGroup(m.Path)
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

// joinWeights makes the words of output channel k, or of the two output channels from 2k on.
func (t *convTask) joinWeights(w *worker, k int) {
	p, c := t.m.Path, t.c
	in, taps := c.C/c.Groups, volume(c.Kernel)
	if !t.swapped {
		p.joinRows(in/2, taps, t.weights.s[k*in/2*taps:], taps, c.W.From(k*in*taps), t.pairs)
		return
	}
	row, from := w.row[0].get(in*taps), c.W.From(2*k*in*taps)
	whole := in * taps / p.nr
	if whole > 0 {
		p.joinRows(whole, p.nr, row, p.nr, from, t.pairs)
	}
	if at := whole * p.nr; at < in*taps {
		p.joinRows(1, in*taps-at, row[at:], 0, from, t.pairs[2*whole:])
	}
	w.offs = getInts(&w.offs, in)
	for i := range in {
		w.offs[i] = 4 * i * taps
	}
	half := c.K / c.Groups / 2
	to := t.weights.s[k/half*c.wordGroup(p)+k%half*taps*p.tw:]
	for i := 0; i < in; i += p.tw {
		p.trans[F32](taps, min(p.tw, in-i), &to[c.wordLane(p, i)], p.tw, bytes(&row[0]), &w.offs[i])
	}
}

// wordWeights is the table of weights that meet words.
func (m *Machine) wordWeights(swapped bool) tableSource {
	t, c := &m.conv, m.conv.c
	m.layWeights(swapped)
	in, per, taps := c.C/c.Groups, c.K/c.Groups, volume(c.Kernel)
	lane, depth := &t.table[2], &t.table[3]
	if !swapped {
		lane.strided(1, 0, per, 4*in/2*taps)
		depth.strided(1, 0, in/2*taps, 4)
		return m.wordSource(per*in/2*taps, false)
	}
	depth.strided(1, 0, per/2*taps, 4*m.tw)
	return m.swappedWords()
}

// swappedWords is an operand of the words of an input gradient; depths are there.
func (m *Machine) swappedWords() tableSource {
	c, lane := m.conv.c, &m.conv.table[2]
	lane.reset()
	for i := range c.C / c.Groups {
		lane.s = append(lane.s, 4*c.wordLane(m.Path, i))
	}
	return m.wordSource(c.wordGroup(m.Path), true)
}

// wordSource is an operand of the words in weights; group is the distance between those of groups.
func (m *Machine) wordSource(group int, byLane bool) tableSource {
	t := &m.conv
	return tableSource{p: m.Path, buf: Floats(t.weights.s), item: [2]int{0, group}, inner: t.c.Groups, lane: t.table[2].s, depth: t.table[3].s, byLane: byLane, words: true}
}

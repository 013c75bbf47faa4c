package kern

import (
	"math"
	"slices"
)

// A convolution of two bf16 operands pads its image in the VNNI layout: a 32-bit word holds channels 2c and 2c+1 of a
// pixel. Tiles read rows of words in place, or packing moves whole words. Interleaving while packing would interleave each
// element, and test whether it is subnormal, once for every tap.

// padsToVNNI reports whether the padded image of an image of the given type and channels has the VNNI layout.
func (m *Machine) padsToVNNI(t Type, channels int) bool {
	c := m.conv.c
	return m.usesVNNI(t, c.W.Type) && !c.ChannelsLast && !c.TF32 && !c.depthwise() && channels/c.Groups%2 == 0 && volume(c.Kernel) > 1
}

// padVNNI is pad for the VNNI layout. The type of the padded image is F32, which is as wide as a word.
func (m *Machine) padVNNI(g grid, channels int, in, lo, size [3]int, phases int) grid {
	c, t := m.conv.c, &m.conv
	row := roundUp(size[2], phases)
	d := grid{phases: phases, phase: row / phases, channel: size[0] * size[1] * row, vnni: true}
	d.axis = [3]int{size[1] * row, row, 1}
	d.item = [2]int{channels / 2 * d.channel, channels / c.Groups / 2 * d.channel}
	d.buf = t.padded.bytes(F32, c.N*d.item[0])
	t.subnormal = getBools(t.subnormal, c.N*channels/2)
	t.interleave = t.interleave[:0]
	for y := range in[1] {
		t.interleave = append(t.interleave, 2*y*in[2], 2*(g.channel+y*in[2]))
	}
	t.m, t.mode = m, vnniMode
	t.src, t.dst, t.size, t.lo, t.channels = g, d, in, lo, channels
	t.runParts(channels/2, 2*len(d.buf.Data), 0)
	d.clean = !slices.Contains(t.subnormal, true)
	return d
}

// getBools is s with n entries that are false.
func getBools(s []bool, n int) []bool {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// interleaveImage writes planes of an image to its padded image, two at a time, and searches for subnormal elements.
func (t *convTask) interleaveImage(w *worker, task int) {
	p, src := t.m.Path, t.src.buf
	n, c0, c1 := t.part(task)
	planes := src.From(n*t.src.item[0] + 2*c0*t.src.channel)
	t.subnormal[task] = p.anySubnormal(floatsAt(planes.at(0), (c1-c0)*t.src.channel)) // in ascending order, which also loads it into the cache
	image := floatsAt(t.dst.buf.at(n*t.dst.item[0]), t.dst.item[0])
	clear(image[c0*t.dst.channel : c1*t.dst.channel])
	rows, width := t.size[1], t.size[2]
	dense := w.row[0].get(rows * width)
	for ch := c0; ch < c1; ch++ {
		for z := range t.size[0] {
			from := src.From(n*t.src.item[0] + 2*ch*t.src.channel + z*t.src.axis[0])
			to := image[ch*t.dst.channel+t.dst.at(t.lo[0]+z, t.lo[1], 0):]
			if t.dst.phases == 1 {
				p.interleaveRows(rows, width, to[t.lo[2]:], t.dst.axis[1], from, t.interleave)
				continue
			}
			p.interleaveRows(rows, width, dense, width, from, t.interleave)
			if t.dst.phases == 2 {
				t.unzipPlane(t.size[1], Floats(to), t.dst.axis[1], Floats(dense), width)
				continue
			}
			for y := range rows {
				t.splitVNNIRow(to[y*t.dst.axis[1]:], dense[y*width:][:width])
			}
		}
	}
}

// interleaveRows interleaves rows of width halves to rows of words, ld apart. offs lists the rows in pairs, in bytes from src.
func (p *Path) interleaveRows(rows, width int, dst []float32, ld int, src Buf, offs []int) {
	for l := 0; l < width; l += p.nr {
		p.vnni.pick(2*rows, min(p.nr, width-l), &dst[l], ld, src.at(l), &offs[0])
	}
}

// splitVNNIRow writes a row of words to a padded image, phase by phase.
func (t *convTask) splitVNNIRow(dst, row []float32) {
	ph := t.dst.phases
	for x := range min(ph, len(row)) {
		o := t.dst.at(0, 0, t.lo[2]+x)
		gather(dst[o:o+ceilDiv(len(row)-x, ph)], row[x:], ph)
	}
}

// anySubnormal reports whether a half of any word is subnormal. It reads nothing after the last
// word.
func (p *Path) anySubnormal(words []float32) bool {
	whole, n := len(words)/p.nr, len(words)
	switch {
	case whole == 0:
		return slices.ContainsFunc(words, func(x float32) bool {
			b := math.Float32bits(x)
			return subnormalHalf(b) || subnormalHalf(b>>16)
		})
	case p.vnni.subnormal(whole, p.nr, &words[0], p.nr) != 0:
		return true
	}
	return n%p.nr > 0 && p.vnni.subnormal(1, p.nr, &words[n-p.nr], p.nr) != 0
}

// subnormalHalf reports whether the low half of b is a subnormal bf16.
func subnormalHalf(b uint32) bool { return b&0x7f80 == 0 && b&0x7f != 0 }

package kern

import "unsafe"

// lay returns the images of g with zeros around and between their pixels: pixel i of an axis comes to lo + i*step
// of size. Channels-first rows are split into phases, so that every phases-th pixel of a row is contiguous.
// Where the image already looks like that it is used as it is.
func (m *Machine) lay(g grid, channels int, in, lo, step, size [3]int, phases int) grid {
	c, t := m.conv.c, &m.conv
	if c.ChannelsLast {
		phases = 1
	}
	if in == size && phases == 1 {
		return g
	}
	d := grid{channel: 1, phases: phases}
	px := channels
	row := roundUp(size[2], phases)
	if !c.ChannelsLast {
		px = 1
		d.channel = size[0] * size[1] * row
	}
	d.phase = row / phases * px
	d.axis = [3]int{size[1] * row * px, row * px, px}
	d.item = [2]int{channels * size[0] * size[1] * row, channels / c.Groups * d.channel}
	if c.N == 0 {
		return d
	}
	es := g.buf.Type.Size()
	mem := t.canvas.get(ceilDiv(c.N*d.item[0]*es, 4))
	d.buf = Buf{g.buf.Type, unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), c.N*d.item[0]*es)}
	t.mode = canvasMode
	t.src, t.dst, t.size, t.lo, t.step, t.channels = g, d, in, lo, step, channels
	m.run(2*len(d.buf.Data), c.N, t)
	return d
}

// Run is the task of image n.
func (t *convTask) Run(worker, n int) {
	switch t.mode {
	case canvasMode:
		t.copyImage(n)
	case scatterMode:
		t.scatterImage(worker, n)
	case depthMode:
		t.depthImage(&t.m.worker[worker], n)
	case depthWeightMode:
		t.depthWeightImage(&t.m.worker[worker], n)
	}
}

// copyImage copies an image onto its canvas.
func (t *convTask) copyImage(n int) {
	es := t.dst.buf.Type.Size()
	clear(t.dst.buf.Data[n*t.dst.item[0]*es : (n+1)*t.dst.item[0]*es])
	planes, run := t.channels, 1
	if t.c.ChannelsLast {
		planes, run = 1, t.channels
	}
	for p := range planes {
		for z := range t.size[0] {
			for y := range t.size[1] {
				s := n*t.src.item[0] + p*t.src.channel + t.src.at(z, y, 0)
				d := n*t.dst.item[0] + p*t.dst.channel + t.dst.at(t.lo[0]+z*t.step[0], t.lo[1]+y*t.step[1], 0)
				t.copyRow(s, d, run)
			}
		}
	}
}

// copyRow copies one row of pixels of run elements each.
func (t *convTask) copyRow(s, d, run int) {
	w, es := t.size[2], t.dst.buf.Type.Size()
	if t.step[2] == 1 && t.dst.phases == 1 {
		d += t.dst.at(0, 0, t.lo[2])
		copy(t.dst.buf.Data[d*es:(d+w*run)*es], t.src.buf.Data[s*es:])
		return
	}
	for x := range w {
		o := d + t.dst.at(0, 0, t.lo[2]+x*t.step[2])
		switch {
		case run > 1:
			copy(t.dst.buf.Data[o*es:(o+run)*es], t.src.buf.Data[(s+x*run)*es:])
		case es == 4:
			*(*uint32)(ptr(t.dst.buf.at(o))) = *(*uint32)(ptr(t.src.buf.at(s + x)))
		default:
			*(*uint16)(ptr(t.dst.buf.at(o))) = *(*uint16)(ptr(t.src.buf.at(s + x)))
		}
	}
}

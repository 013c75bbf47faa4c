package kern

// ConvWeightGrad computes the gradient of w, into W, from x and the gradient of y, in Y.
func (m *Machine) ConvWeightGrad(c *Conv) {
	if m.winsWeights(c) {
		m.winoWeightGrad(c)
		return
	}
	t, gt := &m.conv, &m.gemm
	c = m.thin(c)
	t.c = c
	per, in, taps, px := c.K/c.Groups, c.C/c.Groups, volume(c.Kernel), volume(c.Out)
	if m.turns(c) {
		m.turnedWeightGrad(c)
		return
	}
	g := m.lay(c.dense(c.X, c.C, c.In), c.C, c.In, c.Pad, [3]int{1, 1, 1}, c.extent(), c.Stride[2], c.X.Type)
	t.patch, t.pixel = &t.table[0], &t.table[1]
	t.patch.taps(&g, in, c.Kernel, [3]int{}, c.Dilation, c.Weights != OIX)
	if c.depthwise() && c.Epilogue.plain() {
		m.depthWeights(g, c.dense(c.Y, c.K, c.Out))
		return
	}
	t.pixel.pixels(&g, c.N, c.Out, c.Stride)
	patches := m.spread(&g, c.ChannelsLast)

	grads := m.gradSource(c)
	so, _, _ := c.weightStrides()
	dst := Mat{Buf: c.W, LD: in * taps, Stride: [2]int{0, per * so}}
	gt.rows, gt.cols = per, in*taps
	t.sources = [2]tableSource{grads, patches}
	if c.Weights == XIO {
		dst.LD = c.K
		gt.rows, gt.cols = gt.cols, gt.rows
		t.sources[0], t.sources[1] = t.sources[1], t.sources[0]
	}
	gt.depth, gt.items = c.N*px, c.Groups
	gt.a, gt.b, gt.far = &t.sources[0], &t.sources[1], nil
	gt.out = output{m.Path, dst, c.Groups, c.Epilogue, 0, colRun{}}
	m.multiply(gt)
}

// gradSource is the gradient of y as an operand: lanes are its channels, depths the pixels of all images.
func (m *Machine) gradSource(c *Conv) tableSource {
	dy, es := c.dense(c.Y, c.K, c.Out), c.Y.Type.Size()
	lane, depth := &m.conv.table[2], &m.conv.table[3]
	lane.strided(1, 0, c.K/c.Groups, dy.channel*es)
	depth.strided(c.N, dy.item[0]*es, volume(c.Out), dy.axis[2]*es)
	return tableSource{p: m.Path, buf: c.Y, item: [2]int{0, dy.item[1]}, inner: c.Groups, lane: lane.s, depth: depth.s, byLane: c.ChannelsLast, tf32: c.TF32}
}

// spread is the patches of g as the operand of a weights' gradient: lanes are positions in a patch, depths pixels.
func (m *Machine) spread(g *grid, byLane bool) tableSource {
	t, c := &m.conv, m.conv.c
	return tableSource{p: m.Path, buf: g.buf, item: [2]int{0, g.item[1]}, inner: c.Groups, lane: t.patch.s, depth: t.pixel.s, byLane: byLane, tf32: c.TF32}
}

// turns says whether the weights' gradient is computed from images turned to channels last. Then the channels of a
// pixel at a tap lie together, and tiles read them in place, or packing joins pairs of pixels; channels first have every
// element transposed once a tap. With many rows of results that is a small part of the work, and putting the result in
// its order is not.
func (m *Machine) turns(c *Conv) bool {
	in := c.C / c.Groups
	return !c.ChannelsLast && c.Weights == OIX && !c.TF32 && c.Epilogue.plain() && volume(c.Kernel) > 1 &&
		c.K/c.Groups <= 128 && in >= m.nr && in%m.vw == 0 && (m.far != nil || m.pairing(c.X.Type, c.Y.Type))
}

// turnedWeightGrad computes the gradient in the order [output channel, tap, input channel] and puts it in that of the
// weights.
func (m *Machine) turnedWeightGrad(c *Conv) {
	t, gt := &m.conv, &m.gemm
	in, taps := c.C/c.Groups, volume(c.Kernel)
	g := m.turn(c)
	t.patch, t.pixel = &t.table[0], &t.table[1]
	t.patch.taps(&g, in, c.Kernel, [3]int{}, c.Dilation, true)
	t.pixel.pixels(&g, c.N, c.Out, c.Stride)
	t.sources = [2]tableSource{m.gradSource(c), m.spread(&g, true)}
	turned := t.turned.get(c.K * in * taps)
	gt.rows, gt.cols, gt.depth, gt.items = c.K/c.Groups, in*taps, c.N*volume(c.Out), c.Groups
	gt.a, gt.b, gt.far, gt.ahead = &t.sources[0], &t.sources[1], t.sources[1].far(), false
	gt.out = output{m.Path, Mat{Buf: Floats(turned), LD: in * taps, Stride: [2]int{0, gt.rows * in * taps}}, c.Groups, Epilogue{}, 0, colRun{}}
	m.multiply(gt)
	for k := range c.K {
		from, to := turned[k*in*taps:][:in*taps], m.worker[0].row[0].get(in*taps)
		for tap := range taps {
			scatter(to[tap:], from[tap*in:][:in], taps)
		}
		m.Store(c.W.From(k*in*taps), to)
	}
}

// turn copies the images of x to a canvas with channels last and zeros around: in bf16 where pairs are multiplied,
// else in f32.
func (m *Machine) turn(c *Conv) grid {
	t, size := &m.conv, c.extent()
	d := grid{channel: 1, phases: 1, axis: [3]int{size[1] * size[2] * c.C, size[2] * c.C, c.C}}
	d.item = [2]int{volume(size) * c.C, c.C / c.Groups}
	typ := F32
	if m.pairing(c.X.Type, c.Y.Type) {
		typ = BF16
	}
	d.buf = t.canvas.bytes(typ, c.N*d.item[0])
	t.m, t.c, t.mode = m, c, turnMode
	t.src, t.dst, t.size, t.lo, t.channels = c.dense(c.X, c.C, c.In), d, c.In, c.Pad, c.C
	m.run(2*len(d.buf.Data), c.N, t)
	return d
}

// turnImage turns image n, row after row.
func (t *convTask) turnImage(w *worker, n int) {
	at := n * t.dst.item[0]
	end, es := at+t.dst.item[0], t.dst.buf.Type.Size()
	for z := range t.size[0] {
		for y := range t.size[1] {
			to := n*t.dst.item[0] + t.dst.at(t.lo[0]+z, t.lo[1]+y, t.lo[2])
			clear(t.dst.buf.Data[at*es : to*es])
			t.turnRow(w, n*t.src.item[0]+t.src.at(z, y, 0), to)
			at = to + t.size[2]*t.channels
		}
	}
	clear(t.dst.buf.Data[at*es : end*es])
}

// turnRow turns the row of pixels at from of each channel.
func (t *convTask) turnRow(w *worker, from, to int) {
	p, src, n := t.m.Path, t.src.buf, t.size[2]*t.channels
	row := w.row[0].get(n)
	if t.dst.buf.Type == F32 {
		row = floatsAt(t.dst.buf.at(to), n)
	}
	w.offs = getInts(&w.offs, p.tw)
	for r := range p.tw {
		w.offs[r] = r * t.src.channel * src.Type.Size()
	}
	for ch := 0; ch < t.channels; ch += p.tw {
		p.trans[src.Type](t.size[2], p.tw, &row[ch], t.channels, src.at(from+ch*t.src.channel), &w.offs[0])
	}
	if t.dst.buf.Type != F32 {
		p.Store(t.dst.buf.From(to), row)
	}
}

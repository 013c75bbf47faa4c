package kern

import "slices"

// ConvWeightGrad computes the gradient of w, into W, from x and the gradient of y, in Y.
func (m *Machine) ConvWeightGrad(c *Conv) {
	if m.usesSixForWeights(c) {
		m.sixWeightGrad(c)
		return
	}
	if m.usesWinogradForWeights(c) {
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
	g := m.pad(c.dense(c.X, c.C, c.In), c.C, c.In, c.Pad, [3]int{1, 1, 1}, c.extent(), c.Stride[2], c.X.Type, 0)
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
	gt.a, gt.b, gt.indirect, gt.endings, gt.reading = &t.sources[0], &t.sources[1], nil, false, [2]int{}
	gt.out = output{p: m.Path, c: dst, inner: c.Groups, epi: c.Epilogue}
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

// spread makes the patches of g an operand of a weights' gradient: lanes are positions in a patch, depths are pixels.
func (m *Machine) spread(g *grid, byLane bool) tableSource {
	t, c := &m.conv, m.conv.c
	return tableSource{p: m.Path, buf: g.buf, item: [2]int{0, g.item[1]}, inner: c.Groups, lane: t.patch.s, depth: t.pixel.s, byLane: byLane, tf32: c.TF32,
		vnni: g.vnni, clean: g.clean}
}

// turns reports whether the weights' gradient is computed from images transposed to channels last. Then the channels of
// a pixel are contiguous at each tap: tiles read them in place if they fill vectors, else they are packed by rows. With
// channels first every element would be transposed once per tap. Reordering the result is a small part of the work,
// unless the result is as large as the images; in the VNNI layout it pays up to four times that.
func (m *Machine) turns(c *Conv) bool {
	in, vnni := c.C/c.Groups, m.usesVNNI(c.X.Type, c.Y.Type)
	pixels := c.N * volume(c.Out)
	if vnni {
		pixels *= 4
	}
	whole := in >= m.nr && in%m.vw == 0 && (m.indirect != nil || vnni)
	return !c.ChannelsLast && c.Weights == OIX && !c.TF32 && c.Epilogue.plain() && volume(c.Kernel) > 1 &&
		(pixels >= 2*c.K/c.Groups || volume(c.Stride) > 1) && (whole || in >= 16 && m.indirect != nil && !vnni)
}

// turnedWeightGrad computes the gradient in the order [output channel, tap, input channel] and reorders it to that of
// the weights. It processes slices of as many padded images as the second-level caches of two workers hold. A slice
// is a whole number of parts of the sum, so that its size changes no bit.
func (m *Machine) turnedWeightGrad(c *Conv) {
	t := &m.conv
	in, taps := c.C/c.Groups, volume(c.Kernel)
	turned := t.turned.get(c.K * in * taps)
	slice, cached := c.N, m.Caches().inSecond(turnedBytes)
	if 4*len(turned) <= cached { // otherwise adding up costs more
		slice = roundUp(max(1, 2*cached/(4*volume(c.extent())*c.C)), m.wholeParts(volume(c.Out)))
	}
	for n := 0; n < c.N; n += slice {
		part := &t.withoutPostOp
		*part = *c
		part.N = min(slice, c.N-n)
		part.X, part.Y = c.X.From(n*c.C*volume(c.In)), c.Y.From(n*c.K*volume(c.Out))
		m.turnedProduct(part, turned, n > 0)
	}
	t.c, t.mode = c, turnBackMode
	m.run(8*len(turned), c.K, t)
}

// wholeParts is the least number of images of so many pixels that are a whole number of parts of a sum.
func (p *Path) wholeParts(pixels int) int {
	divisor, rest := pixels, p.chain
	for rest > 0 {
		divisor, rest = rest, divisor%rest
	}
	return p.chain / divisor
}

// turnedBytes is the size of the padded images, or of the result, that a worker's cache holds
// during the product.
const turnedBytes = 1280 << 10

// turnedProduct adds up the gradient over some images.
func (m *Machine) turnedProduct(c *Conv, turned []float32, into bool) {
	t, gt := &m.conv, &m.gemm
	in, taps := c.C/c.Groups, volume(c.Kernel)
	g := m.turn(c)
	t.patch, t.pixel = &t.table[0], &t.table[1]
	t.patch.taps(&g, in, c.Kernel, [3]int{}, c.Dilation, true)
	size, step := c.Out, c.Stride
	if g.vnni {
		size[2], step[2] = size[2]/2, 2*step[2]
	}
	t.pixel.pixels(&g, c.N, size, step)
	t.sources = [2]tableSource{m.gradSource(c), m.spread(&g, true)}
	t.sources[0].clean = g.vnni && !slices.Contains(t.subnormal[len(t.subnormal)/2:], true)
	gt.rows, gt.cols, gt.depth, gt.items, gt.into = c.K/c.Groups, in*taps, c.N*volume(c.Out), c.Groups, into
	gt.a, gt.b, gt.indirect, gt.prefetch, gt.endings, gt.reading = &t.sources[0], &t.sources[1], t.sources[1].indirect(), false, false, [2]int{}
	gt.out = output{p: m.Path, c: Mat{Buf: Floats(turned), LD: in * taps, Stride: [2]int{0, gt.rows * in * taps}}, inner: c.Groups}
	m.multiply(gt)
	gt.into = false
}

// turnBack reorders the gradient of output channel k to the order of the weights.
func (t *convTask) turnBack(w *worker, k int) {
	p, taps := t.m.Path, volume(t.c.Kernel)
	in := t.c.C / t.c.Groups
	from, to := t.turned.s[k*in*taps:][:in*taps], w.row[0].get(in*taps)
	w.offs = getInts(&w.offs, taps)
	for tap := range taps {
		w.offs[tap] = 4 * tap * in
	}
	for g := (taps - 1) / p.tw * p.tw; g >= 0; g -= p.tw { // what is written past the taps of one group is the next's
		p.trans[F32](in, min(p.tw, taps-g), &to[g], taps, bytes(&from[0]), &w.offs[g])
	}
	t.m.Store(t.c.W.From(k*in*taps), to)
}

// turn copies the images of x to padded images with channels last. In the VNNI layout a word holds a pixel and the next
// pixel that the same tap meets; where rows of results are odd, elements stay bf16. Otherwise they are f32.
func (m *Machine) turn(c *Conv) grid {
	t, size := &m.conv, c.extent()
	d := grid{channel: 1, phases: 1, axis: [3]int{size[1] * size[2] * c.C, size[2] * c.C, c.C}}
	d.item = [2]int{volume(size) * c.C, c.C / c.Groups}
	typ := F32
	if m.usesVNNI(c.X.Type, c.Y.Type) {
		if d.vnni = c.Out[2]%2 == 0; !d.vnni {
			typ = BF16
		}
	}
	d.buf = t.padded.bytes(typ, c.N*d.item[0])
	t.m, t.c, t.mode = m, c, turnMode
	t.src, t.dst, t.size, t.lo, t.channels = c.dense(c.X, c.C, c.In), d, c.In, c.Pad, c.C
	rows := t.size[0] * t.size[1]
	if d.vnni {
		t.subnormal = getBools(t.subnormal, 2*c.N*rows)
		t.interleave = t.interleave[:0]
		for x := range size[2] {
			t.interleave = append(t.interleave, 2*x*c.C, 2*(x+c.Stride[2])*c.C)
		}
	}
	t.runParts(rows, 2*len(d.buf.Data), 0)
	d.clean = d.vnni && !slices.Contains(t.subnormal[:len(t.subnormal)/2], true)
	return d
}

// turnImage transposes rows of an image, with what is padding before each, and behind the last one.
func (t *convTask) turnImage(w *worker, task int) {
	n, r0, r1 := t.part(task)
	first, row := t.lo[2], t.size[2]*t.channels
	if t.dst.vnni {
		first, row = 0, t.dst.axis[1]
		t.startVNNI(w, task)
	}
	es := t.dst.buf.Type.Size()
	place := func(r int) int {
		return n*t.dst.item[0] + t.dst.at(t.lo[0]+r/t.size[1], t.lo[1]+r%t.size[1], first)
	}
	at := n * t.dst.item[0]
	if r0 > 0 {
		at = place(r0-1) + row
	}
	for r := r0; r < r1; r++ {
		from, to := n*t.src.item[0]+t.src.at(r/t.size[1], r%t.size[1], 0), place(r)
		clear(t.dst.buf.Data[at*es : to*es])
		if at = to + row; t.dst.vnni {
			t.turnVNNI(w, from, floatsAt(t.dst.buf.at(to), row))
		} else {
			t.turnRow(w, from, to)
		}
	}
	if r1 == t.size[0]*t.size[1] {
		clear(t.dst.buf.Data[at*es : (n+1)*t.dst.item[0]*es])
	}
}

// turnRow transposes the row of pixels at offset from of every channel.
func (t *convTask) turnRow(w *worker, from, to int) {
	n := t.size[2] * t.channels
	if t.dst.buf.Type == F32 && t.channels%t.m.tw == 0 {
		t.turnPixels(w, from, floatsAt(t.dst.buf.at(to), n))
		return
	}
	row := w.row[0].get(n)
	t.turnPixels(w, from, row)
	t.m.Store(t.dst.buf.From(to), row)
}

// turnPixels transposes a row to f32. Channels that do not fill a vector are written before the others, which then
// overwrite what was written past them. After the last pixel, up to a vector past the end remains overwritten.
func (t *convTask) turnPixels(w *worker, from int, row []float32) {
	p, src := t.m.Path, t.src.buf
	w.offs = getInts(&w.offs, p.tw)
	for r := range p.tw {
		w.offs[r] = r * t.src.channel * src.Type.Size()
	}
	for ch := (t.channels - 1) / p.tw * p.tw; ch >= 0; ch -= p.tw {
		p.trans[src.Type](t.size[2], min(p.tw, t.channels-ch), &row[ch], t.channels, src.at(from+ch*t.src.channel), &w.offs[0])
	}
}

// pixelPairsContiguous reports whether the images contain the words of adjacent pixels as they are.
func (t *convTask) pixelPairsContiguous() bool { return t.c.Stride[2] == 1 && t.size[2]%2 == 0 }

// startVNNI searches a task's part of an image and of its gradient for subnormal elements, which also loads the gradient into the
// cache, and clears the parts of the rows that turnVNNI does not write.
func (t *convTask) startVNNI(w *worker, task int) {
	c, parts := t.c, t.share.rows
	n, k := task/parts, task%parts
	search := func(b Buf, size int) bool {
		lo, hi := bound(k, parts, size/2), bound(k+1, parts, size/2)
		return t.m.anySubnormal(floatsAt(b.at(n*size+2*lo), hi-lo))
	}
	t.subnormal[task] = search(t.src.buf, t.channels*volume(t.size))
	t.subnormal[len(t.subnormal)/2+task] = search(c.Y, c.K*volume(c.Out))
	if !t.pixelPairsContiguous() {
		clear(w.row[1].bytes(BF16, t.dst.axis[1]+t.c.Stride[2]*t.channels).Data)
	}
}

// turnVNNI transposes the row of pixels at offset from of every channel to words.
func (t *convTask) turnVNNI(w *worker, from int, words []float32) {
	px := t.channels
	if t.pixelPairsContiguous() {
		t.turnPixelPairs(w, from, words)
		return
	}
	row, pixels := w.row[0].get(t.size[2]*px), w.row[1].bytes(BF16, len(words)+t.c.Stride[2]*px)
	t.turnPixels(w, from, row)
	t.m.Store(pixels.From(t.lo[2]*px), row)
	t.m.interleaveRows(len(words)/px, px, words, px, pixels, t.interleave)
}

// turnPixelPairs is turnVNNI where two pixels move as one: first those at even places, then those at odd ones, then the words
// that have a zero beside the first pixel and the last.
func (t *convTask) turnPixelPairs(w *worker, from int, words []float32) {
	p, px, first, end := t.m.Path, t.channels, t.lo[2], t.lo[2]+t.size[2]
	w.offs = getInts(&w.offs, p.tw)
	for r := range p.tw {
		w.offs[r] = 2 * r * t.src.channel
	}
	clear(words[:max(0, first-1)*px])
	clear(words[(end-1)*px:])
	for ch := 0; ch < t.channels; ch += p.tw {
		at := from + ch*t.src.channel
		for odd := range 2 {
			if n := (t.size[2] - odd) / 2; n > 0 {
				p.trans[F32](n, p.tw, &words[(first+odd)*px+ch], 2*px, t.src.buf.at(at+odd), &w.offs[0])
			}
		}
	}
	halves := w.row[0].get(2 * p.nr)
	for ch := 0; ch < t.channels; ch += p.nr {
		n := min(p.nr, t.channels-ch)
		if first > 0 {
			p.vnni.toF32(1, n, &halves[0], p.nr, &words[first*px+ch], 0)
			copy(words[(first-1)*px+ch:], halves[:n])
		}
		p.vnni.fromF32(2, n, &words[(end-1)*px+ch], 0, &words[(end-2)*px+ch], px)
	}
}

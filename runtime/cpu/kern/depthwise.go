package kern

// Depthwise convolutions: every channel has its own filter, so there is no matrix product. With
// channels last, the pixels of a row and their channels are one run of lanes, and the weights of a
// tap are repeated along the run. With channels first and stride 1, a whole padded plane is one
// run; the elements between the rows are computed and dropped.
//
//	y[o] = sum over t of w[t] * x[o + offset(t)], one fused chain over ascending t

// depthwise reports whether these kernels can compute c.
func (c *Conv) depthwise() bool {
	e := &c.Epilogue
	return c.Groups > 1 && c.Groups == c.C && c.K == c.C && !c.TF32 && !e.Accumulate && e.Residual.absent() &&
		(e.Scale == 0 || e.Scale == 1) && (c.ChannelsLast || c.Stride == [3]int{1, 1, 1})
}

// depthRun is the reading side of a depthwise pass: out pixels of size, step apart, on a grid.
type depthRun struct {
	grid       grid
	size, step [3]int
	out        grid // where results go, or gradients come from
	span       int  // elements of one run of lanes
}

// depthForward computes the pixels of out from the images on g with the taps in t.patch.
func (m *Machine) depthForward(g, out grid, size, step [3]int) {
	t, c := &m.conv, m.conv.c
	t.mode, t.m = depthMode, m
	t.deep = depthRun{grid: g, size: size, step: step, out: out}
	so, _, sx := c.weightStrides()
	taps := volume(c.Kernel)
	if c.ChannelsLast {
		t.deep.span = c.C
		if step[2] == 1 {
			t.deep.span *= size[2]
		}
		parts := m.parts.get((taps + 1) * t.deep.span)
		for i := range (taps + 1) * t.deep.span {
			tap, k := i/t.deep.span, i%c.C
			switch {
			case tap < taps:
				parts[i] = c.W.get(k*so + tap*sx)
			case !c.Bias.absent():
				parts[i] = c.Bias.get(k)
			}
		}
	}
	units := c.C
	if c.ChannelsLast {
		units = size[0] * size[1]
	}
	t.runParts(units, 2*c.N*c.C*volume(size)*taps, 0)
}

// depthImage is the task of some rows of an image, or of some planes of it.
func (t *convTask) depthImage(w *worker, task int) {
	n, u0, u1 := t.part(task)
	for u := u0; u < u1; u++ {
		if t.c.ChannelsLast {
			t.depthRow(w, n, u/t.deep.size[1], u%t.deep.size[1])
		} else {
			t.depthPlane(w, n, u)
		}
	}
}

// depthRow computes one row of pixels, channels last.
func (t *convTask) depthRow(w *worker, n, z, y int) {
	d, c, p := &t.deep, t.c, t.m.Path
	taps, span, row := len(t.patch.s), d.span, d.size[2]*c.C
	acc := w.row[0].get(row)
	for at := 0; at < row; at += span {
		part := acc[at : at+span]
		clear(part)
		x := at / c.C * d.step[2]
		base := (n*d.grid.item[0] + d.grid.at(z*d.step[0], y*d.step[1], x)) * d.grid.buf.Type.Size()
		for tap, off := range t.patch.s {
			p.Ternary(FMA, part, w.floatsOf(p, d.grid.buf, base+off, span), t.m.parts.s[tap*span:(tap+1)*span], part)
		}
		if !c.Bias.absent() {
			p.Binary(Add, part, part, t.m.parts.s[taps*span:(taps+1)*span])
		}
	}
	t.depthStore(p, acc, n*d.out.item[0]+d.out.at(z, y, 0))
}

// floatsOf returns n elements from byte at of b as f32, in place or widened.
func (w *worker) floatsOf(p *Path, b Buf, at, n int) []float32 {
	if b.Type == F32 {
		return floatsAt(b.byteAt(at), n)
	}
	x := w.row[1].get(n)
	p.widen[b.Type](n, &x[0], b.byteAt(at))
	return x
}

func (t *convTask) depthStore(p *Path, row []float32, at int) {
	if t.c.Act != NoAct {
		p.Unary(actOps[t.c.Act], row, row)
	}
	p.Store(t.deep.out.buf.From(at), row)
}

// depthPlane computes one channel, channels first.
func (t *convTask) depthPlane(w *worker, n, ch int) {
	d, c, p := &t.deep, t.c, t.m.Path
	so, _, sx := c.weightStrides()
	size, axis := d.size, d.grid.axis
	run := (size[1]-1)*axis[1] + size[2]
	acc := w.row[0].get(run)
	for z := range size[0] {
		clear(acc)
		base := (n*d.grid.item[0] + ch*d.grid.channel + z*axis[0]) * d.grid.buf.Type.Size()
		for tap, off := range t.patch.s {
			p.Axpy(acc, w.floatsOf(p, d.grid.buf, base+off, run), acc, c.W.get(ch*so+tap*sx))
		}
		if !c.Bias.absent() {
			p.Axpb(acc, acc, 1, c.Bias.get(ch))
		}
		for y := range size[1] {
			t.depthStore(p, acc[y*axis[1]:][:size[2]], n*d.out.item[0]+ch*d.out.channel+d.out.at(z, y, 0))
		}
	}
}

// depthWeights computes the gradient of w from the images on g and the gradients on dy: partial sums of each image,
// added as a tree.
func (m *Machine) depthWeights(g, dy grid) {
	t, c := &m.conv, m.conv.c
	t.mode, t.m = depthWeightMode, m
	t.deep = depthRun{grid: g, size: c.Out, step: c.Stride, out: dy}
	taps := volume(c.Kernel)
	each := taps * c.C
	parts := m.parts.get(max(1, c.N) * each)
	t.runParts(ceilDiv(c.C, depthChannels), 2*c.N*c.C*volume(c.Out)*taps, 0)
	sum := m.foldParts(parts, c.N, each)
	so, _, sx := c.weightStrides()
	for i, v := range sum { // [tap, channel]
		c.W.set(i%c.C*so+i/c.C*sx, v)
	}
}

// depthChannels is the unit of channels of a gradient of weights, a vector of any path.
const depthChannels = 16

// depthWeightImage is the task of some channels of an image.
func (t *convTask) depthWeightImage(w *worker, task int) {
	n, u0, u1 := t.part(task)
	c0, c1 := u0*depthChannels, min(u1*depthChannels, t.c.C)
	part := t.m.parts.s[n*len(t.patch.s)*t.c.C:][:len(t.patch.s)*t.c.C]
	if !t.c.ChannelsLast {
		for ch := c0; ch < c1; ch++ {
			t.depthWeightPlane(w, n, ch, part)
		}
		return
	}
	for tap := range t.patch.s {
		clear(part[tap*t.c.C+c0 : tap*t.c.C+c1])
	}
	for z := range t.deep.size[0] {
		for y := range t.deep.size[1] {
			t.depthWeightRow(w, n, z, y, c0, c1, part)
		}
	}
}

// depthWeightRow adds the products of channels [c0,c1) of one row of pixels, channels last.
func (t *convTask) depthWeightRow(w *worker, n, z, y, c0, c1 int, part []float32) {
	d, c, p := &t.deep, t.c, t.m.Path
	own := c1 - c0
	dy, from := w.row[0].get(d.size[2]*own), n*d.out.item[0]+d.out.at(z, y, 0)+c0
	if own == c.C {
		p.Load(dy, d.out.buf.From(from))
	} else {
		for x := range d.size[2] {
			p.Load(dy[x*own:(x+1)*own], d.out.buf.From(from+x*c.C))
		}
	}
	for x := range d.size[2] {
		base := (n*d.grid.item[0] + d.grid.at(z*d.step[0], y*d.step[1], x*d.step[2]) + c0) * d.grid.buf.Type.Size()
		for tap, off := range t.patch.s {
			sum := part[tap*c.C+c0 : tap*c.C+c1]
			p.Ternary(FMA, sum, w.floatsOf(p, d.grid.buf, base+off, own), dy[x*own:(x+1)*own], sum)
		}
	}
}

// depthWeightPlane computes the sums of one channel, channels first: gradients are spread to the rows of the plane.
func (t *convTask) depthWeightPlane(w *worker, n, ch int, part []float32) {
	d, c, p := &t.deep, t.c, t.m.Path
	size, axis := d.size, d.grid.axis
	run := (size[1]-1)*axis[1] + size[2]
	dy := w.row[0].get(run)
	for z := range size[0] {
		clear(dy)
		for y := range size[1] {
			p.Load(dy[y*axis[1]:][:size[2]], d.out.buf.From(n*d.out.item[0]+ch*d.out.channel+d.out.at(z, y, 0)))
		}
		base := (n*d.grid.item[0] + ch*d.grid.channel + z*axis[0]) * d.grid.buf.Type.Size()
		for tap, off := range t.patch.s {
			v := p.Dot(w.floatsOf(p, d.grid.buf, base+off, run), dy)
			if z > 0 {
				v += part[tap*c.C+ch]
			}
			part[tap*c.C+ch] = v
		}
	}
}

package kern

// The input gradient as a product and a scatter, for images much larger than the result of the
// convolution (strides, wide kernels without padding), where gathering would multiply mostly zeros.
//
//	patches[r, p] = sum over k of w[k, r] * dy[k, p]
//	then  dx[offset(r) + offset(p)] += patches[r, p]
//
// A task is some channels of an image, or all of them. Within an image, terms are added for
// ascending r (channels first) or p (channels last).

// scatters reports whether the input gradient is computed as patches that are added up, where that is faster.
func (c *Conv) scatters() bool {
	return 3*volume(c.In) > 4*volume(c.Out) && c.C/c.Groups > 1 && !c.TF32 && c.Epilogue.plain()
}

// scatterGrad computes the gradient of x image by image.
func (m *Machine) scatterGrad(c *Conv) {
	t := &m.conv
	t.m, t.mode = m, scatterMode
	t.src = c.dense(c.X, c.C, c.In)
	t.dst = c.padded(c.C, c.extent())
	t.patch, t.pixel = &t.table[0], &t.table[1]
	t.patch.taps(&t.dst, c.C/c.Groups, c.Kernel, [3]int{}, c.Dilation, c.Weights != OIX)
	t.pixel.pixels(&t.dst, 1, c.Out, c.Stride)
	work, units := 2*c.N*len(t.patch.s)*len(t.pixel.s)*c.K, 1
	if !c.ChannelsLast && c.Weights == OIX {
		units = c.C
	}
	t.runParts(units, work, packCost*len(t.pixel.s)*c.K)
}

// padded is the grid of one image of the given size in float32, without memory.
func (c *Conv) padded(channels int, size [3]int) grid {
	return c.dense(Buf{Type: F32}, channels, size)
}

// scatterImage computes the gradient of some channels of an image.
func (t *convTask) scatterImage(worker, task int) {
	c, w := t.c, t.m.worker[worker]
	n, c0, c1 := t.part(task)
	if t.units == 1 {
		c0, c1 = 0, c.C
	}
	from, size, whole := n*t.src.item[0], t.dst.item[0], t.whole()
	if t.units > 1 {
		from, size = from+c0*t.src.channel, (c1-c0)*t.dst.channel
	}
	image := w.row[0].get(size)
	if whole && c.X.Type == F32 {
		image = floatsAt(c.X.at(from), size)
	}
	clear(image)
	in := c.C / c.Groups
	for g := range c.Groups {
		i0, i1 := max(c0-g*in, 0), min(c1-g*in, in) // channels of the group
		if i0 >= i1 {
			continue
		}
		part := t.patches(w, worker, n, g, i0, i1)
		base := image[(g*in+i0-c0)*t.dst.item[1]/in:]
		if c.ChannelsLast {
			w.addRuns(t.m.Path, base, part, t.pixel.s, t.patch.s, 1)
		} else {
			w.addRuns(t.m.Path, base, part, t.patch.s[:len(t.patch.s)/in*(i1-i0)], t.pixel.s, t.turns())
		}
	}
	switch {
	case !whole:
		t.crop(image, n, c0, c1)
	case c.X.Type != F32:
		t.m.Store(c.X.From(from), image)
	}
}

// whole reports whether no part of an image is cropped.
func (t *convTask) whole() bool { return t.dst.item[0] == t.src.item[0] && t.c.Pad == [3]int{} }

// patches computes the patches of channels [i0,i1) of one image and group: [patch, pixel], or [pixel, patch] channels last.
func (t *convTask) patches(w *worker, worker, n, g, i0, i1 int) []float32 {
	c, l := t.c, &w.local
	per, all, px := c.K/c.Groups, len(t.patch.s), len(t.pixel.s)
	taps := volume(c.Kernel)
	rows := (i1 - i0) * taps
	so, _, _ := c.weightStrides()
	weights := Mat{Buf: c.W.From(g*per*so + i0*taps), LD: all, T: true}
	if c.Weights == XIO {
		weights.LD, weights.T = c.K, false
	}
	dy := c.dense(c.Y, c.K, c.Out)
	grads := Mat{Buf: c.Y.From(n*dy.item[0] + g*dy.item[1]), LD: px}
	l.rows, l.cols = rows, px
	if c.ChannelsLast {
		weights.T = !weights.T
		grads.LD = c.K
		weights, grads = grads, weights
		l.rows, l.cols = px, rows
	}
	part := w.row[1].get(rows * px)
	l.multiplyLocal(t.m, worker, weights, grads, per, part, l.cols)
	return part
}

// turns is the number of adjacent entries in the table of patches that are taps of one channel. Their destinations
// overlap, so adding one directly after the other would wait for the stores of the first.
func (t *convTask) turns() int {
	if t.c.Weights == OIX {
		return volume(t.c.Kernel)
	}
	return 1
}

// addRuns adds part[i][j] to dst[(outer[i]+inner[j])/4], where inner offsets are adjacent in runs:
// every turns-th i first, then the i after each of these, and so on.
func (w *worker) addRuns(p *Path, dst, part []float32, outer, inner []int, turns int) {
	n := len(inner)
	w.offs = getInts(&w.offs, 2*n)
	starts, lengths := w.offs[:0:n], w.offs[n:n]
	for j := 0; j < n; {
		r := run(inner[j:], n-j, 4)
		starts, lengths = append(starts, inner[j]), append(lengths, r)
		j += r
	}
	for t := range turns {
		p.addRuns(len(outer)/turns, len(starts), &dst[0], &part[t*n], 4*n*turns, &outer[t], 8*turns, &starts[0], &lengths[0])
	}
}

// crop stores the unpadded part of channels [c0,c1) of image n.
func (t *convTask) crop(image []float32, n, c0, c1 int) {
	c := t.c
	planes, width := c1-c0, 1
	if c.ChannelsLast {
		planes, width = 1, c.C
	}
	for p := range planes {
		for z := range c.In[0] {
			for y := range c.In[1] {
				s := p*t.dst.channel + t.dst.at(z+c.Pad[0], y+c.Pad[1], c.Pad[2])
				d := n*t.src.item[0] + (c0+p)*t.src.channel + t.src.at(z, y, 0)
				t.m.Store(c.X.From(d), image[s:s+c.In[2]*width])
			}
		}
	}
}

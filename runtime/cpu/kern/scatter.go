package kern

// The input gradient as a product and a scatter: where the image is much larger than what the convolution made of it
// (strides, wide kernels without padding) gathering would multiply mostly zeros.
//
//	patches[r, p] = sum over k of w[k, r] * dy[k, p]        then        dx[offset(r) + offset(p)] += patches[r, p]
//
// Images are tasks; within one, terms are added for ascending r (channels first) or p (channels last).

// scatters says whether that pays.
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
	work := 2 * c.N * len(t.patch.s) * len(t.pixel.s) * c.K
	m.run(work, c.N, t)
}

// padded is the grid of one image of the given size in float32, without memory.
func (c *Conv) padded(channels int, size [3]int) grid {
	return c.dense(Buf{Type: F32}, channels, size)
}

// scatterImage computes the gradient of image n.
func (t *convTask) scatterImage(worker, n int) {
	c, w := t.c, &t.m.worker[worker]
	rows, px := len(t.patch.s), len(t.pixel.s)
	image := w.row[0].get(t.dst.item[0])
	clear(image)
	part := w.row[1].get(rows * px)
	for g := range c.Groups {
		t.patches(w, worker, n, g, part)
		base := image[g*t.dst.item[1]:]
		if c.ChannelsLast {
			w.addRuns(t.m.Path, base, part, t.pixel.s, t.patch.s)
		} else {
			w.addRuns(t.m.Path, base, part, t.patch.s, t.pixel.s)
		}
	}
	t.crop(image, n)
}

// patches computes the patches of one image and group: [patch, pixel], or [pixel, patch] channels last.
func (t *convTask) patches(w *worker, worker, n, g int, part []float32) {
	c, l := t.c, &w.local
	per, rows, px := c.K/c.Groups, len(t.patch.s), len(t.pixel.s)
	so, _, _ := c.weightStrides()
	weights := Mat{Buf: c.W.From(g * per * so), LD: rows, T: true}
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
	l.multiplyLocal(t.m, worker, weights, grads, per, part, l.cols, false)
}

// addRuns adds part[i][j] to dst[(outer[i]+inner[j])/4], where inner offsets are neighbours in runs.
func (w *worker) addRuns(p *Path, dst, part []float32, outer, inner []int) {
	n := len(inner)
	w.offs = w.offs[:0] // the lengths of the runs
	for j := 0; j < n; {
		r := run(inner[j:], n-j, 4)
		w.offs = append(w.offs, r)
		j += r
	}
	for i, o := range outer {
		row, j := part[i*n:(i+1)*n], 0
		for _, r := range w.offs {
			src := row[j : j+r]
			d := dst[(o+inner[j])/4:][:len(src)]
			if r < 32 {
				for x, v := range src {
					d[x] += v
				}
			} else {
				p.Binary(Add, d, d, src)
			}
			j += r
		}
	}
}

// crop stores the unpadded part of the image.
func (t *convTask) crop(image []float32, n int) {
	c := t.c
	planes, width := c.C, 1
	if c.ChannelsLast {
		planes, width = 1, c.C
	}
	for p := range planes {
		for z := range c.In[0] {
			for y := range c.In[1] {
				s := p*t.dst.channel + t.dst.at(z+c.Pad[0], y+c.Pad[1], c.Pad[2])
				d := n*t.src.item[0] + p*t.src.channel + t.src.at(z, y, 0)
				t.m.Store(c.X.From(d), image[s:s+c.In[2]*width])
			}
		}
	}
}

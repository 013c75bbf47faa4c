package kern

import "math"

// Norms over channels whose planes are whole vectors. They are processed image by image, in the
// order of memory: the planes of one channel are far apart, often by a power of two, so that caches
// do not keep them and the hardware does not prefetch them. The kernels process the planes of a
// block of channels as rows, each with the scalars and the sums of its channel.

const (
	planeRow  = 1 << 12 // largest number of elements of a row, which are summed in float32; longer planes are several rows
	shiftFrom = 4       // images after which sums are about the mean so far; again after as many times that
)

// planeMoments are the moments of a channel over the images seen so far.
type planeMoments struct{ mean, sq float64 }

// takesPlanes reports whether the norm is computed plane by plane. This does not depend on types, because types must
// not change the order of sums.
func (t *channelTask) takesPlanes() bool {
	n := &t.n
	return n.Groups == 0 && t.m.planes && !n.ChannelsLast && n.Space%t.m.vw == 0 && n.Images*n.Space > 0
}

// planesBy divides the channels into blocks and calls do for each.
func (t *channelTask) planesBy(work int, do func(t *channelTask, w *worker, block int)) {
	n, m := &t.n, t.m
	t.do = do
	cells := box{items: 1, rows: n.Channels, cols: 1, cell: work * n.Images * n.Space, task: taskCost + imageCost*n.Images}
	d := m.divide(cells, m.pool.share())
	t.parts = d.Tasks
	t.scalars = grow(t.scalars, RowScalars*n.Channels)
	t.lanes = grow(t.lanes, 2*rowLanes*n.Channels)
	t.about = grow(t.about, n.Channels)
	m.runDivided(&cells, d, t)
}

// imageCost is what a block of channels costs for each image beside its elements.
const imageCost = 1 << 9

// channelsOf are the channels [c0,c1) of a block.
func (t *channelTask) channelsOf(block int) (c0, c1 int) {
	return bound(block, t.parts, t.n.Channels), bound(block+1, t.parts, t.n.Channels)
}

// lane is the offset of the sums of channel c. Each block has its own part of them, because other blocks may be running
// a kernel with more sums.
func (t *channelTask) lane(s *planeSum, c int) int {
	c0, _ := t.channelsOf(c * t.parts / t.n.Channels)
	at := c - c0
	return rowLanes * (2*(c-at) + s.sums()*at)
}

// image runs a kernel over the planes of channels [c0,c1) of an image; sums are from lane on.
func (t *channelTask) image(w *worker, f *Fused, bufs []Buf, lanes []float64, c0, c1, i int) {
	n, at := &t.n, t.start(i, c0)
	if n.Space <= planeRow {
		f.Rows(&w.call, bufs, t.scalars[RowScalars*c0:], lanes, at, c1-c0, n.Space)
		return
	}
	for c := c0; c < c1; c++ {
		for lo := 0; lo < n.Space; lo += planeRow {
			f.Rows(&w.call, bufs, t.scalars[RowScalars*c:], lanes[rowLanes*f.sums*(c-c0):], at+(c-c0)*n.Space+lo, 1, min(planeRow, n.Space-lo))
		}
	}
}

// sum adds up s over images [i0,i1).
func (t *channelTask) sum(w *worker, s *planeSum, c0, c1, i0, i1 int) {
	lanes := t.lanes[t.lane(s, c0):][:rowLanes*s.sums()*(c1-c0)]
	clear(lanes)
	for i := i0; i < i1; i = t.m.next(i, 1, i1) {
		if s.kernel == nil {
			t.sumInPasses(w, s, lanes, c0, c1, i)
			continue
		}
		t.image(w, s.kernel, t.bufs[:s.loads()], lanes, c0, c1, i)
	}
}

// sumInPasses adds up s over an image without a kernel for it.
func (t *channelTask) sumInPasses(w *worker, s *planeSum, lanes []float64, c0, c1, i int) {
	n := &t.n
	for c := c0; c < c1; c++ {
		for lo := 0; lo < n.Space; lo += planeRow {
			at, b := t.start(i, c), piece{0, lo, 1, min(planeRow, n.Space-lo)}
			for k, x := range t.summands(w, s, at, b, t.scalarsOf(c)[0]) {
				if k < s.sums() {
					t.m.addLanes(w, lanes[rowLanes*(s.sums()*(c-c0)+k):][:rowLanes], x)
				}
			}
		}
	}
}

// summands are what s adds up of a block.
func (t *channelTask) summands(w *worker, s *planeSum, at int, b piece, mean float32) [2][]float32 {
	if s.gradient {
		dy, product := t.products(w, at, b, mean)
		return [2][]float32{product, dy}
	}
	x := t.load(w, 0, t.n.X, at, b)
	if s.first {
		return [2][]float32{x, nil}
	}
	dev, square := w.row[1].get(len(x)), w.row[2].get(len(x))
	t.m.Axpb(dev, x, 1, -mean)
	t.m.Binary(Mul, square, dev, dev)
	return [2][]float32{dev, square}
}

// addLanes adds a row, whole vectors, to its sums in the order of composed kernels.
func (p *Path) addLanes(w *worker, sums []float64, x []float32) {
	part := w.row[4].get(2 * p.lanes)
	clear(part)
	if pairs := len(x) / len(part); pairs > 0 {
		p.addRows[F32](1, pairs, 2, 0, &part[0], bytes(&x[0]), 0, len(part))
		x = x[pairs*len(part):]
	}
	for i, v := range x {
		part[i] += v
	}
	low, high := part[:p.lanes], part[p.lanes:]
	for i := range p.lanes / 2 {
		at := i + p.lanes/2
		sums[i] += float64(low[at]+high[at]) + float64(low[i]+high[i])
	}
}

// total is sum i of channel c.
func (t *channelTask) total(s *planeSum, c, i int) (sum float64) {
	for _, x := range t.lanes[t.lane(s, c)+rowLanes*i:][:rowLanes] {
		sum += x
	}
	return sum
}

// scalarsOf are the scalars of channel c.
func (t *channelTask) scalarsOf(c int) []float32 { return t.scalars[RowScalars*c:][:RowScalars] }

// normalizePlanes sums deviations and their squares from the mean of the previous images (for the first image, from its
// own mean) and joins the moments (Chan, Golub, LeVeque 1979). If these means are far apart, the values are far from
// their mean, too, so no precision is lost.
func (t *channelTask) normalizePlanes(w *worker, block int) {
	n := &t.n
	c0, c1 := t.channelsOf(block)
	t.sum(w, &t.firstRows, c0, c1, 0, 1)
	for c := c0; c < c1; c++ {
		t.about[c] = planeMoments{}
		t.scalarsOf(c)[0] = float32(t.total(&t.firstRows, c, 0) / float64(n.Space))
	}
	for i0, i1 := 0, 0; i0 < n.Images; i0 = i1 {
		i1 = min(max(shiftFrom, shiftFrom*i0), n.Images)
		t.sum(w, &t.sumRows, c0, c1, i0, i1)
		for c := c0; c < c1; c++ {
			t.joinMoments(c, float64(i0*n.Space), float64((i1-i0)*n.Space))
		}
	}
	all := float64(n.Images * n.Space)
	for c := c0; c < c1; c++ {
		n.Mean[c], n.Var[c] = float32(t.about[c].mean), float32(max(t.about[c].sq/all, 0))
	}
	t.applyPlanes(w, block)
}

// joinMoments joins the moments of count values with those of k more.
func (t *channelTask) joinMoments(c int, count, k float64) {
	m, about := &t.about[c], t.scalarsOf(c)
	off := t.total(&t.sumRows, c, 0) / k
	between := float64(about[0]) + off - m.mean
	m.sq += t.total(&t.sumRows, c, 1) - k*off*off + between*between*count*k/(count+k)
	m.mean += between * k / (count + k)
	about[0] = float32(m.mean)
}

func (t *channelTask) applyPlanes(w *worker, block int) {
	n := &t.n
	c0, c1 := t.channelsOf(block)
	for c := c0; c < c1; c++ {
		n.Rstd[c] = float32(1 / math.Sqrt(float64(n.Var[c])+n.Eps))
		s := t.scalarsOf(c)
		copy(s, []float32{n.Mean[c], n.Rstd[c] * orElse(n.Gamma, c, 1), orElse(n.Beta, c, 0), 0})
		if t.whole == nil {
			for _, b := range t.pieces {
				t.applyPiece(w, t.start(0, c), b, s[0], s[1], s[2])
			}
		}
	}
	if t.whole != nil {
		t.wholePlanes(w, c0, c1)
	}
}

// wholePlanes runs the last kernel over all images, in reverse order, because the last images may still be in the
// cache.
func (t *channelTask) wholePlanes(w *worker, c0, c1 int) {
	last := t.n.Images - 1
	for i := 0; i <= last; i = t.m.next(i, 1, last+1) {
		t.image(w, t.whole, t.bufs, nil, c0, c1, last-i)
	}
}

// gradientPlanes is gradient for channels that are processed plane by plane.
func (t *channelTask) gradientPlanes(w *worker, block int) {
	n := &t.n
	c0, c1 := t.channelsOf(block)
	for c := c0; c < c1; c++ {
		copy(t.scalarsOf(c), []float32{n.Mean[c], 0, 0})
	}
	t.sum(w, &t.sumRows, c0, c1, 0, n.Images)
	count := float64(n.Images * n.Space)
	for c := c0; c < c1; c++ {
		rstd, gamma := n.Rstd[c], orElse(n.Gamma, c, 1)
		dot, sum := t.total(&t.sumRows, c, 0)*float64(rstd), t.total(&t.sumRows, c, 1)
		t.record(0, 0, c, sum, dot)
		byDev, shift := -rstd*rstd*float32(float64(gamma)*dot/count), -rstd*float32(float64(gamma)*sum/count)
		s := t.scalarsOf(c)
		copy(s, []float32{n.Mean[c], byDev, shift})
		if s[3], s[4], s[5] = rstd*gamma, 0, 0; !n.Sign.absent() {
			s[3], s[5] = 0, rstd*gamma
		}
		if t.whole == nil {
			for _, b := range t.pieces {
				t.gradientPiece(w, t.start(0, c), b, n.Mean[c], rstd*gamma, byDev, shift)
			}
		}
	}
	if t.whole != nil {
		t.wholePlanes(w, c0, c1)
	}
}

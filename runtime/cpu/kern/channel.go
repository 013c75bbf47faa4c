package kern

import "math"

// ChannelNorm describes batch_norm, group_norm or instance_norm over [Images, Channels, Space], or [Images, Space,
// Channels] if ChannelsLast is set, and its gradient.
//
//	xhat = (x - mean) * rstd        rstd = 1/sqrt(var + Eps)
//	y = act(xhat * Gamma + Beta + Residual)
//
// Statistics are those of a channel over all images where Groups is 0, else of each of Groups groups of channels of
// one image; Mean, Var and Rstd hold one f32 a statistic, groups running faster than images. Gamma and Beta, one
// element a channel, and Residual, as X, may be absent. Y may be X or Residual, DX may be DY.
type ChannelNorm struct {
	Images, Channels, Space int
	ChannelsLast            bool
	Groups                  int
	Eps                     float64
	X, Gamma, Beta          Buf
	Mean, Var, Rstd         []float32
	Residual                Buf
	Relu                    bool
	Y                       Buf
	Copy                    Buf // Y once more, in another type; may be absent

	DY, DX        Buf
	Sign          Buf // if present, DY counts only where Sign is greater than zero
	DGamma, DBeta Buf
}

// Stats is the number of statistics.
func (n *ChannelNorm) Stats() int {
	if n.Groups == 0 {
		return n.Channels
	}
	return n.Images * n.Groups
}

// runsChannelsLast reports whether channels are last, there are several, and there are elements.
func (n *ChannelNorm) runsChannelsLast() bool {
	return n.ChannelsLast && n.Channels > 1 && n.Images*n.Space > 0
}

// gradientWork is the work of a gradient for each element, see Machine.run.
const gradientWork = 16

// channelBlock is the number of elements that the vector kernels process at a time; they stay in the first-level cache.
const channelBlock = 1024

// channelTask is a norm over channels in progress; each statistic is a task.
type channelTask struct {
	m      *Machine
	n      ChannelNorm
	do     func(t *channelTask, w *worker, stat int)
	pieces []piece // of one channel of the images that share statistics
	whole  *Fused  // the last operations of apply or gradient as one kernel; nil if there is none
	terms  *Fused  // the first operations of gradient as one kernel; nil if there is none
	bufs   []Buf   // operands and results of whole
	fused  map[normFormula]*Fused
	sums   []float64 // of dy*xhat, then of dy, by channel, for each image where there are groups

	blocks             int       // blocks of channels, a task each, if planes are processed image by image
	firstRows, sumRows planeSum  // of the first image, and of all images
	scalars            []float32 // their scalars, by channel
	lanes              []float64 // their sums, likewise
	moments            []planeMoments
}

// piece is a block: cols elements of each of rows consecutive images.
type piece struct{ at, rows, cols int }

// ChannelNorm computes Y, Mean, Var and Rstd.
func (m *Machine) ChannelNorm(n *ChannelNorm) {
	if n.runsChannelsLast() {
		t := m.channelsLast(n)
		t.each(8, (*lastTask).moments)
		t.statistics()
		t.apply()
		return
	}
	m.channels(n, (*channelTask).normalize, (*channelTask).normalizePlanes, 8)
}

// ChannelNormGiven computes Y from the given Mean and Var, and Rstd.
func (m *Machine) ChannelNormGiven(n *ChannelNorm) {
	if n.runsChannelsLast() {
		m.channelsLast(n).apply()
		return
	}
	m.channels(n, (*channelTask).apply, (*channelTask).applyPlanes, 4)
}

// ChannelNormGrad computes DX, and of DGamma and DBeta those that are present, from X, DY, Mean and Rstd.
func (m *Machine) ChannelNormGrad(n *ChannelNorm) {
	if n.runsChannelsLast() {
		m.channelsLast(n).gradient()
		return
	}
	t := &m.channel
	parts := 1
	if n.Groups > 0 {
		parts = n.Images
	}
	if cap(t.sums) < 2*parts*n.Channels {
		t.sums = make([]float64, 2*parts*n.Channels)
	}
	t.sums = t.sums[:2*parts*n.Channels]
	clear(t.sums)
	m.channels(n, (*channelTask).gradient, (*channelTask).gradientPlanes, gradientWork)
	for i, d := range [2]Buf{n.DGamma, n.DBeta} {
		for c := 0; c < n.Channels && !d.absent(); c++ {
			sum := 0.0
			for p := range parts {
				sum += t.sums[(i*parts+p)*n.Channels+c]
			}
			d.set(c, float32(sum))
		}
	}
}

// channels calls do for each statistic, or byPlanes for blocks of channels.
func (m *Machine) channels(n *ChannelNorm, do, byPlanes func(*channelTask, *worker, int), work int) {
	t := &m.channel
	t.m, t.n, t.do = m, *n, do
	t.choose(work == gradientWork)
	if t.cut(); t.takesPlanes() {
		t.planesBy(work, byPlanes)
		return
	}
	m.run(work*n.Images*n.Channels*n.Space, n.Stats(), t)
}

func (t *channelTask) Run(worker, stat int) { t.do(t, t.m.worker[worker], stat) }

// cut lists the blocks of a channel.
func (t *channelTask) cut() {
	n := &t.n
	images := n.Images
	if n.Groups > 0 {
		images = 1
	}
	t.pieces = t.pieces[:0]
	for i := 0; i < images && n.Space > 0; {
		rows := min(max(1, channelBlock/n.Space), images-i)
		for lo := 0; lo < n.Space; lo += channelBlock {
			t.pieces = append(t.pieces, piece{i*n.Channels*n.Space + lo*t.step(), rows, min(channelBlock, n.Space-lo)})
		}
		i += rows
	}
}

// step is the distance between adjacent elements of a plane.
func (t *channelTask) step() int {
	if t.n.ChannelsLast {
		return t.n.Channels
	}
	return 1
}

// share is the set of elements with a common statistic: channels [c0,c1) of one image, or of all images if there are no
// groups.
func (t *channelTask) share(stat int) (image, c0, c1 int) {
	if t.n.Groups == 0 {
		return 0, stat, stat + 1
	}
	per := t.n.Channels / t.n.Groups
	c0 = stat % t.n.Groups * per
	return stat / t.n.Groups, c0, c0 + per
}

// start is where channel c of an image begins.
func (t *channelTask) start(image, c int) int {
	n := &t.n
	if n.ChannelsLast {
		return image*n.Space*n.Channels + c
	}
	return (image*n.Channels + c) * n.Space
}

// inPlace is the block of b at offset at in memory, or nil if it must be gathered or widened.
func (t *channelTask) inPlace(b Buf, at int, p piece) []float32 {
	if b.Type != F32 || t.step() != 1 || p.rows > 1 && t.n.Channels > 1 {
		return nil
	}
	return b.f32()[at+p.at:][:p.rows*p.cols]
}

// load returns the block of b as f32: in memory if possible, else copied to row slot.
func (t *channelTask) load(w *worker, slot int, b Buf, at int, p piece) []float32 {
	if x := t.inPlace(b, at, p); x != nil {
		return x
	}
	x, image := w.row[slot].get(p.rows*p.cols), t.n.Channels*t.n.Space
	b = b.From(at + p.at)
	switch {
	case t.step() > 1:
		for i := range x {
			x[i] = b.get(i/p.cols*image + i%p.cols*t.step())
		}
	case p.cols <= t.m.nr:
		t.m.rows[b.Type](p.rows, p.cols, &x[0], p.cols, b.at(0), image)
	default:
		for r := range p.rows {
			t.m.Load(x[r*p.cols:(r+1)*p.cols], b.From(r*image))
		}
	}
	return x
}

// place is the memory in which the block of b is computed: its own, or row slot.
func (t *channelTask) place(w *worker, slot int, b Buf, at int, p piece) []float32 {
	if x := t.inPlace(b, at, p); x != nil {
		return x
	}
	return w.row[slot].get(p.rows * p.cols)
}

// save stores a block that was not computed in place.
func (t *channelTask) save(b Buf, at int, p piece, x []float32) {
	if t.inPlace(b, at, p) == nil {
		t.put(b, at, p, x)
	}
}

// put stores a block.
func (t *channelTask) put(b Buf, at int, p piece, x []float32) {
	image := t.n.Channels * t.n.Space
	b = b.From(at + p.at)
	if t.step() > 1 {
		for i, v := range x {
			b.set(i/p.cols*image+i%p.cols*t.step(), v)
		}
		return
	}
	for r := range p.rows {
		t.m.Store(b.From(r*image), x[r*p.cols:(r+1)*p.cols])
	}
}

// normalize computes the moments of each block about its own mean and joins them (Chan, Golub, LeVeque 1979).
func (t *channelTask) normalize(w *worker, stat int) {
	n, p := &t.n, t.m.Path
	image, c0, c1 := t.share(stat)
	var count, sum, sq float64
	for c := c0; c < c1; c++ {
		at := t.start(image, c)
		for _, b := range t.pieces {
			x := t.load(w, 0, n.X, at, b)
			k := float64(len(x))
			here := float64(p.Sum(x))
			own := here / k
			off := own - float64(float32(own))
			sq += float64(p.sumSqDev(x, float32(own))) - k*off*off
			if count > 0 {
				between := own - sum/count
				sq += between * between * count * k / (count + k)
			}
			sum, count = sum+here, count+k
		}
	}
	n.Mean[stat], n.Var[stat] = float32(sum/count), float32(max(sq/count, 0))
	t.apply(w, stat)
}

func (t *channelTask) apply(w *worker, stat int) {
	n := &t.n
	image, c0, c1 := t.share(stat)
	n.Rstd[stat] = float32(1 / math.Sqrt(float64(n.Var[stat])+n.Eps))
	for c := c0; c < c1; c++ {
		at := t.start(image, c)
		factor, shift := n.Rstd[stat]*orElse(n.Gamma, c, 1), orElse(n.Beta, c, 0)
		if t.whole != nil {
			t.planes(w, at, n.Mean[stat], factor, shift, 0)
			continue
		}
		t.applyPieces(w, at, n.Mean[stat], factor, shift)
	}
}

// applyPieces does the work of planes block by block, if there is no kernel for it.
func (t *channelTask) applyPieces(w *worker, at int, mean, factor, shift float32) {
	n, p := &t.n, t.m.Path
	for _, b := range t.pieces {
		x, y := t.load(w, 0, n.X, at, b), t.place(w, 1, n.Y, at, b)
		var residual []float32
		if !n.Residual.absent() {
			residual = t.load(w, 2, n.Residual, at, b)
		}
		tmp := w.row[3].get(len(x))
		p.Axpb(tmp, x, 1, -mean)
		if residual != nil {
			p.Axpb(tmp, tmp, factor, shift)
			p.Binary(Add, y, tmp, residual)
		} else {
			p.Axpb(y, tmp, factor, shift)
		}
		if n.Relu {
			p.Unary(Relu, y, y)
		}
		t.save(n.Y, at, b, y)
		if !n.Copy.absent() {
			t.put(n.Copy, at, b, y)
		}
	}
}

// slope is a block of DY, with zeros where Sign is not above zero.
func (t *channelTask) slope(w *worker, at int, p piece) []float32 {
	dy := t.load(w, 1, t.n.DY, at, p)
	if t.n.Sign.absent() {
		return dy
	}
	sign, masked := t.load(w, 3, t.n.Sign, at, p), w.row[1].get(len(dy))
	t.m.Binary(ReluGrad, masked, sign, dy)
	return masked
}

// products are a block's dy, and its dy*(x-mean).
func (t *channelTask) products(w *worker, at int, b piece, mean float32) (dy, product []float32) {
	if t.terms != nil {
		return t.termsOf(w, at, b, mean)
	}
	x := t.load(w, 0, t.n.X, at, b)
	dy, product = t.slope(w, at, b), w.row[2].get(len(x))
	t.m.Axpb(product, x, 1, -mean)
	t.m.Binary(Mul, product, product, dy)
	return dy, product
}

// gradient computes, with g = dy*gamma,
//
//	dx = rstd * (g - mean(g) - xhat*mean(g*xhat))
func (t *channelTask) gradient(w *worker, stat int) {
	n, p := &t.n, t.m.Path
	image, c0, c1 := t.share(stat)
	mean, rstd := n.Mean[stat], n.Rstd[stat]
	half := len(t.sums) / 2
	var count int
	var sumG, sumGX float64
	for c := c0; c < c1; c++ {
		at, gamma := t.start(image, c), float64(orElse(n.Gamma, c, 1))
		var sum, dot float64
		for _, b := range t.pieces {
			dy, product := t.products(w, at, b, mean)
			sum += float64(p.Sum(dy))
			dot += float64(p.Sum(product)) * float64(rstd)
			count += len(dy)
		}
		t.sums[image*n.Channels+c], t.sums[half+image*n.Channels+c] = dot, sum
		sumG += gamma * sum
		sumGX += gamma * dot
	}
	byDev, shift := -rstd*rstd*float32(sumGX/float64(count)), -rstd*float32(sumG/float64(count))
	for c := c0; c < c1; c++ {
		at, factor := t.start(image, c), rstd*orElse(n.Gamma, c, 1)
		if t.whole != nil && n.Sign.absent() {
			t.planes(w, at, mean, byDev, shift, factor)
			continue
		} else if t.whole != nil {
			t.planes(w, at, mean, byDev, shift, 0, 0, factor)
			continue
		}
		t.gradientPieces(w, at, mean, factor, byDev, shift)
	}
}

// gradientPieces does the work of planes block by block, if there is no kernel for it.
func (t *channelTask) gradientPieces(w *worker, at int, mean, factor, byDev, shift float32) {
	n, p := &t.n, t.m.Path
	for _, b := range t.pieces {
		x, dy, dx := t.load(w, 0, n.X, at, b), t.slope(w, at, b), t.place(w, 3, n.DX, at, b)
		dev := w.row[2].get(len(x))
		p.Axpb(dev, x, 1, -mean)
		p.normGrad(len(x), &dx[0], &dy[0], &dev[0], factor, byDev, shift)
		t.save(n.DX, at, b, dx)
	}
}

// orElse is element i of b, or x if b is absent.
func orElse(b Buf, i int, x float32) float32 {
	if b.absent() {
		return x
	}
	return b.get(i)
}

package kern

// Norms over channels whose planes are contiguous, unless channel_planes.go computes them. A unit is a piece of a channel. The steps
// of a norm are taken statistic by statistic, whose elements then stay in the cache, or, where that would leave workers idle, unit
// by unit, one step of all after the other.

// channelTask is such a norm in progress; each part of the statistics, or of the units, is a task.
type channelTask struct {
	channelStats
	steps  channelSteps
	do     func(t *channelTask, w *worker, task int)
	region Parts
	runs   []piece // that apply and gradient take at a time
	planes [1]piece
	whole  *Fused // the last operations of apply or gradient as one kernel; nil if there is none
	terms  *Fused // the first operations of gradient as one kernel; nil if there is none
	bufs   []Buf  // operands and results of whole
	fused  map[normFormula]*Fused

	parts              int       // parts of channels, a task each, if planes are processed image by image
	firstRows, sumRows planeSum  // of the first image, and of all images
	scalars            []float32 // their scalars, by channel
	lanes              []float64 // their sums, likewise
	about              []planeMoments
}

// channelSteps are the steps of a norm or its gradient, and the work of two of them.
type channelSteps struct {
	sum             func(t *channelTask, w *worker, u channelUnit) // nil: nothing is summed
	join            func(s *channelStats, lo, hi int)              // statistics
	apply           func(t *channelTask, w *worker, u channelUnit)
	work, applyWork int
}

// channels takes the steps, or calls byPlanes for parts of the channels.
func (m *Machine) channels(n *ChannelNorm, steps channelSteps, byPlanes func(*channelTask, *worker, int)) {
	t := &m.channel
	t.begin(m, n)
	t.choose(steps.work == productsWork)
	if t.steps = steps; t.takesPlanes() {
		t.planesBy(steps.work+steps.applyWork, byPlanes)
		return
	}
	if t.runs = t.pieces; n.Channels > 0 && t.sets > 0 {
		t.divide()
	}
}

// divide chooses whether tasks are parts of the statistics, or of the units if there are too few of those.
func (t *channelTask) divide() {
	stats := t.n.Stats()
	whole := t.m.Divide(t.units()*((t.steps.work+t.steps.applyWork)*t.largest()+2*unitWork), stats, 0)
	few := whole.Workers() == stats && stats < t.m.pool.share()
	if (few || whole.part.balance() < balanced) && t.byUnits(whole.part.Time) {
		return
	}
	if t.whole != nil {
		t.planes[0] = piece{0, 0, t.images(), t.n.Space}
		t.runs = t.planes[:]
	}
	t.over(&whole, (*channelTask).wholeStats)
}

// byUnits takes the steps unit by unit if that takes less time.
func (t *channelTask) byUnits(time int) bool {
	s, units := &t.steps, t.units()
	each := func(work int) Parts { return t.m.Divide(units*(work*t.largest()+unitWork), units, 0) }
	sums, joins, apply := each(s.work), t.m.Divide(t.joinedWork()*t.n.Stats(), t.n.Stats(), 0), each(s.applyWork)
	if sums.part.Time+joins.part.Time+apply.part.Time >= time {
		return false
	}
	if s.sum != nil {
		t.over(&sums, (*channelTask).sumUnits)
	}
	t.each(t.joinedWork(), t.n.Stats(), s.join)
	t.over(&apply, (*channelTask).applyUnits)
	return true
}

// units is how many pieces there are of all channels and sets.
func (t *channelTask) units() int { return t.sets * t.n.Channels * len(t.pieces) }

// images is how many images share a statistic.
func (t *channelTask) images() int { return t.n.Images / t.sets }

// over runs do for each of the parts.
func (t *channelTask) over(p *Parts, do func(*channelTask, *worker, int)) {
	if p.box.rows > 0 {
		t.do, t.region = do, *p
		t.m.RunParts(p, t)
	}
}

func (t *channelTask) Run(worker, task int) { t.do(t, t.m.worker[worker], task) }

func (t *channelTask) sumUnits(w *worker, task int) {
	lo, hi := t.region.Of(task)
	for i := lo; i < hi; i = t.m.next(i, 1, hi) {
		t.steps.sum(t, w, t.unit(i, len(t.pieces)))
	}
}

func (t *channelTask) applyUnits(w *worker, task int) {
	lo, hi := t.region.Of(task)
	for i := lo; i < hi; i = t.m.next(i, 1, hi) {
		t.steps.apply(t, w, t.unit(i, len(t.runs)))
	}
}

// wholeStats takes all steps for one statistic after the other.
func (t *channelTask) wholeStats(w *worker, task int) {
	lo, hi := t.region.Of(task)
	for stat := lo; stat < hi; stat = t.m.next(stat, 1, hi) {
		set, c0, c1 := t.share(stat)
		for c := c0; c < c1 && t.steps.sum != nil; c++ {
			for k := range t.pieces {
				t.steps.sum(t, w, channelUnit{set, stat, c, k})
			}
		}
		t.steps.join(&t.channelStats, stat, stat+1)
		for c := c0; c < c1; c++ {
			for k := range t.runs {
				t.steps.apply(t, w, channelUnit{set, stat, c, k})
			}
		}
	}
}

// channelUnit is piece k of channel c of a set, which has a statistic.
type channelUnit struct{ set, stat, c, k int }

// unit is unit i, where so many pieces make a channel.
func (t *channelTask) unit(i, pieces int) channelUnit {
	all := i / pieces
	return channelUnit{all / t.n.Channels, all / t.shared, all % t.n.Channels, i % pieces}
}

// start is where channel c of an image begins.
func (t *channelTask) start(image, c int) int { return (image*t.n.Channels + c) * t.n.Space }

// in is where a piece of a channel begins that begins at at.
func (t *channelTask) in(p piece, at int) int { return at + p.image*t.n.Channels*t.n.Space + p.from }

// inPlace is the piece of b, of the channel at offset at, in memory, or nil if it must be gathered or widened.
func (t *channelTask) inPlace(b Buf, at int, p piece) []float32 {
	if b.Type != F32 || p.rows > 1 && (t.n.Channels > 1 || p.cols < t.n.Space) {
		return nil
	}
	return b.f32()[t.in(p, at):][:p.count()]
}

// load returns the piece of b as f32: in memory if possible, else copied to row slot.
func (t *channelTask) load(w *worker, slot int, b Buf, at int, p piece) []float32 {
	if x := t.inPlace(b, at, p); x != nil {
		return x
	}
	x, image := w.row[slot].get(p.count()), t.n.Channels*t.n.Space
	b = b.From(t.in(p, at))
	if p.cols <= t.m.nr {
		t.m.rows[b.Type](p.rows, p.cols, &x[0], p.cols, b.at(0), image)
		return x
	}
	for r := range p.rows {
		t.m.Load(x[r*p.cols:(r+1)*p.cols], b.From(r*image))
	}
	return x
}

// place is the memory in which the piece of b is computed: its own, or row slot.
func (t *channelTask) place(w *worker, slot int, b Buf, at int, p piece) []float32 {
	if x := t.inPlace(b, at, p); x != nil {
		return x
	}
	return w.row[slot].get(p.count())
}

// save stores a piece that was not computed in place.
func (t *channelTask) save(b Buf, at int, p piece, x []float32) {
	if t.inPlace(b, at, p) == nil {
		t.put(b, at, p, x)
	}
}

// put stores a piece.
func (t *channelTask) put(b Buf, at int, p piece, x []float32) {
	image := t.n.Channels * t.n.Space
	b = b.From(t.in(p, at))
	for r := range p.rows {
		t.m.Store(b.From(r*image), x[r*p.cols:(r+1)*p.cols])
	}
}

// moments are the sum of a unit, and the squared deviations from its own mean.
func (t *channelTask) moments(w *worker, u channelUnit) {
	p := t.m.Path
	x := t.load(w, 0, t.n.X, t.start(u.set, u.c), t.pieces[u.k])
	here, count := float64(p.Sum(x)), float64(len(x))
	mean := float32(here / count)
	off := here/count - float64(mean)
	t.record(u.set, u.k, u.c, here, float64(p.sumSqDev(x, mean))-count*off*off)
}

// apply computes Y of a unit.
func (t *channelTask) apply(w *worker, u channelUnit) {
	n, at, p := &t.n, t.start(u.set, u.c), t.runs[u.k]
	mean, factor, shift := n.Mean[u.stat], n.Rstd[u.stat]*orElse(n.Gamma, u.c, 1), orElse(n.Beta, u.c, 0)
	if p = t.byKernel(w, at, p, mean, factor, shift); p.cols > 0 {
		t.applyPiece(w, at, p, mean, factor, shift)
	}
}

// applyPiece computes what byKernel has left.
func (t *channelTask) applyPiece(w *worker, at int, b piece, mean, factor, shift float32) {
	n, p := &t.n, t.m.Path
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

// slope is a piece of DY, with zeros where Sign is not above zero.
func (t *channelTask) slope(w *worker, at int, p piece) []float32 {
	dy := t.load(w, 1, t.n.DY, at, p)
	if t.n.Sign.absent() {
		return dy
	}
	sign, masked := t.load(w, 3, t.n.Sign, at, p), w.row[1].get(len(dy))
	t.m.Binary(ReluGrad, masked, sign, dy)
	return masked
}

// products are a piece's dy, and its dy*(x-mean).
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

// sumProducts sums the products of a unit.
func (t *channelTask) sumProducts(w *worker, u channelUnit) {
	p := t.m.Path
	dy, product := t.products(w, t.start(u.set, u.c), t.pieces[u.k], t.n.Mean[u.stat])
	t.record(u.set, u.k, u.c, float64(p.Sum(dy)), float64(p.Sum(product)))
}

// gradient computes DX of a unit.
func (t *channelTask) gradient(w *worker, u channelUnit) {
	n, at, p := &t.n, t.start(u.set, u.c), t.runs[u.k]
	mean, byDev, shift, factor := n.Mean[u.stat], t.slopes[0][u.stat], t.slopes[1][u.stat], n.Rstd[u.stat]*orElse(n.Gamma, u.c, 1)
	if n.Sign.absent() {
		p = t.byKernel(w, at, p, mean, byDev, shift, factor)
	} else {
		p = t.byKernel(w, at, p, mean, byDev, shift, 0, 0, factor)
	}
	if p.cols > 0 {
		t.gradientPiece(w, at, p, mean, factor, byDev, shift)
	}
}

// gradientPiece computes what byKernel has left.
func (t *channelTask) gradientPiece(w *worker, at int, b piece, mean, factor, byDev, shift float32) {
	n, p := &t.n, t.m.Path
	x, dy, dx := t.load(w, 0, n.X, at, b), t.slope(w, at, b), t.place(w, 3, n.DX, at, b)
	dev := w.row[2].get(len(x))
	p.Axpb(dev, x, 1, -mean)
	p.normGrad(len(x), &dx[0], &dy[0], &dev[0], factor, byDev, shift)
	t.save(n.DX, at, b, dx)
}

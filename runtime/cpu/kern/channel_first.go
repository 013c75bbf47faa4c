package kern

// Norms over channels whose planes are contiguous. A unit is a piece of a channel. The steps of a norm are taken for a chunk of
// statistics after the other, whose elements then stay in the cache, or, where that would leave workers idle, for all units, one
// step after the other.

// channelTask is such a norm in progress; each part of the statistics, or of the units, is a task.
type channelTask struct {
	channelStats
	steps   channelSteps
	do      func(t *channelTask, w *worker, task int)
	region  Parts
	chunk   int    // statistics whose elements stay in the cache
	vectors bool   // planes are whole vectors
	whole   *Fused // the last operations of apply or gradient as one kernel; nil if there is none
	rowSums *Fused // what is summed, as a kernel of rows: of planes that are whole vectors, else of f32; nil if there is none
	bufs    []Buf  // operands and results of whole
	fused   map[normFormula]*Fused
}

// channelSteps are the steps of a norm or its gradient, and the work of two of them.
type channelSteps struct {
	sum             func(t *channelTask, w *worker, u channelUnit)        // nil: nothing is summed
	rows            func(t *channelTask, w *worker, u channelUnit, n int) // the same of n units, by kernels
	join            func(s *channelStats, lo, hi int)                     // statistics
	apply           func(t *channelTask, w *worker, at int, p piece, scalars *rowScalars)
	scalars         func(t *channelTask, stat, c int) rowScalars // of apply
	work, applyWork int
}

// rowScalars are the scalars that a kernel takes for a row.
type rowScalars [RowScalars]float32

// channels takes the steps.
func (m *Machine) channels(n *ChannelNorm, steps channelSteps) {
	t := &m.channel
	t.begin(m, n)
	if n.Channels == 0 || t.sets == 0 {
		return
	}
	gradient := steps.work == productsWork
	t.choose(gradient)
	t.steps, t.chunk = steps, t.chunkOf(n.Space*n.summedSize(gradient))
	t.divide()
}

// divide chooses whether tasks are parts of the statistics, or of the units if there are too few of those.
func (t *channelTask) divide() {
	stats := t.n.Stats()
	whole := t.m.Divide(t.units()*((t.steps.work+t.steps.applyWork)*t.largest()+2*unitWork), stats, 0)
	few := whole.Workers() == stats && stats < t.m.pool.share()
	if (few || whole.part.balance() < balanced) && t.byUnits(whole.part.Time) {
		return
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
		t.over(&sums, (*channelTask).sumTask)
	}
	t.each(t.joinedWork(), t.n.Stats(), s.join)
	t.over(&apply, (*channelTask).applyTask)
	return true
}

// units is how many pieces there are of all channels and sets.
func (t *channelTask) units() int { return t.sets * t.n.Channels * len(t.pieces) }

// channelUnit is the unit of piece k.
type channelUnit struct{ set, c, k int }

// unit is unit i.
func (t *channelTask) unit(i int) channelUnit {
	row := i / t.parts
	group, groups := row/t.n.Channels, len(t.pieces)/t.parts
	return channelUnit{group / groups, row % t.n.Channels, group%groups*t.parts + i%t.parts}
}

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

func (t *channelTask) sumTask(w *worker, task int) {
	lo, hi := t.region.Of(task)
	t.sumUnits(w, lo, hi)
}

func (t *channelTask) applyTask(w *worker, task int) {
	lo, hi := t.region.Of(task)
	for lo < hi {
		u, n := t.unit(lo), 1
		if t.whole != nil && t.vectors {
			n = min(t.appliedFrom(u), hi-lo)
			t.applyUnits(w, u, n)
		} else {
			t.applyPiece(w, u.set, u.c, t.pieces[u.k])
		}
		lo = t.m.next(lo, n, hi)
	}
}

// wholeStats takes all steps for one chunk of statistics after the other.
func (t *channelTask) wholeStats(w *worker, task int) {
	lo, hi := t.region.Of(task)
	for lo < hi {
		n := min(t.chunk, hi-lo)
		if t.n.Groups > 0 { // an image is a set
			n = min(n, t.n.Groups-lo%t.n.Groups)
		}
		t.someStats(w, lo, lo+n)
		lo = t.m.next(lo, n, hi)
	}
}

// someStats takes all steps for statistics [lo,hi) of a set.
func (t *channelTask) someStats(w *worker, lo, hi int) {
	set, c0, _ := t.share(lo)
	_, _, c1 := t.share(hi - 1)
	for k := 0; k < len(t.pieces) && t.steps.sum != nil; k = t.m.next(k, t.parts, len(t.pieces)) {
		first := t.first(set, c0, k)
		t.sumUnits(w, first, first+(c1-c0)*t.parts)
	}
	t.steps.join(&t.channelStats, lo, hi)
	if t.whole != nil && t.vectors {
		t.applyRows(w, set, c0, c1, 0, t.images())
		return
	}
	for c := c0; c < c1; c++ {
		if t.whole != nil {
			t.applyPiece(w, set, c, piece{0, 0, t.images(), t.n.Space})
			continue
		}
		for _, p := range t.pieces {
			t.applyPiece(w, set, c, p)
		}
	}
}

// start is where channel c of an image begins.
func (t *channelTask) start(image, c int) int { return (image*t.n.Channels + c) * t.n.Space }

// in is where a piece of a channel begins that begins at at.
func (t *channelTask) in(p piece, at int) int { return at + p.image*t.n.Channels*t.n.Space + p.from }

// applyPiece takes the last step for a piece of a channel of a set: by the kernel, and then what that leaves.
func (t *channelTask) applyPiece(w *worker, set, c int, p piece) {
	at := t.start(set, c)
	w.scalars = t.steps.scalars(t, t.stat(set, c), c)
	if p = t.byKernel(w, at, p); p.cols > 0 {
		t.steps.apply(t, w, at, p, &w.scalars)
	}
}

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
	x := w.row[slot].get(p.count())
	t.gather(x, b, at, p)
	return x
}

// gather copies the piece of b to x as f32.
func (t *channelTask) gather(x []float32, b Buf, at int, p piece) {
	image := t.n.Channels * t.n.Space
	b = b.From(t.in(p, at))
	if p.cols <= t.m.nr {
		t.m.rows[b.Type](p.rows, p.cols, &x[0], p.cols, b.at(0), image)
		return
	}
	for r := range p.rows {
		t.m.Load(x[r*p.cols:(r+1)*p.cols], b.From(r*image))
	}
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

// moments are those of a unit.
func (t *channelTask) moments(w *worker, u channelUnit) {
	p, x := t.m.Path, t.load(w, 0, t.n.X, t.start(u.set, u.c), t.pieces[u.k])
	about := pivot(p.Sum(x[:min(lanes, len(x))]), len(x))
	var sum, square float32
	if t.rowSums != nil {
		sum, square = t.gatheredMoments(w, x, about)
	} else {
		dev := w.row[1].get(len(x))
		p.Axpb(dev, x, 1, -about)
		sum, square = p.Sum(dev), p.SumSq(dev)
	}
	t.sums[t.unitOf(u.set, u.c, u.k)] = momentsAbout(about, sum, square, len(x))
}

// applyScalars are the mean of a channel, its factor and its shift.
func (t *channelTask) applyScalars(stat, c int) rowScalars {
	n := &t.n
	return rowScalars{n.Mean[stat], n.Rstd[stat] * orElse(n.Gamma, c, 1), orElse(n.Beta, c, 0)}
}

// apply computes Y of a piece of a channel that begins at at.
func (t *channelTask) apply(w *worker, at int, b piece, s *rowScalars) {
	n, p, mean, factor, shift := &t.n, t.m.Path, s[0], s[1], s[2]
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
	x := t.load(w, 0, t.n.X, at, b)
	dy, product = t.slope(w, at, b), w.row[2].get(len(x))
	t.m.Axpb(product, x, 1, -mean)
	t.m.Binary(Mul, product, product, dy)
	return dy, product
}

// sumProducts sums the products of a unit.
func (t *channelTask) sumProducts(w *worker, u channelUnit) {
	p, mean := t.m.Path, t.n.Mean[t.stat(u.set, u.c)]
	if t.rowSums != nil {
		dot, sum := t.gatheredProducts(w, u, mean)
		t.sums[t.unitOf(u.set, u.c, u.k)] = pieceSums{float64(sum), float64(dot)}
		return
	}
	dy, product := t.products(w, t.start(u.set, u.c), t.pieces[u.k], mean)
	t.sums[t.unitOf(u.set, u.c, u.k)] = pieceSums{float64(p.Sum(dy)), float64(p.Sum(product))}
}

// gradientScalars are the mean of a channel, what DX has of the deviation and on its own, and of DY.
func (t *channelTask) gradientScalars(stat, c int) rowScalars {
	n := &t.n
	return rowScalars{n.Mean[stat], t.slopes[0][stat], t.slopes[1][stat], n.Rstd[stat] * orElse(n.Gamma, c, 1)}
}

// gradient computes DX of a piece of a channel that begins at at.
func (t *channelTask) gradient(w *worker, at int, b piece, s *rowScalars) {
	n, p := &t.n, t.m.Path
	x, dy, dx := t.load(w, 0, n.X, at, b), t.slope(w, at, b), t.place(w, 3, n.DX, at, b)
	dev := w.row[2].get(len(x))
	p.Axpb(dev, x, 1, -s[0])
	p.normGrad(len(x), &dx[0], &dy[0], &dev[0], s[3], s[1], s[2])
	t.save(n.DX, at, b, dx)
}

package kern

// Norms over channels that are the last dimension. A piece of all channels is a block of consecutive rows, whose columns are summed as
// Path.Sum sums one: in 64 chains, each of every 64th row.

// Sizes of strips of columns and of repeated vectors. They do not change the order of a sum.
const (
	deepRows    = 4       // rows that are added to a chain at a time
	lastColumns = 256     // most columns of a strip
	lastVector  = 1 << 10 // elements of a repeated vector of channels
	longVector  = 1 << 12 // most elements of a longer one that is whole vectors of the path
	pageSkew    = 512     // elements from the start of a page: loads at the same place in a page as a store wait for it
)

// lastTask is such a norm in progress; each strip of a block, or part of all rows, is a task.
type lastTask struct {
	channelStats
	do      func(t *lastTask, w *worker, task int)
	sum     func(t *lastTask, w *worker, s channelStrip)
	finish  func(t *lastTask, w *worker, r channelRows)
	region  Parts   // of units, of blocks or of rows
	column  rowTask // sums columns of X
	setRows int     // rows of a set
	repeat  int     // rows of a repeated vector
	units   int     // of a set: so many rows each
	lastKernels
	kernels map[normFormula]lastKernels
	summed  []Buf // what chains read, beside vectors
	bufs    []Buf // operands and results of whole, beside vectors
}

// channelStrip is some columns of a block.
type channelStrip struct {
	set, piece int
	at         int // of their first element
	c0, cols   int
	again      int // columns in front that another strip sums, too
	rows       int
	step       int // consecutive rows without a gap
}

// channelRows are consecutive elements of a set, whole rows.
type channelRows struct{ set, at, n int }

// channelsLast prepares a norm with channels last.
func (m *Machine) channelsLast(n *ChannelNorm, gradient bool) *lastTask {
	t := &m.last
	t.begin(m, n)
	t.column.m, t.column.a, t.column.inner, t.column.reduce = m, n.X, n.Channels, ReduceSum
	t.setRows = n.Images * n.Space / max(1, t.sets)
	t.repeat = max(1, min(t.repeated(), t.setRows))
	t.units = ceilDiv(t.setRows, t.repeat)
	t.choose(gradient)
	return t
}

// repeated is how many rows a repeated vector has: whole vectors of the path, if it is then not too long.
func (t *lastTask) repeated() int {
	c, whole := t.n.Channels, t.m.lanes
	for whole > 1 && whole/2*c%t.m.lanes == 0 {
		whole /= 2
	}
	rows := ceilDiv(lastVector, c)
	if long := roundUp(rows, whole); long*c <= longVector {
		return long
	}
	return rows
}

func (t *lastTask) Run(worker, task int) { t.do(t, t.m.worker[worker], task) }

// blocks calls sum for the strips of all blocks, with so much work for an element. A unit is columnUnit columns of a block.
func (t *lastTask) blocks(work int, sum func(*lastTask, *worker, channelStrip)) {
	rows, cols := t.largest(), t.n.Channels
	if blocks := t.sets * len(t.pieces); blocks > 0 {
		b := box{items: 1, rows: blocks * ceilDiv(cols, columnUnit), cols: 1, cell: work * rows * min(columnUnit, cols), task: taskCost + rowCost*rows}
		t.sum, t.do, t.region = sum, (*lastTask).someBlocks, Parts{b, t.m.divide(b, t.m.pool.share())}
		t.m.RunParts(&t.region, t)
	}
}

// someBlocks calls sum for the strips of a task, block by block.
func (t *lastTask) someBlocks(w *worker, task int) {
	units := ceilDiv(t.n.Channels, columnUnit)
	for lo, hi := t.region.Of(task); lo < hi; {
		block := lo / units
		end := min(hi, (block+1)*units)
		t.strips(w, block, lo-block*units, end-block*units)
		lo = t.m.next(lo, end-lo, hi)
	}
}

// strips calls sum for columns of a block, units [u0,u1).
func (t *lastTask) strips(w *worker, block, u0, u1 int) {
	all := t.n.Channels
	s := channelStrip{set: block / len(t.pieces), piece: block % len(t.pieces)}
	p := &t.pieces[s.piece]
	s.rows = p.count()
	first := s.set*t.setRows + p.image*t.n.Space + p.from
	for n := even(u1-u0, lastColumns/columnUnit); u0 < u1; u0 = t.m.next(u0, n, u1) {
		s.c0, s.step = u0*columnUnit, 1
		s.cols = min(min(u0+n, u1)*columnUnit, all) - s.c0
		if s.again = 0; s.cols < all {
			s.again = roundUp(s.cols, columnUnit) - s.cols
			s.c0, s.cols = s.c0-s.again, s.cols+s.again
		} else {
			for s.step < lanes && s.step*all < lastVector {
				s.step *= 2
			}
		}
		s.at = first*all + s.c0
		t.sum(t, w, s)
	}
}

// runs calls f for runs of n elements that are added to chains from element to on: those at at, and of deep-1 runs more that are 64 rows
// apart.
func (t *lastTask) runs(s channelStrip, f func(deep, at, to, n int)) {
	for r := 0; r < s.rows; {
		deep, chains := 1, min(lanes, s.rows-r)
		if s.rows-r >= deepRows*lanes {
			deep = deepRows
		}
		for i := 0; i < chains; i += s.step {
			f(deep, s.at+(r+i)*t.n.Channels, i*s.cols, min(s.step, chains-i)*s.cols)
		}
		r += deep * chains
	}
}

// byKernel adds a run to chains of one or two sums, whole vectors, and returns how many elements these are.
func (t *lastTask) byKernel(w *worker, mean []float32, sums [][]float32, deep, at, to, n int) int {
	k := t.chains[min(1, deep-1)]
	whole := n &^ (t.m.lanes - 1)
	if k == nil || whole == 0 {
		return 0
	}
	args := append(w.call.args[:0], bytes(&mean[0]))
	for _, s := range sums {
		args = append(args, bytes(&s[to]))
	}
	for i := range deep {
		for _, b := range t.summed {
			args = append(args, b.at(at+i*lanes*t.n.Channels))
		}
	}
	for _, s := range sums {
		args = append(args, bytes(&s[to]))
	}
	k.composed.run(whole, &w.call, k.types, nil)
	return whole
}

// fold adds up the chains of a strip.
func (t *lastTask) fold(w *worker, sums, chains []float32, s channelStrip) {
	p, rows := t.m.Path, min(lanes, s.rows)
	if p.foldRows[F32] != nil && s.cols%p.lanes == 0 {
		p.foldLanes(w, sums, Floats(chains), rows, s.cols)
		return
	}
	p.foldHalves(chains, rows, s.cols)
	copy(sums, chains)
}

// load returns n elements of b as f32: in memory if possible, else copied to row slot.
func (t *lastTask) load(w *worker, slot int, b Buf, at, n int) []float32 {
	if b.Type == F32 {
		return b.f32()[at : at+n]
	}
	x := w.row[slot].get(n)
	t.m.Load(x, b.From(at))
	return x
}

// moments are those of a strip's columns.
func (t *lastTask) moments(w *worker, s channelStrip) {
	p := t.m.Path
	mean, heads := w.row[4].get(s.step*s.cols), w.row[0].get(2 * s.cols)[:s.cols]
	t.column.columns(w, heads, s.at, min(lanes, s.rows))
	for i, x := range heads {
		mean[i] = pivot(x, s.rows)
	}
	repeat(mean, s.cols)
	t.sumChains(w, s, mean, func(at, done, n, to int, chains [2][]float32) {
		x, dev := t.load(w, 1, t.n.X, at, n-done), w.row[2].get(n-done)
		p.Binary(Sub, dev, x, mean[done:n])
		sum, square := chains[0][to+done:to+n], chains[1][to+done:to+n]
		p.Binary(Add, sum, sum, dev)
		p.Ternary(FMA, square, dev, dev, square)
	}, func(i int, dev, square float32) pieceSums { return momentsAbout(mean[i], dev, square, s.rows) })
}

// sumChains sums a strip in two chains each, by the kernel, or what that leaves by passes: of n elements from at on those behind the
// first that are done, to chain to. each is what follows from the two sums of a column.
func (t *lastTask) sumChains(w *worker, s channelStrip, mean []float32, passes func(at, done, n, to int, chains [2][]float32), each func(i int, a, b float32) pieceSums) {
	size := min(lanes, s.rows) * s.cols
	both := w.row[5].get(2*size + 2*pageSkew)[pageSkew:]
	clear(both)
	chains := [2][]float32{both[:size], both[size+pageSkew/2:][:size]}
	t.runs(s, func(deep, at, to, n int) {
		done := t.byKernel(w, mean, chains[:], deep, at, to, n)
		for i := 0; done < n && i < deep; i++ {
			passes(at+done+i*lanes*t.n.Channels, done, n, to, chains)
		}
	})
	folded := w.row[0].get(2 * s.cols)
	a, b := folded[:s.cols], folded[s.cols:]
	t.fold(w, a, chains[0], s)
	t.fold(w, b, chains[1], s)
	unit := t.unitOf(s.set, s.c0, s.piece)
	for i := s.again; i < s.cols; i++ {
		t.sums[unit+i*t.parts] = each(i, a[i], b[i])
	}
}

// repeat fills x with repetitions of its first c elements.
func repeat(x []float32, c int) {
	for ; c < len(x); c *= 2 {
		copy(x[c:], x[:c])
	}
}

// slope is n elements of DY, with zeros where Sign is not above zero.
func (t *lastTask) slope(w *worker, at, n int) []float32 {
	dy := t.load(w, 2, t.n.DY, at, n)
	if t.n.Sign.absent() {
		return dy
	}
	masked := w.row[2].get(n)
	t.m.Binary(ReluGrad, masked, t.load(w, 3, t.n.Sign, at, n), dy)
	return masked
}

// products are the sums of dy and of dy*(x-mean) of a strip's columns.
func (t *lastTask) products(w *worker, s channelStrip) {
	p := t.m.Path
	mean := w.row[4].get(s.step * s.cols)
	for i := range s.cols {
		mean[i] = t.n.Mean[t.stat(s.set, s.c0+i)]
	}
	repeat(mean, s.cols)
	t.sumChains(w, s, mean, func(at, done, n, to int, chains [2][]float32) {
		x, dy, product := t.load(w, 1, t.n.X, at, n-done), t.slope(w, at, n-done), w.row[0].get(n-done)
		p.Binary(Sub, product, x, mean[done:n])
		p.Binary(Mul, product, product, dy)
		for k, x := range [2][]float32{product, dy} {
			to := chains[k][to+done : to+n]
			p.Binary(Add, to, to, x)
		}
	}, func(_ int, dot, sum float32) pieceSums { return pieceSums{float64(sum), float64(dot)} })
}

// rows calls finish for parts of the rows, with so much work for an element.
func (t *lastTask) rows(work int, finish func(*lastTask, *worker, channelRows)) {
	if n := t.sets * t.units; n > 0 {
		t.finish, t.do = finish, (*lastTask).someRows
		t.region = t.m.Divide(work*t.repeat*t.n.Channels*n, n, 0)
		t.m.RunParts(&t.region, t)
	}
}

// someRows calls finish for the rows of a task, set by set.
func (t *lastTask) someRows(w *worker, task int) {
	for lo, hi := t.region.Of(task); lo < hi; {
		set := lo / t.units
		end := min(hi, (set+1)*t.units)
		r0, r1 := lo%t.units*t.repeat, min((end-set*t.units)*t.repeat, t.setRows)
		t.finish(t, w, channelRows{set, (set*t.setRows + r0) * t.n.Channels, (r1 - r0) * t.n.Channels})
		lo = end
	}
}

// vectors are repeated vectors of channels of a set: of values of statistics, in order.
func (t *lastTask) vectors(w *worker, set int, values ...[]float32) (v [4][]float32) {
	c, width := t.n.Channels, roundUp(t.repeat*t.n.Channels, columnUnit)+columnUnit
	all, stats := w.row[0].get(len(v)*width+pageSkew), c/t.shared
	for k := range v {
		if v[k] = all[k*width+pageSkew:][:t.repeat*c]; k >= len(values) {
			continue
		}
		of := values[k][set*stats:][:stats]
		if t.shared == 1 {
			copy(v[k], of)
			continue
		}
		for i, x := range of {
			t.m.Fill(v[k][i*t.shared:][:t.shared], x)
		}
	}
	return v
}

// scaled multiplies a vector by Gamma, if that is present.
func (t *lastTask) scaled(w *worker, v []float32) {
	if !t.n.Gamma.absent() {
		v = v[:t.n.Channels]
		t.m.Binary(Mul, v, v, t.load(w, 1, t.n.Gamma, 0, len(v)))
	}
}

// combine computes rows with vectors: by the kernel, or what that does not compute, n elements from element off of the vectors on, by passes.
func (t *lastTask) combine(w *worker, r channelRows, vectors [][]float32, passes func(at, off, n int)) {
	for _, v := range vectors {
		repeat(v, t.n.Channels)
	}
	width := len(vectors[0])
	for done := 0; done < r.n; done = t.m.next(done, width, r.n) {
		at, n, whole := r.at+done, min(width, r.n-done), 0
		if t.whole != nil {
			whole = n &^ (t.m.lanes - 1)
		}
		if whole > 0 {
			args := w.call.args[:0]
			for _, v := range vectors {
				args = append(args, bytes(&v[0]))
			}
			for _, b := range t.bufs {
				args = append(args, b.at(at))
			}
			t.whole.composed.run(whole, &w.call, t.whole.types, nil)
		}
		if whole < n {
			passes(at+whole, whole, n-whole)
		}
	}
}

// apply computes Y from the statistics.
func (t *lastTask) apply(w *worker, r channelRows) {
	n, p := &t.n, t.m.Path
	v := t.vectors(w, r.set, n.Mean, n.Rstd)
	mean, factor, shift := v[0], v[1], v[2]
	if t.scaled(w, factor); n.Beta.absent() {
		clear(shift)
	} else {
		p.Load(shift[:n.Channels], n.Beta)
	}
	t.combine(w, r, v[:3], func(at, off, k int) {
		x, y := t.load(w, 1, n.X, at, k), w.row[2].get(k)
		p.Binary(Sub, y, x, mean[off:off+k])
		p.Ternary(FMA, y, y, factor[off:off+k], shift[off:off+k])
		if !n.Residual.absent() {
			p.Binary(Add, y, y, t.load(w, 3, n.Residual, at, k))
		}
		if n.Relu {
			p.Unary(Relu, y, y)
		}
		p.Store(n.Y.From(at), y)
		if !n.Copy.absent() {
			p.Store(n.Copy.From(at), y)
		}
	})
}

// gradient computes DX from the slopes.
func (t *lastTask) gradient(w *worker, r channelRows) {
	n, p := &t.n, t.m.Path
	v := t.vectors(w, r.set, n.Mean, t.slopes[0], t.slopes[1], n.Rstd)
	mean, byDev, shift, factor := v[0], v[1], v[2], v[3]
	t.scaled(w, factor)
	t.combine(w, r, v[:], func(at, off, k int) {
		x, dy, dx := t.load(w, 1, n.X, at, k), t.slope(w, at, k), w.row[4].get(k)
		p.Binary(Sub, dx, x, mean[off:off+k])
		p.Ternary(FMA, dx, dx, byDev[off:off+k], shift[off:off+k])
		p.Ternary(FMA, dx, dy, factor[off:off+k], dx)
		p.Store(n.DX.From(at), dx)
	})
}

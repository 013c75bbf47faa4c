package kern

// Planes that are whole vectors, by kernels that take pieces of consecutive channels, or of one plane, as rows. They are processed image
// by image, in the order of memory: the planes of one channel are far apart, often by a power of two, so that caches do not keep
// them and the hardware does not prefetch them.

const (
	mostRows   = 128     // that are summed at a time: their chains stay in a second-level cache
	onceRows   = 32      // likewise, of one plane each: chains stay in the first
	chunkSize  = 1 << 18 // bytes of the operands of a chunk, see Caches
	mostScalar = 256     // most rows of apply that scalars are written for
)

// byRows reports whether kernels sum planes as rows.
func (t *channelTask) byRows() bool { return t.rowSums != nil && t.vectors }

// sumUnits sums units [lo,hi).
func (t *channelTask) sumUnits(w *worker, lo, hi int) {
	for lo < hi {
		u, n := t.unit(lo), 1
		if t.byRows() {
			n = min(t.rowsFrom(u), hi-lo)
			t.steps.rows(t, w, u, n)
		} else {
			t.steps.sum(t, w, u)
		}
		lo = t.m.next(lo, n, hi)
	}
}

// rowsFrom is how many units from u on are rows of one length, without a gap.
func (t *channelTask) rowsFrom(u channelUnit) int {
	n, part := t.n.Channels-u.c, u.k%t.parts
	switch {
	case t.n.Space%t.pieces[0].cols == 0: // all are alike
		n = n*t.parts - part
	case part == t.parts-1:
		n = 1
	default:
		n = t.parts - 1 - part
	}
	if t.pieces[0].rows == 1 {
		return min(n, onceRows)
	}
	return min(n, mostRows)
}

// addRows adds up n rows from unit u on, each in chains of its own.
func (t *channelTask) addRows(w *worker, u channelUnit, n int) (chains []float32) {
	f := t.rowSums
	chains = w.row[5].get(2 * lanes * mostRows)[:f.sums*lanes*n]
	clear(chains)
	b := t.pieces[u.k]
	f.SumRows(&w.call, t.bufs, t.scalarsOf(w), chains, 0, t.in(b, t.start(u.set, u.c)), n, b.cols, b.rows, t.n.Channels*t.n.Space)
	return chains
}

// scalarsOf is memory for the scalars of rows.
func (t *channelTask) scalarsOf(w *worker) []float32 {
	return w.row[4].get(RowScalars * max(mostRows, min(t.n.Channels, mostScalar)))
}

// momentsOfRows are the moments of n units from u on, which are rows.
func (t *channelTask) momentsOfRows(w *worker, u channelUnit, n int) {
	count, pivots, scalars := t.pieces[u.k].count(), w.row[3].get(2*mostRows), t.scalarsOf(w)
	t.m.foldChains(n, &pivots[0], &t.heads(w, u, n)[0])
	for r, head := range pivots[:n] {
		scalars[RowScalars*r] = pivot(head, count)
	}
	folded := w.row[3].get(2 * mostRows)
	t.m.foldChains(2*n, &folded[0], &t.addRows(w, u, n)[0])
	sums := t.sums[t.unitOf(u.set, u.c, u.k):][:n]
	for r := range sums {
		sums[r] = momentsAbout(scalars[RowScalars*r], folded[2*r], folded[2*r+1], count)
	}
}

// heads are the first 64 elements of n units from u on, or all and zeros.
func (t *channelTask) heads(w *worker, u channelUnit, n int) []float32 {
	b, step := &t.pieces[u.k], t.n.Channels*t.n.Space
	to, x := w.row[5].get(2 * lanes * mostRows)[:lanes*n], t.n.X.From(t.in(*b, t.start(u.set, u.c)))
	head := min(lanes, b.count())
	if head < lanes {
		clear(to)
	}
	for done := 0; done < head; {
		row, col := done/b.cols, done%b.cols
		some := min(t.m.nr, b.cols-col, head-done)
		t.m.rows[x.Type](n, some, &to[done], lanes, x.at(row*step+col), b.cols)
		done += some
	}
	t.touchHeads(&x, n, n*b.cols, b.cols)
	return to
}

// touchHeads fetches the heads of n rows of so many elements from element at of x on, the next that heads will read: they are too far
// apart for the hardware to do that.
func (t *channelTask) touchHeads(x *Buf, n, at, row int) {
	if t.m.touch != nil && row > lanes && at+n*row <= x.Len() {
		size := x.Type.Size()
		t.m.touch(n, x.at(at), row*size, lanes*size)
	}
}

// productsOfRows are the sums of products of n units from u on, which are rows.
func (t *channelTask) productsOfRows(w *worker, u channelUnit, n int) {
	scalars, part := t.scalarsOf(w), u.k%t.parts
	for r := range n {
		scalars[RowScalars*r] = t.n.Mean[t.stat(u.set, u.c+(part+r)/t.parts)]
	}
	folded := w.row[3].get(2 * mostRows)
	t.m.foldChains(2*n, &folded[0], &t.addRows(w, u, n)[0])
	sums := t.sums[t.unitOf(u.set, u.c, u.k):][:n]
	for r := range sums {
		sums[r] = pieceSums{float64(folded[2*r+1]), float64(folded[2*r])}
	}
}

// appliedFrom is how many units from u on the last step takes at a time.
func (t *channelTask) appliedFrom(u channelUnit) int {
	if t.parts > 1 {
		return t.parts - u.k%t.parts
	}
	return t.n.Channels - u.c
}

// applyUnits takes the last step for n units from u on, as one kernel.
func (t *channelTask) applyUnits(w *worker, u channelUnit, n int) {
	b := t.pieces[u.k]
	if t.parts == 1 {
		t.applyRows(w, u.set, u.c, u.c+n, b.image, b.image+b.rows)
		return
	}
	last := t.pieces[u.k+n-1]
	w.scalars = t.steps.scalars(t, t.stat(u.set, u.c), u.c)
	t.whole.Rows(&w.call, t.bufs, w.scalars[:], t.in(b, t.start(u.set, u.c)), 1, last.from+last.cols-b.from)
}

// applyRows takes the last step for channels [c0,c1) of the images of a set, as one kernel, in reverse order, because the last images may
// still be in the cache.
func (t *channelTask) applyRows(w *worker, set, c0, c1, i0, i1 int) {
	scalars := t.scalarsOf(w)
	for c0 < c1 {
		n := min(c1-c0, mostScalar)
		for c := range n {
			s := t.steps.scalars(t, t.stat(set, c0+c), c0+c)
			copy(scalars[RowScalars*c:], s[:])
		}
		for i := i0; i < i1; i = t.m.next(i, 1, i1) {
			t.whole.Rows(&w.call, t.bufs, scalars, t.start(set+i1-1-i+i0, c0), n, t.n.Space)
		}
		c0 = t.m.next(c0, n, c1)
	}
}

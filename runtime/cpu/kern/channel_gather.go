package kern

// Planes that are not whole vectors, by kernels that sum them where they are contiguous, else copies of them in f32.

// gatheredMoments are the sums of deviations of x from a number and of their squares.
func (t *channelTask) gatheredMoments(w *worker, x []float32, about float32) (dev, square float32) {
	both := t.newChains(w, about)
	w.bufs[0] = Floats(x)
	t.addAll(w, both, len(x), about)
	return t.folded(w, both)
}

// gatheredProducts are the sums of a unit's products and slopes. Some rows, or parts of a row, are copied at a time, which stay in the
// first-level cache.
func (t *channelTask) gatheredProducts(w *worker, u channelUnit, mean float32) (dot, sum float32) {
	p, at, both := &t.pieces[u.k], t.start(u.set, u.c), t.newChains(w, mean)
	most, held := channelPiece/t.rowSums.loads&^(lanes-1), 0
	for r, rows := 0, max(1, most/p.cols); r < p.rows; r += rows {
		for lo := 0; lo < p.cols; lo += most {
			part := piece{p.image + r, p.from + lo, min(rows, p.rows-r), min(most, p.cols-lo)}
			t.touchNext(part, at, rows)
			for i := range t.rowSums.loads {
				x := w.row[i].get(lanes + most)
				t.gather(x[held:][:part.count()], t.bufs[i], at, part)
				w.bufs[i] = Floats(x)
			}
			held = t.addGathered(w, both, held+part.count())
		}
	}
	t.addAll(w, both, held, mean)
	return t.folded(w, both)
}

// touchNext fetches the rows behind a part, which are too far apart for the hardware to do that.
func (t *channelTask) touchNext(p piece, at, rows int) {
	image := t.n.Channels * t.n.Space
	p.image += rows
	if t.m.touch == nil || p.cols < t.n.Space {
		return
	}
	for i := range t.rowSums.loads {
		b, from := &t.bufs[i], t.in(p, at)
		if n := min(p.rows, ceilDiv(b.Len()-from, image)); n > 0 {
			size := b.Type.Size()
			t.m.touch(n, b.at(from), image*size, p.cols*size)
		}
	}
}

// newChains are the chains of two sums, about a number.
func (t *channelTask) newChains(w *worker, about float32) []float32 {
	both := w.row[5].get(2 * lanes)[:2*lanes]
	clear(both)
	w.scalars = rowScalars{about}
	return both
}

func (t *channelTask) folded(w *worker, both []float32) (first, second float32) {
	sums := w.row[4].get(2)
	t.m.foldChains(2, &sums[0], &both[0])
	return sums[0], sums[1]
}

// addGathered adds what the worker's bufs hold, whole runs of 64 elements, to the chains, and returns how many it leaves, which are then
// first.
func (t *channelTask) addGathered(w *worker, both []float32, held int) int {
	whole := held &^ (lanes - 1)
	if whole > 0 {
		t.rowSums.SumRows(&w.call, w.bufs[:t.rowSums.loads], w.scalars[:], both, 0, 0, 1, whole, 1, 0)
		for _, b := range w.bufs[:t.rowSums.loads] {
			copy(b.f32(), b.f32()[whole:held])
		}
	}
	return held - whole
}

// addAll adds n elements of the worker's bufs to the chains, those that are no whole vector one by one.
func (t *channelTask) addAll(w *worker, both []float32, n int, about float32) {
	bufs, whole := w.bufs[:t.rowSums.loads], n&^(t.m.lanes-1)
	if whole > 0 {
		t.rowSums.SumRows(&w.call, bufs, w.scalars[:], both, 0, 0, 1, whole, 1, 0)
	}
	for i := whole; i < n; i++ {
		dev, sum, second := bufs[0].get(i)-about, &both[i%lanes], &both[lanes+i%lanes]
		if len(bufs) == 1 {
			*sum, *second = *sum+dev, fma32(dev, dev, *second)
			continue
		}
		slope := bufs[1].get(i)
		if len(bufs) > 2 && !(bufs[2].get(i) > 0) {
			slope = 0
		}
		*sum, *second = *sum+float32(slope*dev), *second+slope
	}
}

package kern

// Reduction names what Reduce computes.
type Reduction uint8

// The reductions.
const (
	ReduceSum Reduction = iota
	ReduceMean
	ReduceMax
	ReduceMin
	ReduceSumSq
)

// Reduce reduces the middle axis of src [outer, n, inner] to dst [outer, inner]. Sums are those of Path.Sum and Path.SumSq, bit for
// bit, whatever inner is. An empty axis gives 0 for sums, NaN for the mean and the identity for max and min.
func (m *Machine) Reduce(op Reduction, dst, src Buf, outer, n, inner int) {
	t := &m.row
	t.reduce, t.dst, t.a = op, dst, src
	t.outer, t.n, t.inner = outer, n, inner
	if t.runs = max(1, ceilDiv(n, sumRun)); t.runs > 1 {
		t.parts = m.runSums.get(outer * t.runs * inner)
	}
	switch {
	case inner == 1 && t.runs > 1:
		m.each(rowReduceRuns, outer*t.runs, sumRun, 2)
	case inner == 1:
		m.each(rowReduce, outer, n, 2)
	case outer*inner > 0:
		m.reduceAcross(t)
	}
	if t.runs > 1 {
		for o := range outer {
			m.storeReduced(dst.From(o*inner), m.tree(op, t.parts[o*t.runs*inner:][:t.runs*inner], inner), op, n)
		}
	}
}

// tree combines results of runs of an axis, n elements each, in place: halves first, as Path.Sum does.
func (m *Machine) tree(op Reduction, runs []float32, n int) []float32 {
	if len(runs) == n {
		return runs
	}
	h := ceilDiv(len(runs)/n, 2) * n
	a, b := m.tree(op, runs[:h], n), m.tree(op, runs[h:], n)
	m.Binary(op.combining(), a, a, b)
	return a
}

// storeReduced stores results of n elements each, after division where they are means.
func (m *Machine) storeReduced(dst Buf, x []float32, op Reduction, n int) {
	if op == ReduceMean {
		for i, sum := range x {
			x[i] = op.mean(sum, n)
		}
	}
	m.Store(dst, x)
}

// mean is x, or x divided by n where the reduction is a mean.
func (r Reduction) mean(x float32, n int) float32 {
	if r == ReduceMean {
		return x / float32(n)
	}
	return x
}

// reduced reduces n elements from element at on, at most sumRun.
func (t *rowTask) reduced(w *worker, at, n int) float32 {
	p := t.m.Path
	if add := p.addRows[F32]; add != nil && n > preOpElems && !t.inPlace() && (t.reduce == ReduceSum || t.reduce == ReduceMean) {
		return t.sumInPieces(w, add, at, n)
	}
	x := t.elements(w, at, n)
	switch t.reduce {
	case ReduceMax:
		return p.MaxOf(x)
	case ReduceMin:
		return p.MinOf(x)
	case ReduceSumSq:
		return p.SumSq(x)
	}
	return p.Sum(x)
}

// sumInPieces is Path.Sum of n elements from element at on, bit for bit, of which preOpElems at a time are in memory. In front
// of the last stand the partial sums of those before.
func (t *rowTask) sumInPieces(w *worker, add addRowsFunc, at, n int) float32 {
	p, x := t.m.Path, w.row[0].get(lanes+preOpElems)
	sums, piece := x[:lanes], x[lanes:]
	for begun := 0; n > preOpElems; begun = 1 {
		t.fill(w, at, piece)
		add(1, preOpElems/lanes, lanes/p.lanes, begun, &sums[0], bytes(&piece[0]), 0, lanes)
		at, n = at+preOpElems, n-preOpElems
	}
	t.fill(w, at, piece[:n])
	return p.sum(lanes+n, &x[0])
}

// combining is the operation that combines the results of two halves.
func (r Reduction) combining() Binary {
	switch r {
	case ReduceMax:
		return Max
	case ReduceMin:
		return Min
	}
	return Add
}

func identity(op Reduction) float32 {
	switch op {
	case ReduceMax:
		return negInf
	case ReduceMin:
		return -negInf
	}
	return 0
}

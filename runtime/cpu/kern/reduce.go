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
		t.m, t.op = m, rowReduceAcross
		rows := min(n, sumRun)
		m.runPart(t, box{items: outer * t.runs, rows: 1, cols: ceilDiv(inner, columnUnit), cell: 2 * rows * columnUnit, task: taskCost + rowCost*rows})
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
		add(1, preOpElems/lanes, lanes/p.lanes, begun, &sums[0], bytes(&piece[0]), lanes, lanes)
		at, n = at+preOpElems, n-preOpElems
	}
	t.fill(w, at, piece[:n])
	return p.sum(lanes+n, &x[0])
}

// strip is a task over columns: chunk columns of the middle axis, or of a table that rows are added to.
func (t *rowTask) strip(w *worker, i int) {
	if t.op == rowScatter {
		t.scatterStrip(w, i)
		return
	}
	run := i / t.part.cols // of all items
	c0, n := t.columnsOf(i%t.part.cols, t.inner)
	at := (run/t.runs*t.n + run%t.runs*sumRun) * t.inner
	rows := min(sumRun, t.n-run%t.runs*sumRun)
	most := stripColumns
	if t.m.addRows[t.a.Type] == nil {
		most = narrowColumns
	}
	for end := c0 + n; c0 < end; c0 = t.m.next(c0, most, end) {
		n := min(most, end-c0)
		again := min(c0, roundUp(n, t.m.lanes)-n) // columns that make a last vector whole
		acc := w.row[0].get(again + n)
		t.columns(w, acc, at+c0-again, rows)
		if t.runs > 1 {
			copy(t.parts[run*t.inner+c0:], acc[again:])
		} else {
			t.m.storeReduced(t.dst.From(run*t.inner+c0), acc[again:], t.reduce, t.n)
		}
	}
}

// stripColumns is how many columns of a strip are summed at a time: 64 rows of their sums stay in the second-level cache. Where there
// is no addRowsFunc these are read and written for every row, so narrowColumns stay in the first level.
const (
	stripColumns  = 1024
	narrowColumns = 128
)

// A strip has a multiple of columnUnit columns, a vector of any path. rowCost is what a strip costs
// for each row beside its elements.
const (
	columnUnit = 16
	rowCost    = 1 << 6
)

// columnsOf returns the first column of a strip, and how many of n it has.
func (t *rowTask) columnsOf(strip, n int) (c0, cols int) {
	units := ceilDiv(n, columnUnit)
	c0 = bound(strip, t.part.cols, units) * columnUnit
	return c0, min(bound(strip+1, t.part.cols, units)*columnUnit, n) - c0
}

// columns reduces rows, at most sumRun, of a strip from element at on into acc.
func (t *rowTask) columns(w *worker, acc []float32, at, rows int) {
	p := t.m.Path
	whole := len(acc) / p.lanes * p.lanes
	switch {
	case rows == 0:
		p.Fill(acc, identity(t.reduce))
	case t.reduce == ReduceMax || t.reduce == ReduceMin:
		t.extremes(w, acc, at, rows)
	case t.reduce == ReduceSumSq || p.addRows[t.a.Type] == nil:
		t.sumRows(w, acc, at, rows)
	case rows <= fewRows && whole > 0:
		p.foldLanes(w, acc[:whole], t.a.From(at), rows, t.inner)
		t.sumRows(w, acc[whole:], at+whole, rows)
	case rows > fewRows && (whole == len(acc) || len(acc) == t.inner):
		t.sumDeep(w, acc, at, rows)
	default:
		t.sumRows(w, acc, at, rows)
	}
}

// fewRows is the most rows whose 64 sums stay in registers, as the rows are read out of order. chainBytes over the size of an element is
// how many of more rows are added to a row of sums at a time: half as many contiguous ones, which are as many streams of memory.
const (
	fewRows    = 4 * lanes
	chainBytes = 32
)

// sumDeep sums at least 64 rows by an addRowsFunc. Where they are contiguous, 64 of them are added as one.
func (t *rowTask) sumDeep(w *worker, acc []float32, at, rows int) {
	p, cols := t.m.Path, len(acc)
	add, sums, most := p.addRows[t.a.Type], w.row[2].get(lanes*cols), chainBytes/t.a.Type.Size()
	if cols == t.inner {
		most /= 2
	}
	for r, deep := 0, 0; r < rows; r += max(1, deep) * lanes {
		deep = min(most, (rows-r)/lanes)
		begun, src := min(r, 1), t.a.at(at+r*t.inner)
		switch left := rows - r; {
		case deep > 0 && cols == t.inner:
			add(1, deep, lanes*cols/p.lanes, begun, &sums[0], src, lanes, lanes*cols)
		case deep > 0:
			add(lanes, deep, cols/p.lanes, begun, &sums[0], src, t.inner, lanes*t.inner)
		case cols == t.inner:
			t.addTo(w, sums[:left*cols], at+r*cols)
		default:
			add(left, 1, cols/p.lanes, begun, &sums[0], src, t.inner, lanes*t.inner)
		}
	}
	if cols%p.lanes == 0 {
		p.foldLanes(w, acc, Floats(sums), lanes, cols)
		return
	}
	p.foldHalves(sums, lanes, cols)
	copy(acc, sums)
}

// sumRows sums rows by kernels that every path has, one or 64 contiguous ones at a time.
func (t *rowTask) sumRows(w *worker, acc []float32, at, rows int) {
	cols, n := len(acc), min(lanes, rows)
	if cols == 0 {
		return
	}
	sums := w.row[2].get(n * cols)
	clear(sums)
	for r := 0; r < rows; r += lanes {
		k := min(lanes, rows-r)
		if cols == t.inner {
			t.addTo(w, sums[:k*cols], at+r*cols)
			continue
		}
		for i := range k {
			t.addTo(w, sums[i*cols:][:cols], at+(r+i)*t.inner)
		}
	}
	t.m.foldHalves(sums, n, cols)
	copy(acc, sums)
}

// addTo adds elements, or their squares, to sums.
func (t *rowTask) addTo(w *worker, sums []float32, at int) {
	x := w.row[1].get(len(sums))
	if t.a.Type == F32 {
		x = t.a.f32()[at:][:len(sums)]
	} else {
		t.m.Load(x, t.a.From(at))
	}
	if t.reduce == ReduceSumSq {
		t.m.Ternary(FMA, sums, x, x, sums)
	} else {
		t.m.Binary(Add, sums, sums, x)
	}
}

// foldLanes sums columns of rows, whole vectors, in 64 chains, which it folds.
func (p *Path) foldLanes(w *worker, acc []float32, src Buf, rows, lds int) {
	fold, vecs, cols := p.foldRows[src.Type], len(acc)/p.lanes, len(acc)
	if rows <= foldedRows {
		fold(rows*lds, vecs, &acc[0], src.at(0), lds)
		return
	}
	part := w.row[3].get(foldedRows * cols)
	for i := range foldedRows {
		fold((rows-i)*lds, vecs, &part[i*cols], src.at(i*lds), foldedRows*lds)
	}
	p.foldRows[F32](foldedRows*cols, vecs, &acc[0], bytes(&part[0]), cols)
}

// foldedRows is the number of chains of a foldRowsFunc.
const foldedRows = 8

// foldHalves sums up to 64 rows of columns in place as fold does.
func (p *Path) foldHalves(x []float32, rows, cols int) {
	for h := lanes / 2; h > 0; h /= 2 {
		if rows > h {
			n := (rows - h) * cols
			p.Binary(Add, x[:n], x[:n], x[h*cols:][:n])
			rows = h
		}
	}
}

// extremes are the largest or smallest elements of columns, row by row.
func (t *rowTask) extremes(w *worker, acc []float32, at, rows int) {
	p, x := t.m.Path, w.row[1].get(len(acc))
	p.Fill(acc, identity(t.reduce))
	for k := range rows {
		p.Load(x, t.a.From(at+k*t.inner))
		p.Binary(t.reduce.combining(), acc, acc, x)
	}
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

package kern

// Sums along an axis that is not the last have the 64 chains of Path.Sum: row i belongs to chain i mod 64. Few rows, or more of them
// in caches, are summed chain by chain in registers, in strips of columns. Otherwise 64 rows are taken for one row of a matrix whose
// columns are summed, so that workers read long pieces of memory, and a second region folds the 64 sums.

// reduceAcross reduces an axis behind which there are others.
func (m *Machine) reduceAcross(t *rowTask) {
	t.m, t.rows, t.chains = m, min(t.n, sumRun), nil
	t.large = t.outer*t.n*t.inner*t.a.Type.Size() > m.Caches().inLast()
	items := t.outer * t.runs
	if t.goesDeep() {
		t.op, t.chains = rowSumDeep, m.chainSums.get(items*lanes*t.inner)
		m.runPart(t, box{items: items, rows: 1, cols: lanes * t.inner / deepUnit, cell: 2 * ceilDiv(t.rows, lanes) * deepUnit, task: taskCost})
		t.a, t.rows, t.large = Floats(t.chains), lanes, false
	}
	t.op = rowReduceAcross
	m.runPart(t, box{items: items, rows: 1, cols: ceilDiv(t.inner, columnUnit), cell: 2 * t.rows * columnUnit, task: taskCost + rowCost*t.rows})
}

// At least deepLeast rows from memory are worth memory for 64 sums of each column, and so are as many in caches of so few columns
// that 64 rows of sums stay in the first-level cache. deepStreams is how many rows are added to sums at a time, as many
// streams of memory. A task has a multiple of deepUnit sums, of which deepBlock stay in the second-level cache.
const (
	deepLeast   = 8 * lanes
	narrowInner = 64
	deepStreams = 8
	deepUnit    = 64
	deepBlock   = 1 << 16
)

// goesDeep reports whether 64 rows are summed as one. In caches that is for one worker: of several, each would fold sums that are in
// the caches of others.
func (t *rowTask) goesDeep() bool {
	p := t.m.Path
	return (t.reduce == ReduceSum || t.reduce == ReduceMean) && p.addRows[t.a.Type] != nil && t.rows >= deepLeast &&
		(t.inner <= narrowInner || t.large || t.rows > p.foldMost && t.m.pool.share() == 1)
}

// partOf returns where a part of the axis begins, of all items, and how many rows it has.
func (t *rowTask) partOf(run int) (at, rows int) {
	first := run % t.runs * sumRun
	return (run/t.runs*t.n + first) * t.inner, min(sumRun, t.n-first)
}

// sumDeep is a task over the 64 rows of sums of an item.
func (t *rowTask) sumDeep(w *worker, i int) {
	run, strip, line := i/t.part.cols, i%t.part.cols, lanes*t.inner
	at, rows := t.partOf(run)
	c0, c1 := bound(strip, t.part.cols, line/deepUnit)*deepUnit, bound(strip+1, t.part.cols, line/deepUnit)*deepUnit
	block := roundUp(t.m.Caches().inSecond(deepBlock), deepUnit)
	for ; c0 < c1; c0 = t.m.next(c0, block, c1) {
		t.addDeep(w, t.chains[run*line:], at, rows, c0, min(c0+block, c1))
	}
}

// addDeep adds rows to sums [c0,c1) of a row of 64 rows.
func (t *rowTask) addDeep(w *worker, sums []float32, at, rows, c0, c1 int) {
	p, line := t.m.Path, lanes*t.inner
	groups, left := rows/lanes, rows%lanes*t.inner
	if groups == 0 {
		clear(sums[c0:c1])
	}
	for g := 0; g < groups; g += deepStreams {
		p.addRows[t.a.Type](1, min(deepStreams, groups-g), (c1-c0)/p.lanes, min(g, 1), &sums[c0], t.a.at(at+g*line+c0), 0, line)
	}
	if c0 < left {
		t.addTo(w, sums[c0:min(c1, left)], at+groups*line+c0)
	}
}

// strip is a task over columns: chunk columns of the middle axis, or of a table that rows are added to.
func (t *rowTask) strip(w *worker, i int) {
	if t.op == rowScatter {
		t.scatterStrip(w, i)
		return
	}
	run := i / t.part.cols // of all items
	c0, n := t.columnsOf(i%t.part.cols, t.inner)
	at, rows := t.partOf(run)
	if t.chains != nil {
		at, rows = run*lanes*t.inner, lanes
	}
	most := stripColumns
	if t.m.foldRows[t.a.Type] == nil {
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

// stripColumns is how many columns of a strip are reduced at a time, and summed at a time where they are read from memory: cachedColumns
// where they are in caches. Where sums are read and written in between, those of narrowColumns stay in the first-level cache, or
// those of pieces of sumsBytes of 64 rows.
const (
	stripColumns  = 1024
	cachedColumns = 128
	narrowColumns = 128
	sumsBytes     = 256
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
	p, whole := t.m.Path, len(acc)/t.m.lanes*t.m.lanes
	switch {
	case rows == 0:
		p.Fill(acc, identity(t.reduce))
	case t.reduce == ReduceMax || t.reduce == ReduceMin:
		t.extremes(w, acc, at, rows)
	case t.reduce == ReduceSumSq || p.foldRows[t.a.Type] == nil || whole == 0 || whole < len(acc) && len(acc) == t.inner && t.inner <= narrowInner:
		t.sumRows(w, acc, at, rows)
	default:
		t.foldColumns(w, acc[:whole], at, rows)
		if last := len(acc) - p.lanes; whole < len(acc) { // some of its columns are summed again
			t.foldColumns(w, acc[last:], at+last, rows)
		}
	}
}

// foldColumns sums columns of rows, whole vectors, in 64 chains, which it folds.
func (t *rowTask) foldColumns(w *worker, acc []float32, at, rows int) {
	block, inSums := cachedColumns, false
	switch {
	case t.large:
		block = stripColumns
	case rows > t.m.foldMost:
		block, inSums = sumsBytes/t.a.Type.Size(), true
	}
	for c := 0; c < len(acc); c += block {
		part := acc[c:min(c+block, len(acc))]
		if inSums {
			t.foldSums(w, part, at+c, rows)
		} else {
			t.m.foldLanes(w, part, t.a.From(at+c), rows, t.inner)
		}
	}
}

// foldSums is foldLanes of many rows, whose 64 rows of sums stay in the first-level cache.
func (t *rowTask) foldSums(w *worker, acc []float32, at, rows int) {
	p, cols := t.m.Path, len(acc)
	add, sums := p.addRows[t.a.Type], w.row[2].get(lanes*cols)
	for r, deep := 0, 0; r < rows; r += max(1, deep) * lanes {
		deep = min(deepStreams, (rows-r)/lanes)
		add(min(lanes, rows-r), max(1, deep), cols/p.lanes, min(r, 1), &sums[0], t.a.at(at+r*t.inner), t.inner, lanes*t.inner)
	}
	p.foldLanes(w, acc, Floats(sums), lanes, cols)
}

// foldLanes sums columns of rows, whole vectors, in 64 chains, which it folds.
func (p *Path) foldLanes(w *worker, acc []float32, src Buf, rows, lds int) {
	fold, vecs, cols := p.foldRows[src.Type], len(acc)/p.lanes, len(acc)
	if rows <= foldedRows {
		fold(1, rows, vecs, &acc[0], src.at(0), lds)
		return
	}
	part := w.row[3].get(foldedRows * cols)
	fold(foldedRows, rows, vecs, &part[0], src.at(0), lds)
	p.foldRows[F32](1, foldedRows, vecs, &acc[0], bytes(&part[0]), cols)
}

// foldedRows is the number of chains of a foldRowsFunc.
const foldedRows = 8

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

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

// Reduce reduces the middle axis of src [outer, n, inner] to dst [outer, inner]. With inner 1 the sum is Path.Sum's;
// otherwise each element is one chain over ascending n up to sumDepth rows, and the sum of two halves beyond. An empty axis gives 0 for sums, NaN for the mean and the
// identity for max and min.
func (m *Machine) Reduce(op Reduction, dst, src Buf, outer, n, inner int) {
	t := &m.row
	t.reduce, t.dst, t.a = op, dst, src
	t.outer, t.n, t.inner = outer, n, inner
	switch {
	case inner == 1 && n > sumRun:
		m.reduceRuns(outer, n)
		return
	case inner == 1:
		m.each(rowReduce, outer, n, 2)
		return
	}
	t.m, t.op = m, rowReduceAcross
	if outer*inner > 0 {
		m.runPart(t, box{items: outer, rows: 1, cols: ceilDiv(inner, columnUnit), cell: 2 * n * columnUnit, task: taskCost + rowCost*n})
	}
}

// reduceRuns reduces rows of more than sumRun elements: runs of them at the same time, then their results.
func (m *Machine) reduceRuns(rows, n int) {
	t := &m.row
	t.runs = ceilDiv(n, sumRun)
	t.parts = m.runSums.get(rows * t.runs)
	m.each(rowReduceRuns, rows*t.runs, sumRun, 2)
	for r := range rows {
		t.dst.set(r, t.reduce.mean(t.reduce.tree(t.parts[r*t.runs:][:t.runs]), n))
	}
}

// tree combines the results of the runs of a row, halves first, as Path.Sum does.
func (r Reduction) tree(runs []float32) float32 {
	if len(runs) == 1 {
		return runs[0]
	}
	h := ceilDiv(len(runs), 2)
	a, b := r.tree(runs[:h]), r.tree(runs[h:])
	switch r {
	case ReduceMax:
		return max(a, b)
	case ReduceMin:
		return min(a, b)
	}
	return a + b
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
	if add := p.addColumns[F32]; add != nil && n > preOpElems && !t.inPlace() && (t.reduce == ReduceSum || t.reduce == ReduceMean) {
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
// of them stand the partial sums of those before.
func (t *rowTask) sumInPieces(w *worker, add columnsFunc, at, n int) float32 {
	p, sums := t.m.Path, w.row[1].get(lanes)
	for before := 0; ; before = lanes {
		k := min(preOpElems, n)
		x := w.row[0].get(lanes + preOpElems)[lanes-before:][:before+k]
		t.fill(w, at, x[before:])
		copy(x[:before], sums)
		if at, n = at+k, n-k; n == 0 {
			return p.sum(len(x), &x[0])
		}
		add(len(x)/lanes, lanes/p.lanes, &sums[0], bytes(&x[0]), lanes)
	}
}

// strip is a task over columns: chunk columns of the middle axis, or of a table that rows are added to.
func (t *rowTask) strip(w *worker, i int) {
	if t.op == rowScatter {
		t.scatterStrip(w, i)
		return
	}
	o := i / t.part.cols
	c0, n := t.columnsOf(i%t.part.cols, t.inner)
	p, acc := t.m.Path, w.row[0].get(n)
	t.columns(w, acc, o*t.n*t.inner+c0, t.n, 0)
	if t.reduce == ReduceMean {
		for i := range acc {
			acc[i] /= float32(t.n)
		}
	}
	p.Store(t.dst.From(o*t.inner+c0), acc)
}

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

// columns reduces rows of a strip, the first at element at, into acc. level is the number of
// halvings so far.
func (t *rowTask) columns(w *worker, acc []float32, at, rows, level int) {
	h := halve(rows, sumDepth)
	if h >= rows {
		done := t.addColumns(acc, at, rows)
		t.reduceColumns(w, acc[done:], at+done, rows)
		return
	}
	t.columns(w, acc, at, h, level+1)
	rest := w.halves(level, len(acc))
	if t.m.dry() { // the second half requests no more than the first
		return
	}
	t.columns(w, rest, at+h*t.inner, rows-h, level+1)
	t.m.Binary(t.reduce.combining(), acc, acc, rest)
}

// halves is memory for n sums of the second half of the rows, on a level of halving.
func (w *worker) halves(level, n int) []float32 {
	for len(w.half) <= level {
		w.half = append(w.half, floats{})
	}
	return w.half[level].get(n)
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

// addColumns sums whole vectors of columns of rows and returns the number of those columns.
func (t *rowTask) addColumns(acc []float32, at, rows int) int {
	p := t.m.Path
	vecs := len(acc) / p.lanes
	if add := p.addColumns[t.a.Type]; add != nil && vecs > 0 && rows > 0 && (t.reduce == ReduceSum || t.reduce == ReduceMean) {
		add(rows, vecs, &acc[0], t.a.at(at), t.inner)
		return vecs * p.lanes
	}
	return 0
}

// reduceColumns reduces columns, row by row.
func (t *rowTask) reduceColumns(w *worker, acc []float32, at, rows int) {
	p, x := t.m.Path, w.row[1].get(len(acc))
	if len(acc) == 0 {
		return
	}
	t.m.Fill(acc, identity(t.reduce))
	for k := range rows {
		p.Load(x, t.a.From(at+k*t.inner))
		if t.reduce == ReduceSumSq {
			p.Ternary(FMA, acc, x, x, acc)
		} else {
			p.Binary(t.reduce.combining(), acc, acc, x)
		}
	}
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

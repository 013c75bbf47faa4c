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
	if inner == 1 {
		m.each(rowReduce, outer, n, 2)
		return
	}
	t.m, t.op = m, rowReduceAcross
	if outer*inner > 0 {
		m.runPart(t, box{items: outer, rows: 1, cols: ceilDiv(inner, columnUnit), cell: 2 * n * columnUnit, task: taskCost + rowCost*n})
	}
}

func (t *rowTask) reduceRow(w *worker, r int) {
	x := t.load(w, 0, t.a, r)
	p := t.m.Path
	var v float32
	switch t.reduce {
	case ReduceSum:
		v = p.Sum(x)
	case ReduceMean:
		v = p.Sum(x) / float32(len(x))
	case ReduceMax:
		v = p.MaxOf(x)
	case ReduceMin:
		v = p.MinOf(x)
	case ReduceSumSq:
		v = p.SumSq(x)
	}
	t.dst.set(r, v)
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

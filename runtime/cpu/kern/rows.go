package kern

import "math"

// rowOp names a kernel over independent rows.
type rowOp uint8

const (
	rowSoftmax rowOp = iota
	rowLogSoftmax
	rowSoftmaxGrad
	rowLogSoftmaxGrad
	rowNorm
	rowNormGrad
	rowLoss
	rowReduce
	rowReduceRuns
	rowSumDeep
	rowReduceAcross
	rowGather
	rowScatter
)

// rowTask is a running row kernel: op over chunks of rows.
type rowTask struct {
	m               *Machine
	op              rowOp
	rows, cols      int
	chunk           int // rows of a task with sums
	part            Division
	dst, a, b       Buf
	norm            Norm
	loss            CrossEntropy
	reduce          Reduction
	outer, n, inner int
	index           Index
	table           []float32
	post            PostOp    // runs after ops that compute rows where place says; nil: none
	pre             PreOp     // computes what ops read as elements; nil: they are in memory
	preWork         int       // its cost for an element
	runs            int       // parts of a long row that are reduced on their own
	parts           []float32 // their results
	chains          []float32 // 64 rows of sums of each part; nil: they are in registers
	large           bool      // the operand is read from memory
}

// eachWith is each with a post-op on blocks of the result, unless that is nil.
func (m *Machine) eachWith(post PostOp, op rowOp, rows, cols, work int) {
	m.row.post = post
	m.each(op, rows, cols, work)
	m.row.post = nil
}

// each runs op over rows of cols elements: in chunks where each has a partial sum, so their number depends on that of rows alone.
func (m *Machine) each(op rowOp, rows, cols, work int) {
	t := &m.row
	t.m, t.op, t.rows, t.cols = m, op, rows, cols
	if t.chunk = max(1, ceilDiv(rows, maxParts)); op == rowNormGrad {
		t.chunk = max(t.chunk, leastGradRows)
	}
	if rows == 0 || cols == 0 && op != rowReduce {
		return
	}
	if t.sums() {
		m.run(work*rows*cols, ceilDiv(rows, t.chunk), t)
		return
	}
	m.runPart(t, box{items: 1, rows: rows, cols: 1, cell: (work + t.preWork) * max(1, cols), task: taskCost})
}

// sums reports whether chunks of rows have partial sums.
func (t *rowTask) sums() bool { return t.op == rowNormGrad || t.op == rowLoss }

// runPart divides a row kernel and runs it.
func (m *Machine) runPart(t *rowTask, b box) {
	t.part = m.divide(b, m.pool.share())
	m.runDivided(&b, t.part, t)
}

// maxParts is the largest number of chunks of rows, and so of partial results. leastGradRows are the fewest rows of a chunk whose
// partial results are two rows themselves: 256, 512 or 1024 rows are then chunks that any number of workers divides well.
const (
	maxParts      = 64
	leastGradRows = 22
)

func (t *rowTask) Run(worker, i int) {
	w := t.m.worker[worker]
	switch t.op {
	case rowSumDeep:
		t.sumDeep(w, i)
		return
	case rowReduceAcross, rowScatter:
		t.strip(w, i)
		return
	}
	r0, r1 := i*t.chunk, min((i+1)*t.chunk, t.rows)
	if !t.sums() {
		r0, r1 = bound(i, t.part.rows, t.rows), bound(i+1, t.part.rows, t.rows)
	}
	switch t.op {
	case rowNormGrad:
		t.normGrads(w, i, r0, r1)
		return
	case rowLoss:
		t.lossRows(w, i, r0, r1)
		return
	}
	if t.post != nil {
		t.blocks(w, r0, r1)
		return
	}
	if w.made, w.rowsEnd = nil, r1*t.cols; t.op == rowReduceRuns {
		w.rowsEnd = 0 // each run on its own
	}
	for r := r0; r < r1; r = t.m.next(r, 1, r1) {
		t.one(w, r)
	}
	w.made = nil
}

// blocks computes rows r0 to r1 in blocks that stay in the cache for the post-op: in f32, in dst if
// that is stored.
func (t *rowTask) blocks(w *worker, r0, r1 int) {
	for rows := max(1, postOpChunk/t.cols); r0 < r1; r0 = t.m.next(r0, rows, r1) {
		end := min(r0+rows, r1)
		if w.first = r0; t.dst.absent() {
			w.block = w.c.get((end - r0) * t.cols)
		} else {
			w.block = t.dst.f32()[r0*t.cols : end*t.cols]
		}
		for r := r0; r < end; r++ {
			t.one(w, r)
		}
		t.post.Apply(w.id, r0*t.cols, w.block)
	}
	w.block = nil
}

func (t *rowTask) one(w *worker, r int) {
	switch t.op {
	case rowSoftmax, rowLogSoftmax:
		t.softmax(w, r)
	case rowSoftmaxGrad, rowLogSoftmaxGrad:
		t.softmaxGrad(w, r)
	case rowNorm:
		t.normRow(w, r)
	case rowReduce:
		t.dst.set(r, t.reduce.mean(t.reduced(w, r*t.n, t.n), t.n))
	case rowReduceRuns:
		at := r % t.runs * sumRun
		t.parts[r] = t.reduced(w, r/t.runs*t.n+at, min(sumRun, t.n-at))
	case rowGather:
		t.gatherRow(w, r)
	}
}

// load is row r of b as f32: in place if it is that already, else widened into slot of w.
func (t *rowTask) load(w *worker, slot int, b Buf, r int) []float32 {
	if b.Type == F32 {
		return b.f32()[r*t.cols : (r+1)*t.cols]
	}
	x := w.row[slot].get(t.cols)
	t.m.Load(x, b.From(r*t.cols))
	return x
}

// place is where row r of b, the result, is computed: in the block that a post-op follows, in b if it is f32, else in
// slot of w.
func (t *rowTask) place(w *worker, slot int, b Buf, r int) []float32 {
	if t.post != nil {
		return w.block[(r-w.first)*t.cols : (r-w.first+1)*t.cols]
	}
	if b.Type == F32 {
		return b.f32()[r*t.cols : (r+1)*t.cols]
	}
	return w.row[slot].get(t.cols)
}

// save rounds a row that was computed in other memory and stores it in b.
func (t *rowTask) save(b Buf, r int, x []float32) {
	if b.Type != F32 && t.post == nil {
		t.m.Store(b.From(r*t.cols), x)
	}
}

// Softmax computes y = exp(x - max) / sum over each of rows rows of cols elements.
func (m *Machine) Softmax(y, x Buf, rows, cols int) {
	m.row.dst, m.row.a = y, x
	m.each(rowSoftmax, rows, cols, 16)
}

// LogSoftmax computes y = x - max - log(sum exp(x - max)) over each row.
func (m *Machine) LogSoftmax(y, x Buf, rows, cols int) {
	m.row.dst, m.row.a = y, x
	m.each(rowLogSoftmax, rows, cols, 16)
}

// softmax of a row that contains NaN or +Inf, or only -Inf, is NaN in all elements.
func (t *rowTask) softmax(w *worker, r int) {
	p := t.m.Path
	x, y := t.elements(w, r*t.cols, t.cols), t.place(w, 1, t.dst, r)
	n, mx := len(x), p.MaxOf(x)
	if t.op == rowSoftmax {
		sum := p.expSum(y, x, mx)
		p.axpb(n, &y[0], &y[0], 1/sum, 0)
	} else {
		sum := p.expSum(w.row[2].get(n), x, mx)
		lse := float32(math.Log(float64(sum)))
		for i, v := range x {
			y[i] = v - mx - lse
		}
	}
	t.save(t.dst, r, y)
}

// SoftmaxGrad computes dx = y * (dy - sum(y*dy)) over each row; y is the softmax.
func (m *Machine) SoftmaxGrad(dx, y, dy Buf, rows, cols int) {
	m.row.dst, m.row.a, m.row.b = dx, y, dy
	m.each(rowSoftmaxGrad, rows, cols, 4)
}

// LogSoftmaxGrad computes dx = dy - exp(y) * sum(dy) over each row; y is the log-softmax.
func (m *Machine) LogSoftmaxGrad(dx, y, dy Buf, rows, cols int) {
	m.row.dst, m.row.a, m.row.b = dx, y, dy
	m.each(rowLogSoftmaxGrad, rows, cols, 16)
}

func (t *rowTask) softmaxGrad(w *worker, r int) {
	p := t.m.Path
	y, dy, dx := t.load(w, 0, t.a, r), t.load(w, 1, t.b, r), t.place(w, 2, t.dst, r)
	n := len(y)
	if t.op == rowSoftmaxGrad {
		dot := p.Dot(y, dy)
		tmp := w.row[3].get(n)
		p.axpb(n, &tmp[0], &dy[0], 1, -dot)
		p.Binary(Mul, dx, tmp, y)
	} else {
		sum, e := p.Sum(dy), w.row[3].get(n)
		p.Unary(Exp, e, y)
		p.axpb(n, &e[0], &e[0], -sum, 0)
		p.Binary(Add, dx, dy, e)
	}
	t.save(t.dst, r, dx)
}

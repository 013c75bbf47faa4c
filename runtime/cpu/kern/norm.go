package kern

import "math"

// Norm describes layer_norm, or rms_norm if RMS is set, over rows of Cols elements, and its gradient.
//
//	xhat = (x - mean) * rstd        rstd = 1/sqrt(var + Eps)
//	xhat = x * rstd                 rstd = 1/sqrt(mean(x^2) + Eps)
//	y = xhat * Gamma + Beta
//
// Gamma and Beta may be absent. The forward pass writes Mean and Rstd, one f32 a row, where they are present (Mean is
// not used by RMS); the gradient reads Rstd and Mean, X and DY and writes DX and those of DGamma and DBeta that are
// present.
type Norm struct {
	Rows, Cols     int
	RMS            bool
	Eps            float32
	X, Gamma, Beta Buf
	Mean, Rstd     []float32
	Y              Buf

	DY, DX        Buf
	DGamma, DBeta Buf
}

// Norm computes Y, Mean and Rstd.
func (m *Machine) Norm(n *Norm) {
	m.row.norm = *n
	m.each(rowNorm, n.Rows, n.Cols, 4)
}

// NormGrad computes DX, DGamma and DBeta. The sums over rows are partial sums of up to 64
// chunks, as many as the number of rows says, added as a tree, and within a chunk sums of sumDepth rows.
func (m *Machine) NormGrad(n *Norm) {
	t := &m.row
	t.norm = *n
	sums := m.parts.get(2 * maxParts * n.Cols)
	m.each(rowNormGrad, n.Rows, n.Cols, 8)
	parts := ceilDiv(n.Rows, t.chunk)
	for i, d := range [...]Buf{n.DGamma, n.DBeta} {
		if !d.absent() {
			m.Store(d, m.foldParts(sums[i*maxParts*n.Cols:], parts, n.Cols))
		}
	}
}

// foldParts adds n vectors of cols elements as a tree into the first; no vectors make zeros.
func (m *Machine) foldParts(x []float32, n, cols int) []float32 {
	if n == 0 {
		clear(x[:cols])
	}
	if n > 1 {
		t := &m.fold
		*t = foldTask{m: m, x: x, n: n, cols: cols}
		b := box{items: 1, rows: ceilDiv(cols, foldUnit), cols: 1, cell: n * foldUnit * foldCost, task: taskCost}
		t.part = m.divide(b, m.pool.share())
		m.runDivided(&b, t.part, t)
	}
	return x[:cols]
}

// foldUnit is the number of columns of a unit of foldParts, foldCost what an addition costs.
const (
	foldUnit = 64
	foldCost = 4
)

// foldTask adds up columns of vectors.
type foldTask struct {
	m       *Machine
	x       []float32
	n, cols int
	part    Division
}

func (t *foldTask) Run(_, i int) {
	units := ceilDiv(t.cols, foldUnit)
	c0, c1 := bound(i, t.part.rows, units)*foldUnit, min(bound(i+1, t.part.rows, units)*foldUnit, t.cols)
	for n := t.n; n > 1; n = ceilDiv(n, 2) {
		h := ceilDiv(n, 2)
		if c1-c0 == t.cols {
			t.m.Binary(Add, t.x[:(n-h)*t.cols], t.x, t.x[h*t.cols:])
			continue
		}
		for r := range n - h {
			sum := t.x[r*t.cols+c0 : r*t.cols+c1]
			t.m.Binary(Add, sum, sum, t.x[(h+r)*t.cols+c0:])
		}
	}
}

func (t *rowTask) normRow(w *worker, r int) {
	n, p := &t.norm, t.m.Path
	x, y := t.load(w, 0, n.X, r), t.place(w, 1, n.Y, r)
	var mean float32
	if !n.RMS {
		mean = p.Sum(x) / float32(len(x))
	}
	v := p.sumSqDev(x, mean)/float32(len(x)) + n.Eps
	rstd := float32(1 / math.Sqrt(float64(v)))
	if n.Mean != nil {
		n.Mean[r] = mean
	}
	if n.Rstd != nil {
		n.Rstd[r] = rstd
	}
	gamma, beta := t.vector(w, 2, n.Gamma, 1), t.vector(w, 3, n.Beta, 0)
	p.affine(len(x), &y[0], &x[0], &gamma[0], &beta[0], rstd, mean)
	t.save(n.Y, r, y)
}

// vector returns b as f32, or a row of x if b is absent. A worker widens b once for each row, which costs little
// because b stays in the cache.
func (t *rowTask) vector(w *worker, slot int, b Buf, x float32) []float32 {
	switch {
	case b.absent():
		v := w.row[slot].get(t.cols)
		t.m.Fill(v, x)
		return v
	case b.Type == F32:
		return b.f32()[:t.cols]
	}
	v := w.row[slot].get(t.cols)
	t.m.Load(v, b)
	return v
}

// normGrads handles rows [r0,r1), chunk i, in runs of sumDepth, whose sums are added in order.
func (t *rowTask) normGrads(w *worker, i, r0, r1 int) {
	cols := t.cols
	dgamma, dbeta := t.m.parts.s[i*cols:(i+1)*cols], t.m.parts.s[(maxParts+i)*cols:][:cols]
	t.normGradRun(w, r0, min(r0+sumDepth, r1), dgamma, dbeta)
	for r := r0 + sumDepth; r < r1; r += sumDepth {
		sums := w.half.get(2 * cols)
		t.normGradRun(w, r, min(r+sumDepth, r1), sums[:cols], sums[cols:])
		t.m.Binary(Add, dgamma, dgamma, sums[:cols])
		t.m.Binary(Add, dbeta, dbeta, sums[cols:])
	}
}

// normGradRun handles rows [r0,r1) and sums their part of the gradients of gamma and beta: with g = dy*gamma,
//
//	dx = rstd * (g - mean(g) - xhat*mean(g*xhat))     (without mean(g) for RMS)
func (t *rowTask) normGradRun(w *worker, r0, r1 int, dgamma, dbeta []float32) {
	n, p, cols := &t.norm, t.m.Path, t.cols
	clear(dgamma)
	clear(dbeta)
	gamma := t.vector(w, 2, n.Gamma, 1)
	inv, center := 1/float32(cols), 1/float32(cols)
	if n.RMS {
		center = 0
	}
	for r := r0; r < r1; r++ {
		x, dy, dx := t.load(w, 0, n.X, r), t.load(w, 1, n.DY, r), t.place(w, 5, n.DX, r)
		rstd, mean := n.Rstd[r], float32(0)
		if !n.RMS {
			mean = n.Mean[r]
		}
		if p.normBack != nil {
			p.normBack(cols, &dx[0], &x[0], &dy[0], &gamma[0], &dgamma[0], &dbeta[0], mean, rstd, inv, center)
		} else {
			p.normBackRows(w, dx, x, dy, gamma, dgamma, dbeta, mean, rstd, inv, center)
		}
		t.save(n.DX, r, dx)
	}
}

// normBackRows is a normBackFunc made of other kernels.
func (p *Path) normBackRows(w *worker, dx, x, dy, gamma, dgamma, dbeta []float32, mean, rstd, inv, center float32) {
	cols := len(x)
	xhat, g := w.row[3].get(cols), w.row[4].get(cols)
	p.axpb(cols, &xhat[0], &x[0], 1, -mean)
	p.axpb(cols, &xhat[0], &xhat[0], rstd, 0)
	p.Ternary(FMA, dgamma, dy, xhat, dgamma)
	p.Binary(Add, dbeta, dbeta, dy)
	p.Binary(Mul, g, dy, gamma)
	mg := float32(0)
	if center != 0 {
		mg = p.Sum(g) * center
	}
	p.normGrad(cols, &dx[0], &g[0], &xhat[0], rstd, -rstd*p.Dot(g, xhat)*inv, -rstd*mg)
}

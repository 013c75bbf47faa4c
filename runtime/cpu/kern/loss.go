package kern

import "math"

// CrossEntropy describes softmax cross entropy over rows of Cols logits and its gradient. With q the target
// distribution ((1-Smoothing) on the label plus Smoothing/Cols everywhere),
//
//	loss of a row = logsumexp(x) - sum(q*x)          0 where the label is Ignore
//	gradient      = (softmax(x) - q) * scale         0 where the label is Ignore
//
// Labels outside [0,Cols) other than Ignore give NaN.
type CrossEntropy struct {
	Rows, Cols int
	X          Buf
	Labels     Index
	Smoothing  float32
	Ignore     int       // a label that does not count; use a negative number if none
	LSE        []float32 // logsumexp of each row: written forward, read by the gradient
	Loss       []float32 // per row, where present
	DX         Buf
	DLoss      []float32 // gradient of each row's loss, or one element for all
	Scale      float32   // further factor of the gradient
}

// CrossEntropy computes LSE, Loss, their sum and the number of rows that count. Sums are in float64 over up to 64
// chunks of rows.
func (m *Machine) CrossEntropy(c *CrossEntropy) (sum float64, rows int) {
	t := &m.row
	t.loss = *c
	m.each(rowLoss, c.Rows, c.Cols, 16)
	for i := range ceilDiv(c.Rows, t.chunk) {
		sum += m.lossParts[i]
		rows += m.lossCount[i]
	}
	return sum, rows
}

func (t *rowTask) lossRows(w *worker, i, r0, r1 int) {
	c := &t.loss
	sum, rows := 0.0, 0
	for r := r0; r < r1; r++ {
		l := t.lossRow(w, r)
		if c.Loss != nil {
			c.Loss[r] = l
		}
		if c.Labels.At(r) != c.Ignore {
			sum += float64(l)
			rows++
		}
	}
	t.m.lossParts[i], t.m.lossCount[i] = sum, rows
}

func (t *rowTask) lossRow(w *worker, r int) float32 {
	c, p, label := &t.loss, t.m.Path, t.loss.Labels.At(r)
	x := t.load(w, 0, c.X, r)
	mx := p.MaxOf(x)
	sum := p.expSum(len(x), &w.row[1].get(len(x))[0], &x[0], mx)
	lse := math.Log(float64(sum))
	if c.LSE != nil {
		c.LSE[r] = float32(float64(mx) + lse)
	}
	switch {
	case label == c.Ignore:
		return 0
	case label < 0 || label >= len(x):
		return float32(math.NaN())
	}
	loss := float64(mx) - float64(x[label]) + lse
	if s := float64(c.Smoothing); s != 0 {
		mean := float64(p.Sum(x)) / float64(len(x))
		loss = (1-s)*loss + s*(float64(mx)-mean+lse)
	}
	return float32(loss)
}

// CrossEntropyGrad computes DX from X, LSE and DLoss.
func (m *Machine) CrossEntropyGrad(c *CrossEntropy) {
	m.row.loss = *c
	m.each(rowLossGrad, c.Rows, c.Cols, 16)
}

func (t *rowTask) lossGradRow(w *worker, r int) {
	c, p, label := &t.loss, t.m.Path, t.loss.Labels.At(r)
	dx := t.place(w, 1, c.DX, r)
	n := len(dx)
	if label == c.Ignore {
		clear(dx)
		t.save(c.DX, r, dx)
		return
	}
	x := t.load(w, 0, c.X, r)
	scale := c.Scale * c.DLoss[r%len(c.DLoss)]
	p.expSum(n, &dx[0], &x[0], c.LSE[r])
	p.axpb(n, &dx[0], &dx[0], scale, -scale*c.Smoothing/float32(n))
	if label < 0 || label >= n {
		t.m.Fill(dx, float32(math.NaN()))
	} else {
		dx[label] -= scale * (1 - c.Smoothing)
	}
	t.save(c.DX, r, dx)
}

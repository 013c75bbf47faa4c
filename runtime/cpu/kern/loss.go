package kern

import "math"

// CrossEntropy describes softmax cross entropy over rows of Cols logits. With w the weights of the classes (1 where there
// are none) and q = w·(1-Smoothing) on the label plus w·Smoothing/Cols everywhere,
//
//	loss of a row = sum(q*(logsumexp(x) - x))        0 where the label is Ignore
//
// Labels outside [0,Cols) other than Ignore give NaN.
type CrossEntropy struct {
	Rows, Cols int
	X          Buf
	Labels     Index
	Weights    []float32 // of the classes; nil: all are 1
	Smoothing  float32
	Ignore     int       // a label that does not count; a negative number if there is none
	Loss       []float32 // per row, where present
	spread     float64   // Smoothing/Cols·Σ Weights
}

// CrossEntropy computes Loss, the sum of the losses, and the number of rows that are not ignored or, if Weights is set,
// the sum of the weights of their labels. Sums are computed in float64 over up to 64 chunks of rows.
func (m *Machine) CrossEntropy(c *CrossEntropy) (sum, count float64) {
	t := &m.row
	t.loss = *c
	if c.Weights != nil && c.Smoothing != 0 {
		t.loss.spread = float64(c.Smoothing) * float64(m.Sum(c.Weights)) / float64(c.Cols)
	}
	m.each(rowLoss, c.Rows, c.Cols, 16)
	for i := range ceilDiv(c.Rows, t.chunk) {
		sum += m.lossParts[i]
		count += m.lossCount[i]
	}
	return sum, count
}

func (t *rowTask) lossRows(w *worker, i, r0, r1 int) {
	c := &t.loss
	sum, count := 0.0, 0.0
	for r := r0; r < r1; r++ {
		l := t.lossRow(w, r)
		if c.Loss != nil {
			c.Loss[r] = l
		}
		switch label := c.Labels.At(r); {
		case label == c.Ignore:
			continue
		case c.Weights == nil:
			count++
		case label >= 0 && label < c.Cols:
			count += float64(c.Weights[label])
		}
		sum += float64(l)
	}
	t.m.lossParts[i], t.m.lossCount[i] = sum, count
}

func (t *rowTask) lossRow(w *worker, r int) float32 {
	c, p, label := &t.loss, t.m.Path, t.loss.Labels.At(r)
	x := t.load(w, 0, c.X, r)
	mx := p.MaxOf(x)
	sum := p.expSum(w.row[1].get(len(x)), x, mx)
	lse := math.Log(float64(sum))
	switch {
	case label == c.Ignore:
		return 0
	case label < 0 || label >= len(x):
		return float32(math.NaN())
	}
	loss, s := float64(mx)-float64(x[label])+lse, float64(c.Smoothing)
	if c.Weights != nil {
		loss *= float64(c.Weights[label])
	}
	switch {
	case s == 0:
	case c.Weights == nil:
		mean := float64(p.Sum(x)) / float64(len(x))
		loss = (1-s)*loss + s*(float64(mx)-mean+lse)
	default:
		loss = (1-s)*loss + c.spread*(float64(mx)+lse) - s*float64(p.Dot(c.Weights, x))/float64(len(x))
	}
	return float32(loss)
}

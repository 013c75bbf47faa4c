package cpu

import (
	"math"

	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// lossKernels compute the sum of a loss's terms and their count. Sums are in float64 over chunks
// that do not depend on the number of workers.
var lossKernels = map[ir.Op]binder{
	ir.OpCrossEntropy:     bindCrossEntropy,
	ir.OpCrossEntropyGrad: bindCrossEntropyGrad,
	ir.OpSoftCrossEntropy: bindSoftCrossEntropy,
	ir.OpNLL:              bindNLL,
	ir.OpBCEWithLogits: pairLoss(func(*call) func(x, t float64) float64 {
		return func(x, t float64) float64 {
			if x >= 0 {
				t = 1 - t
			}
			return math.Abs(x)*t + math.Log1p(math.Exp(-math.Abs(x)))
		}
	}),
	ir.OpBCE: pairLoss(func(*call) func(x, t float64) float64 {
		return func(p, t float64) float64 { return -(t*logClamped(p) + (1-t)*logClamped(1-p)) }
	}),
	ir.OpMSE: pairLoss(func(*call) func(x, t float64) float64 {
		return func(x, t float64) float64 { return (x - t) * (x - t) }
	}),
	ir.OpL1Loss: pairLoss(func(*call) func(x, t float64) float64 {
		return func(x, t float64) float64 { return math.Abs(x - t) }
	}),
	ir.OpHuber: pairLoss(func(c *call) func(x, t float64) float64 {
		delta := c.Float("delta")
		return func(x, t float64) float64 {
			r := math.Abs(x - t)
			if r <= delta {
				return r * r / 2
			}
			return delta * (r - delta/2)
		}
	}),
	ir.OpKLDiv: pairLoss(func(c *call) func(x, t float64) float64 {
		if c.Flag("log_target") {
			return func(x, t float64) float64 { return math.Exp(t) * (t - x) }
		}
		return func(x, t float64) float64 {
			if t > 0 {
				return t * (math.Log(t) - x)
			}
			return t * -x
		}
	}),
}

// logClamped is the logarithm clamped to at least -100, as the op's row specifies.
func logClamped(x float64) float64 {
	y := math.Log(x)
	if y < -100 {
		return -100
	}
	return y
}

// lossBlock is the number of logits processed together; they fit in the L1 cache.
const lossBlock = 1 << 12

// lossChunk is the number of terms in one partial sum.
const lossChunk = 1 << 13

// pairLoss sums term(x, target) over all elements.
func pairLoss(make1 func(*call) func(x, t float64) float64) binder {
	return func(c *call) (func(), error) {
		if err := c.onlyFloats(); err != nil {
			return nil, err
		}
		term := make1(c)
		x, t := c.in[0], c.in[1]
		n := x.len()
		xs, ts := c.scratch(lossChunk), c.scratch(lossChunk)
		part := make([]float64, (n+lossChunk-1)/lossChunk)
		run := c.parallel(len(part), 8*min(n, lossChunk), func(w, i int) {
			lo, hi := i*lossChunk, min((i+1)*lossChunk, n)
			a, b := xs[w][:hi-lo], ts[w][:hi-lo]
			c.m.Load(a, x.buf().From(lo))
			c.m.Load(b, t.buf().From(lo))
			sum := 0.0
			for i := range a {
				sum += term(float64(a[i]), float64(b[i]))
			}
			part[i] = sum
		})
		count := n
		if c.Op == ir.OpKLDiv { // targets are distributions along the last dimension
			if d := x.dims(); len(d) > 0 {
				count /= max(d[len(d)-1], 1)
			}
		}
		return func() {
			run()
			c.out[0].set(0, float32(sum64(part)))
			c.out[1].set(0, float32(count))
		}, nil
	}
}

func sum64(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s
}

// checkLabels fails the step if a label is neither a class nor the ignored value.
func (c *call) checkLabels(classes int) bool {
	labels, ignore := c.in[1], c.Int("ignore")
	for i := range labels.len() {
		if l := labels.int(i); (l < 0 || l >= int64(classes)) && l != ignore {
			c.fail("label %d at place %d is outside 0..%d", l, i, classes-1)
			return false
		}
	}
	return true
}

// classRows returns the logits as rows of classes, either in place or transposed into scratch
// memory by the returned function.
func (c *call) classRows(v view) (x kern.Buf, rows, cols int, load func()) {
	outer, n, inner := c.axis(v)
	if inner == 1 {
		return v.buf(), outer, n, func() {}
	}
	x = kern.Floats(c.mem.whole(outer * n * inner))
	return x, outer * inner, n, c.transposeIn(x, v, outer, n, inner)
}

// classWeights returns the weights of the classes in f32, nil if there are none. load reads them
// before each run.
func (c *call) classWeights() (w []float32, load func()) {
	v := c.named("weights")
	if v.absent() {
		return nil, func() {}
	}
	if v.t.DType == ir.F32 {
		return v.f32(), func() {}
	}
	w = make([]float32, v.len())
	return w, func() { c.m.Load(w, v.buf()) }
}

func bindCrossEntropy(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	k := &kern.CrossEntropy{Labels: c.in[1].index(), Smoothing: float32(c.Float("smoothing")), Ignore: int(c.Int("ignore"))}
	var load, loadWeights func()
	k.X, k.Rows, k.Cols, load = c.classRows(c.in[0])
	k.Weights, loadWeights = c.classWeights()
	return func() {
		if !c.checkLabels(k.Cols) {
			return
		}
		load()
		loadWeights()
		sum, count := c.m.CrossEntropy(k)
		c.out[0].set(0, float32(sum))
		if c.out[1].set(0, float32(count)); !(math.Abs(count) <= math.MaxFloat32) {
			c.out[1].set(0, 0)
		}
	}, nil
}

func bindSoftCrossEntropy(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	x, rows, cols, loadX := c.classRows(c.in[0])
	t, _, _, loadT := c.classRows(c.in[1])
	row, tmp, part, p := c.scratch(cols), c.scratch(cols), make([]float64, rows), c.m
	run := c.parallel(rows, 16*max(cols, 1), func(w, i int) {
		r, s := row[w], tmp[w]
		p.Load(r, x.From(i*cols))
		p.Fill(s, p.MaxOf(r))
		p.Binary(kern.Sub, r, r, s)
		p.Unary(kern.Exp, s, r)
		lse, sum := math.Log(float64(p.Sum(s))), 0.0
		p.Load(s, t.From(i*cols))
		for k, v := range r {
			sum += float64(s[k]) * (lse - float64(v))
		}
		part[i] = sum
	})
	return func() {
		loadX()
		loadT()
		run()
		c.out[0].set(0, float32(sum64(part)))
		c.out[1].set(0, float32(rows))
	}, nil
}

// bindCrossEntropyGrad recomputes the softmax from the row's maximum. A saved logarithm of the
// divisor would lose precision where logits are large.
func bindCrossEntropyGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	g := &lossGrad{c: c, labels: c.in[1], ignore: c.Int("ignore"), smoothing: float32(c.Float("smoothing"))}
	var rows int
	var load, loadWeights func()
	g.x, rows, g.cols, load = c.classRows(c.in[0])
	g.weights, loadWeights = c.classWeights()
	outer, n, inner := c.axis(c.in[0])
	back := func() {}
	if g.dx = c.out[0].buf(); inner != 1 {
		g.dx = kern.Floats(c.mem.whole(rows * g.cols))
		back = c.transposeOut(c.out[0], g.dx, outer, n, inner)
	}
	block := max(1, min(rows, lossBlock/max(g.cols, 1))) // number of rows in one call of the vector kernels
	g.tmp, g.exps = c.scratch(block*g.cols), c.scratch(block*g.cols)
	// A function literal, because a method value has no place in the sources, by which TestDividedCallers knows regions.
	run := c.chunks(rows, block, 16*max(g.cols, 1), func(w, lo, hi int) { g.rows(w, lo, hi) })
	return func() {
		if !c.checkLabels(g.cols) {
			return
		}
		load()
		loadWeights()
		g.spread = 0
		for _, w := range g.weights {
			g.spread += float64(g.smoothing) * float64(w) / float64(g.cols)
		}
		run()
		back()
	}, nil
}

// lossGrad is a gradient of cross entropy. For each row it is Σ q·softmax - q, where q is the
// target probability of each class after label smoothing and class weights.
type lossGrad struct {
	c         *call
	x, dx     kern.Buf
	cols      int
	labels    view
	weights   []float32 // class weights; nil: all are 1
	ignore    int64
	smoothing float32
	spread    float64     // Smoothing/Cols·Σ weights
	exps, tmp [][]float32 // by worker
}

// minusZero added to a product leaves it unchanged.
var minusZero = float32(math.Copysign(0, -1))

// each fills each row of t. f gets the row's number and its elements in r.
func (g *lossGrad) each(t, r []float32, f func(i int, row []float32) float32) {
	for i, at := 0, 0; at < len(r); i, at = i+1, at+g.cols {
		g.c.m.Fill(t[at:at+g.cols], f(i, r[at:at+g.cols]))
	}
}

func (g *lossGrad) rows(w, lo, hi int) {
	p, n := g.c.m, (hi-lo)*g.cols
	r, t := g.exps[w][:n], g.tmp[w][:n]
	p.Load(r, g.x.From(lo*g.cols))
	for at := 0; at < n; at += g.cols {
		row := r[at : at+g.cols]
		p.Axpb(row, row, 1, -p.MaxOf(row))
	}
	p.Unary(kern.Exp, r, r)
	g.each(t, r, func(_ int, row []float32) float32 { return p.Sum(row) })
	p.Binary(kern.Div, r, r, t)
	if g.smoothing != 0 {
		g.smooth(r, t, lo)
	}
	scale := g.c.in[2].float(0)
	for i := lo; i < hi; i++ {
		hit, label := 1-g.smoothing, g.labels.int(i)
		if g.smoothing != 0 {
			hit = float32(hit * g.weight(i))
		}
		if label != g.ignore {
			r[(i-lo)*g.cols+int(label)] -= hit
		}
	}
	if g.weights == nil || g.smoothing != 0 {
		p.Axpb(r, r, scale, minusZero)
	} else {
		g.each(t, r, func(i int, _ []float32) float32 { return scale * g.weight(lo+i) })
		p.Binary(kern.Mul, r, r, t)
	}
	for i := lo; i < hi; i++ {
		if g.labels.int(i) == g.ignore {
			clear(r[(i-lo)*g.cols : (i-lo+1)*g.cols])
		}
	}
	p.Store(g.dx.From(lo*g.cols), r)
}

// weight returns the weight of row i's label, which is 1 without class weights or for an ignored
// label.
func (g *lossGrad) weight(i int) float32 {
	if label := g.labels.int(i); g.weights != nil && label != g.ignore {
		return g.weights[label]
	}
	return 1
}

// smooth subtracts the uniform part of the smoothed target from the softmax in r, scaled by the sum
// of the target.
func (g *lossGrad) smooth(r, t []float32, lo int) {
	p, share := g.c.m, g.smoothing/float32(g.cols)
	if g.weights == nil {
		p.Fill(t, share)
		p.Binary(kern.Sub, r, r, t)
		return
	}
	g.each(t, r, func(i int, _ []float32) float32 { return float32((1-g.smoothing)*g.weight(lo+i)) + float32(g.spread) })
	p.Binary(kern.Mul, r, r, t)
	for at := 0; at < len(t); at += g.cols {
		p.Axpb(t[at:at+g.cols], g.weights, share, 0)
	}
	p.Binary(kern.Sub, r, r, t)
}

func bindNLL(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	outer, n, inner := c.axis(c.in[0])
	x, labels, ignore := c.in[0], c.in[1], c.Int("ignore")
	return func() {
		if !c.checkLabels(n) {
			return
		}
		sum, count := 0.0, 0
		for o := range outer {
			for i := range inner {
				label := labels.int(o*inner + i)
				if label == ignore {
					continue
				}
				count++
				sum -= float64(x.float((o*n+int(label))*inner + i))
			}
		}
		c.out[0].set(0, float32(sum))
		c.out[1].set(0, float32(count))
	}, nil
}

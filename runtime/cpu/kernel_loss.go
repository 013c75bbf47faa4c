package cpu

import (
	"math"

	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// lossKernels yield the sum of a loss's terms and their count. Sums are in
// float64 over chunks that do not depend on the number of workers.
var lossKernels = map[string]binder{
	"cross_entropy":      bindCrossEntropy,
	"cross_entropy_grad": bindCrossEntropyGrad,
	"soft_cross_entropy": bindSoftCrossEntropy,
	"nll":                bindNLL,
	"bce_with_logits": pairLoss(func(*call) func(x, t float64) float64 {
		return func(x, t float64) float64 {
			if x >= 0 {
				t = 1 - t
			}
			return math.Abs(x)*t + math.Log1p(math.Exp(-math.Abs(x)))
		}
	}),
	"bce": pairLoss(func(*call) func(x, t float64) float64 {
		return func(p, t float64) float64 { return -(t*logClamped(p) + (1-t)*logClamped(1-p)) }
	}),
	"mse": pairLoss(func(*call) func(x, t float64) float64 {
		return func(x, t float64) float64 { return (x - t) * (x - t) }
	}),
	"l1_loss": pairLoss(func(*call) func(x, t float64) float64 {
		return func(x, t float64) float64 { return math.Abs(x - t) }
	}),
	"huber": pairLoss(func(c *call) func(x, t float64) float64 {
		delta := c.Float("delta")
		return func(x, t float64) float64 {
			r := math.Abs(x - t)
			if r <= delta {
				return r * r / 2
			}
			return delta * (r - delta/2)
		}
	}),
	"kl_div": pairLoss(func(c *call) func(x, t float64) float64 {
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

// logClamped is a logarithm that stops at -100, as the row says.
func logClamped(x float64) float64 {
	y := math.Log(x)
	if y < -100 {
		return -100
	}
	return y
}

// lossBlock is how many logits are worked on together: they stay in the first cache.
const lossBlock = 1 << 12

// lossChunk is how many terms are summed together.
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
		run := c.chunks(n, lossChunk, 8, func(w, lo, hi int) {
			a, b := xs[w][:hi-lo], ts[w][:hi-lo]
			c.m.Load(a, x.buf().From(lo))
			c.m.Load(b, t.buf().From(lo))
			sum := 0.0
			for i := range a {
				sum += term(float64(a[i]), float64(b[i]))
			}
			part[lo/lossChunk] = sum
		})
		count := n
		if c.Op == ir.OpKLDiv { // distributions along the last dimension
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

// checkLabels fails the step where a label is neither a class nor ignored.
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

// classRows gives the logits as rows of classes: where they lie, or transposed
// into scratch by the returned function.
func (c *call) classRows(v view) (x kern.Buf, rows, cols int, load func()) {
	outer, n, inner := c.axis(v)
	if inner == 1 {
		return v.buf(), outer, n, func() {}
	}
	x = kern.Floats(slice[float32](kern.Alloc(int64(4 * outer * n * inner))))
	return x, outer * inner, n, c.transposeIn(x, v, outer, n, inner)
}

func bindCrossEntropy(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	k := &kern.CrossEntropy{Labels: c.in[1].index(), Smoothing: float32(c.Float("smoothing")), Ignore: int(c.Int("ignore"))}
	var load func()
	k.X, k.Rows, k.Cols, load = c.classRows(c.in[0])
	return func() {
		if !c.checkLabels(k.Cols) {
			return
		}
		load()
		sum, rows := c.m.CrossEntropy(k)
		c.out[0].set(0, float32(sum))
		c.out[1].set(0, float32(rows))
	}, nil
}

func bindSoftCrossEntropy(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	x, rows, cols, loadX := c.classRows(c.in[0])
	t, _, _, loadT := c.classRows(c.in[1])
	row, tmp, part, mass, p := c.scratch(cols), c.scratch(cols), make([]float64, rows), make([]float64, rows), c.m
	run := c.parallel(rows, 16*max(cols, 1), func(w, i int) {
		r, s := row[w], tmp[w]
		p.Load(r, x.From(i*cols))
		p.Fill(s, p.MaxOf(r))
		p.Binary(kern.Sub, r, r, s)
		p.Unary(kern.Exp, s, r)
		lse, sum := math.Log(float64(p.Sum(s))), 0.0
		p.Load(s, t.From(i*cols))
		total := 0.0
		for k, v := range r {
			sum += float64(s[k]) * (lse - float64(v))
			total += float64(s[k])
		}
		part[i], mass[i] = sum, total
	})
	return func() {
		loadX()
		loadT()
		run()
		c.out[0].set(0, float32(sum64(part)))
		c.out[1].set(0, float32(rows))
		if c.Flag("mass") {
			if total := sum64(mass); math.Abs(total) <= math.MaxFloat32 {
				c.out[1].set(0, float32(total))
			} else {
				c.out[1].set(0, 0)
			}
		}
	}, nil
}

// bindCrossEntropyGrad computes the softmax again from the row's maximum: a
// saved logarithm of its divisor would lose bits where logits are large.
func bindCrossEntropyGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	x, rows, cols, load := c.classRows(c.in[0])
	outer, n, inner := c.axis(c.in[0])
	dx, back := c.out[0].buf(), func() {}
	if inner != 1 {
		dx = kern.Floats(slice[float32](kern.Alloc(int64(4 * rows * cols))))
		back = c.transposeOut(c.out[0], dx, outer, n, inner)
	}
	labels, ignore, smoothing := c.in[1], c.Int("ignore"), float32(c.Float("smoothing"))
	p, dloss := c.m, c.in[2]
	block := max(1, min(rows, lossBlock/max(cols, 1))) // rows that the vector kernels take at once
	tmp, exps := c.scratch(block*cols), c.scratch(block*cols)
	run := c.chunks(rows, block, 16*max(cols, 1), func(w, lo, hi int) {
		r, t := exps[w][:(hi-lo)*cols], tmp[w][:(hi-lo)*cols]
		each := func(f func(row []float32) float32) { // t is what f gives for each row
			for i := 0; i < len(r); i += cols {
				fill(t[i:i+cols], f(r[i:i+cols]))
			}
		}
		p.Load(r, x.From(lo*cols))
		each(p.MaxOf)
		p.Binary(kern.Sub, r, r, t)
		p.Unary(kern.Exp, r, r)
		each(p.Sum)
		p.Binary(kern.Div, r, r, t)
		if smoothing != 0 {
			p.Fill(t, smoothing/float32(cols))
			p.Binary(kern.Sub, r, r, t)
		}
		for i := lo; i < hi; i++ {
			if label := labels.int(i); label != ignore {
				r[(i-lo)*cols+int(label)] -= 1 - smoothing
			}
		}
		p.Fill(t, dloss.float(0))
		p.Binary(kern.Mul, r, r, t)
		for i := lo; i < hi; i++ {
			if labels.int(i) == ignore {
				clear(r[(i-lo)*cols : (i-lo+1)*cols])
			}
		}
		p.Store(dx.From(lo*cols), r)
	})
	return func() {
		if !c.checkLabels(cols) {
			return
		}
		load()
		run()
		back()
	}, nil
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

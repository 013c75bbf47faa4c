package eval

import (
	"fmt"
	"math"

	"ampc/ir"
)

var lossFns = map[ir.Op]fn{
	ir.OpCrossEntropy:     crossEntropy,
	ir.OpCrossEntropyGrad: crossEntropyGrad,
	ir.OpNLL:              nll,
	ir.OpSoftCrossEntropy: softCrossEntropy,
	ir.OpBCEWithLogits: pairLoss(func(_ *call, x, t float64) float64 {
		if x >= 0 {
			t = 1 - t
		}
		return math.Abs(x)*t + math.Log1p(math.Exp(-math.Abs(x)))
	}),
	ir.OpBCE: pairLoss(func(_ *call, p, t float64) float64 {
		return -(t*math.Max(math.Log(p), -100) + (1-t)*math.Max(math.Log1p(-p), -100))
	}),
	ir.OpMSE:    pairLoss(func(_ *call, x, t float64) float64 { return (x - t) * (x - t) }),
	ir.OpL1Loss: pairLoss(func(_ *call, x, t float64) float64 { return math.Abs(x - t) }),
	ir.OpHuber: pairLoss(func(c *call, x, t float64) float64 {
		r, delta := math.Abs(x-t), c.Float("delta")
		if r <= delta {
			return r * r / 2
		}
		return delta * (r - delta/2)
	}),
	ir.OpKLDiv: klDiv,
}

// pairLoss sums a term of every pair of elements of x and target.
func pairLoss(term func(c *call, x, t float64) float64) fn {
	return func(c *call) error {
		for i, x := range c.in[0].F {
			c.out[0].F[0] += term(c, x, c.in[1].F[i])
		}
		c.out[1].F[0] = float64(c.in[0].Len())
		return nil
	}
}

func klDiv(c *call) error {
	for i, logp := range c.in[0].F {
		q, logq := c.in[1].F[i], 0.0
		switch {
		case c.Flag("log_target"):
			q, logq = math.Exp(q), q
		case q > 0:
			logq = math.Log(q)
		}
		c.out[0].F[0] += q * (logq - logp)
	}
	d := c.in[0].dims()
	c.out[1].F[0] = float64(c.in[0].Len() / max(d[len(d)-1], 1))
	return nil
}

// eachLabel calls f with the scores of every label that is not ignored and the
// distance between neighbours in x, starting at offset at.
func (c *call) eachLabel(f func(x []float64, label, at, stride int)) error {
	d := c.in[0].dims()
	axis := c.axis(len(d))
	classes, inner := d[axis], volume(d[axis+1:])
	x := make([]float64, classes)
	for i, label := range c.in[1].I {
		if label == c.Int("ignore") {
			continue
		}
		if label < 0 || int(label) >= classes {
			return fmt.Errorf("label %d is outside 0..%d", label, classes-1)
		}
		at := i/inner*classes*inner + i%inner
		for k := range x {
			x[k] = c.in[0].F[at+k*inner]
		}
		f(x, int(label), at, inner)
	}
	return nil
}

// target is the target that a label stands for: its share of each class, and their sum.
func (c *call) target(classes, label int) (t []float64, total float64) {
	t, s := make([]float64, classes), c.Float("smoothing")
	for k := range t {
		if t[k] = s / float64(classes); k == label {
			t[k] += 1 - s
		}
		if w := c.named("weights"); w != nil {
			if t[k] != 0 { // the weight of an ignored class may have any value
				t[k] *= w.F[k]
			}
		}
		total += t[k]
	}
	return t, total
}

func crossEntropy(c *call) error {
	sum, count, w := &c.out[0].F[0], &c.out[1].F[0], c.named("weights")
	err := c.eachLabel(func(x []float64, label, _, _ int) {
		lse := logDivisor(x)
		t, _ := c.target(len(x), label)
		for k, v := range x {
			if t[k] != 0 || k == label {
				*sum += t[k] * (lse - v)
			}
		}
		if w != nil {
			*count += w.F[label]
		} else {
			*count++
		}
	})
	if math.IsNaN(*count) || math.Abs(*count) > math.MaxFloat32 {
		*count = 0
	}
	return err
}

func softCrossEntropy(c *call) error {
	d := c.in[0].dims()
	axis := c.axis(len(d))
	classes, inner := d[axis], volume(d[axis+1:])
	x := make([]float64, classes)
	rows := c.in[0].Len() / max(classes, 1)
	for i := range rows {
		at := i/inner*classes*inner + i%inner
		for k := range x {
			x[k] = c.in[0].F[at+k*inner]
		}
		lse := logDivisor(x)
		for k, v := range x {
			c.out[0].F[0] += c.in[1].F[at+k*inner] * (lse - v)
		}
	}
	c.out[1].F[0] = float64(rows)
	return nil
}

func crossEntropyGrad(c *call) error {
	dsum, dx := c.in[2].F[0], c.out[0].F
	return c.eachLabel(func(x []float64, label, at, stride int) {
		lse := logDivisor(x)
		t, total := c.target(len(x), label)
		for k, v := range x {
			dx[at+k*stride] = (total*math.Exp(v-lse) - t[k]) * dsum
		}
	})
}

func nll(c *call) error {
	return c.eachLabel(func(x []float64, label, _, _ int) {
		c.out[0].F[0] -= x[label]
		c.out[1].F[0]++
	})
}

package eval

import (
	"math"

	"ampc/ir"
)

var normFns = map[ir.Op]fn{
	ir.OpSoftmax:        alongAxis(softmax),
	ir.OpLogSoftmax:     alongAxis(logSoftmax),
	ir.OpSoftmaxGrad:    alongAxis(softmaxGrad),
	ir.OpLogSoftmaxGrad: alongAxis(logSoftmaxGrad),
	ir.OpLayerNorm:      norm,
	ir.OpRMSNorm:        norm,
	ir.OpGroupNorm:      norm,
	ir.OpInstanceNorm:   norm,
	ir.OpBatchNorm:      batchNorm,
	ir.OpBatchNormInfer: batchNormInfer,
	ir.OpLayerNormGrad:  normGrad,
	ir.OpRMSNormGrad:    normGrad,
	ir.OpGroupNormGrad:  normGrad,
	ir.OpBatchNormGrad:  normGrad,
}

// alongAxis runs f on every line along the node's axis: the lines of all
// operands side by side, and the line of the result to fill.
func alongAxis(f func(in [][]float64, out []float64)) fn {
	return func(c *call) error {
		d := c.out[0].dims()
		axis := c.axis(len(d))
		n, inner := d[axis], volume(d[axis+1:])
		in, out := make([][]float64, len(c.in)), make([]float64, n)
		for i := range in {
			in[i] = make([]float64, n)
		}
		for start := range volume(d) / max(n, 1) {
			at := start/inner*n*inner + start%inner
			for i, t := range c.in {
				for k := range n {
					in[i][k] = t.F[at+k*inner]
				}
			}
			f(in, out)
			for k, x := range out {
				c.out[0].F[at+k*inner] = x
			}
		}
		return nil
	}
}

// axis is the node's axis attribute, from the front.
func (c *call) axis(rank int) int {
	a := int(c.Int("axis"))
	if a < 0 {
		a += rank
	}
	return a
}

// logDivisor is the logarithm of what softmax divides by: log Σ exp(x); NaN
// where x holds NaN or Inf, or nothing but −Inf.
func logDivisor(x []float64) float64 {
	top := math.Inf(-1)
	for _, v := range x {
		top = math.Max(top, v)
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(v - top)
	}
	return top + math.Log(sum)
}

func softmax(in [][]float64, y []float64) {
	lse := logDivisor(in[0])
	for i, x := range in[0] {
		y[i] = math.Exp(x - lse)
	}
}

func logSoftmax(in [][]float64, y []float64) {
	lse := logDivisor(in[0])
	for i, x := range in[0] {
		y[i] = x - lse
	}
}

func softmaxGrad(in [][]float64, dx []float64) {
	y, dy, dot := in[0], in[1], 0.0
	for i := range y {
		dot += y[i] * dy[i]
	}
	for i := range y {
		dx[i] = y[i] * (dy[i] - dot)
	}
}

func logSoftmaxGrad(in [][]float64, dx []float64) {
	y, dy, sum := in[0], in[1], 0.0
	for _, d := range dy {
		sum += d
	}
	for i := range y {
		dx[i] = dy[i] - math.Exp(y[i])*sum
	}
}

// normed says which statistics and which scale belong to each element of x.
type normed struct {
	stats, params int // how many of each
	count         float64
	of            func(i int) (stat, param int)
}

func (c *call) normed() normed {
	d := c.in[0].dims()
	total := volume(d)
	last := c.Str("layout") == "NHWC"
	channel := func(i int) int {
		if last {
			return i % d[len(d)-1]
		}
		return i / volume(d[2:]) % d[1]
	}
	channels := d[min(1, len(d)-1)]
	if last {
		channels = d[len(d)-1]
	}
	var n normed
	switch c.Def().Norm.Over {
	case ir.OverRows:
		w := volume(d[len(d)-int(c.Int("dims")):])
		n = normed{stats: total / max(w, 1), params: w, of: func(i int) (int, int) { return i / w, i % w }}
	case ir.OverChannels:
		n = normed{stats: channels, params: channels, of: func(i int) (int, int) { k := channel(i); return k, k }}
	default:
		groups := int(c.GroupCount())
		image := total / max(d[0], 1)
		n = normed{stats: d[0] * groups, params: channels, of: func(i int) (int, int) {
			k := channel(i)
			return i/image*groups + k*groups/channels, k
		}}
	}
	n.count = float64(total / max(n.stats, 1))
	return n
}

// moments are the mean and the mean square around it (around 0 for rms_norm)
// of the elements of each statistic.
func (c *call) moments(n normed) (mean, square []float64) {
	mean, square = make([]float64, n.stats), make([]float64, n.stats)
	x := c.in[0].F
	if !c.Def().Norm.RMS {
		for i, v := range x {
			s, _ := n.of(i)
			mean[s] += v / n.count
		}
	}
	for i, v := range x {
		s, _ := n.of(i)
		square[s] += (v - mean[s]) * (v - mean[s]) / n.count
	}
	return mean, square
}

// apply stores (x − mean)·rstd·scale + bias.
func (c *call) apply(n normed, mean, rstd []float64) {
	scale, bias := c.named("scale"), c.named("bias")
	for i, v := range c.in[0].F {
		s, p := n.of(i)
		y := (v - mean[s]) * rstd[s]
		if scale != nil {
			y *= scale.F[p]
		}
		if bias != nil {
			y += bias.F[p]
		}
		c.out[0].F[i] = y
	}
}

// named returns the operand the row calls name, nil where absent.
func (c *call) named(name string) *Tensor {
	for i, o := range c.Def().In {
		if o.Name == name {
			return c.operand(i)
		}
	}
	return nil
}

func (c *call) rstd(variance []float64) []float64 {
	r := make([]float64, len(variance))
	for i, v := range variance {
		r[i] = 1 / math.Sqrt(v+c.Float("eps"))
	}
	return r
}

func norm(c *call) error {
	n := c.normed()
	mean, square := c.moments(n)
	rstd := c.rstd(square)
	c.apply(n, mean, rstd)
	if !c.Def().Norm.RMS {
		copy(c.out[1].F, mean)
	}
	copy(c.out[len(c.out)-1].F, rstd)
	return nil
}

func batchNorm(c *call) error {
	n := c.normed()
	mean, variance := c.moments(n)
	rstd := c.rstd(variance)
	c.apply(n, mean, rstd)
	copy(c.out[1].F, mean)
	copy(c.out[2].F, rstd)
	if len(c.out) < 5 {
		return nil
	}
	m, unbias := c.Float("momentum"), n.count/max(n.count-1, 1)
	for i := range mean {
		c.out[3].F[i] = c.in[3].F[i] + m*(mean[i]-c.in[3].F[i])
		c.out[4].F[i] = c.in[4].F[i] + m*(variance[i]*unbias-c.in[4].F[i])
	}
	return nil
}

func batchNormInfer(c *call) error {
	c.apply(c.normed(), c.in[3].F, c.rstd(c.in[4].F))
	return nil
}

// normGrad: with x̂ = (x−mean)·rstd and g = dy·scale,
// dx = rstd·(g − mean g − x̂·mean(g·x̂)); rms_norm has no mean and no mean g.
func normGrad(c *call) error {
	n := c.normed()
	x, dy, rstd := c.in[0].F, c.in[1].F, c.named("rstd").F
	mean, scale := c.named("mean"), c.named("scale")
	sumG, sumGX := make([]float64, n.stats), make([]float64, n.stats)
	hat, g := make([]float64, len(x)), make([]float64, len(x))
	for i := range x {
		s, p := n.of(i)
		hat[i], g[i] = x[i]*rstd[s], dy[i]
		if mean != nil {
			hat[i] = (x[i] - mean.F[s]) * rstd[s]
		}
		if scale != nil {
			g[i] *= scale.F[p]
			c.out[1].F[p] += dy[i] * hat[i]
			if len(c.out) > 2 {
				c.out[2].F[p] += dy[i]
			}
		}
		if mean != nil {
			sumG[s] += g[i]
		}
		sumGX[s] += g[i] * hat[i]
	}
	for i := range x {
		s, _ := n.of(i)
		c.out[0].F[i] = rstd[s] * (g[i] - sumG[s]/n.count - hat[i]*sumGX[s]/n.count)
	}
	return nil
}

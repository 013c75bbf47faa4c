package eval

import (
	"math"

	"ampc/ir"
)

var attentionFns = map[ir.Op]fn{
	ir.OpAttention:     attention,
	ir.OpAttentionGrad: attentionGrad,
	ir.OpRope:          rope,
}

// heads is an attention node one query at a time.
type heads struct {
	c             *call
	b, h, g, s, t int // batch, heads of q, heads of k and v, queries, keys
	d, e          int // size of a head in q and k, and in v
	q, k, v       []float64
	mask          *Tensor
	maskAt        walk
	scale         float64
	causal        bool
	p             []float64 // weights or scores of one query
}

func openHeads(c *call, mask *Tensor) *heads {
	q, k, v := c.in[0].dims(), c.in[1].dims(), c.in[2].dims()
	a := &heads{c: c, b: q[0], h: q[1], g: k[1], s: q[2], t: k[2], d: q[3], e: v[3], mask: mask,
		q: c.factor(0), k: c.factor(1), v: c.factor(2), scale: c.AttentionScale(), causal: c.Flag("causal"), p: make([]float64, k[2])}
	if mask != nil {
		shape := []int{a.b, a.h, a.s, a.t}
		a.maskAt = walk{strides: broadcastStrides(mask.dims(), shape), shape: shape}
	}
	return a
}

// each calls f for every query: its row among all queries, and the row of its
// first key among all keys.
func (a *heads) each(f func(row, i, keys int)) {
	for bh := range a.b * a.h {
		group := bh/a.h*a.g + bh%a.h*a.g/a.h
		for i := range a.s {
			f(bh*a.s+i, i, group*a.t)
		}
	}
}

// scores fills p with the scores of one query; keys it may not see get −Inf.
func (a *heads) scores(row, i, keys int) {
	for j := range a.t {
		if a.causal && j > i+a.t-a.s {
			a.p[j] = math.Inf(-1)
			continue
		}
		s := dotProduct(a.q[row*a.d:][:a.d], a.k[(keys+j)*a.d:][:a.d]) * a.scale
		if a.mask != nil {
			s += a.mask.F[a.maskAt.offset(row*a.t+j)]
		}
		a.p[j] = s
	}
}

func (a *heads) weights(row, i, keys int, lse float64) {
	a.scores(row, i, keys)
	for j, s := range a.p {
		a.p[j] = math.Exp(s - lse)
	}
}

func dotProduct(x, y []float64) float64 {
	s := 0.0
	for i := range x {
		s += x[i] * y[i]
	}
	return s
}

// addTo adds x·f to y.
func addTo(y, x []float64, f float64) {
	for i := range x {
		y[i] += x[i] * f
	}
}

func attention(c *call) error {
	a := openHeads(c, c.operand(3))
	y, lse := c.out[0].F, c.out[1].F
	a.each(func(row, i, keys int) {
		a.scores(row, i, keys)
		lse[row] = logDivisor(a.p)
		for j, s := range a.p {
			addTo(y[row*a.e:][:a.e], a.v[(keys+j)*a.e:][:a.e], math.Exp(s-lse[row]))
		}
	})
	return nil
}

func attentionGrad(c *call) error {
	a := openHeads(c, c.operand(6))
	y, dy, lse := c.in[3].F, c.factor(4), c.in[5].F
	dq, dk, dv := c.out[0].F, c.out[1].F, c.out[2].F
	a.each(func(row, i, keys int) {
		a.weights(row, i, keys, lse[row])
		g := dy[row*a.e:][:a.e]
		delta := dotProduct(c.in[4].F[row*a.e:][:a.e], y[row*a.e:][:a.e])
		for j, p := range a.p {
			at := keys + j
			addTo(dv[at*a.e:][:a.e], g, p)
			ds := p * (dotProduct(g, a.v[at*a.e:][:a.e]) - delta) * a.scale
			addTo(dq[row*a.d:][:a.d], a.k[at*a.d:][:a.d], ds)
			addTo(dk[at*a.d:][:a.d], a.q[row*a.d:][:a.d], ds)
		}
	})
	return nil
}

// rope turns each pair by its position times base^(−2i/dims).
func rope(c *call) error {
	d := c.in[0].dims()
	width, seq := d[len(d)-1], d[len(d)-2]
	dims := int(c.Int("dims"))
	if dims == 0 {
		dims = width
	}
	base, sign := c.Float("base"), 1.0
	if c.Flag("inverse") {
		sign = -1
	}
	copy(c.out[0].F, c.in[0].F)
	for row := range volume(d[:len(d)-1]) {
		x, y := c.in[0].F[row*width:], c.out[0].F[row*width:]
		pos := c.position(row, seq, volume(d[1:len(d)-1]))
		for i := range dims / 2 {
			lo, hi := i, i+dims/2
			if c.Flag("interleaved") {
				lo, hi = 2*i, 2*i+1
			}
			sin, cos := math.Sincos(sign * pos * math.Pow(base, -2*float64(i)/float64(dims)))
			y[lo], y[hi] = x[lo]*cos-x[hi]*sin, x[lo]*sin+x[hi]*cos
		}
	}
	return nil
}

// position is where row stands in its sequence; image is the number of rows of
// one element of the batch.
func (c *call) position(row, seq, image int) float64 {
	pos := c.operand(1)
	switch {
	case pos == nil:
		return float64(row % seq)
	case len(pos.dims()) < 2:
		return float64(pos.I[row%seq])
	}
	return float64(pos.I[row/image*seq+row%seq])
}

package eval

import (
	"fmt"
	"math"

	"ampc/ir"
)

var cacheFns = map[ir.Op]fn{ir.OpCacheAppend: cacheAppend, ir.OpCachedAttention: cachedAttention}

// filled is where the rows of one sequence go: pos and count of operands i and i+1.
func (c *call) filled(i, b, most, length int) (pos, count int, err error) {
	pos, count = int(c.in[i].I[b]), most
	if t := c.operand(i + 1); t != nil {
		count = int(t.I[b])
	}
	if pos < 0 || count < 0 || count > most || count > length-pos {
		err = fmt.Errorf("sequence %d: %d rows of %d at position %d of a cache of %d", b, count, most, pos, length)
	}
	return pos, count, err
}

func cacheAppend(c *call) error {
	d, x, y := c.in[0].dims(), c.in[1], c.out[0]
	s, width := x.dims()[2], d[3]
	copy(y.F, c.in[0].F)
	for b := range d[0] {
		pos, count, err := c.filled(2, b, s, d[2])
		if err != nil {
			return err
		}
		for g := range d[1] {
			head := b*d[1] + g
			copy(y.F[(head*d[2]+pos)*width:][:count*width], x.F[head*s*width:])
		}
	}
	return nil
}

func cachedAttention(c *call) error {
	q, k, v := c.in[0].dims(), c.in[1].dims(), c.in[2].dims()
	scale, out := c.AttentionScale(), c.out[0].F
	for b := range q[0] {
		pos, count, err := c.filled(3, b, q[2], k[2])
		if err != nil {
			return err
		}
		for h := range q[1] {
			keys := (b*k[1] + h*k[1]/q[1]) * k[2]
			for i := range count {
				row := (b*q[1]+h)*q[2] + i
				scores := make([]float64, pos+i+1)
				for j := range scores {
					scores[j] = dotProduct(c.in[0].F[row*q[3]:][:q[3]], c.in[1].F[(keys+j)*q[3]:][:q[3]]) * scale
				}
				lse := logDivisor(scores)
				for j, s := range scores {
					addTo(out[row*v[3]:][:v[3]], c.in[2].F[(keys+j)*v[3]:][:v[3]], math.Exp(s-lse))
				}
			}
		}
	}
	return nil
}

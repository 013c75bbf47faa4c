package cpu

import (
	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// cacheKernels work on caches. The caller passes their memory with each step.
var cacheKernels = map[ir.Op]binder{ir.OpCacheAppend: bindCacheAppend, ir.OpCachedAttention: bindCachedAttention}

// memory returns operand i of the running step.
func (c *call) memory(i int) view { return view{c.in[i].t, c.now[i]()} }

// spans reads which rows of the cache each sequence writes, operands i and i+1. It reports a fault
// if a cache with the given number of rows has no room for them.
func (c *call) spans(i, most, length int, pos, count []int) bool {
	for b := range pos {
		pos[b], count[b] = int(c.in[i].int(b)), most
		if t := c.arg(i + 1); !t.absent() {
			count[b] = int(t.int(b))
		}
		if pos[b] < 0 || count[b] < 0 || count[b] > most || count[b] > length-pos[b] {
			c.fail("sequence %d: %d rows of %d at position %d of a cache of %d", b, count[b], most, pos[b], length)
			return false
		}
	}
	return true
}

// bindCacheAppend writes the new rows to the cache. If the first operand is not a cache, it is
// copied to the result first.
func bindCacheAppend(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	d, s := c.in[0].dims(), c.in[1].dims()[2]
	heads, length, width := d[1], d[2], d[3]
	pos, count, rows := make([]int, d[0]), make([]int, d[0]), c.scratch(s*width)
	var to view
	var copying parallelCopy
	write := c.chunks(d[0]*heads*s, s, 2*width, func(w, lo, hi int) {
		for next := lo; lo < hi; lo = next {
			i, first := lo/s, lo%s
			next = min(hi, (i+1)*s)
			n := (min(first+next-lo, count[i/heads]) - first) * width
			if n > 0 {
				row := rows[w][:n]
				c.m.Load(row, c.in[1].buf().From(lo*width))
				c.m.Store(kern.Buf{Type: to.buf().Type, Data: to.buf().From((i*length + pos[i/heads] + first) * width).Data[:n*int(to.t.DType.Size())]}, row)
			}
		}
	})
	return func() {
		if !c.spans(2, s, length, pos, count) {
			return
		}
		if to = c.memory(0); len(c.out[0].mem) > 0 {
			copying.copy(c.m, c.out[0].mem, to.mem)
			to = c.out[0]
		}
		write()
	}, nil
}

func bindCachedAttention(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	q, k, v := c.in[0].dims(), c.in[1].dims(), c.in[2].dims()
	a := &kern.CachedAttention{Batch: q[0], Heads: q[1], KVHeads: k[1], S: q[2], T: k[2], D: q[3], DV: v[3], Scale: float32(c.AttentionScale()),
		Q: c.in[0].buf(), Y: c.out[0].buf(), Pos: make([]int, q[0]), Count: make([]int, q[0])}
	return func() {
		if c.spans(3, a.S, a.T, a.Pos, a.Count) {
			a.K, a.V = c.memory(1).buf(), c.memory(2).buf()
			c.m.CachedAttention(a)
		}
	}, nil
}

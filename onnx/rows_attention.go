package onnx

import (
	"math"
	"slices"

	"ampc/ir"
)

var attentionRows = []row{
	{op: "Attention", since: 23, ours: "attention, or matmul, add, softmax", imp: attention},
	{op: "RotaryEmbedding", since: 23, ours: "gather, mul, sub, add, concat", imp: rotary},
}

// heads is operand i as [B,H,S,D].
func (c *call) heads(i int, count string) *ir.Value {
	d := c.dims(i)
	switch len(d) {
	case 4:
		return c.x(i)
	case 3:
		n := c.int(count, 0)
		if n < 1 || d[2]%n != 0 {
			c.fail("%s is %d, which does not divide the last dimension of operand %d, %v", count, n, i, d)
			return nil
		}
		return c.b.Transpose(c.reshape(c.x(i), d[0], d[1], n, d[2]/n), 0, 2, 1, 3)
	}
	c.fail("operand %d has rank %d, want 3 or 4", i, len(d))
	return nil
}

// scores is one Attention node.
type scores struct {
	*call
	q, k, v    *ir.Value
	qd, kd, vd []int64
	past       int64
	present    []*ir.Value
}

func attention(c *call) []*ir.Value {
	a := scores{call: c, q: c.heads(0, "q_num_heads"), k: c.heads(1, "kv_num_heads"), v: c.heads(2, "kv_num_heads")}
	if c.failure() != nil {
		return nil
	}
	if c.has(4) {
		if c.rank(4) != 4 {
			c.fail("the past keys (operand 4) have rank %d, want 4", c.rank(4))
			return nil
		}
		a.past = c.dims(4)[2]
		a.k, a.v = c.b.Concat(2, c.x(4), a.k), c.b.Concat(2, c.x(5), a.v)
	}
	a.present = []*ir.Value{a.k, a.v}
	if c.failure() != nil {
		return nil
	}
	a.qd, a.kd, a.vd = sizes(a.q.Type), sizes(a.k.Type), sizes(a.v.Type)
	if !c.headsFit(a.qd[1], a.kd[1], a.vd[1]) {
		return nil
	}
	mask := a.mask()
	var y, inner *ir.Value
	if mode, cap := c.int("qk_matmul_output_mode", 0), c.float("softcap", 0); cap == 0 && !c.wants(3) {
		y = c.b.Attention(a.q, a.k, a.v, mask, ir.A("scale", a.factor()))
	} else {
		y, inner = a.written(mask, cap, mode)
	}
	if len(c.dims(0)) == 3 {
		y = c.reshape(c.b.Transpose(y, 0, 2, 1, 3), a.qd[0], a.qd[2], a.qd[1]*a.vd[3])
	}
	out := []*ir.Value{y, nil, nil, inner}
	for i := range a.present {
		if c.wants(1 + i) {
			out[1+i] = a.present[i]
			if out[1+i] == c.opt(1+i) {
				out[1+i] = c.reshape(out[1+i], sizes(out[1+i].Type)...)
			}
		}
	}
	return out
}

// headsFit reports whether every head of keys and values serves as many heads of queries.
func (c *call) headsFit(queries, keys, values int64) bool {
	if keys > 0 && keys == values && queries%keys == 0 {
		return true
	}
	c.fail("there are %d heads of queries, %d of keys and %d of values, want as many of values as of keys, and a multiple of that of queries", queries, keys, values)
	return false
}

func (a *scores) factor() float64 {
	return a.float("scale", 1/math.Sqrt(float64(a.qd[3])))
}

// mask is what is added to the scores, [B,H,S,T] or what broadcasts to it, nil
// for nothing. A causal node sees keys up to its own place, counted behind the past.
func (a *scores) mask() *ir.Value {
	b, c := a.b, a.call
	d := c.typ(0).DType
	s, t := a.qd[2], a.kd[2]
	never := func(seen *ir.Value) *ir.Value {
		return b.Where(seen, b.Scalar(d, 0), b.Scalar(d, math.Inf(-1)))
	}
	var mask *ir.Value
	join := func(m *ir.Value) {
		if mask == nil {
			mask = m
		} else {
			mask = b.Add(mask, m)
		}
	}
	if c.has(3) {
		m, own := c.x(3), c.dims(3)
		if c.typ(3).DType == ir.Bool {
			m = never(m)
		}
		if n := len(own); n > 0 && own[n-1] < t && own[n-1] != 1 {
			hi := make([]int64, n)
			hi[n-1] = t - own[n-1]
			m = b.Pad(m, make([]int64, n), hi, math.Inf(-1))
			own[n-1] = t
		}
		if n := len(own); n < 4 {
			m = c.reshape(m, slices.Concat(slices.Repeat([]int64{1}, 4-n), own)...)
		}
		join(m)
	}
	if c.flag("is_causal", false) {
		rows, cols := b.Iota(ir.I32, 0, s, t), b.Iota(ir.I32, 1, s, t)
		join(c.reshape(never(b.Le(cols, b.Affine(rows, 1, float64(a.past)))), 1, 1, s, t))
	}
	if c.has(6) {
		valid := c.cast(c.reshape(c.x(6), a.qd[0], 1, 1, 1), ir.I32)
		join(never(b.Lt(b.Iota(ir.I32, 3, 1, 1, 1, t), valid)))
	}
	if mask == nil {
		return nil
	}
	return mask
}

// written is attention in simple rows, with what qk_matmul_output_mode asks for.
func (a *scores) written(mask *ir.Value, cap float64, mode int64) (y, inner *ir.Value) {
	b := a.b
	s := b.Affine(b.Matmul(a.q, a.repeated(a.k, a.qd[1]), false, true), a.factor(), 0)
	at := []*ir.Value{s}
	if mask != nil {
		s = b.Add(s, mask)
	}
	at = append(at, s)
	if cap != 0 {
		s = b.Affine(b.Tanh(b.Affine(s, 1/cap, 0)), cap, 0)
	}
	at = append(at, s)
	s = b.Softmax(s, 3)
	at = append(at, s)
	if mode < 0 || mode > 3 {
		a.fail("qk_matmul_output_mode is %d, want 0 to 3", mode)
		return nil, nil
	}
	return b.Matmul(s, a.repeated(a.v, a.qd[1]), false, false), at[mode]
}

// turning is by how much pairs of the last axis are turned: [B,1,S,pairs] each.
type turning struct {
	cos, sin *ir.Value
	turn     int64 // elements that are turned; the rest stays
	beside   bool  // a pair stands side by side, not half of the turned elements apart
}

// turning reads two tables, operands i and i+1, at places at for x of dims d [B,N,S,H]; without
// places, they have a row for each.
func (c *call) turning(i int, turn int64, d []int64, at *ir.Value, beside bool) turning {
	if turn < 2 || turn > d[3] || turn%2 != 0 {
		c.fail("the rotation covers %d of %d elements, want an even number from 2 to all of them", turn, d[3])
		return turning{}
	}
	angle := func(i int) *ir.Value {
		table, own := c.x(i), c.dims(i)
		if last := len(own) - 1; last >= 0 && own[last] > turn/2 {
			table = c.columns(table, 0, turn/2)
		}
		if at != nil {
			table = c.b.Gather(table, at, 0)
		}
		return c.reshape(table, d[0], 1, d[2], turn/2)
	}
	return turning{angle(i), angle(i + 1), turn, beside}
}

func (t turning) apply(c *call, x *ir.Value) *ir.Value {
	if c.failure() != nil {
		return nil
	}
	b, d, half := c.b, sizes(x.Type), t.turn/2
	last := []int64{3}
	part := c.columns(x, 0, t.turn)
	var even, odd *ir.Value
	if t.beside {
		even = b.SliceStep(part, last, []int64{0}, []int64{t.turn}, []int64{2})
		odd = b.SliceStep(part, last, []int64{1}, []int64{t.turn}, []int64{2})
	} else {
		even, odd = c.columns(part, 0, half), c.columns(part, half, t.turn)
	}
	re := b.Sub(b.Mul(t.cos, even), b.Mul(t.sin, odd))
	im := b.Add(b.Mul(t.sin, even), b.Mul(t.cos, odd))
	y := b.Concat(3, re, im)
	if t.beside {
		up := func(v *ir.Value) *ir.Value { return c.reshape(v, d[0], d[1], d[2], half, 1) }
		y = c.reshape(b.Concat(4, up(re), up(im)), d[0], d[1], d[2], t.turn)
	}
	if t.turn < d[3] {
		y = b.Concat(3, y, c.columns(x, t.turn, d[3]))
	}
	return y
}

// rotary turns pairs by the angles of two tables, one row for each position.
func rotary(c *call) []*ir.Value {
	x := c.heads(0, "num_heads")
	if c.failure() != nil {
		return nil
	}
	d := sizes(x.Type)
	turn := c.int("rotary_embedding_dim", 0)
	if turn == 0 {
		turn = d[3]
	}
	y := c.turning(1, turn, d, c.opt(3), c.flag("interleaved", false)).apply(c, x)
	if in := c.dims(0); len(in) == 3 {
		y = c.reshape(c.b.Transpose(y, 0, 2, 1, 3), in...)
	}
	return one(y)
}

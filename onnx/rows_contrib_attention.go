package onnx

import (
	"math"

	"ampc/ir"
)

// contribAttentionRows are attention in onnxruntime's own domain.
var contribAttentionRows = []row{
	{domain: microsoft, op: "Attention", since: 1, ours: "matmul, attention", not: "rotary embeddings, shared buffers of past and present, masks of 3·batch+2 numbers", imp: contribAttention},
	{domain: microsoft, op: "MultiHeadAttention", since: 1, ours: "attention", not: "shared buffers of past and present, beams, masks of 3·batch+2 numbers", imp: multiHead},
	{domain: microsoft, op: "GroupQueryAttention", since: 1, ours: "gather_elements, attention", not: "a total length that depends on data, sinks, quantized caches", imp: groupQuery},
	{domain: microsoft, op: "RotaryEmbedding", since: 1, ours: "gather, mul, sub, add, concat", not: "packed batches", imp: contribRotary},
}

// keys is attention over [B,N,S,H] operands, written by onnxruntime's operators.
type keys struct {
	*call
	q, k, v *ir.Value
	mask    *ir.Value // added to the scores, [B,N,S,T] or what broadcasts to it; nil: none
	cap     float64
}

// split is x [B,S,N·H] as [B,N,S,H].
func (c *call) split(x *ir.Value, n int64) *ir.Value {
	if x == nil {
		return nil
	}
	d := sizes(x.Type)
	if len(d) != 3 || n < 1 || d[2]%n != 0 {
		c.fail("num_heads is %d, which does not divide the last dimension of %v", n, d)
		return nil
	}
	return c.b.Transpose(c.reshape(x, d[0], d[1], n, d[2]/n), 0, 2, 1, 3)
}

// columns are columns [from, to) of the last axis.
func (c *call) columns(x *ir.Value, from, to int64) *ir.Value {
	if x == nil {
		return nil
	}
	return c.b.Slice(x, []int64{int64(x.Type.Shape.Rank() - 1)}, []int64{from}, []int64{to})
}

// add joins another mask.
func (a *keys) add(m *ir.Value) {
	if a.mask != nil && m != nil {
		m = a.b.Add(a.mask, m)
	}
	a.mask = m
}

// hide adds value to the scores where seen is false.
func (a *keys) hide(seen *ir.Value, value float64) {
	if a.failure() != nil {
		return
	}
	d := a.q.Type.DType
	a.add(a.b.Where(seen, a.b.Scalar(d, 0), a.b.Scalar(d, value)))
}

// causal lets query i see keys up to past + i.
func (a *keys) causal(past int64) {
	if a.failure() != nil {
		return
	}
	s, t := sizes(a.q.Type)[2], sizes(a.k.Type)[2]
	rows, cols := a.b.Iota(ir.I32, 2, 1, 1, s, t), a.b.Iota(ir.I32, 3, 1, 1, s, t)
	a.hide(a.b.Le(cols, a.b.Affine(rows, 1, float64(past))), math.Inf(-1))
}

// padding hides keys by operand i: how many of each row count, from which on, or a mask of 0 and 1.
func (a *keys) padding(i int) {
	if !a.has(i) || a.failure() != nil {
		return
	}
	b, d, m := a.b, a.dims(i), a.x(i)
	batch, t := sizes(a.q.Type)[0], sizes(a.k.Type)[2]
	value := a.float("mask_filter_value", -10000)
	at := b.Iota(ir.I32, 3, 1, 1, 1, t)
	part := func(k int64) *ir.Value {
		return a.reshape(b.Slice(a.cast(m, ir.I32), []int64{0}, []int64{k * batch}, []int64{(k + 1) * batch}), batch, 1, 1, 1)
	}
	switch {
	case len(d) == 1 && d[0] == batch:
		a.hide(b.Lt(at, part(0)), value)
	case len(d) == 1 && d[0] == 2*batch:
		a.hide(b.And(b.Lt(at, part(0)), b.Ge(at, part(1))), value)
	case len(d) == 2:
		a.hide(b.Ne(a.reshape(m, d[0], 1, 1, d[1]), a.lit(m, 0)), value)
	case len(d) == 3:
		a.hide(b.Ne(a.reshape(m, d[0], 1, d[1], d[2]), a.lit(m, 0)), value)
	default:
		a.refuse("a mask of shape %v is not supported", d)
	}
}

// bias adds operand i to the scores.
func (a *keys) bias(i int) {
	if a.has(i) {
		a.add(a.x(i))
	}
}

// run is the result as [B,S,N·H].
func (a *keys) run() *ir.Value {
	if a.failure() != nil {
		return nil
	}
	qd, kd, vd := sizes(a.q.Type), sizes(a.k.Type), sizes(a.v.Type)
	if !a.headsFit(qd[1], kd[1], vd[1]) {
		return nil
	}
	scale := a.float("scale", 0)
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(qd[3]))
	}
	var y *ir.Value
	if a.cap == 0 {
		y = a.b.Attention(a.q, a.k, a.v, a.mask, ir.A("scale", scale))
	} else {
		s := a.b.Affine(a.b.Matmul(a.q, a.repeated(a.k, qd[1]), false, true), scale/a.cap, 0)
		s = a.b.Affine(a.b.Tanh(s), a.cap, 0)
		if a.mask != nil {
			s = a.b.Add(s, a.mask)
		}
		y = a.b.Matmul(a.b.Softmax(s, 3), a.repeated(a.v, qd[1]), false, false)
	}
	return a.reshape(a.b.Transpose(y, 0, 2, 1, 3), qd[0], qd[2], qd[1]*vd[3])
}

// repeated gives every head of queries its own of x [B,G,T,H].
func (c *call) repeated(x *ir.Value, n int64) *ir.Value {
	d := sizes(x.Type)
	if d[1] == n {
		return x
	}
	wide := c.b.Broadcast(c.reshape(x, d[0], d[1], 1, d[2], d[3]), d[0], d[1], n/d[1], d[2], d[3])
	return c.reshape(wide, d[0], n, d[2], d[3])
}

// contribAttention multiplies its operand by the weights of queries, keys and values at once.
func contribAttention(c *call) []*ir.Value {
	n := c.int("num_heads", 0)
	w := c.dims(1)
	if len(w) != 2 || n < 1 {
		c.fail("num_heads is %d and the weights are %v, want at least one head and a matrix", n, w)
		return nil
	}
	if c.flag("do_rotary", false) || c.flag("past_present_share_buffer", false) {
		c.refuse("do_rotary and past_present_share_buffer are not supported")
		return nil
	}
	widths := c.list("qkv_hidden_sizes")
	if len(widths) != 3 {
		widths = []int64{w[1] / 3, w[1] / 3, w[1] / 3}
	}
	x := c.plus(c.matmul(0, 1, false, false), 2)
	q, k, v := widths[0], widths[0]+widths[1], widths[0]+widths[1]+widths[2]
	a := keys{call: c, q: c.split(c.columns(x, 0, q), n), k: c.split(c.columns(x, q, k), n), v: c.split(c.columns(x, k, v), n)}
	past := int64(0)
	if c.has(4) {
		d := c.dims(4) // [2,B,N,P,H]
		if len(d) != 5 {
			c.fail("the past (operand 4) has shape %v, want rank 5", d)
			return nil
		}
		past = d[3]
		of := func(i int64) *ir.Value {
			return c.reshape(c.b.Slice(c.x(4), []int64{0}, []int64{i}, []int64{i + 1}), d[1:]...)
		}
		a.k, a.v = c.b.Concat(2, of(0), a.k), c.b.Concat(2, of(1), a.v)
	}
	a.padding(3)
	if c.flag("unidirectional", false) {
		a.causal(past)
	}
	a.bias(5)
	y := a.run()
	if !c.wants(1) || c.failure() != nil {
		return one(y)
	}
	up := func(x *ir.Value) *ir.Value { return c.reshape(x, append([]int64{1}, sizes(x.Type)...)...) }
	return []*ir.Value{y, c.b.Concat(0, up(a.k), up(a.v))}
}

// multiHead takes queries, keys and values apart, keys and values together, or all in one.
func multiHead(c *call) []*ir.Value {
	n, b := c.int("num_heads", 0), c.b
	if c.has(8) || c.has(9) {
		c.refuse("operands 8 and 9, a shared buffer for past and present and beams, are not supported")
		return nil
	}
	a := keys{call: c}
	x, d := c.x(0), c.dims(0)
	packed := func(x *ir.Value, d []int64, i int64) *ir.Value { // [B,S,N,k,H]
		x = b.Slice(x, []int64{3}, []int64{i}, []int64{i + 1})
		return c.reshape(x, d[0], d[1], d[2]*d[4])
	}
	var q, k, v *ir.Value
	switch {
	case len(d) == 5:
		q, k, v = packed(x, d, 0), packed(x, d, 1), packed(x, d, 2)
	case c.has(1) && c.rank(1) == 5:
		q, k, v = x, packed(c.x(1), c.dims(1), 0), packed(c.x(1), c.dims(1), 1)
	default:
		q, k, v = x, c.x(1), c.x(2)
	}
	if c.failure() != nil {
		return nil
	}
	if c.has(3) {
		from := int64(0)
		for _, p := range []**ir.Value{&q, &k, &v} {
			s := sizes((*p).Type)
			if len(s) == 3 {
				*p = b.Add(*p, c.columns(c.x(3), from, from+s[2]))
				from += s[2]
			}
		}
	}
	apart := func(x *ir.Value) *ir.Value { // keys of another sequence come as [B,N,T,H]
		if x != nil && x.Type.Shape.Rank() == 4 {
			return x
		}
		return c.split(x, n)
	}
	a.q, a.k, a.v = c.split(q, n), apart(k), apart(v)
	past := int64(0)
	if c.has(6) {
		past = c.dims(6)[2]
		a.k, a.v = b.Concat(2, c.x(6), a.k), b.Concat(2, c.x(7), a.v)
	}
	a.padding(4)
	if c.flag("unidirectional", false) {
		a.causal(past)
	}
	a.bias(5)
	y := a.run()
	if c.failure() != nil {
		return nil
	}
	whole := func(x *ir.Value) *ir.Value { return c.reshape(x, sizes(x.Type)...) } // a result of its own
	return []*ir.Value{y, whole(a.k), whole(a.v)}
}

// groupQuery keeps keys and values of the past at the start of a buffer; row b of the batch has
// seqlens_k[b]+1 of them with the new ones, which its queries see up to their own.
func groupQuery(c *call) []*ir.Value {
	n, g, b := c.int("num_heads", 0), c.int("kv_num_heads", 0), c.b
	if c.has(11) || c.flag("smooth_softmax", false) || c.str("k_quant_type", "NONE") != "NONE" {
		c.refuse("attention sinks, smooth_softmax and quantized caches are not supported")
		return nil
	}
	if n < 1 || g < 1 || n%g != 0 {
		c.fail("there are %d heads of queries and %d of keys, want a multiple", n, g)
		return nil
	}
	total := int64(c.number(6, "total length"))
	q, k, v := c.x(0), c.opt(1), c.opt(2)
	if k == nil && q != nil {
		width := c.dims(0)[2] / (n + 2*g)
		q, k, v = c.columns(q, 0, n*width), c.columns(q, n*width, (n+g)*width), c.columns(q, (n+g)*width, (n+2*g)*width)
	}
	a := keys{call: c, q: c.split(q, n), k: c.split(k, g), v: c.split(v, g), cap: c.float("softcap", 0)}
	if c.failure() != nil {
		return nil
	}
	d := sizes(a.q.Type)
	batch, s := d[0], d[2]
	lengths := b.Affine(c.reshape(c.cast(c.x(5), ir.I32), batch, 1), 1, 1) // with the new ones
	before := b.Affine(lengths, 1, -float64(s))
	if s == total {
		before = b.Full(ir.I32, 0, batch, 1)
	}
	places := b.Add(before, b.Iota(ir.I32, 1, batch, s))
	if c.flag("do_rotary", false) {
		at := places
		if c.has(9) {
			at = c.cast(c.x(9), ir.I32)
		}
		at = b.Max(at, b.Scalar(ir.I32, 0)) // rows that are padded on the right have places before the first
		turn := c.turning(7, 2*c.dims(7)[1], d, at, c.flag("rotary_interleaved", false))
		a.q, a.k = turn.apply(c, a.q), turn.apply(c, a.k)
	}
	a.k, a.v = c.kept(3, a.k, before, total), c.kept(4, a.v, before, total)
	if c.failure() != nil {
		return nil
	}
	t := sizes(a.k.Type)[2]
	own, cols := c.reshape(places, batch, 1, s, 1), b.Iota(ir.I32, 3, 1, 1, 1, t)
	seen := b.Le(cols, own)
	if w := c.int("local_window_size", -1); w >= 0 {
		seen = b.And(seen, b.Gt(cols, b.Affine(own, 1, -float64(w))))
	}
	a.hide(seen, math.Inf(-1))
	if c.has(10) {
		a.bias(10)
	}
	return []*ir.Value{a.run(), a.k, a.v}
}

// kept is operand i, the past of x [B,G,S,H], with x laid behind the first before[b] of each row.
func (c *call) kept(i int, x, before *ir.Value, total int64) *ir.Value {
	if c.failure() != nil {
		return nil
	}
	b, d := c.b, sizes(x.Type)
	past, joined := int64(0), x
	if c.has(i) {
		if past = c.dims(i)[2]; past > 0 {
			joined = b.Concat(2, c.x(i), x)
		}
	}
	t := max(past, total)
	at := b.Sub(b.Iota(ir.I32, 1, d[0], t), before) // among the new ones
	fresh := b.Affine(c.within(at, 0, d[2]-1), 1, float64(past))
	from := b.Where(b.Lt(at, b.Scalar(ir.I32, 0)), c.within(b.Iota(ir.I32, 1, d[0], t), 0, max(past-1, 0)), fresh)
	from = b.Broadcast(c.reshape(from, d[0], 1, t, 1), d[0], d[1], t, d[3])
	return b.GatherElements(joined, from, 2)
}

// within bounds integers.
func (c *call) within(x *ir.Value, lo, hi int64) *ir.Value {
	return c.b.Min(c.b.Max(x, c.lit(x, float64(lo))), c.lit(x, float64(hi)))
}

// contribRotary takes places [B,S], or the first of them.
func contribRotary(c *call) []*ir.Value {
	if c.flag("is_packed_batching", false) {
		c.refuse("is_packed_batching is not supported")
		return nil
	}
	x, d := c.x(0), c.dims(0)
	turn := c.int("rotary_embedding_dim", 0)
	if turn == 0 && c.rank(2) == 2 {
		turn = 2 * c.dims(2)[1]
	}
	if len(d) == 3 {
		n := c.int("num_heads", 0)
		if n == 0 && turn > 0 {
			n = d[2] / turn
		}
		x = c.split(x, n)
	}
	if c.failure() != nil {
		return nil
	}
	own, at := sizes(x.Type), c.x(1)
	if len(own) != 4 {
		c.fail("operand 0 has rank %d, want 3 or 4", len(own))
		return nil
	}
	if product(c.dims(1)) == 1 {
		at = c.b.Add(c.b.Iota(ir.I64, 1, own[0], own[2]), c.cast(c.reshape(at), ir.I64))
	}
	t := c.turning(2, turn, own, at, c.flag("interleaved", false))
	if x = t.apply(c, x); len(d) == 3 {
		x = c.reshape(c.b.Transpose(x, 0, 2, 1, 3), d...)
	}
	return one(x)
}

package kern

import (
	"math"
	"testing"
)

// Attention to caches has the same bits whether tasks are heads, or some keys of one and some columns of its values.
func TestCachedAttentionDivided(t *testing.T) {
	for _, p := range tested() {
		one, many := New(p, 1), New(p, 24)
		d, apart := newDice(15), 0
		for round := range rounds(12) {
			a := &CachedAttention{Batch: 1 + round%2, Heads: 2 + 2*(round/2%2), KVHeads: 2, S: 1 + round%3, T: 2500 + d.IntN(100), D: 30 + 2*(round%2), DV: 62 + 2*(round%2), Scale: 0.3}
			for range a.Batch {
				count := d.IntN(a.S + 1)
				a.Count, a.Pos = append(a.Count, count), append(a.Pos, d.IntN(600)+1800)
			}
			typ := Type(round % 3)
			a.Q, a.K, a.V = d.buf(typ, a.Batch*a.Heads*a.S*a.D), d.buf(typ, a.Batch*2*a.T*a.D), d.buf(typ, a.Batch*2*a.T*a.DV)
			run := func(m *Machine) string {
				a.Y = d.buf(F32, a.Batch*a.Heads*a.S*a.DV)
				m.CachedAttention(a)
				return string(a.Y.Data)
			}
			if run(one) != run(many) {
				t.Errorf("%s: round %d: the bits depend on the workers", p.Name(), round)
			}
			apart += flag(many.cached.mode == cachedValues)
		}
		one.Close()
		if many.Close(); apart == 0 {
			t.Errorf("%s: keys and values were never apart", p.Name())
		}
	}
}

// TestQueriesApart: a query has the same bits in attention to all keys, for any number of workers, and in attention to a cache with
// fewer queries, down to itself alone, also where some elements are subnormal or not finite.
func TestQueriesApart(t *testing.T) {
	for _, p := range tested() {
		d, one, many := newDice(21), New(p, 1), New(p, 24)
		for round := range rounds(40) {
			a := apartCase(d, round)
			if p.amx != nil && (a.Q.Type == BF16 || a.V.Type == BF16) { // tile registers, see docs/accuracy.md
				continue
			}
			one.Attention(a)
			want := a.Y.Buf
			a.Y.Buf = zeros(want.Type, want.Len())
			many.Attention(a)
			if string(a.Y.Data) != string(want.Data) {
				t.Fatalf("%s: round %d: the bits depend on the workers", p.Name(), round)
			}
			for q := 0; q < a.S; {
				n := min(1+d.IntN(9), a.S-q)
				cachedRows(t, []*Machine{one, many}[d.IntN(2)], d, a, want, q, n)
				q += n
			}
			if t.Failed() {
				t.Fatalf("%s: round %d: %v", p.Name(), round, [...]any{a.Heads, a.KVHeads, a.S, a.T, a.D, a.DV, a.Scale, a.Q.Type, a.K.Type, a.V.Type})
			}
		}
		one.Close()
		many.Close()
	}
}

// apartCase is causal attention whose last query sees all keys.
func apartCase(d dice, round int) *Attention {
	s := 1 + d.IntN(300)
	a := &Attention{Batch: 1, KVHeads: 1 + d.IntN(2), S: s, T: s + d.IntN(300), D: 1 + d.IntN(80), DV: 1 + d.IntN(80), Causal: true, Scale: []float32{0.3, 0.125, -0.2, 0}[max(0, d.IntN(8)-4)]}
	if d.IntN(2) == 0 {
		a.D, a.DV = 64, 64
	}
	a.Heads, a.Offset = a.KVHeads*(1+d.IntN(2)), a.T-a.S
	qk, v := Type(round%3), d.typ()
	a.Q, a.K, a.V = d.view(qk, 1, a.Heads, a.S, a.D), d.view(qk, 1, a.KVHeads, a.T, a.D), d.view(v, 1, a.KVHeads, a.T, a.DV)
	a.Y = d.view(d.typ(), 1, a.Heads, a.S, a.DV)
	for range d.IntN(4) * d.IntN(2) {
		x := [2]View{a.Q, a.K}[d.IntN(2)]
		x.Buf.set(d.IntN(x.Len()), []float32{0x1p-130, -0x1p-131, float32(math.Inf(1)), float32(math.NaN()), 0}[d.IntN(5)])
	}
	return a
}

// cachedRows compares n queries from q on, as attention to a cache, with want.
func cachedRows(t *testing.T, m *Machine, d dice, a *Attention, want Buf, q, n int) {
	t.Helper()
	room := a.T + d.IntN(3)
	c := &CachedAttention{Batch: 1, Heads: a.Heads, KVHeads: a.KVHeads, S: n, T: room, D: a.D, DV: a.DV, Scale: a.Scale, Pos: []int{a.Offset + q}, Count: []int{n},
		Q: zeros(a.Q.Type, a.Heads*n*a.D), K: zeros(a.K.Type, a.KVHeads*room*a.D), V: zeros(a.V.Type, a.KVHeads*room*a.DV), Y: zeros(want.Type, a.Heads*n*a.DV)}
	rows := func(to Buf, ld int, from *View, heads, width, at, n int) {
		for i := range heads * n {
			h, r := i/n, i%n
			copy(to.From((h*ld+r)*width).Data, from.mat(0, h, at+r).Data[:width*to.Type.Size()])
		}
	}
	rows(c.Q, n, &a.Q, a.Heads, a.D, q, n)
	rows(c.K, room, &a.K, a.KVHeads, a.D, 0, a.T)
	rows(c.V, room, &a.V, a.KVHeads, a.DV, 0, a.T)
	m.CachedAttention(c)
	for i := range c.Y.Len() {
		h, r, col := i/(n*a.DV), i/a.DV%n, i%a.DV
		got, w := c.Y.get(i), want.get(h*a.Y.Stride[1]+(q+r)*a.Y.Stride[2]+col)
		if math.Float32bits(got) != math.Float32bits(w) && !(got != got && w != w) {
			t.Errorf("%d queries from %d on: head %d, query %d, column %d is %g, not %g", n, q, h, r, col, got, w)
			return
		}
	}
}

package kern

import "testing"

// Attention to caches has the same bits whether tasks are heads, or some keys of one and some columns of its values.
func TestCachedAttentionDivided(t *testing.T) {
	for _, p := range Paths() {
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

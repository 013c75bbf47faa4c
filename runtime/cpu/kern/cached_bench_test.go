package kern

import (
	"fmt"
	"testing"
)

// BenchmarkCachedAttention is a step of decoding: one query of each of 12 heads of 64 elements (GPT-2), or of 32 of 128 (Llama-7B).
func BenchmarkCachedAttention(b *testing.B) {
	for _, p := range Paths() {
		for _, typ := range []Type{F32, BF16} {
			for _, s := range []struct{ heads, kv, d, keys int }{{12, 12, 64, 128}, {12, 12, 64, 1024}, {32, 32, 128, 1024}, {32, 8, 128, 1024}} {
				b.Run(fmt.Sprintf("%s/%v/%dx%d/%dkeys", p.Name(), typ, s.heads, s.d, s.keys), func(b *testing.B) {
					m, d := New(p, 1), newDice(3)
					defer m.Close()
					a := &CachedAttention{Batch: 1, Heads: s.heads, KVHeads: s.kv, S: 1, T: s.keys, D: s.d, DV: s.d, Scale: 0.1, Pos: []int{s.keys - 1}, Count: []int{1},
						Q: d.buf(typ, s.heads*s.d), K: d.buf(typ, s.kv*s.keys*s.d), V: d.buf(typ, s.kv*s.keys*s.d), Y: zeros(typ, s.heads*s.d)}
					for b.Loop() {
						m.CachedAttention(a)
					}
				})
			}
		}
	}
}

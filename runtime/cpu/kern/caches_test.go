package kern

import (
	"slices"
	"testing"
)

// tripled is a post-op that changes its elements.
type tripled struct{}

func (tripled) Apply(_, _ int, c []float32) {
	for i := range c {
		c[i] *= 3
	}
}

// TestLargeInAnyCaches: products, convolutions with their gradients and attention are the same whatever the sizes of
// caches, and so of blocks, are.
func TestLargeInAnyCaches(t *testing.T) {
	sizes := []Caches{{}, {1, 1}, {Second: 700 << 10, Last: 5 << 20}, {1 << 30, 1 << 30}}
	onLargeCases(t, func(t *testing.T, p *Path, d dice) {
		c, a := largeConv(d).filled(d), largeAttention(d)
		g := Gemm{M: d.extent(3000), N: d.extent(3000), A: Mat{T: d.IntN(2) == 0}, B: Mat{T: d.IntN(2) == 0}}
		g.K = d.extent(min(6000, 1<<28/(g.M*g.N)+1))
		gc := gemmCase{m: g.M, n: g.N, k: g.K, outer: 1, inner: 1, ta: g.A.T, tb: g.B.T}
		g.A, g.B = gc.operand(d, d.typ(), g.M, g.K, g.A.T), gc.operand(d, d.typ(), g.K, g.N, g.B.T)
		if g.Epilogue = (Epilogue{Bias: d.buf(F32, g.N)}); d.IntN(2) == 0 {
			g.PostOp, c.PostOp = tripled{}, tripled{}
		}
		workers := 1 + d.IntN(3)
		var first [][]byte
		for i, s := range sizes {
			m := NewOn(p, workers, Host{Caches: s})
			g.C = Mat{Buf: zeros(F32, g.M*g.N), LD: g.N}
			m.Gemm(&g)
			all := m.allOf(c)
			m.Attention(a)
			m.AttentionGrad(a)
			m.Close()
			for k, b := range []Buf{g.C.Buf, all.Y, all.X, all.W, a.Y.Buf, a.GradQ.Buf, a.GradK.Buf, a.GradV.Buf} {
				if i == 0 {
					first = append(first, slices.Clone(b.Data))
				} else if !slices.Equal(first[k], b.Data) {
					t.Errorf("result %d of 8 has other bits with caches of %v bytes: product %v, convolution %v", k+1, s, gc, c)
				}
			}
		}
	})
}

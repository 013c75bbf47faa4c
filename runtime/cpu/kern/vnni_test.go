package kern

import (
	"math"
	"testing"
)

// TestGemmExact: products of small integers are exact, so a packed element in the wrong place shows in any shape and
// layout, whatever the order of the sums.
func TestGemmExact(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(31)
		for range rounds(90) {
			gc := gemmCase{m: 1 + d.IntN(40), n: 1 + d.IntN(80), k: 1 + d.IntN(150), outer: 1, inner: 1 + d.IntN(2),
				ta: d.IntN(2) == 0, tb: d.IntN(2) == 0, a: BF16, b: BF16, pad: d.IntN(3)}
			if d.IntN(4) == 0 { // several slices of the depth
				gc.m, gc.n, gc.k = 1+gc.m/4, 1+gc.n/4, gc.k+2000
			}
			var g Gemm
			checkGemm(t, m, d, gc, func(p *Gemm) {
				for _, b := range []*Buf{&p.A.Buf, &p.B.Buf} {
					for i := range b.Len() {
						b.set(i, float32(d.IntN(17)-8))
					}
				}
				g = *p
			})
			ref := refGemm(&g, nil, gc)
			for item := range gc.inner {
				for i := range gc.m {
					for j := range gc.n {
						if want, _ := ref(item, i, j); g.C.elem(item, gc.inner, i, j) != want {
							t.Fatalf("%v: item %d row %d column %d is %g, want %g", gc, item, i, j, g.C.elem(item, gc.inner, i, j), want)
						}
					}
				}
			}
		}
	})
}

// TestVNNIAnyWorkers: bf16 products have the same bits for any number of workers, on each path, with subnormal elements
// here and there too.
func TestVNNIAnyWorkers(t *testing.T) {
	gc := gemmCase{m: 70, n: 90, k: 2301, outer: 1, inner: 1, a: BF16, b: BF16, c: BF16}
	for _, p := range Paths() {
		var first []byte
		for _, workers := range []int{1, 2, 5} {
			m, d := New(p, workers), newDice(5)
			g := checkGemm(t, m, d, gc, func(g *Gemm) {
				for range 20 {
					g.A.set(d.IntN(g.A.Len()), -0x1p-128)
					g.B.set(d.IntN(g.B.Len()), 0x1p-127)
				}
			})
			m.Close()
			if first == nil {
				first = g.C.Data
			} else if string(first) != string(g.C.Data) {
				t.Errorf("%s: %d workers change the product", p.Name(), workers)
			}
		}
	}
}

// TestVNNIEnds: what is not finite stays so and stays in its row, and subnormal elements count as what they are.
func TestVNNIEnds(t *testing.T) {
	const n, subnormal = 40, 0x1p-131
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	onPaths(t, func(t *testing.T, m *Machine) {
		a, b, c := zeros(BF16, n*n), zeros(BF16, n*n), zeros(F32, n*n)
		for i := range n * n {
			a.set(i, 1)
			b.set(i, 2)
		}
		a.set(0*n+7, nan)
		a.set(1*n+8, inf)
		a.set(2*n+9, 0x1p127) // overflows
		a.set(3*n+5, subnormal)
		for k := range n {
			a.set(4*n+k, subnormal)
			b.set(k*n+n-1, subnormal) // the last column
		}
		b.set(5*n+33, inf) // in column 33 every sum
		m.Gemm(&Gemm{M: n, N: n, K: n, A: Mat{Buf: a, LD: n}, B: Mat{Buf: b, LD: n}, C: Mat{Buf: c, LD: n}})
		for i, want := range []float32{nan, inf, inf, 2 * (n - 1), 2 * n * subnormal, 2 * n} {
			last := []float32{nan, inf, 0x1p127*subnormal + (n-1)*subnormal, (n - 1) * subnormal, 0, n * subnormal}[i]
			for j := range n {
				want := want
				switch {
				case j == n-1:
					want = last
				case j == 33 && i > 0:
					want = inf
				}
				if got := c.get(i*n + j); got != want && (got == got || want == want) {
					t.Fatalf("row %d column %d is %g, want %g", i, j, got, want)
				}
			}
		}
	})
}

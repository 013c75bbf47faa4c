package kern

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"ampc/internal/cputime"
)

// TestLongSums: sums of many terms of one sign stay within a few roundings, however long: the longest chain of additions has
// sumDepth terms. The limits are three times the errors of PyTorch 2.6 on the CPU for the same sums; -v prints ours.
func TestLongSums(t *testing.T) {
	const cols, limitRows, limitProducts = 40, 5.1e-7, 1.2e-6
	rows, products := 125000, 20000
	if testing.Short() {
		rows, products = 9000, 4000
	}
	for _, p := range tested() {
		m := New(p, 2)
		d := newDice(31)
		uniform := func(n int) Buf {
			b := zeros(F32, n)
			for i := range n {
				b.set(i, d.Float32())
			}
			return b
		}
		x := uniform(rows * cols)
		got := zeros(F32, cols)
		m.Reduce(ReduceSum, got, x, 1, rows, cols)
		report(t, fmt.Sprintf("%s: sums of %d rows", p.Name(), rows), limitRows, got, func(j int) (s float64) {
			for i := range rows {
				s += float64(x.get(i*cols + j))
			}
			return s
		})
		one := zeros(F32, 1)
		m.Reduce(ReduceSum, one, x, 1, rows*cols, 1)
		report(t, p.Name()+": sum of all", limitRows, one, func(int) (s float64) {
			for i := range x.Len() {
				s += float64(x.get(i))
			}
			return s
		})
		for _, g := range []Gemm{
			{M: 20, N: 64, K: products},
			{M: 2, N: 64, K: products},
			{M: 2, N: 64, K: products, B: Mat{T: true}},
		} {
			g.A = Mat{Buf: uniform(g.M * g.K), LD: g.K}
			g.B.Buf, g.B.LD = uniform(g.K*g.N), g.N
			if g.B.T {
				g.B.LD = g.K
			}
			g.C = Mat{Buf: zeros(F32, g.M*g.N), LD: g.N}
			m.Gemm(&g)
			report(t, fmt.Sprintf("%s: %d products, %d rows, B transposed %t", p.Name(), g.K, g.M, g.B.T), limitProducts, g.C.Buf, func(at int) (s float64) {
				for k := range g.K {
					s += g.A.elem(0, 1, at/g.N, k) * g.B.elem(0, 1, k, at%g.N)
				}
				return s
			})
		}
		m.Close()
	}
}

// report fails where the largest relative error of got is above the limit.
func report(t *testing.T, what string, limit float64, got Buf, want func(i int) float64) {
	worst := 0.0
	for i := range got.Len() {
		w := want(i)
		worst = max(worst, math.Abs(float64(got.get(i))-w)/w)
	}
	t.Logf("%s: %.2g", what, worst)
	if !(worst <= limit) {
		t.Errorf("%s: relative error %.2g, want at most %.2g", what, worst, limit)
	}
}

// BenchmarkLongSums reports what the splitting that TestLongSums asks for costs: "ratio" is the processor time of one
// long sum beside that of as many additions in sums of sumDepth terms, which are not split.
func BenchmarkLongSums(b *testing.B) {
	const cols, parts = 40, 39
	m := New(Paths()[0], 1)
	defer m.Close()
	product := func(k int) Gemm {
		g := Gemm{M: 20, N: 64, K: k}
		g.A, g.B, g.C = Mat{Buf: zeros(F32, g.M*k), LD: k}, Mat{Buf: zeros(F32, k*g.N), LD: g.N}, Mat{Buf: zeros(F32, g.M*g.N), LD: g.N}
		return g
	}
	x, sum, sums := zeros(F32, parts*sumDepth*cols), zeros(F32, cols), zeros(F32, parts*cols)
	long, short := product(parts*sumDepth), make([]Gemm, parts)
	for i := range short {
		short[i] = product(sumDepth)
	}
	for _, c := range []struct {
		name        string
		long, short func()
	}{
		{"rows", func() { m.Reduce(ReduceSum, sum, x, 1, parts*sumDepth, cols) }, func() { m.Reduce(ReduceSum, sums, x, parts, sumDepth, cols) }},
		{"products", func() { m.Gemm(&long) }, func() {
			for i := range short {
				m.Gemm(&short[i])
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var took [2][]time.Duration
			for b.Loop() {
				for i, run := range []func(){c.long, c.short} {
					start := cputime.Thread()
					run()
					took[i] = append(took[i], cputime.Thread()-start)
				}
			}
			slices.Sort(took[0])
			slices.Sort(took[1])
			b.ReportMetric(float64(took[0][b.N/2])/float64(took[1][b.N/2]), "ratio")
		})
	}
}

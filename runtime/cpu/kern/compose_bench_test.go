//go:build amd64

package kern

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// BenchmarkStream are the passes over 64 MB that memory bounds, as an elementwise group runs them.
func BenchmarkStream(b *testing.B) {
	const n, chunk = 16 << 20, StreamBlock
	x, y, z := zeros(F32, n), zeros(F32, n), zeros(F32, n)
	for _, v := range [][]float32{x.f32(), y.f32(), z.f32()} { // pages never written share one page of zeros
		for i := range v {
			v[i] = 1
		}
	}
	half := func(t Type) Buf { return Buf{t, z.Data[:2*n]} }
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		if ok, refused := m.Composes(); !ok {
			b.Skip("no kernels are composed: " + refused)
		}
		run := func(name string, bytes int, formula string, bufs ...Buf) {
			f := compose(b, m.Path, parseFormula(formula))
			c, zero := &Call{}, []float32{0}
			b.Run(name, func(b *testing.B) {
				bytesPerSec(b, bytes*n, func() {
					for i := 0; i < n; i += chunk {
						f.Run(c, bufs, zero, i, chunk, true)
					}
					m.Fence()
				})
			})
		}
		for _, t := range []Type{F16, BF16} {
			run("load/"+t.String(), 6, fmt.Sprintf("l0:%v s0:f32=l0", t), half(t), x)
			run("store/"+t.String(), 6, fmt.Sprintf("l0:f32 s0:%v=l0", t), x, half(t))
		}
		run("add", 12, "l0:f32 l1:f32 r0=add(l0,l1) s0:f32=r0", x, y, z)
		run("relu", 8, "l0:f32 r0=max(l0,u0) s0:f32=r0", x, z)
	})
}

// BenchmarkComposed times the kernel of every formula on data in cache. Rows have 64 elements.
func BenchmarkComposed(b *testing.B) {
	for _, p := range composing(b) {
		b.Run(p.Name(), func(b *testing.B) {
			eachFormula(func(name string, f *Formula) {
				b.Run(name, func(b *testing.B) { benchmarkComposed(b, p, f) })
			})
		})
	}
}

func benchmarkComposed(b *testing.B, p *Path, f *Formula) {
	const n, row = 1 << 12, 64
	k, d := compose(b, p, f), newDice(34)
	var bufs []Buf
	for i, typ := range k.types { // in other lines of their pages, as blocks are
		bufs = append(bufs, d.buf(typ, n+96*len(k.types)).From(96*i))
	}
	scalars := []float32{0.5, -0.25, 0.75, 0.3, 1.5, 0.1, 2, 1e-8, 0.9, 0, 1, 0, 1, 0}
	c, run := &Call{}, func(c *Call) { k.Run(c, bufs, scalars, 0, n, false) }
	if f.Rows {
		scalars = slices.Repeat(scalars[:RowScalars], n/row)
		run = func(c *Call) { k.Rows(c, bufs, scalars, 0, n/row, row) }
		if k.sums > 0 {
			chains := make([]float32, lanes*k.sums*n/row)
			run = func(c *Call) { k.SumRows(c, bufs, scalars, chains, 0, 0, n/row, row, 1, 0) }
		}
	}
	best := time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		for range 4 {
			run(c)
		}
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(best.Nanoseconds())/4/n, "ns/element")
}

// BenchmarkCompose times how long the kernels of all formulas take to compose.
func BenchmarkCompose(b *testing.B) {
	for _, p := range composing(b) {
		b.Run(p.Name(), func(b *testing.B) {
			count := 0
			for b.Loop() {
				eachFormula(func(_ string, f *Formula) {
					p.Compose(f).Close()
					count++
				})
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(count), "µs/kernel")
		})
	}
}

// BenchmarkComposedStream compares, on data in memory, kernels with streaming stores and without.
func BenchmarkComposedStream(b *testing.B) {
	const n = 16 << 20
	for _, p := range composing(b) {
		for _, text := range []string{"l0:f16 s0:f32=l0", "l0:f32 s0:bf16=l0", "l0:f32 l1:f32 r0=add(l0,l1) s0:f32=r0", "l0:f32 r0=max(l0,u0) s0:f32=r0", "l0:f32 r0=abs(l0) r1=sqrt(r0) s0:f32=r1"} {
			b.Run(p.Name()+"/"+text, func(b *testing.B) {
				k := compose(b, p, parseFormula(text))
				var bufs []Buf
				for i, t := range k.types {
					bufs = append(bufs, newDice(uint64(40+i)).buf(t, n))
				}
				run := []func(){func() { k.Run(&Call{}, bufs, []float32{0}, 0, n, true) }, func() { k.Run(&Call{}, bufs, []float32{0}, 0, n, false) }}
				best := [2]time.Duration{math.MaxInt64, math.MaxInt64}
				for b.Loop() {
					for i, f := range run {
						start := time.Now()
						f()
						p.Fence()
						best[i] = min(best[i], time.Since(start))
					}
				}
				b.ReportMetric(float64(best[1])/float64(best[0]), "of-plain")
			})
		}
	}
}

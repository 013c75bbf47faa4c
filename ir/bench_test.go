package ir

import (
	"fmt"
	"testing"
)

// BenchmarkCore shows what each walk of a graph costs per node.
func BenchmarkCore(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000, 1_000_000} {
		build := func() *Graph {
			bl := NewBuilder("chain")
			v := bl.Declare(Input, "x", T(F32, 4), nil, nil)
			w := v
			for range n {
				v = bl.Add(v, w)
			}
			bl.Return(v)
			return bl.Graph()
		}
		g := build()
		for _, c := range []struct {
			name string
			f    func()
		}{
			{"build", func() { build() }},
			{"verify", func() { Verify(g, Source) }},
			{"uses", func() { g.Uses() }},
			{"clone", func() { g.Clone() }},
			{"edit", func() { Edit(g) }},
			{"sort", func() { g.Sort(func(n *Node) int64 { return int64(n.ID) }) }},
			{"units", func() { InferUnits(g) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				for range b.N {
					c.f()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/node")
			})
		}
	}
}

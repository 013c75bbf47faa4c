package plan

import (
	"math/rand/v2"
	"testing"
)

// randomNetwork has k nodes beside the terminals, some inf edges among them.
func randomNetwork(r *rand.Rand, k int) *network {
	w := &network{nodes: 2}
	for range k {
		w.node()
	}
	for range 3 * k {
		from, to := int32(r.IntN(k+2)), int32(r.IntN(k+2))
		c := int64(r.IntN(9))
		if r.IntN(8) == 0 && from > 1 && to > 1 {
			c = inf
		}
		w.arc(from, to, c)
	}
	return w
}

// cost is what the side of every node costs.
func (w *network) cost(sink func(int32) bool) int64 {
	sum := int64(0)
	for _, e := range w.edges {
		if !sink(e.from) && sink(e.to) {
			sum = min(sum+e.cap, inf)
		}
	}
	return sum
}

// The cut is the cheapest of all, and of the cheapest the one with the fewest
// nodes on the sink side: that set is unique.
func TestCutAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 3000 {
		k := 1 + r.IntN(8)
		w := randomNetwork(r, k)
		c := w.solve(inTurn)
		best, bestSet := inf, 0
		for set := range 1 << k {
			sink := func(v int32) bool { return v == sinkNode || v > 1 && set>>(v-2)&1 == 1 }
			switch x := w.cost(sink); {
			case x < best:
				best, bestSet = x, set
			case x == best:
				bestSet &= set // minimum cuts are closed under intersection
			}
		}
		got := 0
		for v := range k {
			if c.sink[v+2] {
				got |= 1 << v
			}
		}
		if c.cost != best || got != bestSet {
			t.Fatalf("network %d: cost %d side %b, want %d and %b: %+v", i, c.cost, got, best, bestSet, w.edges)
		}
	}
}

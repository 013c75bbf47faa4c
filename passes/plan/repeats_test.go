package plan

import (
	"math/rand/v2"
	"testing"
)

func randomRepeats(r *rand.Rand, n int) *Repeats {
	p := &Repeats{}
	for i := range n {
		x := RepeatNode{Work: r.Int64N(100), Never: r.IntN(6) == 0}
		for v := range p.Values {
			if r.IntN(3) == 0 {
				x.In = append(x.In, int32(v))
			}
		}
		p.Nodes = append(p.Nodes, x)
		for range 1 + r.IntN(2) {
			p.Values = append(p.Values, RepeatValue{Bytes: 1 + r.Int64N(100), Node: int32(i), Read: r.IntN(2) == 0})
		}
	}
	return p
}

// No choice lies below the frontier: every one of all sets of nodes costs at least the
// bound at its bytes, and the bound meets the corners.
func TestFrontierAgainstAllChoices(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	corners := 0
	for range 300 {
		p := randomRepeats(r, 1+r.IntN(9))
		f := p.Frontier(24)
		corners += len(f.Corners)
		for set := range 1 << len(p.Nodes) {
			again := make([]bool, len(p.Nodes))
			for n := range again {
				again[n] = set>>n&1 == 1
			}
			c := p.Choose(again)
			if bound := f.Bound(c.Bytes); float64(c.Work) < bound-1e-6 {
				t.Fatalf("a choice of %d bytes costs %d, less than the bound %g", c.Bytes, c.Work, bound)
			}
			if least := f.Corners[len(f.Corners)-1].Bytes; c.Bytes < least {
				t.Fatalf("a choice keeps %d bytes, the frontier ends at %d", c.Bytes, least)
			}
		}
		for i, c := range f.Corners {
			if bound := f.Bound(c.Bytes); float64(c.Work) > bound+1.5 {
				t.Errorf("corner %d of %d: work %d, bound %g", i, len(f.Corners), c.Work, bound)
			}
		}
	}
	if corners < 600 {
		t.Errorf("%d corners in all: the test shows little", corners)
	}
}

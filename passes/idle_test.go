package passes

import (
	"math/rand/v2"
	"strings"
	"testing"

	"ampc/ir"
)

// A rule that is refused in a random graph changes nothing: a pin in code that asks for the same
// stores the node in the same dtype. (It may end a fusion, so that others change.)
func TestRefusedRulesDecideNothing(t *testing.T) {
	refused, taken := 0, 0
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 2))
		g := randomGraph(r, 4+r.IntN(30), false)
		policy := []Policy{MixedF16(), MixedBF16(), mixedTrunk(ir.F16), O1(ir.F16), O2(ir.F16), O3(ir.F16), Torch(ir.F16)}[seed%7]
		for i, n := range g.Body[ir.Forward] {
			if len(n.Out) == 0 {
				continue
			}
			for _, p := range []Policy{policy.Keep(n.Out[0].Name), policy.Lower(n.Out[0].Name)} {
				err := Run(g.Clone(), Config{Policy: p, Debugging: Debugging{Only: precisionPasses}})
				if err == nil || !strings.Contains(err.Error(), "without it") {
					taken++
					continue
				}
				refused++
				plain, pinned := storedDType(t, g, policy, i, ir.Unpinned), storedDType(t, g, policy, i, p.Rules[0].Pin)
				if plain != pinned {
					t.Errorf("seed %d: %v, yet it is stored in %s without a pin and in %s with one", seed, err, plain, pinned)
				}
			}
		}
	}
	if refused < 50 || taken < 50 {
		t.Errorf("%d rules are refused, %d are not", refused, taken)
	}
}

// storedDType is the dtype of the first result of forward node i of a copy of g that is compiled with
// the node pinned.
func storedDType(t *testing.T, g *ir.Graph, p Policy, i int, pin ir.Pin) ir.DType {
	t.Helper()
	g = g.Clone()
	n := g.Body[ir.Forward][i]
	n.Pin = pin
	mustRun(t, g, Config{Policy: p, Debugging: Debugging{Only: precisionPasses}})
	return n.Out[0].Type.DType
}

package passes

import (
	"math/rand/v2"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// fused is a target whose steps stay as they are fused, before they become launches.
type fused struct{ lower.Target }

func (fused) Finish(*lower.Program) error { return nil }
func (fused) Order(*lower.Program)        {}

// shared is a target whose steps stay as shared lowering makes them, one for each cluster.
type shared struct{ fused }

func (shared) Fuse(*lower.Program)                      {}
func (shared) Library(lower.StepKind) string            { return "" }
func (shared) Verify(*lower.Program, *lower.Step) error { return nil }

// gpus are the targets whose plans are compared on random graphs. Products that keep,
// read or sum something in their epilogue are not part of a plan, hence noaux.
var gpus = []string{"sm_70", "sm_80/noaux", "sm_90/noaux", "sm_70/nodnn", "sm_80/nodnn/noaux", "sm_90/nodnn/noaux"}

// On GPUs, too, the cut says what the clusters of random graphs move, with and
// without cuDNN, with and without casts written by hand.
func TestCutBytesOnGPUs(t *testing.T) {
	compared, expanded := 0, 0
	for seed := range uint64(5 * *graphs) {
		target, pins := sm.Must(gpus[seed%6]), seed/6%2 == 1
		for i, without := range [][]ir.Op{{ir.OpCast}, nil} {
			r := rand.New(rand.NewPCG(seed, 13))
			g := randomGraph(r, 4+r.IntN(30), pins, without...)
			source := g.String()
			cut, moved, expansions, ok := countedOn(t, g, target)
			if !ok {
				continue
			}
			compared, expanded = compared+1, expanded+expansions
			if cut != moved {
				t.Errorf("seed %d, graph %d on %s: the cut says %d bytes, the program moves %d: %+d\n%s\nfrom\n%s", seed, i, target, cut, moved, cut-moved, g, source)
			}
		}
	}
	if compared < 8**graphs || expanded < *graphs {
		t.Errorf("%d graphs compared with %d expansions", compared, expanded)
	}
	t.Logf("%d graphs compared, %d expansions", compared, expanded)
}

// countedOn compiles g for a GPU and gives the bytes that the cut reports, those of the
// fused steps, and how many nodes run as their expansions; not ok where the target
// does not run an op: of f64, or without an expansion.
func countedOn(t *testing.T, g *ir.Graph, target lower.Target) (cut, moved, expanded int, ok bool) {
	t.Helper()
	cfg := Config{Policy: MixedF16(), Debugging: Debugging{Only: precisionPasses}, Compiling: Compiling{Caps: target.Caps()}}
	cfg.After = func(e Event) {
		cut += e.Counters["cut_bytes"]
		noCastsLeft(t, cfg, e)
	}
	mustRun(t, g, cfg)
	if lower.Supports(g, target) != nil {
		return 0, 0, 0, false
	}
	for _, n := range g.Nodes {
		if target.Expands(n) {
			expanded++
		}
	}
	p, err := lower.Lower(g, fused{target})
	if err != nil {
		t.Errorf("%s: %v\n%s", target, err, g)
		return 0, 0, 0, false
	}
	if steps, err := lower.Lower(g, shared{fused{target}}); err != nil || lower.Verify(steps) != nil {
		t.Errorf("%s: %v, %v\n%s", target, err, lower.Verify(steps), g)
	}
	for _, steps := range p.Parts {
		for i := range steps {
			moved += int(steps[i].Bytes)
		}
	}
	return cut, moved, expanded, true
}

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

// On GPUs, too, the cut says what the clusters of random graphs move, with and
// without cuDNN.
func TestCutBytesOnGPUs(t *testing.T) {
	compared, expanded := 0, 0
	for seed := range uint64(5 * *graphs) {
		target := sm.Must([]string{"sm_70", "sm_80/noaux", "sm_90/noaux", "sm_90/nodnn/noaux"}[seed%4])
		r := rand.New(rand.NewPCG(seed, 13))
		g := randomGraph(r, 4+r.IntN(30), seed/4%2 == 1, ir.OpCast)
		source := g.String()
		cut := 0
		cfg := Config{Policy: MixedF16(), Debugging: Debugging{Only: precisionPasses}, Compiling: Compiling{Caps: target.Caps()}}
		cfg.After = func(e Event) { cut += e.Counters["cut_bytes"] }
		if err := Run(g, cfg); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, source)
		}
		if lower.Supports(g, target) != nil { // an op of f64, or without an expansion
			continue
		}
		for _, n := range g.Nodes {
			if target.Expands(n) {
				expanded++
			}
		}
		p, err := lower.Lower(g, fused{target})
		if err != nil {
			t.Fatal(err)
		}
		moved := 0
		for _, steps := range p.Parts {
			for i := range steps {
				moved += int(steps[i].Bytes)
			}
		}
		compared++
		if cut != moved {
			t.Errorf("seed %d on %s: the cut says %d bytes, the program moves %d: %+d\n%s\nfrom\n%s", seed, target, cut, moved, cut-moved, g, source)
		}
	}
	if compared < 4**graphs || expanded < *graphs {
		t.Errorf("%d graphs compared with %d expansions", compared, expanded)
	}
	t.Logf("%d graphs compared, %d expansions", compared, expanded)
}

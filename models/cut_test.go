package models_test

import (
	"fmt"
	"testing"

	"ampc"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/models"
	"ampc/passes"
)

// What the cut says a step moves is what the steps of the lowered program move,
// to the byte, for every model at its usual size, with one micro-batch and more.
func TestCutBytesAreTheProgramsBytes(t *testing.T) {
	for _, name := range models.Names() {
		z, err := models.Open(name[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, policy := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16()} {
			for _, step := range z.Steps {
				for _, micro := range []int{1, 3} {
					t.Run(fmt.Sprint(name[0], "/", step.Name, "/", policy.Name, "/", micro), func(t *testing.T) {
						c := step.Config
						c.Policy, c.Micro = policy, micro
						g, cfg, err := z.Model.Source(c, step.Losses...)
						if err != nil {
							t.Fatal(err)
						}
						cfg.Caps = lower.CPU.Caps()
						cut := int64(0)
						cfg.After = func(e passes.Event) { cut += int64(e.Counters["cut_bytes"]) }
						if err := passes.Run(g, cfg); err != nil {
							t.Fatal(err)
						}
						p, err := lower.Lower(g, lower.CPU)
						if err != nil {
							t.Fatal(err)
						}
						if moved := moved(p, int64(micro)); cut != moved {
							t.Errorf("the cut says %d bytes, the program moves %d: %+d", cut, moved, cut-moved)
						}
					})
				}
			}
		}
	}
}

// shared is a target whose steps stay as all targets share them: before they become
// launches with memory of their own.
type shared struct{ lower.Target }

func (shared) Finish(*lower.Program) error { return nil }
func (shared) Order(*lower.Program)        {}

// On a GPU the cut says what the shared steps move, wherever no row runs as its
// expansion, which the target writes down only after dtypes are chosen.
func TestCutBytesForGPUs(t *testing.T) {
	whole := 0
	for _, spec := range assigned {
		z, err := models.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"sm_70", "sm_80", "sm_90", "sm_70/nodnn", "sm_80/nodnn", "sm_90/nodnn"} {
			target := sm.Must(name)
			for i := range z.Steps {
				g, cut, err := decided(z, i, passes.MixedF16(), target.Caps())
				if err != nil {
					t.Fatal(err)
				}
				expanded := 0
				for _, n := range g.Nodes {
					if target.Expands(n) {
						expanded++
					}
				}
				if expanded > 0 {
					t.Logf("%s on %s: %d rows run as their expansions", z.Name, name, expanded)
					continue
				}
				whole++
				p, err := lower.Lower(g, shared{target})
				if err != nil {
					t.Fatal(err)
				}
				if moved := moved(p, 1); cut != moved {
					t.Errorf("%s on %s: the cut says %d bytes, the steps move %d: %+d", z.Name, name, cut, moved, cut-moved)
				}
			}
		}
	}
	if whole < 24 {
		t.Errorf("%d steps without expansions: want 24 and more", whole)
	}
	t.Logf("%d steps compared", whole)
}

// moved sums the bytes of p's steps over one optimizer step.
func moved(p *lower.Program, micro int64) (sum int64) {
	for part, steps := range p.Parts {
		times := int64(1)
		if lower.Part(part) == lower.Micro {
			times = micro
		}
		for i := range steps {
			sum += times * steps[i].Bytes
		}
	}
	return sum
}

package models_test

import (
	"fmt"
	"testing"

	"ampc"
	"ampc/ir"
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

// Inference moves what the cut says, too: concatenations whose operands are stored in place included.
func TestCutBytesOfInference(t *testing.T) {
	inPlace := 0
	for _, spec := range assigned {
		z, err := models.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append([]string{lower.CPU.String()}, gpus...) {
			for _, policy := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16()} {
				target := sm.Must(name)
				g, cfg, err := z.Model.Source(ampc.TrainConfig{Policy: policy})
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range g.Nodes {
					if n.Out[0].Name == z.Output.Name() {
						ir.Edit(g).Return(n.Out[0])
					}
				}
				cut := int64(0)
				cfg.Caps, cfg.Prove = target.Caps(), false
				cfg.After = func(e passes.Event) {
					cut += int64(e.Counters["cut_bytes"])
					inPlace += e.Counters["joins_in_place"]
				}
				if err := passes.Run(g, cfg); err != nil {
					t.Fatal(err)
				}
				if moved := clusterBytes(t, g, target); cut != moved {
					t.Errorf("%s on %s under %s: the cut says %d bytes, the clusters move %d: %+d", z.Name, name, policy.Name, cut, moved, cut-moved)
				}
			}
		}
	}
	if inPlace < 2 {
		t.Errorf("%d concatenations in place: want 2 and more", inPlace)
	}
}

// gpus are the GPU targets whose plans are compared.
var gpus = []string{"sm_70", "sm_80", "sm_90", "sm_70/nodnn", "sm_80/nodnn", "sm_90/nodnn"}

// clusterBytes lowers a step for a target, compares its launches with the ports of their clusters,
// and sums what its clusters move.
func clusterBytes(t *testing.T, g *ir.Graph, target lower.Target) int64 {
	t.Helper()
	p, err := lower.Lower(g, target)
	if err != nil {
		t.Fatal(err)
	}
	return p.ClusterBytes(1)
}

// On a GPU the cut says what the clusters move, those of expansions and of products
// that a library computes in two steps included.
func TestCutBytesForGPUs(t *testing.T) {
	expanded := 0
	for _, spec := range assigned {
		z, err := models.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range gpus {
			for _, policy := range []passes.Policy{passes.MixedF16(), passes.MixedBF16()} {
				for i := range z.Steps {
					target := sm.Must(name)
					g, cut, err := decided(z, i, policy, target.Caps())
					if err != nil {
						t.Fatal(err)
					}
					for _, n := range g.Nodes {
						if target.Expands(n) {
							expanded++
						}
					}
					if moved := clusterBytes(t, g, target); cut != moved {
						t.Errorf("%s on %s under %s: the cut says %d bytes, the clusters move %d: %+d", z.Name, name, policy.Name, cut, moved, cut-moved)
					}
				}
			}
		}
	}
	if expanded < 100 {
		t.Errorf("%d rows ran as their expansions: want 100 and more", expanded)
	}
	t.Logf("%d rows ran as their expansions", expanded)
}

// amp places the casts of a plan as they stay: under Check, castelim and castfold are an
// error where they find any to drop.
func TestPlansLeaveNoCasts(t *testing.T) {
	narrow := passes.MixedF16()
	narrow.Narrow = true
	for i, spec := range assigned {
		z, err := models.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		for k, name := range append([]string{lower.CPU.String()}, gpus...) {
			if testing.Short() && k%3 > 0 {
				continue
			}
			for j, policy := range []passes.Policy{passes.MixedF16(), passes.MixedBF16(), narrow} {
				if !*everyPolicy && j != (i+k)%3 {
					continue
				}
				for _, step := range z.Steps {
					g, cfg, err := z.Model.Source(step.Config, step.Losses...)
					if err != nil {
						t.Fatal(err)
					}
					cfg.Policy, cfg.Caps, cfg.Prove = policy, sm.Must(name).Caps(), false
					cfg.Check, cfg.Until = true, "castfold"
					if err := passes.Run(g, cfg); err != nil {
						t.Errorf("%s on %s under %s: %v", spec, name, policy.Name, err)
					}
				}
			}
		}
	}
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

package gpu_test

import (
	"testing"

	"ampc/lower"
	"ampc/runtime/gpu"
)

// TestAlgorithmsAreKept loads a program on two devices of one kind: the first
// times every product's candidates, the second takes what the first has kept.
func TestAlgorithmsAreKept(t *testing.T) {
	dir := t.TempDir()
	var first []gpu.Chosen
	for pass := range 2 {
		b := openSim(t, "sm_90")
		b.Tune(dir)
		p, err := lower.Lower(ready(t, "mlp?batch=4&hidden=32&layers=3", "mixed-f16", "sm_90")[0], b.Target())
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.NewStore(p.Vars)
		if err != nil {
			t.Fatal(err)
		}
		e, err := b.Load(p, s)
		if err != nil {
			t.Fatal(err)
		}
		chosen := b.Chosen()
		steps := 0
		for i, c := range chosen {
			steps += c.Steps
			if c.Tried != 3 || c.Kept != (pass == 1) || pass == 1 && c.Algo != first[i].Algo {
				t.Errorf("load %d: %+v", pass, c)
			}
		}
		if steps != 11 || len(chosen) >= steps { // four layers, the first without a gradient of its input
			t.Errorf("%d products in %d problems", steps, len(chosen))
		}
		first = chosen
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

package lower_test

import (
	"testing"

	"ampc/internal/golden"
	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// TestGoldens lowers the graph of each case, for the CPU or the target that its
// command names, and compares the printed Program.
// Counters: steps of each kind, views, overwritten (results that lie where an
// operand of their step lay), weight copies kept in the store, late writes, and prologues.
func TestGoldens(t *testing.T) {
	golden.Run(t, "../testdata/lower", func(t *testing.T, c *golden.Case) golden.Result {
		g, err := ir.Parse(c.Name+".ir", []byte(c.Section("in")))
		if err != nil {
			t.Fatal(err)
		}
		target := lower.CPU
		if len(c.Run) > 0 {
			target = sm.Must(c.Run[0])
		}
		p, err := lower.Lower(g, target)
		if err != nil {
			return golden.Result{Sections: map[string]string{"want": err.Error() + "\n"}}
		}
		return golden.Result{Sections: map[string]string{"want": p.String()}, Counters: counts(p)}
	})
}

func counts(p *lower.Program) map[string]int {
	n := map[string]int{"low_copies": len(p.WeightCopies)}
	for part := range lower.NumParts {
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			n[s.Kind.String()]++
			if s.Kernel != nil && s.Kernel.Fusion.Prologue != nil {
				n["prologues"]++
			}
			for _, out := range s.Out {
				for _, in := range s.In {
					if a, b := p.Buffers[out], p.Buffers[max(in, 0)]; in != lower.None && a.Root != b.Root && a.Arena == lower.WorkArena && b.Arena == lower.WorkArena && a.Offset == b.Offset && a.Size > 0 {
						n["overwritten"]++
					}
				}
			}
		}
	}
	for i := range p.Buffers {
		if p.Buffers[i].Root != lower.BufferID(i) {
			n["views"]++
		}
	}
	return n
}

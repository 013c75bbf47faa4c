package passes

import (
	"slices"
	"testing"

	"ampc/ir"
	"ampc/passes/prove"
)

// An evaluation may round a value for the caller where the training step stores
// it in 16 bits, and nowhere else: each such value is refused when the step that
// the checker is told of has it in f32.
func TestInheritedRoundings(t *testing.T) {
	p := MixedF16()
	g := gptGraph(1, 2, 8, 16, 2, 32)
	var kept Assignment
	c := trainConfig(p)
	c.Record = &kept
	mustRun(t, g.Clone(), c)
	refused := 0
	for _, n := range g.Body[ir.Forward] {
		name := n.Out[0].Name
		if !kept.stored[name].Low() {
			continue
		}
		step := g.Clone()
		at := slices.Index(g.Body[ir.Forward], n)
		step.Return = []*ir.Value{step.Body[ir.Forward][at].Out[0]}
		var source *ir.Graph
		mustRun(t, step, Config{Policy: p, Inference: Inference{Inherit: &kept}, Compiling: Compiling{Source: func(t *ir.Graph) { source = t }}})
		rules := p.ProofRules(source, ir.Caps{}, false)
		rules.Inherited = kept.dtype
		if found := prove.Prove(source, step, rules); len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
		rules.Inherited = func(v *ir.Value) ir.DType {
			if v.Name == name {
				return ir.F32
			}
			return kept.dtype(v)
		}
		if found := prove.Prove(source, step, rules); slices.ContainsFunc(found, func(f prove.Finding) bool { return f.Check == "rounding" }) {
			refused++
		} else {
			t.Logf("%s may be rounded by the policy alone", name)
		}
	}
	if refused < 5 {
		t.Errorf("%d roundings are refused where the training step has f32, want 5 and more", refused)
	}
}

package lower_test

import (
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
)

// Node by node, a step makes every value that is not another's view.
func TestReplayOfNodesHidesNothing(t *testing.T) {
	for _, spec := range []string{"resnet8?batch=2", "gpt?layers=1&dim=32&seq=8", "lstm?seq=4", "unet?levels=1&batch=1", "convlstm?seq=2&ahead=1&size=4", "gan"} {
		z, err := models.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		c := z.Steps[0].Config
		c.Policy, c.Clip = ampc.MixedF16(), ampc.ClipNorm(1)
		g, cfg, err := z.Model.Source(c, z.Steps[0].Losses...)
		if err != nil {
			t.Fatal(err)
		}
		if err := passes.Run(g, cfg); err != nil {
			t.Fatal(err)
		}
		p, err := lower.LowerReplay(g, lower.Replay{Nodes: true, Spread: true})
		if err != nil {
			t.Fatal(err)
		}
		made := map[string]bool{}
		for part := range lower.NumParts {
			for _, s := range p.Parts[part] {
				for _, id := range s.Out {
					made[p.Buffers[id].Name] = true
				}
			}
		}
		for _, n := range g.Nodes {
			for _, v := range n.Out {
				if !made[v.Name] && !made[v.Name+"'"] && !n.Def().Is(ir.View) && (v.Next == nil || !made[v.Next.Name]) {
					t.Errorf("%s: no step makes %s = %s", spec, v, n.Def().Name)
				}
			}
		}
		p.Apart()
		if err := lower.Verify(p); err != nil {
			t.Errorf("%s, no result over an operand: %v", spec, err)
		}
		p.Spread()
		if err := lower.Verify(p); err != nil {
			t.Errorf("%s, spread out: %v", spec, err)
		}
	}
}

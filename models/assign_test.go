package models_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/models"
	"ampc/passes"
)

// assigned are the models whose assignments are compiled one by one, in small sizes.
var assigned = []string{
	"mlp", "lenet?batch=2", "resnet?batch=2&size=16&width=8", "resnet8?batch=2&size=16", "gpt?layers=1&dim=32&seq=16&batch=2", "lstm?seq=4&dim=16&batch=2",
	"bert?layers=1&dim=32&seq=16&batch=2", "unet?batch=1&size=16&width=8", "vit?layers=1&dim=32&batch=2", "gan",
	"unet3d?batch=1&depth=4&size=8&width=4&levels=1", "convlstm?batch=2&seq=2&ahead=1&size=8&width=8&layers=1",
	"gpt2?layers=1&dim=32&heads=2&seq=16&batch=1&vocab=64", "resnet50?batch=1&size=32&width=8&classes=4&blocks1=1&blocks2=1&blocks3=0&blocks4=0",
}

var everyPolicy = flag.Bool("every-policy", false, "TestPlansLeaveNoCasts and TestEvaluationsAreProved compile every model under every policy")
var assignments = flag.Int("assignments", 2, "random assignments of each model that TestCutBytesUnderRandomAssignments compiles for each GPU")

// The cut prices not only its own choice to the byte: under 20 random feasible
// assignments of each model on the CPU and a few on each GPU, made by rules that store
// free values in f32 or 16 bits, it says what the lowered program moves.
func TestCutBytesUnderRandomAssignments(t *testing.T) {
	for _, spec := range assigned {
		z, err := models.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		for k, name := range append([]string{lower.CPU.String()}, gpus...) {
			if testing.Short() && k%3 > 0 {
				continue
			}
			t.Run(z.Name+" on "+name, func(t *testing.T) {
				for i := range z.Steps {
					randomAssignments(t, z, i, sm.Must(name))
				}
			})
		}
	}
}

// decided is a step of z under p: its graph and what the cut says that it moves.
func decided(z *models.Zoo, step int, p passes.Policy, caps ir.Caps) (g *ir.Graph, cut int64, err error) {
	g, cfg, err := z.Model.Source(z.Steps[step].Config, z.Steps[step].Losses...)
	if err != nil {
		return nil, 0, err
	}
	cfg.Policy, cfg.Caps, cfg.Prove = p, caps, false
	cfg.After = func(e passes.Event) { cut += int64(e.Counters["cut_bytes"]) }
	err = passes.Run(g, cfg)
	return g, cut, err
}

func randomAssignments(t *testing.T, z *models.Zoo, step int, target lower.Target) {
	r, caps := rand.New(rand.NewPCG(uint64(step), 21)), target.Caps()
	whole, least, err := decided(z, step, passes.MixedF16(), caps)
	if err != nil {
		t.Fatal(err)
	}
	var free []string
	for _, n := range whole.Nodes {
		if n.Why.Cause == ir.ByCut && n.Op != ir.OpCast {
			free = append(free, n.Out[0].Name)
		}
	}
	times := 20
	if target != lower.CPU {
		times = *assignments
	}
	if testing.Short() {
		times = 4
	}
	if len(free) == 0 {
		times = 1 // all are the same
	}
	for k := range times {
		p, g, cut := passes.MixedF16(), whole, least
		for rest := free; len(p.Stores) < 4 && len(rest) > 0; { // else another rule leaves some no choice
			var drawn []passes.Rule
			for ; len(p.Stores)+len(drawn) < 4 && len(rest) > 0; rest = rest[1:] {
				if r.IntN(3) == 0 {
					drawn = append(drawn, passes.Rule{Pattern: rest[0], Pin: []ir.Pin{ir.PinF32, ir.PinLow}[r.IntN(2)]})
				}
			}
			p, g, cut = withRules(z, step, caps, p, g, cut, drawn)
		}
		if moved := clusterBytes(t, g, target); cut != moved || cut < least {
			t.Errorf("step %d, assignment %d, %d rules %v: the cut says %d bytes, the program moves %d; the least is %d", step, k, len(p.Stores), p.Stores, cut, moved, least)
		}
	}
	t.Logf("step %d: %d free values", step, len(free))
}

// withRules adds those rules to p that leave every value a choice, and decides again; g and cut are what p decides.
// All of them are tried at once, and each alone only where that fails: fewer rules leave more.
func withRules(z *models.Zoo, step int, caps ir.Caps, p passes.Policy, g *ir.Graph, cut int64, rules []passes.Rule) (passes.Policy, *ir.Graph, int64) {
	if len(rules) == 0 {
		return p, g, cut
	}
	q := p
	for _, rule := range rules {
		q = q.Store(rule.Pattern, rule.Pin)
	}
	if g, cut, err := decided(z, step, q, caps); err == nil {
		return q, g, cut
	}
	if len(rules) > 1 {
		for i := range rules {
			p, g, cut = withRules(z, step, caps, p, g, cut, rules[i:i+1])
		}
	}
	return p, g, cut
}

package passes

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
)

// Under a limit of memory the program takes no more, and no bit changes: of losses,
// of gradients, of what dropout draws.
func TestMemoryChangesNoBit(t *testing.T) {
	gpt := func() *ir.Graph { return gptGraph(3, 8, 32, 16, 2, 24) }
	policies := []Policy{F32(), MixedF16(), MixedBF16()}
	if testing.Short() {
		policies = policies[1:2]
	}
	for _, p := range policies {
		t.Run(p.Name, func(t *testing.T) {
			all := mustRun(t, gpt(), trainConfig(p))
			whole := peakOf(t, all)
			env := inputs(all, rand.New(rand.NewPCG(1, 2)), 5)
			want := results(t, all, env)
			fitted := 0
			for percent := int64(95); percent >= 35; percent -= 15 {
				c := within(p, whole*percent/100)
				c.Check = percent == 80
				g := gpt()
				err := Run(g, c)
				if err != nil {
					var large *MemoryError
					if !errors.As(err, &large) || !strings.Contains(err.Error(), "set TrainConfig.Memory to ") {
						t.Fatalf("%d%%: %v", percent, err)
					}
					c.Memory = large.Least
					if err := Run(gpt(), c); err != nil {
						t.Errorf("%d%%, then what the error gave as the least: %v", percent, err)
					}
					continue
				}
				fitted++
				if got := peakOf(t, g); got > c.Memory {
					t.Errorf("%d%%: the program takes %d bytes, want at most %d of %d", percent, got, c.Memory, whole)
				}
				if err := same(want, results(t, g, env)); err != nil {
					t.Errorf("%d%%: %v", percent, err)
				}
			}
			if fitted < 2 {
				t.Errorf("%d limits were met, want 2 or more", fitted)
			}
		})
	}
}

// within is trainConfig with a limit of memory, every pass verified.
func within(p Policy, bytes int64) Config {
	c := trainConfig(p)
	c.Memory, c.Prove, c.Check, c.Peak = bytes, true, true, lower.Peak(lower.CPU)
	return c
}

func peakOf(t *testing.T, g *ir.Graph) int64 {
	t.Helper()
	n, err := lower.Peak(lower.CPU)(g)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// savedOf is what forward computes and backward reads, views as what they show.
func savedOf(g *ir.Graph) (sum int64) {
	seen := map[*ir.Value]bool{}
	forward := map[*ir.Node]bool{}
	for _, n := range g.Body[ir.Forward] {
		forward[n] = true
	}
	for _, n := range g.Body[ir.Backward] {
		for _, v := range operands(n) {
			if v = root(v); v.Def != nil && forward[v.Def] && !seen[v] {
				seen[v] = true
				sum += g.Elements(v.Type) * v.Type.DType.Size()
			}
		}
	}
	return sum
}

// What GPT-2 keeps for backward falls to less than half for a tenth of its flops.
func TestMemoryOfGPT2(t *testing.T) {
	gpt2 := func() *ir.Graph { return gptGraph(12, 16, 1024, 768, 12, 50257) }
	all := mustRun(t, gpt2(), trainConfig(MixedF16()))
	saved, before, peak := savedOf(all), flopsOf(all), peakOf(t, all)
	for _, c := range []struct {
		kept, flops float64 // at most, of those without a limit
	}{{0.45, 0.12}, {0.40, 0.25}} {
		config := trainConfig(MixedF16())
		config.Memory, config.Peak = peak-int64((1-c.kept)*float64(saved)), lower.Peak(lower.CPU)
		g := gpt2()
		if err := Run(g, config); err != nil {
			t.Error(err)
			continue
		}
		kept, more := float64(savedOf(g))/float64(saved), flopsOf(g)/before-1
		if kept > c.kept || more > c.flops {
			t.Errorf("keeps %.0f%% of %d bytes for %.1f%% more flops, want %.0f%% for at most %.0f%%", 100*kept, saved, 100*more, 100*c.kept, 100*c.flops)
		}
		t.Logf("keeps %.2f of %.2f GiB, %.1f%% more flops; takes %.2f of %.2f GiB", kept*float64(saved)/(1<<30), float64(saved)/(1<<30), 100*more, float64(peakOf(t, g))/(1<<30), float64(peak)/(1<<30))
	}
}

func flopsOf(g *ir.Graph) (sum float64) {
	for _, n := range g.Nodes {
		sum += float64(g.NodeCost(n).Flops)
	}
	return sum
}

// What the forward pass keeps falls to a quarter for a third of the flops at most, a choice
// with a limit costs no more than one checkpoint for each block that takes as much, and no
// point of the curve lies below its bound.
func TestMemoryCurveOfGPT2(t *testing.T) {
	gpt2 := func() *ir.Graph { return gptGraph(12, 16, 1024, 768, 12, 50257) }
	var curve []MemoryPoint
	c := trainConfig(MixedF16())
	c.Curve, c.Peak = &curve, lower.Peak(lower.CPU)
	before := flopsOf(mustRun(t, gpt2(), c))
	quarter := false
	for _, p := range curve {
		quarter = quarter || p.Saved <= curve[0].Saved/4 && p.Flops <= 0.35
		if p.Bound > p.Time {
			t.Errorf("%+v: the time lies below its bound", p)
		}
	}
	if !quarter {
		t.Errorf("no point keeps a quarter for at most 35%% more flops: %+v", curve)
	}
	hand := gpt2()
	c.Curve, c.Memory, c.Until = nil, 0, "recompute"
	if err := Run(hand, c); err != nil {
		t.Fatal(err)
	}
	c.Until = ""
	s, err := newMemorySearch(hand, newContext(c))
	if err != nil {
		t.Fatal(err)
	}
	again := make([]bool, len(s.nodes))
	for i, n := range s.nodes { // all but the ends of blocks, and what stands outside of them
		again[i] = strings.HasPrefix(n.Name(), "%h") && strings.Contains(n.Name(), ".") && !strings.HasSuffix(n.Name(), ".res2")
	}
	byHand, err := s.measure(s.repeats.Choose(again))
	if err != nil {
		t.Fatal(err)
	}
	s.limit = byHand.peak
	found, err := s.find()
	if err != nil {
		t.Fatal(err)
	}
	if byHand.peak >= s.whole || found.choice.Work > byHand.choice.Work {
		t.Errorf("one checkpoint for each block takes %d of %d bytes for %d of work, the choice found %d for %d", byHand.peak, s.whole, byHand.choice.Work, found.peak, found.choice.Work)
	}
	t.Logf("one checkpoint for each block: %.2f GiB for %.1f%% more work; found: %.1f%%", float64(byHand.peak)/(1<<30), 100*float64(byHand.choice.Work)/before, 100*float64(found.choice.Work)/before)
}

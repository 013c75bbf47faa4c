package passes

import (
	"fmt"
	"math"
	"testing"

	"ampc/ir"
)

// normed has two batch norms, the second behind the first.
const normed = `graph @normed {
  input %%x : f32[%[1]d,6]
  input %%y : i32[%[1]d]
  param %%w : f32[6,8] = normal(0, 0.3)
  param %%s : f32[8] = 1
  param %%b : f32[8] = 0
  param %%v : f32[8,5] = normal(0, 0.3)
  param %%s2 : f32[5] = 1
  param %%b2 : f32[5] = 0
  state %%mean : f32[8] = 0
  state %%var : f32[8] = 1
  state %%mean2 : f32[5] = 0
  state %%var2 : f32[5] = 1
forward:
  %%h = matmul %%x, %%w : f32[%[1]d,8]
  %%n, %%n.mean, %%n.rstd, %%n.new_mean, %%n.new_var = batch_norm %%h, %%s, %%b, %%mean, %%var : f32[%[1]d,8], f32[8], f32[8], f32[8], f32[8]
  %%a = tanh %%n : f32[%[1]d,8]
  %%z = matmul %%a, %%v : f32[%[1]d,5]
  %%m, %%m.mean, %%m.rstd, %%m.new_mean, %%m.new_var = batch_norm %%z, %%s2, %%b2, %%mean2, %%var2 : f32[%[1]d,5], f32[5], f32[5], f32[5], f32[5]
  %%sum, %%count = cross_entropy %%m, %%y {ignore=-1} : f32[], f32[]
  %%loss = div %%sum, %%count : f32[]
  return %%loss
}
`

// TestNormsOfAllRanks: with SyncNorms, ranks learn what one process with the whole batch
// learns, running statistics included, with the same bits on every rank. Without, they do not.
func TestNormsOfAllRanks(t *testing.T) {
	const rows, steps = 16, 4
	for _, p := range []Policy{{}, mustPolicy(t, "mixed-f16"), mustPolicy(t, "mixed-bf16")} {
		tolerance := map[string]float64{"": 2e-5, "mixed-f16": 2e-2, "mixed-bf16": 5e-2}[p.Name]
		config := func(ranks int) Config {
			c := ranksConfig(p, ranks, 1)
			if p.Name == "mixed-f16" {
				c.Scaler = Static(256) // no step is skipped
			}
			return c
		}
		want, _ := runOn(t, normed, batches, config(1), rows, steps)
		for _, ranks := range []int{2, 4} {
			for _, sync := range []bool{true, false} {
				c := config(ranks)
				c.Parallel.SyncNorms = sync
				got, g := runOn(t, normed, batches, c, rows, steps)
				apart := 0.0
				for name, w := range want[0] {
					for r := range got {
						if fmt.Sprint(got[r][name].F) != fmt.Sprint(got[0][name].F) {
							t.Errorf("%s: %d ranks: %s differs on ranks 0 and %d", p.Name, ranks, name, r)
						}
					}
					if role, _ := g.Var(name).Attr.Get("role").(string); role == "" { // parameters and statistics
						for i, x := range w.F {
							apart = max(apart, math.Abs(got[0][name].F[i]-x))
						}
					}
				}
				if sync && apart > tolerance || !sync && p.Name == "" && apart < 1e-3 {
					t.Errorf("%s: %d ranks, sync %t: variables are %g from those of one process", p.Name, ranks, sync, apart)
				}
				if n := nodesOf(g, ir.OpBatchNorm); sync == (n > 0) {
					t.Errorf("%s: %d batch norms are left", p.Name, n)
				}
			}
		}
	}
}

// TestRepeatedNormsSendNothing: a backward pass that computes norms over all ranks again reads
// their statistics and sends no second message.
func TestRepeatedNormsSendNothing(t *testing.T) {
	sent := func(kept ...string) (messages, nodes int) {
		c := ranksConfig(Policy{}, 2, 1)
		c.Parallel.SyncNorms, c.Checkpoints = true, kept
		g, err := ir.Parse("ranks.ir", fmt.Appendf(nil, normed, 8))
		if err != nil {
			t.Fatal(err)
		}
		if err := Run(g, c); err != nil {
			t.Fatal(err)
		}
		for _, n := range g.Nodes {
			nodes++
			if n.Def().Is(ir.Collective) {
				messages++
			}
		}
		return messages, nodes
	}
	messages, nodes := sent()
	again, more := sent("z")
	if more <= nodes {
		t.Errorf("the step has %d nodes, and %d where z is a checkpoint: nothing is computed again", nodes, more)
	}
	if again != messages {
		t.Errorf("the step sends %d messages, and %d where z is a checkpoint", messages, again)
	}
}

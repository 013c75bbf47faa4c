package passes

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
)

// joined are the variables of all ranks of a sharded step, put together from their parts.
func joined(t *testing.T, g *ir.Graph, env []map[string]*eval.Tensor) map[string]*eval.Tensor {
	t.Helper()
	all := map[string]*eval.Tensor{}
	for name, v := range env[0] {
		of := g.Var(name).PartOf()
		if of == "" {
			all[name] = v
			continue
		}
		n := int64(1)
		for _, d := range g.Var(name).Attr.Get("whole").([]int64) {
			n *= d
		}
		whole := eval.New(ir.T(v.Type.DType, ir.Dim(n)))
		for r := range env {
			part := env[r][name]
			copy(whole.F[min(r*part.Len(), whole.Len()):], part.F)
		}
		all[of] = whole
	}
	return all
}

// Ranks that each keep a part of the weights, moments and averages learn, bit for bit, what
// ranks learn of which each keeps all.
func TestShardsLearnTheSame(t *testing.T) {
	const rows, steps = 8, 4
	policies := []Policy{{}, mustPolicy(t, "mixed-f16"), mustPolicy(t, "mixed-bf16")}
	if testing.Short() {
		policies = policies[1:2]
	}
	for _, p := range policies {
		for _, msg := range []ir.DType{ir.F32, ir.BF16} {
			for _, micro := range []int{1, 2} {
				for _, ranks := range []int{2, 4, 8} {
					t.Run(fmt.Sprintf("%s, messages in %s, %d micro, %d ranks", p.Name, msg, micro, ranks), func(t *testing.T) {
						c := ranksConfig(p, ranks, micro)
						c.Clip, c.Parallel.Message = Clip{}, msg
						whole, _ := runOn(t, labelled, batches, c, rows, steps)
						c.Parallel.Shard = true
						env, g := runOn(t, labelled, batches, c, rows, steps)
						sameState(t, joined(t, g, env), whole[0])
					})
				}
			}
		}
	}
}

func sameState(t *testing.T, got, whole map[string]*eval.Tensor) {
	t.Helper()
	for name, want := range whole {
		if got[name] == nil {
			t.Fatalf("%s: no rank has it", name)
		}
		for i := range want.F {
			if math.Float64bits(got[name].F[i]) != math.Float64bits(want.F[i]) {
				t.Fatalf("%s[%d] is %g, without shards %g", name, i, got[name].F[i], want.F[i])
			}
		}
		if !slices.Equal(got[name].I, want.I) {
			t.Fatalf("%s is %v, without shards %v", name, got[name].I, want.I)
		}
	}
}

// untied is a language model whose table only lookups read.
var untied = strings.NewReplacer("@tied", "@untied", "forward:", "  param %%head : f32[40,4] = normal(0, 0.3)\nforward:", "%%t, %%table", "%%t, %%head").Replace(tied)

// The lookup of a sharded table reads a 16-bit copy, whether the head reads it, too, or nothing else
// does: the ranks learn, bit for bit, what they learn without shards if the policy rounds the lookup.
// A policy that keeps the lookup in f32 has the table gathered in f32, and so has one that copies
// another system.
func TestShardedLookupsReadTheCopy(t *testing.T) {
	const rows, steps, micro = 8, 4, 2 // sums over micro-batches are whole tables in both cases
	for model, source := range map[string]string{"tied": tied, "untied": untied} {
		for _, name := range []string{"mixed-f16", "mixed-bf16"} {
			for _, ranks := range []int{2, 4} {
				for _, kept := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %s, %d ranks, kept %t", model, name, ranks, kept), func(t *testing.T) {
						c := ranksConfig(mustPolicy(t, name), ranks, micro)
						c.Clip = Clip{}
						if kept {
							c.Policy = c.Policy.Keep("e")
						}
						base := c
						if !kept {
							base.Check, base.Prove, base.After = false, false, roundLookups
						}
						whole, _ := runOn(t, source, sentences, base, rows, steps)
						c.Parallel.Shard = true
						env, g := runOn(t, source, sentences, c, rows, steps)
						sameState(t, joined(t, g, env), whole[0])
						if wide := gatheredWide(g); (wide > 0) != kept {
							t.Errorf("%d weights are gathered in f32\n%s", wide, g)
						}
					})
				}
			}
		}
		config := ranksConfig(mustPolicy(t, "torch-f16"), 2, micro)
		config.Parallel.Shard = true
		if _, g := runOn(t, source, sentences, config, rows, 1); gatheredWide(g) != 1 {
			t.Errorf("%s: a policy that copies another system looks up in 16 bits\n%s", model, g)
		}
	}
}

// The rows of lookups follow the scattered gradient of the head, or travel alone: the ranks learn, bit
// for bit, what they learn without shards. The table has a number of elements that 8 ranks do not divide.
func TestShardedLookupsAreGathered(t *testing.T) {
	const rows, steps = 8, 3
	large := strings.NewReplacer("[40,4]", "[1501,4]", ",40]", ",1501]")
	for model, source := range map[string]string{"tied": large.Replace(tied), "untied": large.Replace(untied)} {
		for _, p := range []Policy{{}, mustPolicy(t, "mixed-f16").Keep("e")} {
			for _, ranks := range []int{2, 4, 8} {
				c := ranksConfig(p, ranks, 1)
				c.Clip = Clip{}
				whole, _ := runOn(t, source, sentences, c, rows, steps)
				c.Parallel.Shard = true
				env, g := runOn(t, source, sentences, c, rows, steps)
				sameState(t, joined(t, g, env), whole[0])
				gathered, scattered := 0, int64(0)
				for s, n := range g.Nodes {
					if n.Op == ir.OpAllGather && s == ir.Backward {
						gathered += len(n.In)
					}
					if n.Op == ir.OpReduceScatter {
						bytes, _ := n.Wire()
						scattered += bytes
					}
				}
				if gathered != 2 || scattered != 4*6004 {
					t.Errorf("%s, %s, %d ranks: %d tensors are gathered in the backward pass, want rows and ids; %d bytes are scattered, want those of the head\n%s", model, p.Name, ranks, gathered, scattered, g)
				}
			}
		}
	}
}

// roundLookups makes the lookups of a step round, and leaves their gradients as they are.
func roundLookups(e Event) {
	if e.Pass != "optimizer" {
		return
	}
	for _, n := range e.Graph.Nodes {
		switch n.Op {
		case ir.OpEmbedding:
			n.Pin = ir.PinLow
		case ir.OpEmbeddingGrad:
			n.Of = nil
		}
	}
}

// gatheredWide counts the weights that a step gathers in f32.
func gatheredWide(g *ir.Graph) (wide int) {
	for _, n := range g.Nodes {
		if n.Op != ir.OpAllGather || n.Attrs.Get("shapes") == nil {
			continue
		}
		for _, v := range n.In {
			if v.Type.DType == ir.F32 {
				wide++
			}
		}
	}
	return wide
}

// A clip by the common norm takes the parts of all ranks together.
func TestShardsClipByTheWholeNorm(t *testing.T) {
	c := ranksConfig(Policy{}, 4, 1)
	c.Clip = Clip{Norm: 0.05}
	whole, _ := runOn(t, labelled, batches, c, 8, 4)
	c.Parallel.Shard = true
	env, g := runOn(t, labelled, batches, c, 8, 4)
	for name, v := range joined(t, g, env) {
		for i, x := range v.F {
			if y := whole[0][name].F[i]; math.Abs(x-y) > 1e-5*(1+math.Abs(y)) {
				t.Fatalf("%s[%d] is %g, without shards %g", name, i, x, y)
			}
		}
	}
}

// What the step reads in 16 bits is gathered in 16 bits, and no rank declares a whole weight.
func TestShardsGatherWhatIsRead(t *testing.T) {
	c := ranksConfig(mustPolicy(t, "mixed-f16"), 2, 1)
	c.Parallel.Shard = true
	_, g := runOn(t, labelled, batches, c, 8, 1)
	if wide := gatheredWide(g); wide != 0 {
		t.Errorf("%d weights are gathered in f32\n%s", wide, g)
	}
	g.DropUnused()
	for _, v := range g.Vars {
		if v.Kind == ir.Param {
			t.Errorf("the step declares %s %s\n%s", v, v.Type, g)
		}
	}
}

// sentBytes are the bytes that each of k ranks sends around rings in a step.
func sentBytes(g *ir.Graph, k int64) (sum int64) {
	for _, n := range g.Nodes {
		if !n.Def().Is(ir.Collective) {
			continue
		}
		bytes, rounds := n.Wire()
		sum += rounds * (k - 1) * bytes / k
	}
	return sum
}

// A sharded step sends three quarters of the bytes that f32 without shards sends where
// weights are read in 16 bits, and half of them where gradients travel in 16 bits, too.
func TestShardsSendLess(t *testing.T) {
	for _, k := range []int{2, 4, 8} {
		_, g := runOn(t, labelled, batches, ranksConfig(Policy{}, k, 1), 8, 1)
		whole := sentBytes(g, int64(k))
		for msg, most := range map[ir.DType]float64{ir.F32: 0.76, ir.BF16: 0.51} {
			c := ranksConfig(mustPolicy(t, "mixed-bf16"), k, 1)
			c.Parallel.Shard, c.Parallel.Message = true, msg
			_, g := runOn(t, labelled, batches, c, 8, 1)
			small := int64(64) // what flags, sums and norms of this small model add
			if sent := sentBytes(g, int64(k)); float64(sent-small) > most*float64(whole) {
				t.Errorf("%d ranks, messages in %s: %d bytes, of %d without shards in f32: want %g of them", k, msg, sent, whole, most)
			}
		}
	}
}

// What a sharded step cannot have is refused in a line.
func TestShardRefusals(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"wants whole ones":    func(c *Config) { c.Gradients = func(b *ir.Builder, g []GradOf) []GradOf { return g } },
		"policy o3-f16 keeps": func(c *Config) { c.Policy = mustPolicy(t, "o3-f16") },
		"Shard and Slices":    func(c *Config) { c.Parallel.Slices, c.Micro = 2, 1 },
	} {
		c := ranksConfig(Policy{}, 2, 1)
		c.Parallel.Shard = true
		change(&c)
		g, err := ir.Parse("ranks.ir", fmt.Appendf(nil, labelled, 4))
		if err != nil {
			t.Fatal(err)
		}
		if err := Run(g, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

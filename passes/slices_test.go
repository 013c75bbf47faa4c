package passes

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
)

// TestSlicesOfEveryRankCount: with slices, ranks end with the bits of one process, and each
// slice draws its own numbers on whatever rank it is. With SyncNorms norms use the moments of all slices.
func TestSlicesOfEveryRankCount(t *testing.T) {
	t.Run("labelled", func(t *testing.T) { sameOnEveryRankCount(t, labelled, false) })
	t.Run("normed", func(t *testing.T) { sameOnEveryRankCount(t, normed, true) })
}

func sameOnEveryRankCount(t *testing.T, source string, sync bool) {
	const rows, slices, steps = 16, 8, 3
	for _, p := range []Policy{{}, mustPolicy(t, "mixed-f16")} {
		var want map[string]string
		for _, ranks := range []int{1, 2, 8} {
			c := ranksConfig(p, ranks, slices/ranks)
			c.Parallel.Slices, c.Parallel.SyncNorms = slices, sync

			micro := slices / ranks
			env, _ := runOn(t, source, func(step, from, n int) map[string]*eval.Tensor {
				return batches(step/micro, (from/n*micro+step%micro)*n, n)
			}, c, rows/slices*ranks, steps)
			if sync && p.Name == "" && ranks == 2 {
				alikeWholeBatch(t, env[0], rows, steps)
			}
			for r := range env {
				got := map[string]string{}
				for name, v := range env[r] {
					var bits []uint64
					for _, x := range v.F {
						bits = append(bits, math.Float64bits(x))
					}
					got[name] = fmt.Sprint(bits, v.I)
				}
				if want == nil {
					want = got
				}
				for name := range want {
					if got[name] != want[name] {
						t.Errorf("%s: %d ranks: rank %d has another %s than one process", p.Name, ranks, r, name)
					}
				}
			}
		}
	}
}

// alikeWholeBatch compares what was learned in slices with norms over all of them with what one process
// learns from the batch as a whole.
func alikeWholeBatch(t *testing.T, got map[string]*eval.Tensor, rows, steps int) {
	t.Helper()
	whole, g := runOn(t, normed, batches, ranksConfig(Policy{}, 1, 1), rows, steps)
	for name, w := range whole[0] {
		if role, _ := g.Var(name).Attr.Get("role").(string); role != "" {
			continue
		}
		for i, x := range w.F {
			if d := math.Abs(got[name].F[i] - x); d > 2e-5 {
				t.Errorf("slices: %s[%d] is %g from that of the whole batch", name, i, d)
			}
		}
	}
}

// TestSlicesAreRefused: what no tree of all ranks has is one line.
func TestSlicesAreRefused(t *testing.T) {
	for want, c := range map[string]func(c *Config){
		"3 slices: want a power of two":                           func(c *Config) { c.Parallel.Slices = 3 },
		"4 slices on 3 ranks: want a power of two":                func(c *Config) { c.Parallel = Parallel{Ranks: 3, Slices: 4} },
		"2 slices on 4 ranks: want":                               func(c *Config) { c.Parallel = Parallel{Ranks: 4, Slices: 2} },
		"of 4 slices each rank has 2 in one step, and Micro is 3": func(c *Config) { c.Parallel, c.Micro = Parallel{Ranks: 2, Slices: 4}, 3 },
		"slices with messages in f16":                             func(c *Config) { c.Parallel = Parallel{Ranks: 2, Slices: 2, Message: ir.F16} },
		"slices and micro-batches that are left out":              func(c *Config) { c.Parallel, c.Micro, c.BadMicro = Parallel{Slices: 2}, 2, DropMicro },
	} {
		config := ranksConfig(Policy{}, 0, 0)
		c(&config)
		g, err := ir.Parse("slices.ir", fmt.Appendf(nil, labelled, 4))
		if err != nil {
			t.Fatal(err)
		}
		if err := Run(g, config); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A scale inside the forward pass notes overflows over micro-batches, which those that meet at norms
// would note in another order.
func TestSlicesRefuseInnerScales(t *testing.T) {
	g, err := penalty(1024)
	if err != nil {
		t.Fatal(err)
	}
	c := ranksConfig(Policy{}, 0, 2)
	c.Scaler = Dynamic()
	c.Parallel = Parallel{Slices: 2, SyncNorms: true}
	if err := Run(g, c); err == nil || !strings.Contains(err.Error(), "slices, SyncNorms and a scale inside the forward pass") {
		t.Error(err)
	}
}

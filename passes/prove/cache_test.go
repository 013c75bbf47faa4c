package prove_test

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/passes"
	"ampc/passes/prove"
)

// decoding attends to two caches that it appends to.
const decoding = `graph @decoding {
  input %x : f32[2,4,1,16]
  input %pos : i32[2]
  input %count : i32[2]
  param %w : f32[16,16] = normal(0, 0.02)
  state %k : f32[2,4,8,16] = 0 {role=cache}
  state %v : f32[2,4,8,16] = 0 {role=cache}
forward:
  %q = linear %x, %w : f32[2,4,1,16]
  %p = relu %q : f32[2,4,1,16]
  %k' = cache_append %k, %q, %pos, %count
  %v' = cache_append %v, %p, %pos, %count
  %y = cached_attention %q, %k', %v', %pos, %count : f32[2,4,1,16]
  return %y
}
`

// A step that appends something else to a cache, elsewhere, not at all, or that reads a cache as it was before, is
// refused.
func TestCachesAreProved(t *testing.T) {
	for _, policy := range []string{"f32", "mixed-bf16"} {
		p, err := passes.PolicyNamed(policy)
		if err != nil {
			t.Fatal(err)
		}
		g, err := ir.Parse("decoding.ir", []byte(decoding))
		if err != nil {
			t.Fatal(err)
		}
		var source *ir.Graph
		cfg := passes.Config{Policy: p, Debugging: passes.Debugging{Check: true}}
		cfg.Source = func(t *ir.Graph) { source = t }
		if err := passes.Run(g, cfg); err != nil {
			t.Fatal(err)
		}
		rules := cfg.Policy.ProofRules(source, cfg.Caps, cfg.NoSkip)
		text := g.String()
		find := func(old, new string) []prove.Finding {
			t.Helper()
			changed := strings.ReplaceAll(text, old, new)
			if old == "" {
				changed = text
			}
			if old != "" && changed == text {
				t.Fatalf("%s: no %q in\n%s", policy, old, text)
			}
			f, err := ir.Parse("mutant.ir", []byte(changed))
			if err != nil {
				t.Fatal(err)
			}
			return prove.Prove(source, f, rules)
		}
		if f := find("", ""); len(f) > 0 {
			t.Fatalf("%s: %v\n%s", policy, f, text)
		}
		values := [2]string{"%q", "%p"}
		if policy != "f32" {
			values = [2]string{line(text, "cache_append %k", 1), line(text, "cache_append %v", 1)}
		}
		for _, m := range [][3]string{
			{"a stale read of keys", ", %k', %v'", ", %k, %v'"},
			{"a stale read of values", ", %k', %v'", ", %k', %v"},
			{"the caches exchanged", ", %k', %v'", ", %v', %k'"},
			{"another value", "cache_append %v, " + values[1], "cache_append %v, " + values[0]},
			{"another position", "cache_append %k, " + values[0] + ", %pos", "cache_append %k, " + values[0] + ", %count"},
			{"all rows", "cache_append %k, " + values[0] + ", %pos, %count", "cache_append %k, " + values[0] + ", %pos"},
			{"no append", "%k'", "%other"},
			{"another length", "%v', %pos, %count", "%v', %count, %count"},
		} {
			if len(find(m[1], m[2])) == 0 {
				t.Errorf("%s: %s is not found", policy, m[0])
			}
		}
	}
}

// line is operand i of the node that begins with head.
func line(text, head string, i int) string {
	_, rest, _ := strings.Cut(text, head)
	return strings.TrimSpace(strings.Split(rest, ",")[i])
}

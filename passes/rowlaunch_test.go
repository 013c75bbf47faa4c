package passes

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

const rowSource = `graph @rows {
  input %x : f32[16,32]
  input %m : f32[16,1]
  param %w : f32[32,32] = normal(0, 0.5)
forward:
  %h = matmul %x, %w : f32[16,32]
  %s = sub %h, %m : f32[16,32]
  %q = mul %s, %s : f32[16,32]
  NODE
  return %y
}
`

// On the CPU a kernel that reads contiguous rows runs in one launch with the elementwise nodes that compute its operand.
// The cut prices what the launch moves, and the Program moves it.
func TestRowsRunWithTheirChains(t *testing.T) {
	for name, c := range map[string]struct{ target, node, want string }{
		"a mean of rows":            {"cpu", "%y = reduce_mean %e {axes=[-1]}", "e+y"},
		"a sum of all":              {"cpu", "%y = reduce_sum %e", "e+y"},
		"the largest of rows":       {"cpu", "%y = reduce_max %e {axes=[1] keep}", "e+y"},
		"a softmax":                 {"cpu", "%y = softmax %e", "e+y"},
		"sums of columns":           {"cpu", "%y = reduce_sum %e {axes=[0]}", ""},
		"a softmax of columns":      {"cpu", "%y = softmax %e {axis=0}", ""},
		"the index of the largest":  {"cpu", "%y = argmax %e {axis=-1}", ""},
		"two of one chain":          {"cpu", "%z = reduce_sum %e\n  %a = reduce_max %e\n  %y = add %a, %z", "e+a"},
		"what a product's ends are": {"cpu", "%y = reduce_sum %q", ""},
		"on a GPU":                  {"sm_90", "%y = reduce_mean %e {axes=[-1]}", ""},
	} {
		for _, policy := range []Policy{F32(), MixedF16(), MixedBF16()} {
			chain := "%t = transpose %q {perm=[1,0]} : f32[32,16]\n  %e = exp %t : f32[32,16]\n  "
			g, err := ir.Parse(name, []byte(strings.Replace(rowSource, "NODE", chain+c.node, 1)))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			cut, target := 0, lower.CPU
			if c.target != "cpu" {
				target = sm.Must(c.target)
			}
			cfg := Config{Policy: policy, Debugging: Debugging{Only: precisionPasses, Check: true}, Compiling: Compiling{Caps: target.Caps()}}
			cfg.After = func(e Event) { cut += e.Counters["cut_bytes"] }
			mustRun(t, g, cfg)
			if got := launchesOf(g); got != c.want {
				t.Errorf("%s under %s: the launches are %q, want %q\n%s", name, policy.Name, got, c.want, g)
			}
			p, err := lower.Lower(g, target)
			if err != nil {
				t.Errorf("%s under %s: %v\n%s", name, policy.Name, err, g)
			} else if moved := int(p.ClusterBytes(1)); cut > 0 && cut != moved {
				t.Errorf("%s under %s: the cut says %d bytes, the clusters move %d\n%s", name, policy.Name, cut, moved, g)
			}
		}
	}
}

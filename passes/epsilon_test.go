package passes

import (
	"strings"
	"testing"

	"ampc/ir"
)

// An epsilon that its stored sum loses is a compile error that names the fix;
// stored in f32, by a pin or in a fused norm, it is none.
func TestLostEpsilonDoesNotCompile(t *testing.T) {
	const head = `graph @eps {
  input %x : f32[4,8]
  param %w : f32[8,8] = 1
  const %tiny : f32[] = 1e-8
  const %over : f32[] = 1e-7
forward:
  %h = matmul %x, %w : f32[4,8]
  %r = relu %h : f32[4,8]
`
	const tail = `  %z = matmul %y, %w : f32[4,8]
  %loss = reduce_mean %z : f32[]
  return %loss
}
`
	for _, c := range []struct{ name, policy, body, want string }{
		{"added", "torch-f16", "  %s = add %r, %tiny : f32[4,8]\n  %y = div %h, %s : f32[4,8]\n",
			"eps.ir:9: epsilon: %s adds 1e-08, which is 0 in f16 where the sum is stored, and %y follows; keep %s in f32 (Policy.Keep, or pin=f32), or use the fused norm"},
		{"pinned", "torch-f16", "  %s = add %r, %tiny {pin=f32} : f32[4,8]\n  %y = div %h, %s : f32[4,8]\n", ""},
		{"in bf16, which holds it", "torch-bf16", "  %s = add %r, %tiny : f32[4,8]\n  %y = div %h, %s : f32[4,8]\n", ""},
		{"in a group, where sums are f32 registers", "mixed-f16", "  %s = add %r, %tiny : f32[4,8]\n  %y = div %h, %s : f32[4,8]\n", ""},
		{"no division follows", "torch-f16", "  %y = add %r, %tiny : f32[4,8]\n", ""},
		{"reciprocal", "torch-f16", "  %y = div %r, %over : f32[4,8]\n", "reciprocal: %over 1/1e-07 overflows f16; keep the division in f32"},
		{"f32", "f32", "  %s = add %r, %tiny : f32[4,8]\n  %y = div %h, %s : f32[4,8]\n", ""},
	} {
		g, err := ir.Parse("eps.ir", []byte(head+c.body+tail))
		if err != nil {
			t.Fatal(err)
		}
		p, err := PolicyNamed(c.policy)
		if err != nil {
			t.Fatal(err)
		}
		err = Run(g, trainConfig(p))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

package passes

import (
	"strings"
	"testing"

	"ampc/ir"
)

// A rule that changes nothing is an error that says why, and what to write.
func TestIdleRules(t *testing.T) {
	for _, c := range []struct {
		what   string
		policy Policy
		want   string // "": the rule has an effect
	}{
		{"no such value", MixedF16().Keep("fc9"), `pattern "fc9" matches nothing`},
		{"a gradient", MixedF16().Keep("d.relu"), `%d.relu is a gradient and goes with %relu; name that`},
		{"gradients", MixedF16().Keep("d.*"), "is a gradient and goes with"},
		{"a gradient lowered", MixedF16().Lower("d.fc1"), "%d.fc1 is a gradient and goes with %fc1"},
		{"a variable", MixedF16().Keep("fc1.w"), "%fc1.w is a variable and keeps its dtype; name what reads it, such as %fc1"},
		{"a later rule overrules it", MixedF16().Keep("fc1").Lower("f*"), ""},
		{"a rule that a later one narrows", MixedF16().Keep("fc*").Lower("fc2"), ""},
		{"a pin in code", MixedF16().Keep("relu"), "%relu is pinned in code"},
		{"the same as a pin in code", MixedF16().Lower("relu"), "%relu is pinned in code"},
		{"an f32 loss", MixedF16().Keep("loss"), "%loss = div is f32 without it, as %ce is"},
		{"an f32 sum", MixedF16().Keep("sum"), "%sum = reduce_sum is f32 without it"},
		{"an f32 row with a gradient that products read", MixedF16().Keep("ce"), ""},
		{"an f32 row whose gradient may be low", MixedF16().Keep("exp"), ""},
		{"a 16-bit product", MixedF16().Lower("fc2"), ""},
		{"what follows a rule", MixedF16().Keep("fc1").Keep("gelu"), ""},
		{"an exception that asks for what holds", MixedF16().Lower("*").Keep("sum"), ""},
		{"a tf32 product", MixedF16().keepTF32("fc1"), ""},
		{"a sum that an eager system keeps", Torch(ir.F16).Keep("sum"), "%sum = reduce_sum is f32 without it"},
		{"labels", MixedF16().Keep("best"), "no policy decides the dtype of %best"},
		{"everything", MixedF16().Keep("*"), ""},
		{"f32 keeps all anyway", F32().Keep("fc1"), ""},
		{"a variable that is cast for every reader", O2(ir.F16).Keep("fc1.w"), ""},
	} {
		g, err := ir.Parse("rules.ir", []byte(`graph @mlp {
  input %x : f32[4,8]
  input %y : i32[4]
  param %fc1.w : f32[8,8] = normal(0, 0.1)
  param %fc1b.w : f32[8,8] = normal(0, 0.1)
  param %fc2.w : f32[8,8] = normal(0, 0.1)
forward:
  %fc1 = matmul %x, %fc1.w : f32[4,8]
  %gelu = gelu %fc1 : f32[4,8]
  %relu = relu %gelu {pin=low} : f32[4,8]
  %exp = exp %relu : f32[4,8]
  %fc1b = matmul %exp, %fc1b.w : f32[4,8]
  %fc2 = matmul %fc1b, %fc2.w : f32[4,8]
  %sum = reduce_sum %exp {axes=[0,1]} : f32[]
  %best = eq %y, %y : bool[4]
  %ce, %n = cross_entropy %fc2, %y : f32[], f32[]
  %loss = div %ce, %n : f32[]
  return %loss, %best, %sum
}
`))
		if err != nil {
			t.Fatal(err)
		}
		err = Run(g, Config{Train: true, Policy: c.policy, Training: Training{Groups: []Group{{Optimizer: SGD(0), LR: Constant(0.1)}}}})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

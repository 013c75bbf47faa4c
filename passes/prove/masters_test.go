package prove_test

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/passes"
	"ampc/passes/prove"
)

// o2 casts weights for all who read them, but an update of the 16-bit form loses what the master
// weight is for.
func TestMasterWeightsAreReadInF32(t *testing.T) {
	const text = `graph @t {
  input %x : f32[4,4]
  param %w : f32[4,4] = normal(0, 0.1)
  input %lr : f32[]
forward:
  %y = matmul %x, %w : f32[4,4]
update:
  %less = affine %w {scale=0.5} : f32[4,4]
  %w' = sgd %w, %less {lr=%lr}
  return %y
}
`
	source, err := ir.Parse("source.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cast := strings.NewReplacer("forward:", "prepare:\n  %w.bf16 = cast %w {to=bf16} : bf16[4,4]\nforward:\n  %x.bf16 = cast %x {to=bf16} : bf16[4,4]",
		"%x, %w :", "%x.bf16, %w.bf16 {out=f32} :").Replace(text)
	for _, x := range []struct{ name, step, want string }{
		{"product in 16 bits", cast, ""},
		{"update, too", strings.Replace(cast, "affine %w {", "affine %w.bf16 {out=f32 ", 1), "is read in bf16 in the update"},
	} {
		step, err := ir.Parse("step.ir", []byte(x.step))
		if err != nil {
			t.Fatal(err)
		}
		found := prove.Error(prove.Prove(source, step, passes.O2(ir.BF16).ProofRules(source, ir.Caps{}, true)))
		if (found == nil) != (x.want == "") || found != nil && !strings.Contains(found.Error(), x.want) {
			t.Errorf("%s: found %v, want %q", x.name, found, x.want)
		}
	}
}

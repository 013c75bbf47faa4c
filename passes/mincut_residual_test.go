package passes

import (
	"fmt"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower/sm"
)

// On GPUs the sum of a product and a residual is a step of its own. A residual that is
// also an operand of the product is read by both steps, in the forms that each needs.
func TestResidualIsAnOperand(t *testing.T) {
	const text = `graph @residual {
  input %x : f32[8,16]
  param %w : f32[8,8] = normal(0, 1)
  param %u : f32[8,8] = normal(0, 1)
forward:
  BODY
  return %y
}`
	for name, body := range map[string]string{
		"same": `%p, %q = split %x {axis=1 sizes=[8,8]} : f32[8,8], f32[8,8]
  %a = mul %p, %q : f32[8,8]
  %m = matmul %a, %w : f32[8,8]
  %y = add %a, %m : f32[8,8]`,
		"rounded to the other dtype": `%p, %q = split %x {axis=1 sizes=[8,8]} : f32[8,8], f32[8,8]
  %b = mul %p, %q : f32[8,8]
  %a = cast %b {to=OTHER} : OTHER[8,8]
  %m = matmul %a, %w : f32[8,8]
  %y = add %a, %m : f32[8,8]`,
		"other elements": `%k = matmul %x, %x {ta} : f32[16,16]
  %r = reshape %k {shape=[32,8]} : f32[32,8]
  %p, %q, %rest = split %r {axis=0 sizes=[8,8,16]} : f32[8,8], f32[8,8], f32[16,8]
  %m = matmul %p, %w : f32[8,8]
  %y = add %q, %m : f32[8,8]`,
		"both operands": `%p, %q = split %x {axis=1 sizes=[8,8]} : f32[8,8], f32[8,8]
  %a = mul %p, %q : f32[8,8]
  %m = matmul %a, %a : f32[8,8]
  %y = add %a, %m : f32[8,8]`,
		"stored once": `%p, %q = split %x {axis=1 sizes=[8,8]} : f32[8,8], f32[8,8]
  %a = matmul %p, %q : f32[8,8]
  %m = matmul %a, %w : f32[8,8]
  %s = add %a, %m : f32[8,8]
  %y = matmul %s, %u : f32[8,8]`,
	} {
		for _, p := range []Policy{MixedF16(), MixedBF16(), withMincut(F32())} {
			other := map[ir.DType]string{ir.F16: "bf16"}[p.Low]
			if other == "" {
				other = "f16"
			}
			for _, target := range gpus {
				source := strings.ReplaceAll(strings.ReplaceAll(text, "BODY", body), "OTHER", other)
				g, err := ir.Parse(name+".ir", []byte(source))
				if err != nil {
					t.Fatal(err)
				}
				cut, moved, _, ok := countedUnder(t, g, p, sm.Must(target))
				if !ok || cut != moved {
					t.Errorf("%s under %s on %s: the cut says %d bytes, the program moves %d\n%s", name, p.Name, target, cut, moved, fmt.Sprint(g))
				}
			}
		}
	}
}

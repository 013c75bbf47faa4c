package passes

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
)

// Constraints that cannot hold together are an error that names both values, in
// whatever order they are stated: never an assignment that costs more.
func TestContradictoryRulesAreAnError(t *testing.T) {
	text := `graph @c {
  input %x : f32[64,64]
  param %w : f32[64,64]
forward:
  %a = matmul %x, %w : f32[64,64]
  %b = transpose %a {perm=[1,0]} : f32[64,64]
  %c = softmax %b : f32[64,64]
  %d = matmul %b, %w : f32[64,64]
  return %c, %d
}`
	run := func(p Policy) error {
		g, err := ir.Parse("c", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return Run(g, Config{Policy: p, Debugging: Debugging{Only: precisionPasses}, Compiling: Compiling{Caps: lower.CPU.Caps()}})
	}
	for _, p := range []Policy{MixedF16().Store("a", ir.PinF32), MixedF16().Store("b", ir.PinLow)} {
		if err := run(p); err != nil {
			t.Errorf("%v alone: %v", p.Stores, err)
		}
	}
	for _, p := range []Policy{
		MixedF16().Store("a", ir.PinF32).Store("b", ir.PinLow), MixedF16().Store("b", ir.PinLow).Store("a", ir.PinF32),
	} {
		err := run(p)
		if err == nil || !strings.Contains(err.Error(), "%a") || !strings.Contains(err.Error(), "%b") {
			t.Errorf("%v: %v", p.Stores, err)
		}
	}
}

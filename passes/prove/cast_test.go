package prove_test

import (
	"testing"

	"ampc/ir"
	"ampc/passes"
)

// Casts of a source graph are proved, alone and behind each other, with and
// without moves between them: the compiler drops those from a dtype to itself
// and those through a dtype that holds all numbers of the one before, and shares
// equal ones, also casts to the 16-bit format that the policy does not choose.
func TestCastsAreProved(t *testing.T) {
	all := []ir.DType{ir.F32, ir.F16, ir.BF16, ir.F64, ir.I32, ir.I64, ir.U8, ir.Bool}
	for _, name := range []string{"f32", "tf32", "mixed-f16", "mixed-bf16", "o1-f16", "o2-f16", "o2-bf16", "o3-f16", "torch-f16", "torch-cpu-bf16", "manual"} {
		p, err := passes.PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range all {
			for _, by := range all {
				b := ir.NewBuilder("casts")
				once := b.Cast(b.Declare(ir.Input, "x", ir.T(from, 4), nil, nil), by)
				b.Return(once)
				for _, to := range all {
					b.Return(b.Cast(once, to), b.Cast(b.Transpose(b.Reshape(once, 2, 2), 1, 0), to))
				}
				if err := b.Err(); err != nil {
					t.Fatal(err)
				}
				if err := passes.Run(b.Graph(), passes.Config{Policy: p, Debugging: passes.Debugging{Check: true}}); err != nil {
					t.Errorf("%s: %s by %s: %v", name, from, by, err)
				}
			}
		}
	}
}

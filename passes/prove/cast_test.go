package prove_test

import (
	"slices"
	"testing"

	"ampc/ir"
	"ampc/passes"
)

// Casts of a source graph are proved, alone and behind each other, with and
// without moves between them: the compiler drops those from a dtype to itself
// and those through a dtype that holds all numbers of the one before, and shares
// equal ones. A policy of one 16-bit format is not given values of the other.
func TestCastsAreProved(t *testing.T) {
	all := []ir.DType{ir.F32, ir.F16, ir.BF16, ir.F64, ir.I32, ir.I64, ir.U8, ir.Bool}
	for name, dtypes := range map[string][]ir.DType{
		"f32":        all,
		"mixed-f16":  slices.DeleteFunc(slices.Clone(all), func(d ir.DType) bool { return d == ir.BF16 }),
		"mixed-bf16": slices.DeleteFunc(slices.Clone(all), func(d ir.DType) bool { return d == ir.F16 }),
	} {
		p, err := passes.PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range dtypes {
			for _, by := range dtypes {
				b := ir.NewBuilder("casts")
				once := b.Cast(b.Declare(ir.Input, "x", ir.T(from, 4), nil, nil), by)
				b.Return(once)
				for _, to := range dtypes {
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

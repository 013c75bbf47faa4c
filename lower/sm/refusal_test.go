package sm

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
)

// A GPU says which integers it does not take, whatever reads them.
func TestRefusesNarrowIntegers(t *testing.T) {
	for _, d := range []ir.DType{ir.I8, ir.I16, ir.U16, ir.U32, ir.U64} {
		for name, f := range map[string]func(b *ir.Builder, x *ir.Value) *ir.Value{
			"add":       func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Add(x, x) },
			"cast":      func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Cast(x, ir.F32) },
			"transpose": func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Transpose(x, 1, 0) },
			"reshape":   func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Reshape(x, 12) },
			"gather":    func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Gather(x, b.Scalar(ir.I32, 0), 0) },
		} {
			b := ir.NewBuilder("g")
			b.Return(f(b, b.Declare(ir.Input, "x", ir.T(d, 3, 4), nil, nil)))
			if b.Err() != nil {
				t.Fatal(b.Err())
			}
			err := lower.Check(b.Graph(), Must("sm_90"))
			if err == nil || !strings.Contains(err.Error(), "sm_90 has no kernels for elements of "+d.String()+": run it on the CPU, or cast to i32") {
				t.Errorf("%s of %s: %v", name, d, err)
			}
		}
	}
}

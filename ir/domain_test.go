package ir_test

import (
	"math"
	"testing"

	"ampc/ir"
)

func TestDomains(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	numbers := []float64{nan, -inf, -1e39, -1, 0, 0.5, 1, 2, math.MaxFloat32, 1e39, inf}
	for d, want := range map[ir.Domain]string{ // which of the numbers hold
		ir.AnyNumber: "yyyyyyyyyyy", ir.NotNaN: "nyyyyyyyyyy", ir.AnyFinite: "nnnyyyyyynn", ir.AtLeast0: "nnnnyyyyynn",
		ir.Above0: "nnnnnyyyynn", ir.BelowOne: "nnnnyynnnnn", ir.ZeroToOne: "nnnnyyynnnn",
	} {
		for i, x := range numbers {
			if d.Holds(x) != (want[i] == 'y') || (d.Check("x", x) == nil) != d.Holds(x) {
				t.Errorf("%g as %s: %t, %v", x, d, d.Holds(x), d.Check("x", x))
			}
		}
	}
	if err := ir.AtLeast0.Check("adamw: decay", -inf); err.Error() != "adamw: decay -Inf: want a finite number, 0 or more" {
		t.Error(err)
	}
}

// A float attribute that no NaN can stand in says so in its row, all others are listed here.
func TestFloatAttributesAreBounded(t *testing.T) {
	free := map[string]bool{
		"full.value": true, "pad.value": true, // what a tensor holds
		"affine.scale": true, "affine.shift": true, // canonicalization folds quotients into them
	}
	for _, op := range ir.Ops() {
		for _, a := range op.Def().Attrs {
			name := op.Def().Name + "." + a.Name
			if a.Kind == ir.AttrFloat && (a.Takes == ir.AnyNumber) != free[name] {
				t.Errorf("%s takes %s", name, a.Takes)
			}
			if x, ok := a.Default.(float64); ok && !a.Takes.Holds(x) {
				t.Errorf("%s: the default %g is not %s", name, x, a.Takes)
			}
		}
	}
}

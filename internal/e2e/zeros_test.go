package e2e_test

import (
	"math"
	"testing"

	"ampc"
)

// Nodes and constants that differ only in the sign of a zero stay apart.
func TestZerosKeepTheirSigns(t *testing.T) {
	m := ampc.New("zeros")
	x := m.Input("x", ampc.F32, 4)
	plus, minus := m.Affine(x, 0, 0), m.Affine(x, math.Copysign(0, -1), 0)
	s, err := m.Infer(ampc.InferConfig{}, plus, minus)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := run(t, s, ampc.Feed{"x": []float32{1, 2, 3, 4}})
	for y, negative := range map[ampc.Tensor]bool{plus: false, minus: true} {
		v, err := r.Value(y)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.At(0); got != 0 || math.Signbit(got) != negative {
			t.Errorf("1 by a zero with sign %t is %g", negative, got)
		}
	}
}

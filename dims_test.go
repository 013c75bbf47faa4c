package ampc_test

import (
	"ampc"
	"testing"
)

func TestNamedDimensions(t *testing.T) {
	m := ampc.New("dims")
	x := m.Input("x", ampc.F32, ampc.Dim("n"), 4)
	y := m.Linear("fc", x, 2)
	if _, err := m.Infer(ampc.InferConfig{}, y); err == nil {
		t.Error("an unbound dimension is accepted")
	}
	defer m.Close()
	for _, n := range []int64{1, 5} {
		s, err := m.Infer(ampc.InferConfig{Sizes: ampc.Sizes{"n": n}}, y)
		if err != nil {
			t.Fatal(err)
		}
		h, err := run(t, s, ampc.Feed{"x": make([]float32, 4*n)}).Value(y)
		if err != nil || h.Len() != int(2*n) {
			t.Errorf("n=%d: %v (%v)", n, h.Type, err)
		}
	}
}

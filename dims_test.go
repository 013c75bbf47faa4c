package ampc_test

import (
	"testing"

	"ampc"
)

func TestNamedDimensions(t *testing.T) {
	m := ampc.New("dims")
	x := m.Input("x", ampc.F32, ampc.Dim("n"), 4)
	y := m.Linear("fc", x, 2)
	_, err := m.Infer(ampc.InferConfig{}, y)
	wantError(t, err, `dimension n has no size: give it in Sizes: ampc.Sizes{"n": 64}`)
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

// TestSizesMissing pins what is said where a size must be known before Sizes gives it.
func TestSizesMissing(t *testing.T) {
	m := ampc.New("missing")
	x := m.Input("x", ampc.F32, ampc.Dim("n"), ampc.Dim("k"))
	y := m.ReduceMean(m.Slice(x, []int{0, 1}, []int{0, 0}, []int{1, 1}))
	m.Grad(y, x)
	wantError(t, m.Err(), "dimensions n, k have no sizes: give Input numbers instead of names there")
}

package ampc_test

import (
	"testing"

	"ampc"
)

// A tensor read from a model with parameters in 16 bits can be written into
// one with parameters in f32, and the other way round; shapes must be equal.
func TestHostTensorsConvert(t *testing.T) {
	build := func(p ampc.Policy, width int) *ampc.Model {
		m := ampc.New("convert")
		x, y := m.Input("x", ampc.F32, 4, 3), m.Input("y", ampc.I32, 4)
		loss := m.CrossEntropy(m.Linear("fc", x, width), y)
		if _, err := ampc.Train(m, loss, ampc.Config{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Policy: p}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	low, wide := build(ampc.O3(ampc.BF16), 2), build(ampc.F32Only(), 2)
	h, err := low.Variable("fc.w")
	if err != nil {
		t.Fatal(err)
	}
	if h.Type.DType != ampc.BF16 {
		t.Fatalf("o3 stores %s", h.Type)
	}
	if err := wide.SetVariable("fc.w", h); err != nil {
		t.Fatal(err)
	}
	got, err := wide.Variable("fc.w")
	if err != nil {
		t.Fatal(err)
	}
	for i := range h.Len() {
		if got.At(i) != h.At(i) {
			t.Errorf("element %d is %g, want %g", i, got.At(i), h.At(i))
		}
	}
	if err := low.SetVariable("fc.w", got); err != nil {
		t.Error(err)
	}
	if err := build(ampc.F32Only(), 5).SetVariable("fc.w", h); err == nil {
		t.Error("a tensor of another shape was taken")
	}
}

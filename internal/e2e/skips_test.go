package e2e_test

import (
	"ampc"
	"bytes"
	"math"
	"testing"
)

// A step that is not finite leaves everything as it was but the scale.
func TestOverflowSkips(t *testing.T) {
	m, loss := small(8)
	c := adam()
	c.Scaler = ampc.Dynamic()
	c.Scaler.Init = 1 << 24
	s := train(t, m, loss, c)
	for i := range 40 {
		before, _ := m.Variable("fc1.w")
		r := run(t, s, points(uint64(i), 8))
		after, _ := m.Variable("fc1.w")
		if metrics(t, r).Skipped != bytes.Equal(before.Bytes, after.Bytes) {
			t.Fatalf("step %d: skipped %t, weight changed %t", i, metrics(t, r).Skipped, !bytes.Equal(before.Bytes, after.Bytes))
		}
	}
	bad := points(1, 8)
	bad["x"].([]float32)[3] = float32(math.NaN())
	for i := range 25 {
		r := run(t, s, bad)
		if !metrics(t, r).Skipped {
			t.Fatal("a NaN in the data was not skipped")
		}
		if err := s.Stuck(); (err != nil) != (i == 24) {
			t.Errorf("after %d bad steps: %v", i+1, err)
		}
	}
}

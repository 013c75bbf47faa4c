package e2e_test

import (
	"testing"
)

// Each 16-bit copy of a weight is written once per version of the weight, whatever
// the number of micro-batches: an evaluation makes the copies after an update,
// and the next evaluation and the next step find them current.
func TestWeightsAreCastOncePerStep(t *testing.T) {
	m, loss := small(8)
	c := adam()
	c.Micro = 4
	s := train(t, m, loss, c)
	eval, err := s.Eval(loss)
	if err != nil {
		t.Fatal(err)
	}
	weights := int64(2 * (4*16 + 16 + 16*3 + 3)) // bytes of all copies
	for i := range 3 {
		run(t, s, points(1, 8), points(2, 8), points(3, 8), points(4, 8))
		run(t, eval, points(5, 8))
		run(t, eval, points(6, 8))
		if got := s.Counters().CastBytes + eval.Counters().CastBytes; got != weights*int64(i+2) {
			t.Errorf("after %d steps with evaluations: %d bytes of weight copies written, want %d", i+1, got, weights*int64(i+2))
		}
	}
}

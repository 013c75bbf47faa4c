package e2e_test

import (
	"ampc"
	"testing"
)

func TestLossFallsUnderEveryPolicy(t *testing.T) {
	for _, p := range []ampc.Policy{{}, ampc.F32Only(), ampc.TF32(), ampc.MixedF16(), ampc.MixedBF16(), ampc.O1(ampc.F16), ampc.O2(ampc.F16), ampc.Torch(ampc.BF16)} {
		m, loss := small(32)
		c := adam()
		c.Policy = p
		s := train(t, m, loss, c)
		first := metrics(t, run(t, s, points(0, 32))).Loss
		var r *ampc.Result
		for i := range 60 {
			r = run(t, s, points(uint64(i), 32))
		}
		if got := metrics(t, r).Loss; !(got < 0.6*first) {
			t.Errorf("policy %q: loss went from %g to %g", p.Name, first, got)
		}
		if err := s.Stuck(); err != nil {
			t.Errorf("policy %q: %v", p.Name, err)
		}
	}
}

package ampc_test

import (
	"ampc"
	"bytes"
	"testing"
)

func TestSetLRFreezeAndResults(t *testing.T) {
	m, loss := small(8)
	c := ampc.TrainConfig{Groups: []ampc.Group{
		{Pattern: "fc1", Freeze: true},
		{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.5)},
	}, Policy: ampc.MixedF16()}
	s := train(t, m, loss, c)
	frozen, _ := m.Variable("fc1.w")
	trained, _ := m.Variable("fc2.w")
	if err := s.SetLR(0); err != nil {
		t.Fatal(err)
	}
	r := run(t, s, points(1, 8))
	if metrics(t, r).LR != 0 {
		t.Errorf("learning rate %g, want 0", metrics(t, r).LR)
	}
	if now, _ := m.Variable("fc2.w"); !bytes.Equal(now.Bytes, trained.Bytes) {
		t.Error("a rate of 0 changed a weight")
	}
	if err := s.SetLR(0.1); err != nil {
		t.Fatal(err)
	}
	r = run(t, s, points(1, 8))
	if now, _ := m.Variable("fc2.w"); bytes.Equal(now.Bytes, trained.Bytes) {
		t.Error("a rate of 0.1 left a weight as it was")
	}
	if now, _ := m.Variable("fc1.w"); !bytes.Equal(now.Bytes, frozen.Bytes) {
		t.Error("a frozen weight changed")
	}
	if !s.Scaled() || metrics(t, r).Scale != 65536 || metrics(t, r).Skipped {
		t.Errorf("scaled %t, scale %g, skipped %t", s.Scaled(), metrics(t, r).Scale, metrics(t, r).Skipped)
	}
	_, err := r.Value(m.Lookup("fc1"))
	wantError(t, err, "fc1", "TrainConfig.Outputs")
	_, err = r.Grad(m.Lookup("fc2.w"))
	wantError(t, err, "fc2.w", "TrainConfig.Grads")
	if _, err := (*ampc.Result)(nil).Value(loss); err == nil {
		t.Error("a result without a step has a value")
	}
}

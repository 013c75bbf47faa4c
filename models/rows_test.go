package models_test

import (
	"fmt"
	"math"
	"testing"

	"ampc"
	"ampc/models"
)

// An element of a batch has the same logits, bit for bit, whatever batch it is part of.
func TestBatchesAgree(t *testing.T) {
	const most, seq, vocab = 8, 6, 97
	ids := make([]int32, most*seq)
	for i := range ids {
		ids[i] = int32(i * 31 % vocab)
	}
	for name, policy := range map[string]ampc.Policy{"f32": {}, "bf16": ampc.MixedBF16(), "f16": ampc.MixedF16()} {
		logits := func(first, batch int) []float32 {
			z, err := models.Open(fmt.Sprintf("gpt?batch=%d&seq=%d&layers=2&dim=128&heads=4&vocab=%d", batch, seq, vocab), ampc.Seed(5))
			if err != nil {
				t.Fatal(err)
			}
			defer z.Model.Close()
			return logitsOf(t, z, policy, ids[first*seq:(first+batch)*seq])
		}
		all := logits(0, most)
		for _, batch := range []int{1, 2, 4} {
			for i, got := range logits(batch, batch) {
				if want := all[batch*seq*vocab+i]; math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("%s: logit %d of a batch of %d is %g, and %g in a batch of %d", name, i, batch, got, want, most)
				}
			}
		}
	}
}

// logitsOf are the logits of all tokens under a policy.
func logitsOf(t *testing.T, z *models.Zoo, policy ampc.Policy, ids []int32) []float32 {
	t.Helper()
	step, err := z.Model.Infer(ampc.InferConfig{Policy: policy}, z.Output)
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Run(t.Context(), ampc.Feed{"ids": ids})
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.Value(z.Output)
	if err != nil {
		t.Fatal(err)
	}
	return h.Floats()
}

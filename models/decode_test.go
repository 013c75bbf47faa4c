package models_test

import (
	"fmt"
	"math"
	"os"
	"testing"

	"ampc"
	"ampc/generate"
	"ampc/models"
	"ampc/runtime/cpu/kern"
)

// A token has the same logits, bit for bit, whether all tokens before it are computed at once or appended in parts, on the CPU.
func TestDecodingAgrees(t *testing.T) {
	const seq, vocab = 150, 97
	ids := make([]int32, seq)
	for i := range ids {
		ids[i] = int32(i * i * 31 % vocab)
	}
	for name, policy := range map[string]ampc.Policy{"f32": {}, "bf16": ampc.MixedBF16(), "f16": ampc.MixedF16()} {
		if p, err := kern.Detect(os.Getenv); err == nil && name == "bf16" && p.Name() == "amx" {
			t.Log("bf16 left out: tile registers add products in another order than rows do")
			continue
		}
		z, err := models.Open(fmt.Sprintf("gpt?batch=1&seq=%d&layers=2&dim=128&heads=4&vocab=%d", seq, vocab), ampc.Seed(5))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Model.Close()
		want := logitsOf(t, z, policy, ids)
		m := ampc.New("cached", ampc.Seed(5))
		defer m.Close()
		g, err := generate.New(m, models.GPT(z.Options), generate.Config{Chunk: 16, Policy: policy})
		if err != nil {
			t.Fatal(err)
		}
		for _, parts := range [][]int{{1}, {3}, {7, 1, 1}, {16, 2}, {40, 1}} {
			s, err := g.Start()
			if err != nil {
				t.Fatal(err)
			}
			for held, i := 0, 0; held < seq; i++ {
				n := min(parts[i%len(parts)], seq-held)
				logits, err := s.Append(t.Context(), ids[held:held+n])
				if err != nil {
					t.Fatal(err)
				}
				held += n
				for j, got := range logits[0] {
					if w := want[(held-1)*vocab+j]; math.Float32bits(got) != math.Float32bits(w) {
						t.Fatalf("%s: parts of %v: token %d has logit %g, and %g with all at once", name, parts, held, got, w)
					}
				}
			}
		}
	}
}

package gpu_test

import (
	"slices"
	"strings"
	"testing"

	"ampc/cuda/sim"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/gpu"
)

// orderShare is how far losses and weights may be from the evaluator's where a library adds in any order,
// as a share of the largest of their kind. A sum of K terms in f32 is off by at most K·2^-23 of its
// terms, cut off as tensor cores do; it passes through as many products as there are. A number that
// a sum brings near a tie rounds elsewhere, by a unit of its type: a gradient and the value that it is
// multiplied with.
func orderShare(t *testing.T, g *ir.Graph, b *gpu.Backend) float64 {
	t.Helper()
	p, err := lower.Lower(g, b.Target())
	if err != nil {
		t.Fatal(err)
	}
	terms, products := int64(1), 0
	for _, s := range slices.Concat(p.Parts[:]...) {
		k := int64(0)
		switch {
		case s.Gemm != nil:
			k = s.Gemm.K
		case s.Attn != nil:
			k = max(s.Attn.Keys, s.Attn.Width)
		case s.Conv != nil:
			w := s.Conv.Window
			k = lower.Count(w.Kernel) * w.C / w.Groups
			if s.Conv.Dir == lower.ConvGradW {
				k = lower.Count(w.Out) * w.N
			}
		default:
			continue
		}
		terms, products = max(terms, k), products+1
	}
	return 2*lastPlace(g) + float64(terms)*float64(products)*0x1p-23
}

// TestOrdersOfSums trains models on devices whose libraries add in other orders, each sum in up to 28
// parts: losses and weights stay within what the number of terms allows.
func TestOrdersOfSums(t *testing.T) {
	for _, c := range zoo {
		name, _, _ := strings.Cut(c.spec, "?")
		if !slices.Contains([]string{"mlp", "gpt2", "resnet8"}, name) {
			continue
		}
		for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16"} {
			if testing.Short() && (name != "mlp" || policy != "mixed-f16") {
				continue
			}
			for _, parts := range []int{3, 7} {
				g := ready(t, c.spec, policy, "sm_90")[0]
				_, b := device(t, sim.Options{Parts: parts})
				trainOn(t, g, b, 5, orderShare(t, g, b), c.together)
			}
		}
	}
}

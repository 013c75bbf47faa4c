package generate_test

import (
	"context"
	"testing"

	"ampc"
	"ampc/generate"
	"ampc/pretrained"
)

// small is a GPT-2 of a few thousand weights.
func small() *pretrained.GPT2 {
	return &pretrained.GPT2{Vocab: 61, Positions: 48, Width: 32, Layers: 2, Heads: 4, Inner: 64, Eps: 1e-5, Activation: "gelu_new", Tied: true}
}

// windowed is the same model that computes the whole window for each token.
type windowed interface {
	generate.Decoder
	Logits(m *ampc.Model, ids ampc.Tensor) ampc.Tensor
}

// recomputed is the logits of the next token for every prefix of ids.
func recomputed(t *testing.T, d windowed, seed int64, ids []int32, vocab int) [][]float32 {
	t.Helper()
	m := ampc.New("window", ampc.Seed(seed))
	defer m.Close()
	out := d.Logits(m, m.Input("ids", ampc.I32, 1, len(ids)))
	step, err := m.Infer(ampc.InferConfig{}, out)
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Run(t.Context(), ampc.Feed{"ids": ids})
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.Value(out)
	if err != nil {
		t.Fatal(err)
	}
	f := h.Floats()
	var rows [][]float32
	for i := range ids {
		rows = append(rows, f[i*vocab:][:vocab])
	}
	return rows
}

func best(x []float32) int32 {
	at := 0
	for i := range x {
		if x[i] > x[at] {
			at = i
		}
	}
	return int32(at)
}

// Decoding greedily by the cache gives the tokens that recomputing the window gives.
func TestGreedy(t *testing.T) {
	d := small()
	m := ampc.New("cached", ampc.Seed(3))
	defer m.Close()
	g, err := generate.New(m, d, generate.Config{Chunk: 16})
	if err != nil {
		t.Fatal(err)
	}
	s, err := g.Start()
	if err != nil {
		t.Fatal(err)
	}
	ids := []int32{5, 17, 33, 8, 60, 2, 2, 41, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29}
	out, err := s.Append(context.Background(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		ids = append(ids, best(out[0]))
		if out, err = s.Append(context.Background(), ids[len(ids)-1:]); err != nil {
			t.Fatal(err)
		}
	}
	want := recomputed(t, d, 3, ids, d.Vocab)
	for i, w := range want[18 : len(want)-1] {
		if best(w) != ids[19+i] {
			t.Errorf("token %d is %d, the window gives %d", 19+i, ids[19+i], best(w))
		}
	}
}

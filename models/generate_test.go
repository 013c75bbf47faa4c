package models_test

import (
	"slices"
	"testing"

	"ampc"
	"ampc/generate"
	"ampc/models"
)

// The zoo's gpt continues from a cache as it does from its window.
func TestGenerate(t *testing.T) {
	z, err := models.Open("gpt?batch=1&seq=24&layers=2&dim=32&vocab=50", ampc.Seed(5))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	m := ampc.New("cached", ampc.Seed(5))
	defer m.Close()
	g, err := generate.New(m, models.GPT(z.Options), generate.Config{Chunk: 8})
	if err != nil {
		t.Fatal(err)
	}
	s, err := g.Start()
	if err != nil {
		t.Fatal(err)
	}
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3}
	prompt := len(ids)
	for token, err := range s.Generate(t.Context(), generate.Options{MaxTokens: 14}, slices.Clone(ids)) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, token.ID)
	}
	logits := logitsOf(t, z, ampc.Policy{}, ids)
	for i := prompt; i < len(ids); i++ {
		row := logits[(i-1)*50:][:50]
		if want := slices.Index(row, slices.Max(row)); int(ids[i]) != want {
			t.Errorf("token %d is %d, the window gives %d", i, ids[i], want)
		}
	}
}

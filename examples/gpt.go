package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"ampc"
)

// verse is Blake's, 1794.
const verse = `Tyger Tyger, burning bright,
In the forests of the night;
What immortal hand or eye,
Could frame thy fearful symmetry?

In what distant deeps or skies,
Burnt the fire of thine eyes?
On what wings dare he aspire?
What the hand, dare sieze the fire?
`

func gpt(w io.Writer) error {
	const batch, seq, vocab, dim = 8, 32, 128, 64
	m := ampc.New("gpt")
	ids := m.Input("ids", ampc.I32, batch, seq)
	next := m.Input("next", ampc.I32, batch, seq)

	x := m.Embedding("wte", ids, vocab, dim)
	x = m.Add(x, m.Param("wpe", ampc.Normal(0, 0.02), seq, dim))
	for i := range 2 {
		b := m.Scope(fmt.Sprintf("h%d", i))
		x = b.Add(x, b.Attention("attn", b.LayerNorm("ln1", x), 4, ampc.AttentionOptions{Causal: true}))
		u := b.Gelu(b.Linear("up", b.LayerNorm("ln2", x), 4*dim))
		x = b.Add(x, b.Linear("down", u, dim))
	}
	loss := m.CrossEntropy(m.Linear("head", m.LayerNorm("lnf", x), vocab), next)

	step, err := m.Train(ampc.TrainConfig{
		Optimizer: ampc.AdamW(0.1), LR: ampc.Cosine(3e-3, 10, 121), Clip: ampc.ClipNorm(1),
		Policy: ampc.MixedF16().Keep("head"), // the scope; brings dynamic loss scaling
	}, ampc.Loss{Value: loss})
	if err != nil {
		return err
	}
	defer m.Close()

	for i := range 121 {
		r, err := step.Run(context.Background(), windows(uint64(i), batch, seq))
		if err != nil {
			return err
		}
		if i%30 == 0 {
			got, err := r.Wait(context.Background())
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%4d  loss %.4f  scale %g  skipped %t\n", i, got.Loss, got.Scale, got.Skipped)
		}
	}
	return nil
}

// windows cuts a batch of character windows and their successors out of the verse.
func windows(seed uint64, batch, seq int) ampc.Feed {
	r := rand.New(rand.NewPCG(seed, 3))
	var ids, next []int32
	for range batch {
		at := r.IntN(len(verse) - seq)
		for i := range seq {
			ids, next = append(ids, int32(verse[at+i])), append(next, int32(verse[at+i+1]))
		}
	}
	return ampc.Feed{"ids": ids, "next": next}
}

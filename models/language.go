package models

import (
	"fmt"
	"math"

	"ampc"
	"ampc/pretrained"
)

// gpt is GPT-2 in small: pre-norm blocks, tied embeddings, learned positions.
// The projections that end in the residual trunk start smaller, by the number
// of those that add up there (Radford et al. 2019).
func gpt(z *Zoo, o Options) {
	ids := z.Model.Input("ids", ampc.I32, o.Int("batch"), o.Int("seq"))
	next := z.Model.Input("next", ampc.I32, o.Int("batch"), o.Int("seq"))
	z.Output = GPT(o).logits(z.Model, GPT(o).hidden(z.Model, ids, nil))
	z.train(z.Model.Named("loss").CrossEntropy(z.Output, next), adamw(1e-3))
}

// GPT is the model gpt or gpt2 of the zoo, for package generate: its options.
type GPT Options

// Limit is the number of positions that the model has.
func (g GPT) Limit() int { return Options(g).Int("seq") }

// Next is the logits of the token that follows each of B sequences, [B,vocab], whose
// last tokens are ids[B,T] and whose earlier ones are in caches.
func (g GPT) Next(m *ampc.Model, ids ampc.Tensor, c pretrained.Cached) ampc.Tensor {
	return g.logits(m, c.Last(m, g.hidden(m, ids, &c)))
}

func (g GPT) logits(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
	return m.Tied("head", m.LayerNorm("lnf", x), m.Lookup("wte.w"))
}

func (g GPT) hidden(m *ampc.Model, ids ampc.Tensor, c *pretrained.Cached) ampc.Tensor {
	o := Options(g)
	seq, dim := o.Int("seq"), o.Int("dim")
	x := m.Embedding("wte", ids, o.Int("vocab"), dim, ampc.EmbeddingOptions{Init: small})
	at := m.Param("wpe", ampc.Normal(0, 0.02), seq, dim)
	if c != nil {
		at = m.EmbeddingWith(at, c.Positions)
	}
	x = m.Named("embed").Add(x, at)
	x = m.Dropout("drop", x, o["dropout"])
	trunk := ampc.LinearOptions{Init: ampc.Normal(0, 0.02/math.Sqrt(2*o["layers"]))}
	for i := range o.Int("layers") {
		b := m.Scope(fmt.Sprintf("h%d", i))
		attention := ampc.AttentionOptions{Causal: true, Init: small}
		if c != nil {
			attention.Attend = func(q, k, v ampc.Tensor) ampc.Tensor { return c.Attend(b.Scope("attn"), q, k, v) }
		}
		a := b.Attention("attn", b.LayerNorm("ln1", x), o.Int("heads"), attention)
		x = b.Named("res1").Add(x, b.Dropout("drop1", a, o["dropout"]))
		gelu := b.Gelu
		if o["tanh"] != 0 {
			gelu = b.GeluTanh
		}
		u := gelu(b.Linear("up", b.LayerNorm("ln2", x), 4*dim, ampc.LinearOptions{Init: small}))
		x = b.Named("res2").Add(x, b.Dropout("drop2", b.Linear("down", u, dim, trunk), o["dropout"]))
	}
	return x
}

func lstm(z *Zoo, o Options) {
	m := z.Model
	ids := m.Input("ids", ampc.I32, o.Int("batch"), o.Int("seq"))
	next := m.Input("next", ampc.I32, o.Int("batch"), o.Int("seq"))
	x := m.Embedding("wte", ids, o.Int("vocab"), o.Int("dim"), ampc.EmbeddingOptions{Init: ampc.Normal(0, 0.1)})
	for i := range o.Int("layers") {
		x = m.LSTM(fmt.Sprintf("lstm%d", i+1), x, o.Int("dim"))
	}
	z.Output = m.Linear("head", x, o.Int("vocab"))
	z.train(m.Named("loss").CrossEntropy(z.Output, next), adamw(2e-3))
}

// bert is Devlin et al. 2018: post-norm blocks; label -100 marks tokens that
// were not masked and count for nothing.
func bert(z *Zoo, o Options) {
	m := z.Model
	batch, seq, dim := o.Int("batch"), o.Int("seq"), o.Int("dim")
	ids := m.Input("ids", ampc.I32, batch, seq)
	kinds := m.Input("kinds", ampc.I32, batch, seq)
	labels := m.Input("labels", ampc.I32, batch, seq)
	x := m.Add(m.Embedding("word", ids, o.Int("vocab"), dim, ampc.EmbeddingOptions{Init: small}), m.Embedding("kind", kinds, 2, dim, ampc.EmbeddingOptions{Init: small}))
	x = m.Named("embed").Add(x, m.Param("position", ampc.Normal(0, 0.02), seq, dim))
	x = m.Dropout("drop", m.LayerNorm("ln", x), o["dropout"])
	for i := range o.Int("layers") {
		b := m.Scope(fmt.Sprintf("h%d", i))
		a := b.Attention("attn", x, o.Int("heads"), ampc.AttentionOptions{Init: small})
		x = b.LayerNorm("ln1", b.Named("res1").Add(x, b.Dropout("drop1", a, o["dropout"])))
		u := b.Linear("down", b.Gelu(b.Linear("up", x, 4*dim, ampc.LinearOptions{Init: small})), dim, ampc.LinearOptions{Init: small})
		x = b.LayerNorm("ln2", b.Named("res2").Add(x, b.Dropout("drop2", u, o["dropout"])))
	}
	x = m.LayerNorm("lnf", m.Gelu(m.Linear("mlm", x, dim, ampc.LinearOptions{Init: small})))
	z.Output = m.Tied("head", x, m.Lookup("word.w"))
	z.train(m.Named("loss").CrossEntropy(z.Output, labels), adamw(1e-4))
}

// vit is Dosovitskiy et al. 2020 with the mean of all patches in place of a
// class token.
func vit(z *Zoo, o Options) {
	m := z.Model
	batch, size, dim, patch := o.Int("batch"), o.Int("size"), o.Int("dim"), o.Int("patch")
	x := m.Input("x", ampc.F32, batch, o.Int("channels"), size, size)
	side := size / patch
	x = m.Conv2d("patch", x, dim, patch, ampc.Conv2dOptions{Stride: patch})
	x = m.Transpose(m.Reshape(x, batch, dim, side*side), 0, 2, 1)
	x = m.Named("embed").Add(x, m.Param("position", ampc.Normal(0, 0.02), side*side, dim))
	for i := range o.Int("layers") {
		b := m.Scope(fmt.Sprintf("h%d", i))
		x = b.Named("res1").Add(x, b.Attention("attn", b.LayerNorm("ln1", x), o.Int("heads"), ampc.AttentionOptions{Init: small}))
		u := b.Gelu(b.Linear("up", b.LayerNorm("ln2", x), 4*dim, ampc.LinearOptions{Init: small}))
		x = b.Named("res2").Add(x, b.Linear("down", u, dim, ampc.LinearOptions{Init: small}))
	}
	x = m.Named("pool").ReduceMean(m.LayerNorm("lnf", x), ampc.Axes(1))
	z.classify(m.Linear("head", x, o.Int("classes")), adamw(1e-3))
}

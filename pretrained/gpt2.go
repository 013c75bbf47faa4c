package pretrained

import (
	"fmt"

	"ampc"
	"ampc/weights"
)

// GPT2 is the configuration of a GPT-2 model (Radford et al. 2019), with the names of
// Hugging Face's GPT2Model: wte.weight, h.0.attn.c_attn.weight and so on.
type GPT2 struct {
	Vocab, Positions, Width, Layers, Heads int
	Inner                                  int     // width of the feed-forward layers
	Eps                                    float64 // of the norms
	Activation                             string
	Tied                                   bool    // the logits' weights are the embedding's
	Dropout                                float64 // in training, after the embedding and before each sum; the one on attention's weights is not applied
}

// ReadGPT2 reads a config.json, or the one in a folder.
func ReadGPT2(path string) (*GPT2, error) {
	c, err := readConfig(path, "gpt2")
	if err != nil {
		return nil, err
	}
	g := &GPT2{
		Vocab: c.count("vocab_size", 50257), Positions: c.count("n_positions", 1024), Width: c.count("n_embd", 768),
		Layers: c.count("n_layer", 12), Heads: c.count("n_head", 12), Eps: c.number("layer_norm_epsilon", 1e-5),
		Activation: c.word("activation_function", "gelu_new", activations...), Tied: c.flag("tie_word_embeddings", true),
		Dropout: c.number("resid_pdrop", 0.1),
	}
	g.Inner = c.count("n_inner", 4*g.Width)
	if p := c.number("embd_pdrop", g.Dropout); p != g.Dropout {
		c.fail("embd_pdrop is %g and resid_pdrop %g: want one", p, g.Dropout)
	}
	c.only("scale_attn_weights", true)
	c.only("scale_attn_by_inverse_layer_idx", false)
	c.only("add_cross_attention", false)
	c.only("is_encoder_decoder", false)
	c.heads(g.Width, g.Heads)
	return g, c.done()
}

// Hidden is the hidden state after the last norm: ids[B,T], i32 or i64, to
// [B,T,Width]. T is a number, Positions at most.
func (g *GPT2) Hidden(m *ampc.Model, ids ampc.Tensor) ampc.Tensor {
	if !tokens(m, ids, g.Positions) {
		return ampc.Tensor{}
	}
	return g.hidden(m, ids, nil)
}

func (g *GPT2) hidden(m *ampc.Model, ids ampc.Tensor, c *Cached) ampc.Tensor {
	x := m.EmbeddingWith(m.Scope("wte").Param("weight", small, g.Vocab, g.Width), ids)
	table := m.Scope("wpe").Param("weight", small, g.Positions, g.Width)
	if c == nil {
		x = m.Add(x, positions(m, table, ids))
	} else {
		x = m.Add(x, m.EmbeddingWith(table, c.Positions))
	}
	x = m.Dropout("drop", x, g.Dropout)
	for i := range g.Layers {
		b := m.Scope(fmt.Sprintf("h.%d", i))
		a := g.attention(b.Scope("attn"), layerNorm(b, "ln_1", x, g.Eps), c)
		x = b.Add(x, b.Dropout("drop1", a, g.Dropout))
		u := activation(b, g.Activation, conv1D(b, "mlp.c_fc", layerNorm(b, "ln_2", x, g.Eps), g.Inner))
		x = b.Add(x, b.Dropout("drop2", conv1D(b, "mlp.c_proj", u, g.Width), g.Dropout))
	}
	return layerNorm(m, "ln_f", x, g.Eps)
}

func (g *GPT2) attention(m *ampc.Model, x ampc.Tensor, c *Cached) ampc.Tensor {
	qkv := m.Split(conv1D(m, "c_attn", x, 3*g.Width), -1, g.Width, g.Width, g.Width)
	if m.Err() != nil {
		return ampc.Tensor{}
	}
	w := g.Width / g.Heads
	y := c.Attend(m, heads(m, qkv[0], g.Heads, w), heads(m, qkv[1], g.Heads, w), heads(m, qkv[2], g.Heads, w))
	return conv1D(m, "c_proj", merge(m, y, g.Heads, w), g.Width)
}

// Logits are those of the next token: ids[B,T] to [B,T,Vocab].
func (g *GPT2) Logits(m *ampc.Model, ids ampc.Tensor) ampc.Tensor {
	return g.head(m, g.Hidden(m, ids))
}

// Next is the logits of the token that follows each of B sequences, [B,Vocab], whose
// last tokens are ids[B,T] and whose earlier ones are in caches.
func (g *GPT2) Next(m *ampc.Model, ids ampc.Tensor, c Cached) ampc.Tensor {
	return g.head(m, c.Last(m, g.hidden(m, ids, &c)))
}

// Limit is the number of positions that the model has.
func (g *GPT2) Limit() int { return g.Positions }

func (g *GPT2) head(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
	if !g.Tied {
		return linear(m, "lm_head", x, g.Vocab, false)
	}
	return m.Named("lm_head").LinearWith(x, m.Lookup("wte.weight"), ampc.Tensor{}, ampc.LinearWithOptions{TransposeW: true})
}

// Weights are what weights.Load needs for the published files: those of GPT2Model,
// and of GPT2LMHeadModel with its prefix. Attention's masks are left.
func (g *GPT2) Weights() []weights.Option {
	o := []weights.Option{weights.Prefix("transformer."), weights.Ignore("*.attn.bias", "*.attn.masked_bias")}
	if g.Tied {
		o = append(o, weights.Ignore("lm_head.weight"))
	}
	return o
}

// conv1D is Hugging Face's Conv1D: a linear layer whose weight is [in,out].
func conv1D(m *ampc.Model, name string, x ampc.Tensor, out int) ampc.Tensor {
	s := m.Scope(name)
	return m.Named(name).LinearWith(x, s.Param("weight", small, max(x.Dim(-1), 1), out), s.Param("bias", ampc.Zeros(), out))
}

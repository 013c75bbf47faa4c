package pretrained

import (
	"fmt"
	"math"

	"ampc"
	"ampc/weights"
)

// Llama is the configuration of a model of the Llama family (Touvron et al. 2023;
// Llama 2 and 3, TinyLlama, SmolLM, and Mistral without a sliding window), with the
// names of Hugging Face's LlamaForCausalLM: model.layers.0.self_attn.q_proj.weight and
// so on.
type Llama struct {
	Vocab, Positions, Width, Layers, Heads int
	KVHeads                                int     // heads of keys and values
	HeadDim                                int     // width of a head
	Inner                                  int     // width of the feed-forward layers
	Eps                                    float64 // of the norms
	Base                                   float64 // of the wavelengths of the rotary embedding
	Scaling                                Scaling
	AttentionBias, MLPBias                 bool
	Activation                             string
	Tied                                   bool // the logits' weights are the embedding's
}

// Scaling changes the wavelengths of a rotary embedding to reach more positions.
type Scaling struct {
	Kind      string  // "": none; "linear": all are multiplied by Factor; "llama3": the long ones are
	Factor    float64 // above 0
	Low, High float64 // of llama3: wavelengths above Original/Low are multiplied, below Original/High not, those between in part
	Original  float64 // of llama3: positions that the model was first trained with
}

// ReadLlama reads a config.json, or the one in a folder.
func ReadLlama(path string) (*Llama, error) {
	c, err := readConfig(path, "llama", "mistral")
	if err != nil {
		return nil, err
	}
	l := &Llama{
		Vocab: c.count("vocab_size", 32000), Positions: c.count("max_position_embeddings", 2048), Width: c.count("hidden_size", 4096),
		Layers: c.count("num_hidden_layers", 32), Heads: c.count("num_attention_heads", 32), Inner: c.count("intermediate_size", 11008),
		Eps: c.number("rms_norm_eps", 1e-6), Base: c.number("rope_theta", 10000), AttentionBias: c.flag("attention_bias", false),
		MLPBias: c.flag("mlp_bias", false), Activation: c.word("hidden_act", "silu", activations...), Tied: c.flag("tie_word_embeddings", false),
	}
	l.KVHeads = c.count("num_key_value_heads", l.Heads)
	if l.HeadDim = l.Width / l.Heads; c.field("head_dim") != nil {
		l.HeadDim = c.count("head_dim", 0)
	} else {
		c.heads(l.Width, l.Heads)
	}
	if l.Heads%l.KVHeads != 0 || l.HeadDim%2 != 0 {
		c.fail("%d heads of width %d with %d heads of keys: want an even width, and heads that divide into those of keys", l.Heads, l.HeadDim, l.KVHeads)
	}
	if w := c.field("sliding_window"); w != nil && c.count("sliding_window", 0) < l.Positions {
		c.fail("sliding_window is %v, which is not supported", w)
	}
	c.only("is_encoder_decoder", false)
	c.only("rope_interleaved", false)
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		l.readScaling(c, c.inner(key))
	}
	return l, c.done()
}

// readScaling reads rope_scaling, or rope_parameters, which may hold the base as well.
func (l *Llama) readScaling(c, s *config) {
	if s == nil {
		return
	}
	kind := s.word("type", "", "default", "linear", "llama3")
	kind = s.word("rope_type", kind, "default", "linear", "llama3")
	l.Base = s.number("rope_theta", l.Base)
	if kind != "default" && kind != "" {
		l.Scaling = Scaling{Kind: kind, Factor: s.number("factor", 0)}
		if l.Scaling.Factor <= 0 {
			s.fail("factor is %g, want a number above 0", l.Scaling.Factor)
		}
	}
	if kind == "llama3" {
		l.Scaling.Low, l.Scaling.High = s.number("low_freq_factor", 0), s.number("high_freq_factor", 0)
		l.Scaling.Original = s.number("original_max_position_embeddings", 0)
		if l.Scaling.Low <= 0 || l.Scaling.High <= l.Scaling.Low || l.Scaling.Original <= 0 {
			s.fail("low_freq_factor, high_freq_factor and original_max_position_embeddings are %g, %g and %g: want numbers above 0, the first below the second", l.Scaling.Low, l.Scaling.High, l.Scaling.Original)
		}
	}
	if err := s.done(); err != nil && c.err == nil {
		c.err = err
	}
}

// Hidden is the hidden state after the last norm: ids[B,T], i32 or i64, to
// [B,T,Width]. T is a number, Positions at most.
func (l *Llama) Hidden(m *ampc.Model, ids ampc.Tensor) ampc.Tensor {
	if !tokens(m, ids, l.Positions) {
		return ampc.Tensor{}
	}
	return l.hidden(m, ids, nil)
}

func (l *Llama) hidden(m *ampc.Model, ids ampc.Tensor, c *Cached) ampc.Tensor {
	b := m.Scope("model")
	x := b.EmbeddingWith(b.Scope("embed_tokens").Param("weight", small, l.Vocab, l.Width), ids)
	turn := l.rope(b, ids.Dim(1), c)
	for i := range l.Layers {
		s := b.Scope(fmt.Sprintf("layers.%d", i))
		x = s.Add(x, l.attention(s.Scope("self_attn"), rmsNorm(s, "input_layernorm", x, l.Eps), turn, c))
		h := rmsNorm(s, "post_attention_layernorm", x, l.Eps)
		gate := activation(s, l.Activation, linear(s, "mlp.gate_proj", h, l.Inner, l.MLPBias))
		h = s.Mul(gate, linear(s, "mlp.up_proj", h, l.Inner, l.MLPBias))
		x = s.Add(x, linear(s, "mlp.down_proj", h, l.Width, l.MLPBias))
	}
	return rmsNorm(b, "norm", x, l.Eps)
}

func (l *Llama) attention(m *ampc.Model, x ampc.Tensor, turn func(m *ampc.Model, x ampc.Tensor) ampc.Tensor, c *Cached) ampc.Tensor {
	part := func(name string, n int) ampc.Tensor {
		return heads(m, linear(m, name, x, n*l.HeadDim, l.AttentionBias), n, l.HeadDim)
	}
	q, k, v := turn(m, part("q_proj", l.Heads)), turn(m, part("k_proj", l.KVHeads)), part("v_proj", l.KVHeads)
	return linear(m, "o_proj", merge(m, c.Attend(m, q, k, v), l.Heads, l.HeadDim), l.Width, l.AttentionBias)
}

// Logits are those of the next token: ids[B,T] to [B,T,Vocab].
func (l *Llama) Logits(m *ampc.Model, ids ampc.Tensor) ampc.Tensor {
	return l.head(m, l.Hidden(m, ids))
}

// Next is the logits of the token that follows each of B sequences, [B,Vocab], whose
// last tokens are ids[B,T] and whose earlier ones are in caches.
func (l *Llama) Next(m *ampc.Model, ids ampc.Tensor, c Cached) ampc.Tensor {
	return l.head(m, c.Last(m, l.hidden(m, ids, &c)))
}

// Limit is the number of positions that the model has.
func (l *Llama) Limit() int { return l.Positions }

func (l *Llama) head(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
	if !l.Tied {
		return linear(m, "lm_head", x, l.Vocab, false)
	}
	return m.Named("lm_head").LinearWith(x, m.Lookup("model.embed_tokens.weight"), ampc.Tensor{}, ampc.LinearWithOptions{TransposeW: true})
}

// Weights are what weights.Load needs for the published files. Tables of the rotary
// embedding are left; a file of tied weights may hold them twice.
func (l *Llama) Weights() []weights.Option {
	o := []weights.Option{weights.Ignore("*.rotary_emb.inv_freq")}
	if l.Tied {
		o = append(o, weights.Ignore("lm_head.weight"))
	}
	return o
}

// rope turns queries and keys [B,heads,T,HeadDim] by their positions, in pairs of the
// elements i and i + HeadDim/2.
func (l *Llama) rope(m *ampc.Model, t int, c *Cached) func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
	var at ampc.Tensor
	if c != nil {
		at = c.Positions
	}
	if l.Scaling.Kind == "" {
		return func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Rope(x, ampc.RopeOptions{Base: l.Base, Positions: at})
		}
	}
	half := l.HeadDim / 2
	var angle ampc.Tensor
	if c == nil {
		angle = m.Mul(m.Iota(ampc.F32, 0, t, half), l.rates(m))
	} else {
		angle = m.Mul(m.Unsqueeze(m.Cast(at, ampc.F32), 1, 3), l.rates(m))
	}
	cos, sin := m.Cos(angle), m.Sin(angle)
	return func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		p := m.Split(x, -1, half, half)
		if m.Err() != nil {
			return ampc.Tensor{}
		}
		return m.Concat(-1, m.Sub(m.Mul(p[0], cos), m.Mul(p[1], sin)), m.Add(m.Mul(p[1], cos), m.Mul(p[0], sin)))
	}
}

// rates are the angles per position, [HeadDim/2], as Scaling changes them: Hugging
// Face's modeling_rope_utils.py, _compute_llama3_parameters for llama3.
func (l *Llama) rates(m *ampc.Model) ampc.Tensor {
	s, half := l.Scaling, l.HeadDim/2
	plain := m.Exp(m.Affine(m.Iota(ampc.F32, 0, half), -math.Log(l.Base)/float64(half), 0))
	slow := m.Affine(plain, 1/s.Factor, 0)
	if s.Kind == "linear" {
		return slow
	}
	// The share of the plain rate: 0 where a wavelength is Original/Low or longer, 1 where it is Original/High or shorter.
	share := m.Clip(m.Affine(plain, s.Original/(2*math.Pi)/(s.High-s.Low), -s.Low/(s.High-s.Low)), 0, 1)
	return m.Add(m.Mul(share, plain), m.Mul(m.Affine(share, -1, 1), slow))
}

package pretrained

import (
	"math"

	"ampc"
	"ampc/weights"
)

// Cached is how a decoder continues B sequences: with the tokens that follow those
// whose keys and values are in their caches.
type Cached struct {
	Pos       ampc.Tensor // [B], i32: how many tokens of each sequence the caches hold
	Count     ampc.Tensor // [B], i32: how many of the T new ones count, the others are padding
	Positions ampc.Tensor // [B,T], i32: Pos + 0, 1, 2, ..., those of padding are any that the model has
	Length    int         // tokens that a cache holds
	DType     ampc.DType  // of the caches
}

// Attend is attention whose keys and values are appended to caches first, named cache.k and cache.v
// in the scope of m; without caches it is attention within the window.
func (c *Cached) Attend(m *ampc.Model, q, k, v ampc.Tensor) ampc.Tensor {
	if c == nil {
		return m.ScaledDotProductAttention(q, k, v, ampc.SDPAOptions{Causal: true})
	}
	if m.Err() != nil {
		return ampc.Tensor{}
	}
	into := func(name string, x ampc.Tensor) ampc.Tensor {
		return m.CacheAppend(m.Scope("cache").Cache(name, c.DType, c.Pos.Dim(0), x.Dim(1), c.Length, x.Dim(3)), x, c.Pos, c.Count)
	}
	return m.CachedAttention(q, into("k", k), into("v", v), c.Pos, ampc.CachedAttentionOptions{Count: c.Count})
}

// Last is the row of the last token that counts: x[B,T,W] to [B,W].
func (c *Cached) Last(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
	if m.Err() != nil {
		return ampc.Tensor{}
	}
	b, w := x.Dim(0), x.Dim(2)
	at := m.Broadcast(m.Reshape(m.Clip(m.Affine(c.Count, 1, -1), 0, math.MaxInt32), b, 1, 1), b, 1, w)
	return m.Reshape(m.GatherElements(x, at, 1), b, w)
}

// Decoder is a language model of this package.
type Decoder interface {
	Next(m *ampc.Model, ids ampc.Tensor, c Cached) ampc.Tensor
	Logits(m *ampc.Model, ids ampc.Tensor) ampc.Tensor
	Limit() int
	Weights() []weights.Option
}

// ReadDecoder reads the config.json of a GPT-2 or a model of the Llama family, or the one
// in a folder.
func ReadDecoder(path string) (Decoder, error) {
	c, err := readConfig(path, "gpt2", "llama", "mistral")
	if err != nil {
		return nil, err
	}
	if c.fields["model_type"] == "gpt2" {
		return ReadGPT2(path)
	}
	return ReadLlama(path)
}

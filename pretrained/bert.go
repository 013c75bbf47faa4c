package pretrained

import (
	"fmt"

	"ampc"
	"ampc/weights"
)

// BERT is the configuration of a BERT model (Devlin et al. 2018), with the names of
// Hugging Face's BertForPreTraining: bert.embeddings.word_embeddings.weight and so on.
type BERT struct {
	Vocab, Positions, Types, Width, Layers, Heads int
	Inner                                         int     // width of the feed-forward layers
	Eps                                           float64 // of the norms
	Activation                                    string
	Dropout                                       float64 // in training, after the embedding and before each sum; the one on attention's weights is not applied
}

// BERTInput is what a BERT reads.
type BERTInput struct {
	IDs   ampc.Tensor // [B,T], i32 or i64; T is a number, Positions at most
	Types ampc.Tensor // [B,T], i32 or i64: 0 for the first text, 1 for the second; the zero Tensor: all 0
	Mask  ampc.Tensor // f32[B,T]: 1 for tokens, 0 for padding; the zero Tensor: all 1
}

// ReadBERT reads a config.json, or the one in a folder.
func ReadBERT(path string) (*BERT, error) {
	c, err := readConfig(path, "bert")
	if err != nil {
		return nil, err
	}
	b := &BERT{
		Vocab: c.count("vocab_size", 30522), Positions: c.count("max_position_embeddings", 512), Types: c.count("type_vocab_size", 2),
		Width: c.count("hidden_size", 768), Layers: c.count("num_hidden_layers", 12), Heads: c.count("num_attention_heads", 12),
		Inner: c.count("intermediate_size", 3072), Eps: c.number("layer_norm_eps", 1e-12),
		Activation: c.word("hidden_act", "gelu", activations...), Dropout: c.number("hidden_dropout_prob", 0.1),
	}
	c.word("position_embedding_type", "absolute", "absolute")
	c.only("is_decoder", false)
	c.only("add_cross_attention", false)
	c.only("is_encoder_decoder", false)
	c.only("tie_word_embeddings", true)
	c.number("chunk_size_feed_forward", 0) // the same results in less memory
	c.heads(b.Width, b.Heads)
	return b, c.done()
}

// Hidden is the hidden state after the last layer: [B,T,Width].
func (b *BERT) Hidden(m *ampc.Model, in BERTInput) ampc.Tensor {
	if !tokens(m, in.IDs, b.Positions) {
		return ampc.Tensor{}
	}
	e := m.Scope("bert.embeddings")
	kinds := e.Scope("token_type_embeddings").Param("weight", small, b.Types, b.Width)
	x := e.EmbeddingWith(e.Scope("word_embeddings").Param("weight", small, b.Vocab, b.Width), in.IDs)
	x = e.Add(x, positions(e, e.Scope("position_embeddings").Param("weight", small, b.Positions, b.Width), in.IDs))
	if in.Types.IR() != nil {
		x = e.Add(x, e.EmbeddingWith(kinds, in.Types))
	} else {
		x = e.Add(x, e.Slice(kinds, []int{0}, []int{0}, []int{1}))
	}
	x = e.Dropout("drop", layerNorm(e, "LayerNorm", x, b.Eps), b.Dropout)
	var mask ampc.Tensor
	if in.Mask.IR() != nil { // 0 for tokens, and so low for padding that its weight becomes 0
		mask = m.Unsqueeze(m.Mul(m.Sub(in.Mask, m.Scalar(ampc.F32, 1)), m.Scalar(ampc.F32, 1e9)), 1, 2)
	}
	for i := range b.Layers {
		x = b.layer(m.Scope(fmt.Sprintf("bert.encoder.layer.%d", i)), x, mask)
	}
	return x
}

func (b *BERT) layer(m *ampc.Model, x, mask ampc.Tensor) ampc.Tensor {
	s, w := m.Scope("attention.self"), 0
	if b.Heads > 0 {
		w = b.Width / b.Heads
	}
	part := func(name string) ampc.Tensor { return heads(s, linear(s, name, x, b.Width, true), b.Heads, w) }
	y := s.ScaledDotProductAttention(part("query"), part("key"), part("value"), ampc.SDPAOptions{Mask: mask})
	y = linear(m, "attention.output.dense", merge(s, y, b.Heads, w), b.Width, true)
	x = layerNorm(m, "attention.output.LayerNorm", m.Add(x, m.Dropout("drop1", y, b.Dropout)), b.Eps)
	y = activation(m, b.Activation, linear(m, "intermediate.dense", x, b.Inner, true))
	y = linear(m, "output.dense", y, b.Width, true)
	return layerNorm(m, "output.LayerNorm", m.Add(x, m.Dropout("drop2", y, b.Dropout)), b.Eps)
}

// Pooled is the state of the first token through the pooler: [B,Width].
func (b *BERT) Pooled(m *ampc.Model, in BERTInput) ampc.Tensor {
	x := m.Squeeze(m.Slice(b.Hidden(m, in), []int{1}, []int{0}, []int{1}), 1)
	return m.Tanh(linear(m, "bert.pooler.dense", x, b.Width, true))
}

// Classify are the logits of a sequence's class: [B,classes], by a head classifier as
// that of BertForSequenceClassification.
func (b *BERT) Classify(m *ampc.Model, in BERTInput, classes int) ampc.Tensor {
	return linear(m, "classifier", m.Dropout("drop", b.Pooled(m, in), b.Dropout), classes, true)
}

// Predict are the logits of masked tokens: [B,T,Vocab].
func (b *BERT) Predict(m *ampc.Model, in BERTInput) ampc.Tensor {
	x, p := b.Hidden(m, in), m.Scope("cls.predictions")
	x = layerNorm(p, "transform.LayerNorm", activation(p, b.Activation, linear(p, "transform.dense", x, b.Width, true)), b.Eps)
	return m.Named("logits").LinearWith(x, m.Lookup("bert.embeddings.word_embeddings.weight"), p.Param("bias", ampc.Zeros(), b.Vocab), ampc.LinearWithOptions{TransposeW: true})
}

// Weights are what weights.Load needs for the published files, those with gamma and
// beta for the norms' weight and bias and those of BertModel without prefix included.
// Heads that the model does not have are left, and a classifier that the file does not
// have keeps its initial values.
func (b *BERT) Weights() []weights.Option {
	return []weights.Option{
		weights.Rename("*LayerNorm.gamma", "*LayerNorm.weight"), weights.Rename("*LayerNorm.beta", "*LayerNorm.bias"),
		weights.Rename("*LayerNorm.gamma", "bert.*LayerNorm.weight"), weights.Rename("*LayerNorm.beta", "bert.*LayerNorm.bias"),
		weights.Rename("*", "bert.*"),
		weights.Ignore("cls", "*.position_ids", "*pooler.dense", "classifier"), weights.Fresh("classifier"),
	}
}

package onnxmodel

import (
	"fmt"
	"math"
)

// Transformer says how large a transformer is.
type Transformer struct {
	Layers, Heads, Width, Vocabulary, Positions int64
}

// GPT2Small and BERTBase are the sizes of the published models.
var (
	GPT2Small = Transformer{12, 12, 768, 50257, 1024}
	BERTBase  = Transformer{12, 12, 768, 30522, 512}
)

// net adds layers as exporters write them.
type net struct {
	*Graph
	t Transformer
}

func (n *net) weight(name string, dims ...int64) string { return n.Weight(name, 0, 0.02, dims...) }

// norm is a layer norm written out, as before opset 17.
func (n *net) norm(name, x string) string {
	w := n.Weight(name+".weight", 1, 0.02, n.t.Width)
	b := n.weight(name+".bias", n.t.Width)
	mean := n.Op("ReduceMean", []string{x}, Ints("axes", -1))
	d := n.Op("Sub", []string{x, mean})
	square := n.Op("Pow", []string{d, n.Number(2)})
	variance := n.Op("ReduceMean", []string{square}, Ints("axes", -1))
	std := n.Op("Sqrt", []string{n.Op("Add", []string{variance, n.Number(1e-5)})})
	return n.Op("Add", []string{n.Op("Mul", []string{n.Op("Div", []string{d, std}), w}), b})
}

// size is one dimension of a value, as a list of one.
func (n *net) size(x string, axis int64) string {
	one := n.Op("Gather", []string{n.Op("Shape", []string{x}), n.Const(nil, axis)}, Int("axis", 0))
	return n.Op("Unsqueeze", []string{one, n.List(0)})
}

// reshape joins sizes, of which the last are constants.
func (n *net) reshape(x string, open []string, last ...int64) string {
	parts := open
	for _, k := range last {
		parts = append(parts, n.List(k))
	}
	return n.Op("Reshape", []string{x, n.Op("Concat", parts, Int("axis", 0))})
}

// conv1D is Hugging Face's layer of that name: a Gemm of rows between reshapes.
func (n *net) conv1D(name, x string, in, out int64) string {
	rows := n.Op("Reshape", []string{x, n.List(-1, in)})
	y := n.Op("Gemm", []string{rows, n.weight(name+".weight", in, out), n.weight(name+".bias", out)})
	return n.reshape(y, []string{n.size(x, 0), n.size(x, 1)}, out)
}

// linear is a MatMul with a bias.
func (n *net) linear(name, x string, in, out int64) string {
	return n.Op("Add", []string{n.weight(name+".bias", out), n.Op("MatMul", []string{x, n.weight(name+".weight", in, out)})})
}

// heads splits the last axis: [batch, length, width] becomes [batch, heads, length, width/heads].
func (n *net) heads(x string, perm ...int64) string {
	y := n.reshape(x, []string{n.size(x, 0), n.size(x, 1)}, n.t.Heads, n.t.Width/n.t.Heads)
	return n.Op("Transpose", []string{y}, Ints("perm", perm...))
}

// join is the way back.
func (n *net) join(x string) string {
	y := n.Op("Transpose", []string{x}, Ints("perm", 0, 2, 1, 3))
	return n.reshape(y, []string{n.size(y, 0), n.size(y, 1)}, n.t.Width)
}

// geluTanh is GPT-2's.
func (n *net) geluTanh(x string) string {
	cube := n.Op("Pow", []string{x, n.Number(3)})
	inner := n.Op("Add", []string{x, n.Op("Mul", []string{cube, n.Number(0.044715)})})
	th := n.Op("Tanh", []string{n.Op("Mul", []string{inner, n.Number(float32(math.Sqrt(2 / math.Pi)))})})
	half := n.Op("Mul", []string{x, n.Number(0.5)})
	return n.Op("Mul", []string{half, n.Op("Add", []string{th, n.Number(1)})})
}

// gelu is BERT's and Whisper's.
func (n *net) gelu(x string) string {
	e := n.Op("Erf", []string{n.Op("Div", []string{x, n.Number(math.Sqrt2)})})
	return n.Op("Mul", []string{n.Op("Mul", []string{x, n.Op("Add", []string{e, n.Number(1)})}), n.Number(0.5)})
}

// padding turns a mask of ones and zeros [batch, keys] into what is added to scores.
func (n *net) padding(mask string) string {
	wide := n.Op("Cast", []string{n.Op("Unsqueeze", []string{n.Op("Unsqueeze", []string{mask, n.List(1)}), n.List(2)})}, Int("to", F32))
	return n.Op("Mul", []string{n.Op("Sub", []string{n.Number(1), wide}), n.Number(-math.MaxFloat32)})
}

// GPT2 is GPT-2 with past keys and values, as Hugging Face's models are exported at
// opset 13: inputs input_ids [batch, sequence], attention_mask [batch, total] and
// past_key_values.I.key and .value [batch, heads, past, width/heads], outputs logits
// and present.I.key and .value.
func GPT2(t Transformer) *Graph {
	n := &net{New("gpt2", 13), t}
	ids := n.Input("input_ids", I64, "batch", "sequence")
	mask := n.Input("attention_mask", I64, "batch", "total")
	wide := int(t.Width / t.Heads)
	for i := range t.Layers {
		for _, kind := range []string{"key", "value"} {
			n.Input(fmt.Sprintf("past_key_values.%d.%s", i, kind), F32, "batch", int(t.Heads), "past", wide)
		}
	}
	past := n.size("past_key_values.0.key", 2)
	total := n.Op("Add", []string{past, n.size(ids, 1)})
	scalar := func(x string) string { return n.Op("Squeeze", []string{x, n.List(0)}) }
	positions := n.Op("Unsqueeze", []string{n.Op("Range", []string{scalar(past), scalar(total), n.Const(nil, 1)}), n.List(0)})
	table := n.weight("transformer.wte.weight", t.Vocabulary, t.Width)
	x := n.Op("Add", []string{n.Op("Gather", []string{table, ids}), n.Op("Gather", []string{n.weight("transformer.wpe.weight", t.Positions, t.Width), positions})})
	added := n.padding(mask)
	for i := range t.Layers {
		x = n.gptBlock(fmt.Sprintf("transformer.h.%d", i), i, x, added)
	}
	x = n.norm("transformer.ln_f", x)
	n.Node("MatMul", []string{x, n.Op("Transpose", []string{table}, Ints("perm", 1, 0))}, []string{"logits"})
	n.Output("logits", F32, "batch", "sequence", int(t.Vocabulary))
	for i := range t.Layers {
		for _, kind := range []string{"key", "value"} {
			n.Output(fmt.Sprintf("present.%d.%s", i, kind), F32, "batch", int(t.Heads), "total", wide)
		}
	}
	return n.Graph
}

func (n *net) gptBlock(name string, i int64, x, added string) string {
	qkv := n.conv1D(name+".attn.c_attn", n.norm(name+".ln_1", x), n.t.Width, 3*n.t.Width)
	parts := n.Ops("Split", 3, []string{qkv, n.List(n.t.Width, n.t.Width, n.t.Width)}, Int("axis", 2))
	q, k, v := n.heads(parts[0], 0, 2, 1, 3), n.heads(parts[1], 0, 2, 1, 3), n.heads(parts[2], 0, 2, 1, 3)
	key, value := fmt.Sprintf("present.%d.key", i), fmt.Sprintf("present.%d.value", i)
	n.Node("Concat", []string{fmt.Sprintf("past_key_values.%d.key", i), k}, []string{key}, Int("axis", -2))
	n.Node("Concat", []string{fmt.Sprintf("past_key_values.%d.value", i), v}, []string{value}, Int("axis", -2))
	scores := n.Op("MatMul", []string{q, n.Op("Transpose", []string{key}, Ints("perm", 0, 1, 3, 2))})
	scores = n.Op("Div", []string{scores, n.Number(float32(math.Sqrt(float64(n.t.Width / n.t.Heads))))})
	queries, keys := n.size(q, 2), n.size(key, 2)
	rows := n.Op("Slice", []string{n.Triangle(name+".attn.bias", n.t.Positions), n.Op("Sub", []string{keys, queries}), keys, n.List(2)})
	seen := n.Op("Slice", []string{rows, n.List(0), keys, n.List(3)})
	scores = n.Op("Add", []string{n.Op("Where", []string{seen, scores, n.Number(-math.MaxFloat32)}), added})
	y := n.join(n.Op("MatMul", []string{n.Op("Softmax", []string{scores}, Int("axis", -1)), value}))
	x = n.Op("Add", []string{n.conv1D(name+".attn.c_proj", y, n.t.Width, n.t.Width), x})
	h := n.geluTanh(n.conv1D(name+".mlp.c_fc", n.norm(name+".ln_2", x), n.t.Width, 4*n.t.Width))
	return n.Op("Add", []string{x, n.conv1D(name+".mlp.c_proj", h, 4*n.t.Width, n.t.Width)})
}

// BERT is BERT's encoder as Hugging Face's models are exported at opset 13: inputs
// input_ids, attention_mask and token_type_ids [batch, sequence], output
// last_hidden_state [batch, sequence, width].
func BERT(t Transformer) *Graph {
	n := &net{New("bert", 13), t}
	ids, mask := n.Input("input_ids", I64, "batch", "sequence"), n.Input("attention_mask", I64, "batch", "sequence")
	kinds := n.Input("token_type_ids", I64, "batch", "sequence")
	positions := n.Op("Slice", []string{n.Const([]int64{1, t.Positions}, count(t.Positions)...), n.List(0), n.size(ids, 1), n.List(1)})
	x := n.Op("Add", []string{n.Op("Gather", []string{n.weight("embeddings.word", t.Vocabulary, t.Width), ids}), n.Op("Gather", []string{n.weight("embeddings.type", 2, t.Width), kinds})})
	x = n.Op("Add", []string{x, n.Op("Gather", []string{n.weight("embeddings.position", t.Positions, t.Width), positions})})
	x = n.norm("embeddings.norm", x)
	added := n.padding(mask)
	for i := range t.Layers {
		name := fmt.Sprintf("encoder.layer.%d", i)
		y := n.attend(name+".attention", x, added)
		x = n.norm(name+".attention.norm", n.Op("Add", []string{y, x}))
		h := n.gelu(n.linear(name+".intermediate", x, t.Width, 4*t.Width))
		x = n.norm(name+".output.norm", n.Op("Add", []string{n.linear(name+".output", h, 4*t.Width, t.Width), x}))
	}
	n.Node("Identity", []string{x}, []string{"last_hidden_state"})
	n.Output("last_hidden_state", F32, "batch", "sequence", int(t.Width))
	return n.Graph
}

// attend is self attention by three products; added may be "".
func (n *net) attend(name, x, added string) string {
	w := n.t.Width
	q, k := n.heads(n.linear(name+".query", x, w, w), 0, 2, 1, 3), n.heads(n.linear(name+".key", x, w, w), 0, 2, 3, 1)
	v := n.heads(n.linear(name+".value", x, w, w), 0, 2, 1, 3)
	scores := n.Op("Div", []string{n.Op("MatMul", []string{q, k}), n.Number(float32(math.Sqrt(float64(w / n.t.Heads))))})
	if added != "" {
		scores = n.Op("Add", []string{scores, added})
	}
	return n.linear(name+".output", n.join(n.Op("MatMul", []string{n.Op("Softmax", []string{scores}, Int("axis", -1)), v})), w, w)
}

func count(n int64) []int64 {
	x := make([]int64, n)
	for i := range x {
		x[i] = int64(i)
	}
	return x
}

// Whisper is the encoder of Whisper at opset 13: input input_features [batch, 80,
// 2·frames], output last_hidden_state [batch, frames, width].
func Whisper(t Transformer, frames int64) *Graph {
	n := &net{New("whisper", 13), t}
	x := n.Input("input_features", F32, "batch", 80, int(2*frames))
	conv := func(name, x string, in, stride int64) string {
		return n.gelu(n.Op("Conv", []string{x, n.weight(name+".weight", t.Width, in, 3), n.weight(name+".bias", t.Width)}, Ints("kernel_shape", 3), Ints("pads", 1, 1), Ints("strides", stride)))
	}
	x = conv("conv2", conv("conv1", x, 80, 1), t.Width, 2)
	x = n.Op("Add", []string{n.Op("Transpose", []string{x}, Ints("perm", 0, 2, 1)), n.weight("embed_positions", frames, t.Width)})
	for i := range t.Layers {
		name := fmt.Sprintf("layers.%d", i)
		x = n.Op("Add", []string{x, n.attend(name+".self_attn", n.norm(name+".norm1", x), "")})
		h := n.gelu(n.linear(name+".fc1", n.norm(name+".norm2", x), t.Width, 4*t.Width))
		x = n.Op("Add", []string{x, n.linear(name+".fc2", h, 4*t.Width, t.Width)})
	}
	n.Node("Identity", []string{n.norm("norm", x)}, []string{"last_hidden_state"})
	n.Output("last_hidden_state", F32, "batch", int(frames), int(t.Width))
	return n.Graph
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/safetensors"
	"ampc/internal/trial"
	"ampc/ir"
	"ampc/pretrained"
)

// published is an architecture in small, with a config.json.
type published struct {
	name, kind, config string
	build              func(m *ampc.Model, path string) (ampc.Tensor, error)
	feed               ampc.Feed
}

const (
	gpt2Small  = `{"model_type":"gpt2","vocab_size":97,"n_positions":32,"n_embd":48,"n_layer":3,"n_head":4,"activation_function":"gelu_new","layer_norm_epsilon":1e-5}`
	gpt2Untied = `{"model_type":"gpt2","vocab_size":61,"n_positions":24,"n_embd":32,"n_layer":2,"n_head":4,"n_inner":80,"activation_function":"gelu","layer_norm_epsilon":1e-6,"tie_word_embeddings":false}`
	bertSmall  = `{"model_type":"bert","vocab_size":97,"max_position_embeddings":32,"type_vocab_size":2,"hidden_size":48,"num_hidden_layers":3,"num_attention_heads":4,"intermediate_size":96,"hidden_act":"gelu","layer_norm_eps":1e-12}`
	llamaPlain = `{"model_type":"llama","vocab_size":97,"max_position_embeddings":64,"hidden_size":48,"num_hidden_layers":3,"num_attention_heads":6,"num_key_value_heads":2,"head_dim":8,"intermediate_size":96,"hidden_act":"silu","rms_norm_eps":1e-5,"rope_theta":10000.0}`
	llama3     = `{"model_type":"llama","vocab_size":97,"max_position_embeddings":64,"hidden_size":40,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"intermediate_size":96,"hidden_act":"silu","rms_norm_eps":1e-6,"rope_theta":500000.0,"attention_bias":true,"mlp_bias":true,"tie_word_embeddings":true,"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":128,"rope_type":"llama3"}}`
	llamaLong  = `{"model_type":"llama","vocab_size":61,"max_position_embeddings":64,"hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,"head_dim":8,"intermediate_size":64,"hidden_act":"silu","rms_norm_eps":1e-6,"rope_theta":10000.0,"rope_scaling":{"rope_type":"linear","factor":4.0}}`
)

func architectures() []published {
	const batch, length = 2, 24
	r := rand.New(rand.NewPCG(3, 4))
	ids := make([]int32, batch*length)
	types, mask := make([]int32, len(ids)), make([]float32, len(ids))
	for i := range ids {
		ids[i] = int32(r.IntN(61))
		if i%length > 9 {
			types[i] = 1
		}
		if i < length || i%length < 17 { // the second text is shorter
			mask[i] = 1
		}
	}
	image := make([]float32, 2*3*64*64)
	for i := range image {
		image[i] = float32(r.NormFloat64())
	}
	text := func(m *ampc.Model) ampc.Tensor { return m.Input("ids", ampc.I32, batch, length) }
	gpt := func(m *ampc.Model, path string) (ampc.Tensor, error) {
		c, err := pretrained.ReadGPT2(path)
		if err != nil {
			return ampc.Tensor{}, err
		}
		return c.Logits(m, text(m)), nil
	}
	llama := func(m *ampc.Model, path string) (ampc.Tensor, error) {
		c, err := pretrained.ReadLlama(path)
		if err != nil {
			return ampc.Tensor{}, err
		}
		return c.Logits(m, text(m)), nil
	}
	bert := func(head func(c *pretrained.BERT, m *ampc.Model, in pretrained.BERTInput) ampc.Tensor) func(m *ampc.Model, path string) (ampc.Tensor, error) {
		return func(m *ampc.Model, path string) (ampc.Tensor, error) {
			c, err := pretrained.ReadBERT(path)
			if err != nil {
				return ampc.Tensor{}, err
			}
			in := pretrained.BERTInput{IDs: text(m), Types: m.Input("types", ampc.I32, batch, length), Mask: m.Input("mask", ampc.F32, batch, length)}
			return head(c, m, in), nil
		}
	}
	resnet := func(depth int) func(m *ampc.Model, path string) (ampc.Tensor, error) {
		return func(m *ampc.Model, _ string) (ampc.Tensor, error) {
			return pretrained.ResNet{Depth: depth, Classes: 10}.Logits(m, m.Input("x", ampc.F32, 2, 3, 64, 64)), nil
		}
	}
	words, all, pixels := ampc.Feed{"ids": ids}, ampc.Feed{"ids": ids, "types": types, "mask": mask}, ampc.Feed{"x": image}
	return []published{
		{"gpt2", "gpt2", gpt2Small, gpt, words},
		{"gpt2 untied", "gpt2", gpt2Untied, gpt, words},
		{"bert classify", "bert", bertSmall, bert(func(c *pretrained.BERT, m *ampc.Model, in pretrained.BERTInput) ampc.Tensor {
			return c.Classify(m, in, 5)
		}), all},
		{"bert predict", "bert", bertSmall, bert((*pretrained.BERT).Predict), all},
		{"llama", "llama", llamaPlain, llama, words},
		{"llama 3, tied, biases", "llama", llama3, llama, words},
		{"llama linear", "llama", llamaLong, llama, words},
		{"resnet18", "resnet", "{}", resnet(18), pixels},
		{"resnet50", "resnet", "{}", resnet(50), pixels},
	}
}

// randomize gives every variable values that matter, by its shape and name.
func randomize(t *testing.T, m *ampc.Model) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for _, v := range m.Graph().Vars {
		if v.Kind != ir.Param && v.Kind != ir.State || v.Attr.Get("role") != nil {
			continue
		}
		dims, n := v.Type.Shape.Dims(), v.Type.Shape.Elements()
		fan := 1.0
		for _, d := range dims[1:] {
			fan *= float64(d)
		}
		x := make([]float32, n)
		for i := range x {
			g := r.NormFloat64()
			switch {
			case strings.HasSuffix(v.Name, "running_var"):
				g = 0.5 + math.Abs(g)
			case len(dims) == 1 && strings.HasSuffix(v.Name, "weight"):
				g = 1 + 0.2*g
			case len(dims) == 1:
				g *= 0.2
			default:
				g *= 1.2 / math.Sqrt(fan)
			}
			x[i] = float32(g)
		}
		if err := m.SetVariable(v.Name, x); err != nil {
			t.Fatal(err)
		}
	}
}

// run builds a under a policy, with the same random weights each time.
func (a published) run(t *testing.T, policy ampc.Policy) (*ampc.Model, []float32) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	trial.WriteFile(t, path, a.config)
	m := ampc.New("published")
	t.Cleanup(func() { m.Close() })
	out, err := a.build(m, path)
	if err != nil {
		t.Fatal(err)
	}
	step, err := m.Infer(ampc.InferConfig{Policy: policy}, out)
	if err != nil {
		t.Fatal(err)
	}
	randomize(t, m)
	y, err := trial.Run(t, step, a.feed).Value(out)
	if err != nil {
		t.Fatal(err)
	}
	return m, y.Floats()
}

// distance is max|a−b| / max|b|.
func distance(a, b []float32) float64 {
	d, top := 0.0, 0.0
	for i := range b {
		d, top = max(d, math.Abs(float64(a[i]-b[i]))), max(top, math.Abs(float64(b[i])))
	}
	return d / top
}

// The published architectures compute what code in PyTorch computes with the same
// random weights: in f32 within 1e-5 of the largest result.
func TestPretrainedFollowsPyTorch(t *testing.T) {
	program := os.Getenv("AMPC_PYTHON")
	if program == "" {
		t.Skip("PyTorch's side was not run: AMPC_PYTHON names no Python with PyTorch 2.6")
	}
	all := architectures()
	meta := map[string]string{"models": fmt.Sprint(len(all))}
	var tensors []safetensors.Tensor
	var got, want [][]float32
	for i, a := range all {
		m, y := a.run(t, ampc.Policy{})
		got = append(got, y)
		meta[fmt.Sprintf("%d/kind", i)], meta[fmt.Sprintf("%d/config", i)] = a.kind, a.config
		tensors = append(tensors, a.tensors(t, m, fmt.Sprintf("%d/", i))...)
	}
	path := filepath.Join(t.TempDir(), "models.safetensors")
	if err := safetensors.WriteFile(path, meta, tensors); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "torch/pretrained.py", path).Output()
	if err != nil {
		t.Fatalf("%s torch/pretrained.py: %v\n%s", program, err, out)
	}
	out = bytes.TrimSpace(out)
	if err := json.Unmarshal(out[bytes.LastIndexByte(out, '\n')+1:], &want); err != nil || len(want) != len(all) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, a := range all {
		if len(got[i]) != len(want[i]) {
			t.Errorf("%s: %d results, PyTorch has %d", a.name, len(got[i]), len(want[i]))
			continue
		}
		d := distance(got[i], want[i])
		if t.Logf("%s: %.2g apart", a.name, d); !(d <= 1e-5) {
			t.Errorf("%s: %g apart from PyTorch, want 1e-5", a.name, d)
		}
	}
}

// tensors are the inputs and the weights as bench/torch/pretrained.py reads them.
func (a published) tensors(t *testing.T, m *ampc.Model, prefix string) []safetensors.Tensor {
	t.Helper()
	var out []safetensors.Tensor
	for _, v := range m.Graph().Vars {
		if fed, ok := a.feed[v.Name]; ok && v.Kind == ir.Input {
			h, err := ampc.NewHostTensor(ampc.TypeFromIR(v.Type), fed)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, tensor(prefix+"in."+v.Name, v.Type, h.Bytes))
		}
		if v.Kind != ir.Param && v.Kind != ir.State || v.Attr.Get("role") != nil {
			continue
		}
		h, err := m.Variable(v.Name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tensor(prefix+v.Name, v.Type, h.Bytes))
	}
	return out
}

// In 16 bits the architectures stay as near to f32 as so many layers of 16 bits do.
func TestPretrainedIn16Bits(t *testing.T) {
	for _, a := range architectures() {
		if a.name == "resnet50" || testing.Short() && a.kind != "gpt2" {
			continue // long, and of the same blocks as the others
		}
		_, want := a.run(t, ampc.Policy{})
		for bound, policy := range map[float64]ampc.Policy{1e-2: ampc.MixedF16(), 8e-2: ampc.MixedBF16()} {
			_, got := a.run(t, policy)
			if d := distance(got, want); !(d <= bound) || d == 0 {
				t.Errorf("%s: %s is %g apart from f32, want %g", a.name, policy.Name, d, bound)
			} else {
				t.Logf("%s: %s is %.2g apart from f32", a.name, policy.Name, d)
			}
		}
	}
}

package pretrained_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/trial"
	"ampc/ir"
	"ampc/pretrained"
	"ampc/weights"
)

// The config.json of the checkpoints in testdata/manifests.txt, as published.
const (
	gpt2 = `{"activation_function":"gelu_new","architectures":["GPT2LMHeadModel"],"attn_pdrop":0.1,"bos_token_id":50256,"embd_pdrop":0.1,"eos_token_id":50256,"initializer_range":0.02,"layer_norm_epsilon":1e-05,"model_type":"gpt2","n_ctx":1024,"n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024,"resid_pdrop":0.1,"summary_activation":null,"summary_first_dropout":0.1,"summary_proj_to_labels":true,"summary_type":"cls_index","summary_use_proj":true,"task_specific_params":{"text-generation":{"do_sample":true,"max_length":50}},"vocab_size":50257}`

	bertBase = `{"architectures":["BertForMaskedLM"],"attention_probs_dropout_prob":0.1,"gradient_checkpointing":false,"hidden_act":"gelu","hidden_dropout_prob":0.1,"hidden_size":768,"initializer_range":0.02,"intermediate_size":3072,"layer_norm_eps":1e-12,"max_position_embeddings":512,"model_type":"bert","num_attention_heads":12,"num_hidden_layers":12,"pad_token_id":0,"position_embedding_type":"absolute","transformers_version":"4.6.0.dev0","type_vocab_size":2,"use_cache":true,"vocab_size":30522}`

	llama32 = `{"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":128000,"eos_token_id":128001,"head_dim":128,"hidden_act":"silu","hidden_size":3072,"initializer_range":0.02,"intermediate_size":8192,"max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama","num_attention_heads":24,"num_hidden_layers":28,"num_key_value_heads":8,"pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,"tie_word_embeddings":true,"torch_dtype":"bfloat16","transformers_version":"4.45.0.dev0","use_cache":true,"vocab_size":128256}`
)

func config(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	trial.WriteFile(t, filepath.Join(dir, "config.json"), text)
	return dir
}

// built are the graphs for the checkpoints of the manifest. Nothing is compiled.
func built(t *testing.T) map[string]*ampc.Model {
	t.Helper()
	out := map[string]*ampc.Model{}
	add := func(name string, build func(m *ampc.Model, ids ampc.Tensor) ampc.Tensor, err error) {
		if err != nil {
			t.Fatal(err)
		}
		m := ampc.New("manifest")
		build(m, m.Input("ids", ampc.I32, 1, 8))
		if m.Err() != nil {
			t.Fatal(m.Err())
		}
		out[name] = m
	}
	g, err := pretrained.ReadGPT2(config(t, gpt2))
	add("openai-community/gpt2", g.Logits, err)
	b, err := pretrained.ReadBERT(config(t, bertBase))
	add("google-bert/bert-base-uncased", func(m *ampc.Model, ids ampc.Tensor) ampc.Tensor {
		return b.Pooled(m, pretrained.BERTInput{IDs: ids})
	}, err)
	l, err := pretrained.ReadLlama(config(t, llama32))
	add("meta-llama/Llama-3.2-3B", l.Logits, err)
	for _, depth := range []int{18, 50} {
		add(fmt.Sprintf("resnet%d", depth), func(m *ampc.Model, _ ampc.Tensor) ampc.Tensor {
			return pretrained.ResNet{Depth: depth}.Logits(m, m.Input("x", ampc.F32, 1, 3, 224, 224))
		}, nil)
	}
	return out
}

// Names and shapes are those of published checkpoints, no more and no less.
func TestManifests(t *testing.T) {
	models := built(t)
	for name, want := range manifests(t) {
		m := models[name]
		if m == nil {
			t.Errorf("%s: no model is built for it", name)
			continue
		}
		delete(models, name)
		elements, got := int64(0), map[string]string{}
		for _, v := range m.Graph().Vars {
			if v.Kind == ir.Param || v.Kind == ir.State && v.Attr.Get("role") == nil {
				got[v.Name] = strings.Trim(fmt.Sprint(v.Type.Shape.Dims()), "[]")
			}
			if v.Kind == ir.Param {
				elements += v.Type.Shape.Elements()
			}
		}
		if elements != want.elements {
			t.Errorf("%s: %d elements of parameters, published %d", name, elements, want.elements)
		}
		for _, v := range slices.Sorted(maps.Keys(got)) {
			if got[v] != want.shapes[v] {
				t.Errorf("%s: %s is [%s], published [%s]", name, v, got[v], want.shapes[v])
			}
			delete(want.shapes, v)
		}
		for v, shape := range want.shapes {
			t.Errorf("%s: %s [%s] is missing", name, v, shape)
		}
	}
	for name := range models {
		t.Errorf("%s is not in the manifest", name)
	}
}

type manifest struct {
	elements int64
	shapes   map[string]string
}

func manifests(t *testing.T) map[string]*manifest {
	t.Helper()
	text, err := os.ReadFile("testdata/manifests.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*manifest{}
	var last *manifest
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "" || word == "#":
		case word == "checkpoint":
			last = &manifest{shapes: map[string]string{}}
			out[rest] = last
		case word == "elements":
			last.elements, err = strconv.ParseInt(rest, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
		default:
			for _, name := range expand(word) {
				last.shapes[name] = rest
			}
		}
	}
	return out
}

var braces = regexp.MustCompile(`\{([^}]*)\}`)

// expand lists what a name with {a..b} and {x,y} stands for.
func expand(name string) []string {
	at := braces.FindStringSubmatchIndex(name)
	if at == nil {
		return []string{name}
	}
	words := strings.Split(name[at[2]:at[3]], ",")
	if from, to, ok := strings.Cut(words[0], ".."); ok {
		a, _ := strconv.Atoi(from)
		b, _ := strconv.Atoi(to)
		words = nil
		for i := a; i <= b; i++ {
			words = append(words, fmt.Sprint(i))
		}
	}
	var out []string
	for _, w := range words {
		out = append(out, expand(name[:at[0]]+w+name[at[1]:])...)
	}
	return out
}

// What would change results and is not built here is refused, and so is what is unknown.
func TestConfigurationIsRefused(t *testing.T) {
	read := map[string]func(path string) error{
		gpt2:     func(path string) error { _, err := pretrained.ReadGPT2(path); return err },
		bertBase: func(path string) error { _, err := pretrained.ReadBERT(path); return err },
		llama32:  func(path string) error { _, err := pretrained.ReadLlama(path); return err },
	}
	for _, c := range []struct{ config, old, new, want string }{
		{gpt2, `"gelu_new"`, `"gelu_fast"`, "activation_function is gelu_fast, which is not supported"},
		{gpt2, `"n_ctx":1024`, `"scale_attn_by_inverse_layer_idx":true`, "scale_attn_by_inverse_layer_idx is true, which is not supported"},
		{gpt2, `"n_ctx":1024`, `"scale_attn_weights":false`, "scale_attn_weights is false"},
		{gpt2, `"n_ctx":1024`, `"n_future":3`, "n_future is not known and may change results"},
		{gpt2, `"n_head":12`, `"n_head":11`, "width 768 does not divide into 11 heads"},
		{gpt2, `"n_layer":12`, `"n_layer":1.5`, "n_layer is 1.5, want a number of 1 or more"},
		{gpt2, `"model_type":"gpt2"`, `"model_type":"gptj"`, `model_type is "gptj", want gpt2`},
		{gpt2, `"embd_pdrop":0.1`, `"embd_pdrop":0.2`, "embd_pdrop is 0.2 and resid_pdrop 0.1"},
		{bertBase, `"absolute"`, `"relative_key"`, "position_embedding_type is relative_key"},
		{bertBase, `"use_cache":true`, `"is_decoder":true`, "is_decoder is true"},
		{llama32, `"llama3"`, `"yarn"`, "rope_scaling: rope_type is yarn, which is not supported: want default or linear or llama3"},
		{llama32, `"factor":32.0,`, ``, "rope_scaling: factor is 0, want a number above 0"},
		{llama32, `"factor":32.0`, `"factor":32.0,"beta_fast":32`, "rope_scaling: beta_fast is not known"},
		{llama32, `"pretraining_tp":1`, `"sliding_window":4096`, "sliding_window is 4096, which is not supported"},
		{llama32, `"num_key_value_heads":8`, `"num_key_value_heads":7`, "heads that divide"},
		{llama32, `"hidden_act":"silu"`, `"hidden_act":["silu"]`, "hidden_act is [silu], which is not supported"},
	} {
		if !strings.Contains(c.config, c.old) {
			t.Fatalf("%s is not in the configuration", c.old)
		}
		err := read[c.config](config(t, strings.Replace(c.config, c.old, c.new, 1)))
		trial.WantError(t, err, "config.json: ", c.want)
	}
	trial.WantError(t, read[gpt2](config(t, "[]")), "not a JSON object")
	trial.WantError(t, read[gpt2](t.TempDir()), "config.json: no such file")
}

// A text longer than the positions, and one of a length that is not known, are mistakes
// of the model.
func TestLengthsAreChecked(t *testing.T) {
	g, err := pretrained.ReadGPT2(config(t, gpt2))
	if err != nil {
		t.Fatal(err)
	}
	for _, length := range []any{1025, ampc.Dim("T")} {
		m := ampc.New("long")
		_, err := m.Infer(ampc.InferConfig{}, g.Logits(m, m.Input("ids", ampc.I32, 1, length)))
		trial.WantError(t, err, "pretrained_test.go:", "want a length that is a number of 1024 at most")
	}
	m := ampc.New("depth")
	_, err = m.Infer(ampc.InferConfig{}, pretrained.ResNet{Depth: 19}.Logits(m, m.Input("x", ampc.F32, 1, 3, 8, 8)))
	trial.WantError(t, err, "depth 19: want 18, 34, 50, 101 or 152")
}

// The published names load: gamma and beta of old files, with and without the prefix,
// masks, tied weights that are there twice, other heads.
func TestPublishedNamesLoad(t *testing.T) {
	small := strings.NewReplacer("30522", "11", "3072", "8", "768", "4", `"num_attention_heads":12`, `"num_attention_heads":2`, `"num_hidden_layers":12`, `"num_hidden_layers":1`, "512", "6", "50257", "11", `"n_layer":12`, `"n_layer":1`, `"n_head":12`, `"n_head":2`, "1024", "6")
	b, err := pretrained.ReadBERT(config(t, small.Replace(bertBase)))
	if err != nil {
		t.Fatal(err)
	}
	g, err := pretrained.ReadGPT2(config(t, small.Replace(gpt2)))
	if err != nil {
		t.Fatal(err)
	}
	classifier := func(m *ampc.Model, ids ampc.Tensor) ampc.Tensor {
		return b.Classify(m, pretrained.BERTInput{IDs: ids}, 3)
	}
	for _, c := range []struct {
		name   string
		build  func(m *ampc.Model, ids ampc.Tensor) ampc.Tensor
		rename func(string) string
		more   map[string][]int
		opts   []weights.Option
		fresh  int
	}{
		{"bert, gamma and beta", classifier, func(s string) string {
			return strings.NewReplacer("LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias", "LayerNorm.beta").Replace(s)
		}, map[string][]int{"cls.predictions.bias": {11}, "cls.seq_relationship.weight": {2, 4}, "bert.embeddings.position_ids": {1, 6}}, b.Weights(), 2},
		{"bert without prefix", classifier, func(s string) string { return strings.TrimPrefix(s, "bert.") }, nil, b.Weights(), 2},
		{"bert without prefix, gamma and beta", classifier, func(s string) string {
			return strings.NewReplacer("LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias", "LayerNorm.beta").Replace(strings.TrimPrefix(s, "bert."))
		}, nil, b.Weights(), 2},
		{"gpt2", g.Logits, func(s string) string { return s }, map[string][]int{"h.0.attn.bias": {1, 1, 6, 6}}, g.Weights(), 0},
		{"gpt2 with its head", g.Logits, func(s string) string { return "transformer." + s }, map[string][]int{"lm_head.weight": {11, 4}, "transformer.h.0.attn.masked_bias": {}}, g.Weights(), 0},
	} {
		m := ampc.New("names")
		defer m.Close()
		out := c.build(m, m.Input("ids", ampc.I32, 1, 5))
		if _, err := m.Infer(ampc.InferConfig{}, out); err != nil {
			t.Fatal(err)
		}
		shapes, all := map[string][]int{}, 0
		maps.Copy(shapes, c.more)
		for _, v := range m.Graph().Vars {
			if v.Kind == ir.Param && !strings.HasPrefix(v.Name, "classifier") {
				shapes[c.rename(v.Name)] = ampc.TypeFromIR(v.Type).Shape()
				all++
			}
		}
		report, err := weights.Load(m, zeros(t, shapes), c.opts...)
		if err != nil || len(report.Loaded) != all || len(report.Fresh) != c.fresh || len(report.Ignored) != len(c.more) {
			t.Errorf("%s: %v, %v", c.name, report, err)
		}
	}
}

// zeros writes a safetensors file of f32 zeros.
func zeros(t *testing.T, shapes map[string][]int) string {
	t.Helper()
	var entries []string
	at := 0
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		n := 4
		for _, d := range shapes[name] {
			n *= d
		}
		dims := strings.ReplaceAll(strings.Trim(fmt.Sprint(shapes[name]), "[]"), " ", ",")
		entries = append(entries, fmt.Sprintf(`%q:{"dtype":"F32","shape":[%s],"data_offsets":[%d,%d]}`, name, dims, at, at+n))
		at += n
	}
	header := "{" + strings.Join(entries, ",") + "}"
	path := filepath.Join(t.TempDir(), "model.safetensors")
	trial.WriteFile(t, path, string(binary.LittleEndian.AppendUint64(nil, uint64(len(header))))+header+strings.Repeat("\x00", at))
	return path
}

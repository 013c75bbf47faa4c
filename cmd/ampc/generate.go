package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/generate"
	"ampc/internal/dataset"
	"ampc/models"
	"ampc/pretrained"
	"ampc/tokenizer"
	"ampc/weights"
)

func generateCommand() *cobra.Command {
	var o generate.Options
	var prompt, policy string
	var length int
	c := command("generate MODEL", "Continue a text with a language model", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		p, err := loadPolicy(policy)
		if err != nil {
			return err
		}
		if prompt == "" {
			return usagef("--prompt is empty: a text begins with one token at least")
		}
		if _, err := generate.NewSampler(o.Sampling, 0); err != nil {
			return err
		}
		s, err := openTextModel(args[0])
		if err != nil {
			return err
		}
		return s.generate(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), prompt, generate.Config{Policy: p, Length: length}, o)
	})
	c.Long = `Continue a text with a language model.

MODEL is the folder of a published GPT-2 or a model of the Llama family (config.json, weights,
tokenizer), a checkpoint of "ampc train" or its folder, or a language model of the zoo, whose
weights are random. The text appears as it is made.`
	fl := c.Flags()
	fl.StringVar(&prompt, "prompt", "", "the text to continue")
	fl.IntVar(&o.MaxTokens, "max-tokens", 100, "number of new tokens; 0: until the model ends the text")
	fl.Float64Var(&o.Temperature, "temperature", 0.8, "divide the logits by this `FACTOR`; 0: take the most likely token")
	fl.IntVar(&o.TopK, "top-k", 0, "sample from the `K` most likely tokens; 0: from all")
	fl.Float64Var(&o.TopP, "top-p", 0, "sample from the most likely tokens whose probabilities add up to `P`; 0: from all")
	fl.Float64Var(&o.Repetition, "repetition-penalty", 1, "divide positive logits of earlier tokens by this `FACTOR`, and multiply negative ones")
	fl.Uint64Var(&o.Seed, "seed", 1, "seed of the sampled tokens")
	fl.IntVar(&length, "length", 0, "number of tokens that the cache holds, prompt included; 0: the positions of the model")
	fl.StringVar(&policy, "policy", "mixed-bf16", policyHelp)
	return c
}

// textModel is a language model with its vocabulary.
type textModel struct {
	decoder generate.Decoder
	load    func(m *ampc.Model) error // loads the weights; nil: random weights
	encode  func(text string) []int32
	decode  func(ids []int32) string
	stop    []int32
}

func openTextModel(spec string) (*textModel, error) {
	if strings.HasPrefix(spec, "zoo:") {
		return zooTextModel(strings.TrimPrefix(spec, "zoo:"), nil, dataset.Vocab{})
	}
	if _, err := os.Stat(filepath.Join(spec, "config.json")); err == nil {
		return publishedTextModel(spec)
	}
	from, err := original(spec)
	if err != nil {
		return nil, err
	}
	vocab, err := dataset.UnmarshalVocab(from.vocab)
	if err != nil {
		return nil, fmt.Errorf("%s: the model of this checkpoint has no vocabulary: it is no language model", from.path)
	}
	load := func(m *ampc.Model) error {
		_, err := weights.Load(m, from.path)
		return err
	}
	return zooTextModel(strings.TrimPrefix(from.spec, "zoo:"), load, vocab)
}

// zooTextModel opens a model of the zoo with a vocabulary of characters; an empty vocabulary means
// ASCII.
func zooTextModel(spec string, load func(m *ampc.Model) error, vocab dataset.Vocab) (*textModel, error) {
	z, err := models.Open(spec)
	if err != nil {
		return nil, err
	}
	z.Model.Close()
	if z.Name != "gpt" && z.Name != "gpt2" {
		return nil, fmt.Errorf("zoo:%s: no model that continues text: gpt and gpt2 do", z.Name)
	}
	if load == nil {
		vocab = dataset.NewVocab(" !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~\n", z.Options.Int("vocab"))
	}
	return &textModel{decoder: models.GPT(z.Options), load: load, encode: vocab.Encode, decode: vocab.Decode}, nil
}

func publishedTextModel(dir string) (*textModel, error) {
	d, err := pretrained.ReadDecoder(dir)
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.Open(dir)
	if err != nil {
		return nil, err
	}
	s := &textModel{decoder: d, encode: t.Encode, decode: t.Decode, load: func(m *ampc.Model) error {
		_, err := weights.Load(m, dir, d.Weights()...)
		return err
	}}
	for _, end := range []string{"<|endoftext|>", "</s>", "<|end_of_text|>", "<|eot_id|>", "<|im_end|>"} {
		if id, ok := t.ID(end); ok {
			s.stop = append(s.stop, id)
		}
	}
	return s, nil
}

// generate writes the prompt and the generated text.
func (s *textModel) generate(ctx context.Context, w, notes io.Writer, prompt string, c generate.Config, o generate.Options) error {
	m := ampc.New("generate", ampc.Seed(int64(o.Seed)))
	defer m.Close()
	g, err := generate.New(m, s.decoder, c)
	if err != nil {
		return err
	}
	if s.load != nil {
		if err := s.load(m); err != nil {
			return err
		}
	}
	seq, err := g.Start()
	if err != nil {
		return err
	}
	ids := s.encode(prompt)
	if len(ids) > g.Length() {
		return fmt.Errorf("the prompt has %d tokens, the cache holds %d: shorten --prompt or raise --length", len(ids), g.Length())
	}
	o.Stop = s.stop
	if room := max(g.Length()-len(ids)+1, 1); o.MaxTokens == 0 || o.MaxTokens > room {
		if o.MaxTokens > 0 {
			fmt.Fprintf(notes, "the cache holds %d tokens, of which the prompt has %d: %d follow\n", g.Length(), len(ids), room)
		}
		o.MaxTokens = room
	}
	if o.MaxTokens < 0 {
		return fmt.Errorf("generate: MaxTokens is %d, want 0 or more", o.MaxTokens)
	}
	fmt.Fprint(w, prompt)
	text := generate.NewText(s.decode, ids)
	for token, err := range seq.Generate(ctx, o, ids) {
		if err != nil {
			fmt.Fprintln(w)
			return err
		}
		fmt.Fprint(w, text.Add(token.ID))
	}
	fmt.Fprintln(w)
	return nil
}
